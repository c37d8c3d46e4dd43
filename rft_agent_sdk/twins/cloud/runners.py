"""Ready runners: a job that goes well, and one that fails."""

from __future__ import annotations

from dataclasses import dataclass

from rft_agent_sdk.twins.cloud.job_record import JobRecord


@dataclass(frozen=True, slots=True)
class WalkThrough:
    """Walks a job through the statuses to Completed, with plausible counts and no training."""

    step_s: float = 0.01
    """Seconds in each status, and in each step of training."""
    steps: int = 3
    """Steps of training; the document's `max_steps` where that is less."""
    needs_data: bool = True
    """Whether a job fails in Downloading where S3 holds nothing under a channel's URI."""

    def __call__(self, job: JobRecord) -> None:
        """Run the job to its end."""
        for status in ("Starting", "Downloading", "Pending"):
            job.move(status)
            job.sleep(self.step_s)
            if status == "Downloading" and self.needs_data and (missing := job.missing_inputs()):
                job.fail(f"No objects were found under {', '.join(missing)}")
                return
        if job.category == "AgentRFTEvaluation":
            self._evaluate(job)
            return
        self._train(job)
        job.move("Uploading")
        job.sleep(self.step_s)
        job.complete(job.publish("output"))

    def _train(self, job: JobRecord) -> None:
        values = job.document["TrainingConfig"].get("HyperParameters", {})
        steps = min(self.steps, int(values.get("max_steps", self.steps)))
        per_step = int(values.get("global_batch_size", 128)) * int(values.get("group_size", 8))
        job.move("Training")
        for step in range(1, steps + 1):
            job.progress(
                current_step=step,
                max_steps=steps,
                rollouts_completed=per_step,
                rollouts_total=per_step,
                train_tokens=900 * per_step * step,
                prefill_tokens=2000 * per_step * step,
                sample_tokens=300 * per_step * step,
            )
            job.metrics(
                step,
                {
                    "rollout/reward/mean": 0.2 + 0.5 * step / steps,
                    "rollout/turns/mean": 3.0,
                    "training/global_step": float(step),
                    "training/num_trajectories": float(per_step),
                    "training/total_tokens": 3200.0 * per_step,
                },
            )
            job.log(f"step {step}/{steps}: {per_step} rollouts")
            job.publish("checkpoint")
            job.sleep(self.step_s)

    def _evaluate(self, job: JobRecord) -> None:
        job.move("Evaluating")
        for done in range(1, self.steps + 1):
            job.progress(
                rollouts_completed=done,
                rollouts_total=self.steps,
                prefill_tokens=2000 * done,
                sample_tokens=300 * done,
            )
            job.sleep(self.step_s)
        job.metrics(0, {"eval/reward/mean": 0.5, "eval/reward/pass_at_1": 0.5})
        job.complete()


@dataclass(frozen=True, slots=True)
class FailsWith:
    """Fails a job with a reason, such as those that the service gives."""

    reason: str = "No sampling requests were received for this rollout"
    at: str = "Training"
    """Secondary status in which it fails."""
    step_s: float = 0.01
    """Seconds in each status before."""

    def __call__(self, job: JobRecord) -> None:
        """Run the job to its end."""
        for status in ("Starting", "Downloading", "Pending", "Training", "Uploading"):
            job.move(status)
            job.sleep(self.step_s)
            if status == self.at:
                break
        job.log(f"ERROR {self.reason}")
        job.fail(self.reason)
