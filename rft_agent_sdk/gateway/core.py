"""The gateway itself: jobs, sessions, and who may speak for which. It serves nothing: `app` does."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import os
import re
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from weakref import WeakSet, WeakValueDictionary

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.capture import HistoryMode, Limits
from rft_agent_sdk.gateway.captured import CapturedSession, SessionTerms, opened, vocabulary_mark
from rft_agent_sdk.gateway.faults import NO_FAULTS, Faults
from rft_agent_sdk.gateway.job_runtime import Job
from rft_agent_sdk.gateway.render import Renderer
from rft_agent_sdk.gateway.rollout import Call, RolloutState, Terms
from rft_agent_sdk.gateway.samplers import Policy, ScriptFunction, as_policy
from rft_agent_sdk.gateway.samplers.token import Sampler
from rft_agent_sdk.gateway.session_log import SessionLog, claim, read_logs
from rft_agent_sdk.gateway.sessions import Session, SessionRollout, digest, new_secret
from rft_agent_sdk.gateway.tokens import TokenReader
from rft_agent_sdk.types import JSON, SamplingParams

MAX_BODY_BYTES = 16 * 1024 * 1024
KEEP_ALIVE_S = 5.0
MIN_ADMIN_KEY = 16
"""Characters of the shortest admin key that is not a mistake."""
_ADMIN_KEY = re.compile(rf"[!-~]{{{MIN_ADMIN_KEY},}}")
_STRAY_CALLS = 1000


class Gateway:
    """Everything one gateway knows. Safe to use from any thread."""

    def __init__(
        self,
        *,
        account: str | None = None,
        secrets: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        model: str = "default",
        max_body_bytes: int = MAX_BODY_BYTES,
        keep_alive_s: float = KEEP_ALIVE_S,
        renderer: Renderer | None = None,
        sampler: Sampler | None = None,
        log_dir: str | Path | None = None,
        history_mode: HistoryMode = "linear",
        admin_key: str | None = None,
    ) -> None:
        """Make a gateway without jobs or sessions, but for those it finds in `log_dir`.

        Args:
            account: AWS account whose jobs may be called, 12 digits; `None` for any.
            secrets: AWS secret keys by access key: signatures made with these are verified.
            clock: Unix time in seconds, against which tokens expire.
            model: Name under which `/v1/models` lists the policy.
            max_body_bytes: Largest request body; a larger one is a 413.
            keep_alive_s: Seconds of silence after which a stream gets a comment.
            renderer: Of the model that `sampler` samples; with it, sessions capture tokens.
            sampler: Where their turns are sampled; the gateway closes it.
            log_dir: Folder in which each session that captures tokens keeps a log. Sessions logged there
                are taken up again.
            history_mode: Of the sessions that are opened without one.
            admin_key: What opens the routes of `admin`; `None` for no such routes.

        Raises:
            UsageError: One of `renderer` and `sampler` is missing, a log is damaged, `log_dir` cannot
                be written or belongs to a gateway in another process, or the admin key is too short,
                or none that a header can hold.
        """
        if (renderer is None) is not (sampler is None):
            raise UsageError("token capture needs both renderer= and sampler=, got one of them")
        if admin_key is not None and not _ADMIN_KEY.fullmatch(admin_key):
            raise UsageError(
                f"wanted an admin key of at least {MIN_ADMIN_KEY} ASCII characters without spaces, "
                f"got {len(admin_key)} characters"
            )
        self.account = account
        self.tokens = TokenReader(secrets or {}, clock)
        self.clock = clock
        self.model = model
        self.max_body_bytes = max_body_bytes
        self.keep_alive_s = keep_alive_s
        self._strays: deque[Call] = deque(maxlen=_STRAY_CALLS)
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._sessions: dict[bytes, SessionRollout] = {}
        self._policies: WeakSet[Policy] = WeakSet()
        self._wrapped: WeakValueDictionary[Hashable, Policy] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._renderer = renderer
        self._sampler = sampler
        self._history_mode = history_mode
        self._admin_key = None if admin_key is None else digest(admin_key)
        self._gone: Counter[str] = Counter()
        self._gone_sessions = 0
        self._log_dir = None if log_dir is None else Path(log_dir)
        if self._log_dir is not None:
            weakref.finalize(self, os.close, claim(self._log_dir))
            self._restore(self._log_dir)

    def __repr__(self) -> str:
        return f"Gateway(jobs={len(self._jobs)}, sessions={len(self._sessions)})"

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The registered jobs by ARN; a copy."""
        with self._lock:
            return dict(self._jobs)

    @property
    def stray_calls(self) -> tuple[Call, ...]:
        """The latest requests that belong to no rollout: unknown callers, unknown jobs."""
        with self._lock:
            return tuple(self._strays)

    def record_stray(self, call: Call) -> None:
        """Add a request that belongs to no rollout to the record."""
        with self._lock:
            self._strays.append(call)

    def register_job(
        self,
        job_arn: str,
        *,
        policy: Policy | ScriptFunction | str,
        trajectories: Iterable[str] | None = None,
        sampling: SamplingParams | None = None,
        faults: Faults = NO_FAULTS,
        report_faults: Faults = NO_FAULTS,
    ) -> Job:
        """Make a job known, so that its trajectories can be sampled and reported.

        Args:
            job_arn: The job's ARN.
            policy: What answers its turns: a policy, a function, or `openai:<url>`.
            trajectories: The only trajectory ids there are; `None` makes them on first sight.
            sampling: Parameters fixed for the job; `None` leaves them to the agent, as the managed
                service does.
            faults: What goes wrong with sampling.
            report_faults: What goes wrong with CompleteRollout and UpdateReward.

        Raises:
            UsageError: No job ARN, or one that is registered already.
        """
        terms = Terms(self._policy(policy), sampling, faults, report_faults)
        job = Job(job_arn, terms, trajectories=trajectories)
        with self._lock:
            if job_arn in self._jobs:
                raise UsageError(f"job {job_arn!r} is registered already")
            self._jobs[job_arn] = job
        return job

    def open(
        self,
        *,
        policy: Policy | ScriptFunction | str | None = None,
        task: str | None = None,
        sampling: SamplingParams | None = None,
        max_context_tokens: int | None = None,
        budget: int | None = None,
        max_turns: int | None = None,
        history_mode: HistoryMode | None = None,
        seed: int | None = None,
        faults: Faults = NO_FAULTS,
        report_faults: Faults = NO_FAULTS,
    ) -> Session:
        """Open a session for one rollout.

        Without a `policy` its turns are sampled and captured as tokens; with one they are answered at
        the level of messages, and `max_context_tokens`, `budget`, `max_turns`, `history_mode` and `seed`
        have no meaning.

        Args:
            policy: What answers its turns: a policy, a function, or `openai:<url>`.
            task: The task string, for the trajectory.
            sampling: Parameters that hold whatever the agent asks for; `None` fixes none.
            max_context_tokens: Most tokens of a prompt and its reply together.
            budget: Most sampled tokens of all turns together.
            max_turns: Most turns.
            history_mode: `linear` extends prompts, `tree` renders each anew; `None` for the gateway's.
            seed: Seeds what is sampled, for samplers that take seeds: the same session then gives the
                same turns; `None` leaves it to the sampler.
            faults: What goes wrong with sampling.
            report_faults: What goes wrong with the reports.

        Raises:
            UsageError: There is neither a policy nor a renderer and sampler, or a limit is below 1.
        """
        if policy is not None:
            terms = Terms(self._policy(policy), sampling, faults, report_faults)
            return self._keep(SessionRollout(f"session-{next(self._numbers)}", terms))
        if self._renderer is None or self._sampler is None:
            raise UsageError(
                "a session needs policy=, or a gateway made with renderer= and sampler= to capture tokens"
            )
        session = SessionTerms(
            sampling,
            Limits(max_context_tokens, budget, max_turns),
            history_mode or self._history_mode,
            task,
            seed,
        )
        secret, name = new_secret(), f"session-{new_secret()[:16]}"
        log = None
        if self._log_dir is not None:
            first = opened(session, digest(secret), self._renderer)
            log = SessionLog.create(self._log_dir, name, first)
        rollout = CapturedSession(
            name,
            session,
            self._renderer,
            self._sampler,
            log=log,
            faults=faults,
            report_faults=report_faults,
        )
        return self._keep(rollout, secret)

    def resume(self, secret: str) -> Session:
        """Return the session that a secret opens, such as one of a gateway that was restarted.

        Raises:
            UsageError: There is none.
        """
        rollout = self.find_session(secret)
        if rollout is None:
            raise UsageError("no session has this secret: it was never opened here, or was dropped")
        return Session(secret, rollout, self._forget)

    def find_session(self, secret: str) -> SessionRollout | None:
        """Return the session a secret opens; `None` for an unknown one."""
        return self._sessions.get(digest(secret))

    def find_job(self, job_arn: str) -> Job | None:
        """Return a registered job; `None` for an unknown one."""
        return self._jobs.get(job_arn)

    @property
    def has_admin(self) -> bool:
        """Whether there is an admin key, and so the routes it opens."""
        return self._admin_key is not None

    def is_admin(self, key: str) -> bool:
        """Whether this is the admin key; takes as long to say for every key."""
        return self._admin_key is not None and hmac.compare_digest(digest(key), self._admin_key)

    def stats(self) -> JSON:
        """Return how many sessions there are, and what happened in all of them, dropped ones too."""
        with self._lock:
            rollouts = list(self._sessions.values())
            counters, dropped = Counter(self._gone), self._gone_sessions
        for rollout in rollouts:
            counters.update(rollout.counters())
        opened = sum(rollout.state is RolloutState.PENDING for rollout in rollouts)
        sessions = {"open": opened, "sealed": len(rollouts) - opened, "dropped": dropped}
        return {"sessions": sessions, "counters": dict(counters)}

    async def aclose(self) -> None:
        """Give back what the policies hold: connections of this event loop, threads."""
        with self._lock:
            policies = list(self._policies)
        await asyncio.gather(*(policy.aclose() for policy in policies))
        if self._sampler is not None:
            await self._sampler.aclose()

    def _keep(self, rollout: SessionRollout, secret: str = "") -> Session:
        secret = secret or new_secret()
        with self._lock:
            self._sessions[digest(secret)] = rollout
        return Session(secret, rollout, self._forget)

    def _restore(self, log_dir: Path) -> None:
        ours = vocabulary_mark(self._renderer) if self._renderer is not None else None
        for logged in read_logs(log_dir):
            if self._renderer is None or self._sampler is None:
                raise UsageError(
                    f"{str(log_dir)!r} holds sessions: renderer= and sampler= are needed"
                )
            path = str(logged.log.path)
            try:
                written_with = logged.opened["renderer"]
                if written_with != self._renderer.name:
                    raise UsageError(
                        f"it was written with the renderer {written_with!r}, and this one is "
                        f"{self._renderer.name!r}"
                    )
                if logged.opened.get("vocabulary", ours) != ours:
                    raise UsageError(
                        "it was written with this chat template and another tokenizer, whose ids "
                        "this one would read as something else"
                    )
                secret = bytes.fromhex(logged.opened["secret"])
                rollout = CapturedSession.restored(logged, self._renderer, self._sampler)
            except UsageError as error:
                raise UsageError(f"{path!r} cannot be taken up again: {error}") from error
            except (LookupError, TypeError, ValueError) as error:
                raise UsageError(f"{path!r} is damaged: {error!r}") from error
            self._sessions[secret] = rollout

    def _forget(self, secret: str) -> None:
        with self._lock:
            rollout = self._sessions.pop(digest(secret), None)
            if rollout is not None:
                self._gone.update(rollout.counters())
                self._gone_sessions += 1

    def _policy(self, source: Policy | ScriptFunction | str) -> Policy:
        """Return the policy for `source`: the same one for the same function or server.

        One function commonly serves thousands of sessions, which must not each have threads or
        connections of their own. Only the sessions and jobs that use a policy keep it alive.
        """
        key: Hashable = source
        try:
            hash(source)
        except TypeError:  # a callable dataclass, say; what is found under its id keeps it alive
            key = id(source)
        with self._lock:
            policy = self._wrapped.get(key)
            if policy is None:
                policy = as_policy(source)
                if policy is not source:
                    self._wrapped[key] = policy
                self._policies.add(policy)
            return policy
