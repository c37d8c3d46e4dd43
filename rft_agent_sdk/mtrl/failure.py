"""What to do about a job that failed: the service's reasons, each with its cause and its fix.

The service tells a reason as text and nothing else, so this file matches on text. What it finds is advice for a
person; no code decides by it.
"""

from __future__ import annotations

from rft_agent_sdk.mtrl.job import WORKING, Job

_REASONS = (
    (
        "no sampling request",
        "A rollout ended without one model call that succeeded. Look for 403 in the agent's log "
        "(`rft mtrl logs NAME --agent`): its role needs AmazonSageMakerJobRuntimeAccess, and every call both "
        "X-Amzn-SageMaker headers. See whether the agent was redeployed while the job ran (`rft mtrl lock NAME`). "
        "Otherwise the model spent its budget before the agent's first call.",
    ),
    (
        "signaled that the trajectory failed",
        "The agent reported a rollout as failed: it answered with status error, or raised. Return a reward for every "
        "rollout instead, the environment's score or its lowest: @rft_handler of this SDK does.",
    ),
    (
        "no reward was received in time",
        "A rollout was completed, and its reward never came. Keep the agent's own time limit below the job's "
        "rollout_timeout (420 s of 600 s is known to work), and report both in one go: @rft_handler does.",
    ),
    (
        "assume role",
        "The job's role must trust job.sagemaker.amazonaws.com, not sagemaker.amazonaws.com, with both "
        "sts:AssumeRole and sts:TagSession. Change its trust policy, and launch again.",
    ),
    (
        "maxruntimeexceeded",
        "The job ran into its longest runtime. Take fewer steps, or go on from its last checkpoint.",
    ),
)


def advice(job: Job) -> str:
    """Return what to do about a job that failed, or is about to; empty where there is nothing to say.

    A message of a phase counts too: the service tries some faults several times before it gives up.
    """
    said = " ".join([job.failure_reason, job.phase, *(one.message for one in job.transitions)])
    if job.status == "Completed":
        return ""
    for words, what in _REASONS:
        if words in said.lower():
            return what
    if job.status != "Failed":
        return ""
    if _last_phase(job) in WORKING:
        return (
            "It failed while the agent was playing, which is mostly the agent's doing: read its log "
            "(`rft mtrl logs NAME --agent`) around the end of the job."
        )
    return "Read the job's log: `rft mtrl logs NAME`."


def _last_phase(job: Job) -> str:
    """Return the last phase that is not itself the end."""
    phases = [one.phase for one in job.transitions if one.phase not in {"Failed", "Stopped"}]
    return phases[-1] if phases else ""
