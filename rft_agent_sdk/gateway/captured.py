"""A session whose turns are captured as tokens, and written to a log as they happen."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.capture import CapturingPolicy, HistoryMode, Limits, Store
from rft_agent_sdk.gateway.faults import NO_FAULTS, Faults
from rft_agent_sdk.gateway.graph import MessageGraph
from rft_agent_sdk.gateway.record import build_trajectory, split_rewards
from rft_agent_sdk.gateway.refusal import Refusal, to_json
from rft_agent_sdk.gateway.render import Renderer
from rft_agent_sdk.gateway.rollout import RolloutState, Terms
from rft_agent_sdk.gateway.samplers.token import Sampler
from rft_agent_sdk.gateway.session_log import Logged, SessionLog
from rft_agent_sdk.gateway.sessions import SessionRollout
from rft_agent_sdk.gateway.turn_node import TurnNode
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import JSON, Message, Outcome, SamplingParams, Turn

logger = logging.getLogger(__name__)

_SPELLED = 'The five boxing wizards jump quickly: 0123456789, {"a": [true]}; élan, Привет, 日本語.'
"""What two vocabularies will hardly spell by the same ids."""


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """On what terms a session is opened; what its log says of it."""

    sampling: SamplingParams | None = None
    """Parameters that hold whatever the agent asks for; `None`, or an unset one, fixes nothing."""
    limits: Limits = field(default_factory=Limits)
    history_mode: HistoryMode = "linear"
    task: str | None = None
    """The task string, for the trajectory."""
    seed: int | None = None
    """Seeds what is sampled; `None` leaves it to the sampler."""

    def to_json(self) -> JSON:
        """Return the terms as a JSON object, from which `from_json` makes them again."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: JSON) -> SessionTerms:
        """Return the terms of a log."""
        sampling = value["sampling"]
        return cls(
            None if sampling is None else SamplingParams(**sampling),
            Limits(**value["limits"]),
            value["history_mode"],
            value["task"],
            value.get("seed"),
        )


class CapturedSession(SessionRollout):
    """A session's record: a message graph of tokens. See `CapturingPolicy` for how a turn is made."""

    def __init__(
        self,
        rollout_id: str,
        session: SessionTerms,
        renderer: Renderer,
        sampler: Sampler,
        *,
        graph: MessageGraph | None = None,
        log: SessionLog | None = None,
        faults: Faults = NO_FAULTS,
        report_faults: Faults = NO_FAULTS,
    ) -> None:
        self._session = session
        self._log = log
        self._is_end_logged = False
        self._graph = graph or MessageGraph()
        self.capture = CapturingPolicy(
            renderer,
            sampler,
            record=self._take,
            noted=self._note,
            limits=session.limits,
            history_mode=session.history_mode,
            graph=self._graph,
            affinity=rollout_id,
            seed=session.seed,
        )
        terms = Terms(self.capture, session.sampling, faults, report_faults)
        super().__init__(rollout_id, terms)

    @classmethod
    def restored(cls, logged: Logged, renderer: Renderer, sampler: Sampler) -> CapturedSession:
        """Return the session of a log, as it was when its gateway stopped."""
        session = cls(
            logged.session_id,
            SessionTerms.from_json(logged.opened["terms"]),
            renderer,
            sampler,
            graph=MessageGraph.from_log(logged.turns),
            log=None,
        )
        for event in logged.events:
            session._replay(event)
        session._log = logged.log
        return session

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns that count, in order; each with the messages since the turn before it."""
        with self._lock:
            return tuple(
                Turn(turn.context, turn.reply, turn.finish_reason, turn.usage)
                for turn in self._graph.live_turns()
            )

    def store(self, turn: Turn) -> None:
        """Do nothing: the turn was recorded with its tokens, before this reply was handed out."""

    def seal(self, outcome: Outcome | None, rewards: Sequence[float]) -> Trajectory:
        """End the rollout, as `SessionRollout.seal`, and see to it that its log says so.

        Raises:
            UsageError: As there.
            OSError: The log cannot be written. The rollout is ended all the same; until a repetition
                succeeds, a restarted gateway would go on with it.
        """
        with self._lock:
            sealed = super().seal(outcome, rewards)
            if not self._is_end_logged:
                self._log_event()
            return sealed

    def trajectory(self) -> Trajectory:
        """Return the record as it stands, with its samples."""
        with self._lock:
            reward, per_turn = split_rewards(self._rewards, len(self.turns))
            found = build_trajectory(
                self._graph,
                rollout_id=self.id,
                outcome=self._ended_by(),
                reward=reward,
                per_turn=per_turn,
                task=self._session.task,
            )
            return replace(found, counters={**found.counters, **self._own_counts()})

    def counters(self) -> dict[str, int]:
        """Return what happened so far, by name; as in the trajectory."""
        with self._lock:
            return {**self._graph.counters(), **self._own_counts()}

    def forget(self) -> None:
        """Delete the session's log; nothing is logged any more."""
        with self._lock:
            log, self._log = self._log, None
        if log is not None:
            log.remove()

    def _own_counts(self) -> dict[str, int]:
        return {**self.counts, **self.capture.counts}

    def _take(self, commit: Callable[[Store | None], TurnNode]) -> None:
        """Record a turn, unless the session ended while it was sampled."""
        with self._lock:
            if self._state is not RolloutState.PENDING:
                self.counts["late"] += 1
            self.check_open()
            commit(None if self._log is None else self._store)

    def _store(self, turn: TurnNode) -> None:
        """Log a turn; raise a `Refusal` where that fails, after which the client may ask again."""
        try:
            self._write("turn", self._graph.to_log(turn))
        except OSError as error:
            logger.error("session=<%s> | its log cannot be written: %s", self.id, error)
            raise Refusal(
                500, "the turn could not be stored; the gateway's log says why"
            ) from error

    def _ended_by(self) -> Outcome:
        """Return why it ended. A limit of the session is a truncation, whatever the agent made of it."""
        if self._outcome in (None, Outcome.COMPLETED) and self.capture.is_over_limit:
            return Outcome.TRUNCATED
        return super()._ended_by()

    def _move(self, state: RolloutState) -> None:
        super()._move(state)
        if state is not RolloutState.PENDING:
            self._graph.release()
        self._is_end_logged = False
        self._log_event()

    def _note(self) -> None:
        """Log that a limit was reached: it decides why the session ended. Once is enough."""
        with self._lock:
            if self._state is RolloutState.PENDING and self.capture.counts["over_limit"] == 1:
                self._log_event()

    def _log_event(self) -> None:
        event = {
            "state": self._state.value,
            "outcome": self._outcome,
            "rewards": list(self._rewards),
            "tokens": dict(self._tokens),
            "counts": [dict(self.counts), dict(self.capture.counts)],
        }
        self._write("event", event)
        self._is_end_logged = self._state is not RolloutState.PENDING

    def _replay(self, event: JSON) -> None:
        """Go through a transition again that the log tells of."""
        self._outcome = None if event["outcome"] is None else Outcome(event["outcome"])
        self._rewards = tuple(event["rewards"])
        self._tokens = dict(event["tokens"])
        for counts, logged in zip((self.counts, self.capture.counts), event["counts"], strict=True):
            counts.clear()
            counts.update(logged)
        self._move(RolloutState(event["state"]))

    def _write(self, kind: str, record: Any) -> None:
        if self._log is not None:
            self._log.append({kind: record})


def opened(session: SessionTerms, digest: bytes, renderer: Renderer) -> JSON:
    """Return the first record of a session's log."""
    return {
        "secret": digest.hex(),
        "terms": session.to_json(),
        "renderer": renderer.name,
        "vocabulary": vocabulary_mark(renderer),
    }


def vocabulary_mark(renderer: Renderer) -> str:
    """Return what tells a vocabulary from another under the same template, which has the same name.

    Ids of one continued by ids of the other would be a prompt that no model can read.
    """
    try:
        spelled = renderer.write(Message("assistant", _SPELLED), prompt=())
    except UsageError:  # it reads turns and cannot write them: its control tokens have to do
        spelled = []
    told = to_json([sorted(renderer.control_tokens.items()), spelled])
    return hashlib.blake2b(told, digest_size=8).hexdigest()
