"""Why an attempt failed: told from what the agent answered and what the Job Runtime saw, never from a text.

The service names three reasons, each of which has several causes. The causes are told apart here, for a person
who has read neither the service's code nor the agent's.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from rft_agent_sdk.mtrl.rehearsal import (
    Answer,
    AnswerKind,
    Attempt,
    Rehearsed,
    Seen,
    State,
    Strays,
    Terms,
)

_ORDER = (
    "Write @app.entrypoint on top and @rft_handler(app=app) directly below it, over the function: AgentCore calls "
    "whatever @app.entrypoint was given."
)
_REPORTS = "Every rollout must send CompleteRollout and then UpdateReward; @rft_handler does both, whatever happens."
_HEADERS = (
    "Make model calls with rollout.openai() or rollout.model(), or send X-Amzn-SageMaker-Job-Arn and "
    "X-Amzn-SageMaker-Trajectory-Id of the payload with each one; keep neither on an object that rollouts share."
)
_REDEPLOY = "Never deploy or update the runtime while a job runs. Otherwise the agent's log says what ended it."
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Cause:
    """What was behind a failed attempt."""

    id: str
    """Kebab case; the same for the same cause."""
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the agent and the job beside what was seen."""

    agent: str
    """The agent as a person names it: a file, an object, a URL."""
    terms: Terms = field(default_factory=Terms)
    dataset: str = "the dataset"
    budget_s: float | None = None
    """Seconds that the agent gives itself, by the service's clock; `None` where that cannot be told."""
    max_context: int = 65_536
    """Tokens of the longest sequence that the service trains."""
    agent_log: str = ""
    """The end of what the agent wrote."""
    exit_code: int | None = None
    """What the agent's process ended with, a signal as its number below 0; `None` where it runs, or is not ours."""

    @property
    def ended(self) -> str:
        """How the process ended, as `ended with exit code 1`; empty where it did not, or nobody knows."""
        if self.exit_code is None:
            return ""
        if self.exit_code >= 0:
            return f"ended with exit code {self.exit_code}"
        try:
            name = signal.Signals(-self.exit_code).name
        except ValueError:
            name = f"signal {-self.exit_code}"
        memory = ", as one that takes too much memory is" if name == "SIGKILL" else ""
        return f"was ended by {name}{memory}"


def cause_of(attempt: Attempt, rehearsed: Rehearsed, facts: Facts) -> Cause:
    """Return what was behind a failed attempt."""
    answer = attempt.answer
    if answer is not None and answer.kind is AnswerKind.UNREACHABLE:
        return _unreachable(answer, rehearsed, facts)
    if answer is not None and answer.kind is AnswerKind.REFUSED:
        return Cause(
            "invocation-refused",
            f"AgentCore refused to invoke the agent: {_said(answer)}.",
            "Check the runtime's ARN and qualifier, and that the job's role may call InvokeAgentRuntime on it.",
        )
    if attempt.seen.state is State.FAILED:
        return _failed(attempt)
    if answer is not None and answer.kind is AnswerKind.DROPPED:
        ended = facts.ended or "ended (a crash, out of memory, os._exit), or it was redeployed"
        return Cause(
            "connection-lost",
            f"The connection to the agent broke {attempt.seconds:.1f} s into the rollout, before an answer: its "
            f"process {ended}." + _log(facts),
            _mend(facts),
        )
    if not attempt.seen.turns:
        return _unsampled(attempt, rehearsed.strays, facts)
    return _unrewarded(attempt, rehearsed, facts)


def _unreachable(answer: Answer, rehearsed: Rehearsed, facts: Facts) -> Cause:
    played = sum(rollout.failure is None for rollout in rehearsed.rollouts)
    if played:
        ended = facts.ended or "ended, or it was redeployed"
        return Cause(
            "agent-gone",
            f"{facts.agent} played {played} rollouts, and then nothing took connections there any more: the process "
            f"{ended}." + _log(facts),
            _mend(facts),
        )
    if facts.ended:
        return _exited(facts)
    return Cause(
        "agent-not-listening",
        f"Nothing takes connections where {facts.agent} should serve ({_said(answer)}). AgentCore waits "
        f"{facts.terms.listen_s:g} s for the container's HTTP server and then gives the invocation up."
        + _log(facts),
        "Start the server when the process starts: `app.run()` at the end of the entrypoint, port 8080, POST "
        "/invocations. An import that fails or takes longer than that shows in `rft serve`.",
    )


def _exited(facts: Facts) -> Cause:
    """Tell of a process of ours that ended before any rollout got through."""
    lines = [line.strip() for line in facts.agent_log.splitlines() if line.strip()]
    last = f" The last line it wrote: {lines[-1][:_SHOWN]}" if lines else " It wrote nothing."
    fix = (
        "It ran to its end and serves nothing: start the server last, `app.run()` at the end of the entrypoint."
        if facts.exit_code == 0
        else "Mend what its log says; running the file alone shows the same, without a rehearsal."
    )
    return Cause(
        "agent-exited",
        f"The process of {facts.agent} {facts.ended}, and no rollout got through.{last}"
        + (_log(facts) if len(lines) > 1 else ""),
        fix,
    )


def _mend(facts: Facts) -> str:
    """Return what to do about an agent that went away."""
    if not facts.ended:
        return _REDEPLOY
    return (
        "See in the agent's log, and in what it calls, what ends the process: sys.exit, os._exit, a crash in compiled "
        "code, memory. A deployment while the job runs does the same: never make one."
    )


def _failed(attempt: Attempt) -> Cause:
    answer = attempt.answer
    told = f" It answered {_said(answer)}." if answer is not None else ""
    return Cause(
        "agent-reported-failure",
        "The agent, or the decorator around it, called CompleteRollout with Status failed. That is what "
        '{"status": "error"} and an exception that gets out of the function become, and one such rollout fails the '
        f"whole job.{told}",
        "Return a reward for every rollout, the environment's score or its lowest, and let no exception out: "
        "@rft_handler of this SDK does both. Then mend what raised.",
    )


def _unsampled(attempt: Attempt, strays: Strays, facts: Facts) -> Cause:
    """Tell why not one model call was answered."""
    seen, answer = attempt.seen, attempt.answer
    if seen.sampling_refused:
        return _refused(seen)
    if strays.unattributed or strays.unknown_ids:
        return _stray(strays)
    if seen.state is not State.PENDING:
        reward = "no reward" if seen.reward is None else f"a reward of {seen.reward:g}"
        return Cause(
            "agent-never-sampled",
            f"The agent completed the rollout with {reward} and made no model call. A rollout without one answered "
            "sampling request fails the job, whatever its reward.",
            "Call the model at least once in each rollout, also where the task could be answered without, and at "
            "the endpoint of the payload: calls to another provider do not count. " + _HEADERS,
        )
    if answer is None:
        return Cause(
            "agent-hangs",
            f"The agent took the payload and did not call the model, report or answer within {_limit(facts)}.",
            "See where it waits: a lock, a download, a call without a timeout. "
            "ROLLOUT_BUDGET_SECONDS bounds a rollout under @rft_handler.",
        )
    if answer.kind is AnswerKind.ERROR and answer.status in (404, 405):
        return Cause(
            "no-invocations-route",
            f"The agent's server answered POST /invocations with {_said(answer)}.",
            "Serve a BedrockAgentCoreApp, or a server of your own with POST /invocations and GET /ping on port 8080.",
        )
    if answer.is_foreign:
        return _foreign(answer)
    if answer.kind is AnswerKind.ERROR:
        return _error(answer)
    return _unreported(answer)


def _foreign(answer: Answer) -> Cause:
    """Tell of an answer that no server of AgentCore gives."""
    return Cause(
        "answer-not-json",
        f"POST /invocations was answered with {_said(answer)}, which is not JSON, and nothing of the rollout reached "
        "the Job Runtime. A BedrockAgentCoreApp answers in JSON also where the function raises: this is probably not "
        "the agent but a proxy or another server at its port, or a framework of your own whose function raised.",
        "See what serves at that port, and whether --agent or --agent-url names the agent; if it is your own server, "
        "its log says what it raised.",
    )


def _refused(seen: Seen) -> Cause:
    statuses = seen.sampling_refused
    fixes = {
        400: "The job ARN or the trajectory id of the payload was not sent as it came, or the body is no chat "
        "completion. " + _HEADERS,
        401: "Send the bearer token that `rft_agent_sdk.auth` makes, or sign with SigV4.",
        403: "The token did not verify: another account's or region's credentials, or one that has expired. The "
        "agent's role needs AmazonSageMakerJobRuntimeAccess.",
        404: "Use the trajectory id of this payload.",
        429: "Retry throttled calls with a pause, as rollout.openai() does.",
    }
    worst = max(statuses, key=lambda status: statuses[status])
    return Cause(
        "sampling-refused",
        f"Every model call was refused by the Job Runtime: {_counted(statuses)}.{_quoted(seen.sampling_said)}",
        fixes.get(worst, "The agent's log has the Job Runtime's message."),
    )


def _counted(statuses: Mapping[int, int]) -> str:
    return ", ".join(f"{count} with {status}" for status, count in sorted(statuses.items()))


def _quoted(said: str) -> str:
    return f" It said: {said[:_SHOWN]}" if said else ""


def _stray(strays: Strays) -> Cause:
    parts = []
    if strays.unattributed:
        told = _counted(strays.unattributed)
        parts.append(f"requests came without the headers that say whose they are ({told})")
    if strays.unknown_ids:
        shown = ", ".join(repr(one[:60]) for one in strays.unknown_ids[:3])
        parts.append(f"requests came for trajectories that the job never gave out: {shown}")
    return Cause(
        "sampling-unattributed",
        f"No model call could be laid to this rollout, but {' and '.join(parts)}.",
        _HEADERS,
    )


def _error(answer: Answer) -> Cause:
    return Cause(
        "handler-not-called",
        f"AgentCore called the entrypoint and got {_said(answer)}, and nothing of the rollout reached the Job "
        "Runtime: no model call, no CompleteRollout. @rft_handler lets no exception out and always reports, so it is "
        "not what AgentCore calls: no function is registered with @app.entrypoint, or the two decorators stand in "
        "the wrong order.",
        f"{_ORDER} An agent without @rft_handler must catch every exception and report itself.",
    )


def _unreported(answer: Answer) -> Cause:
    return Cause(
        "nobody-reported",
        f"The entrypoint answered {_said(answer)}, and the rollout was never completed: no CompleteRollout, no "
        "UpdateReward. The service does not read the answer; a reward in it alone is lost. This is what happens where "
        "@rft_handler stands above @app.entrypoint, or is missing.",
        f"{_ORDER} {_REPORTS}",
    )


def _unrewarded(attempt: Attempt, rehearsed: Rehearsed, facts: Facts) -> Cause:
    """Tell why the model was called and no reward came."""
    seen, answer = attempt.seen, attempt.answer
    if (late_s := rehearsed.late.get(attempt.rollout_id)) is not None:
        return _late(late_s, facts)
    if seen.reports_refused:
        return Cause(
            "reports-refused",
            "The rollout was played, and the Job Runtime refused what it was told of the end: "
            f"{_counted(seen.reports_refused)}.{_quoted(seen.reports_said)}",
            f"CompleteRollout first, then UpdateReward with a list of finite numbers, once each. {_REPORTS}",
        )
    if answer is None or answer.goes_on:
        told = "CompleteRollout sent, no" if seen.state is State.READY else "no CompleteRollout, no"
        return Cause(
            "too-slow",
            f"After {_limit(facts)} the agent was still at work: {seen.turns} model calls answered, {told} "
            "UpdateReward.",
            _budget(facts),
        )
    if seen.state is State.READY:
        return Cause(
            "reward-missing",
            f"CompleteRollout came, and no UpdateReward after it ({_waited(attempt, facts)}): the agent answered "
            f"{_said(answer)}.",
            f"Return the reward as a number, or under the key 'reward'. {_REPORTS}",
        )
    if answer.kind is AnswerKind.ERROR:
        return Cause(
            "agent-raised",
            f"After {seen.turns} model calls the entrypoint answered {_said(answer)} and reported nothing.",
            f"Catch every exception and report a reward. {_REPORTS}",
        )
    return _unreported(answer)


def _late(late_s: float, facts: Facts) -> Cause:
    """Tell of a reward that came after the attempt was given up."""
    if late_s > facts.terms.real(facts.terms.timeout_s):
        return Cause(
            "reward-late",
            f"The reward came {late_s:.1f} s after the agent was invoked; the job waits {_limit(facts)}.",
            _budget(facts),
        )
    return Cause(
        "given-up-early",
        f"The reward came {late_s:.1f} s after the agent was invoked, in time for the job, which waits "
        f"{_limit(facts)}; this rehearsal took the agent for done, because it had answered, was not busy by its "
        f"/ping, and was silent for {facts.terms.silence_s or 0:g} s.",
        'Answer {"status": "accepted"} and stay HealthyBusy (app.add_async_task) while a rollout goes on, as '
        "@rft_handler(background=True) does: AgentCore may end a session that is not busy. Or rehearse with --full.",
    )


def _budget(facts: Facts) -> str:
    own = "" if facts.budget_s is None else f" (it is {facts.budget_s:g} s now)"
    return (
        f"Keep the agent's own time limit{own} well below rollout_timeout: 420 s of 600 s is known to work. Under "
        "@rft_handler that is ROLLOUT_BUDGET_SECONDS or budget_s=, and what was reached by then is scored. Or raise "
        "the job's rollout_timeout."
    )


def _limit(facts: Facts) -> str:
    terms = facts.terms
    here = (
        ""
        if terms.speed == 1
        else f" ({terms.real(terms.timeout_s):g} s here, at speed {terms.speed:g})"
    )
    return f"{terms.timeout_s:g} s{here}"


def _waited(attempt: Attempt, facts: Facts) -> str:
    if attempt.timed_out:
        return f"within {_limit(facts)}"
    return f"it was silent for {facts.terms.silence_s:g} s, and the rest of {_limit(facts)} was not waited for"


def _said(answer: Answer) -> str:
    """Return what an invocation came to, cut short."""
    if answer.kind is AnswerKind.ANSWERED:
        return json.dumps(answer.body, ensure_ascii=False, default=str)[:_SHOWN]
    status = f"HTTP {answer.status}" if answer.status is not None else ""
    return ": ".join(part for part in (status, answer.detail[:_SHOWN].strip()) if part) or "nothing"


def _log(facts: Facts) -> str:
    return f"\nIts log ends:\n{facts.agent_log.rstrip()}" if facts.agent_log.strip() else ""
