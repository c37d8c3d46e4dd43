"""Sampling on a thread of its own, of as many turns at once as ask: continuous batching with a cache.

A turn joins the batch while others are under way, and leaves it when it ends. What a session's turn has read is
kept, and the next one of the same session, with the same weights, reads only what is new to it.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import torch

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.local.batch import Batch, settle
from rft_agent_sdk.local.cache import Masks, Slabs
from rft_agent_sdk.local.model import LocalModel
from rft_agent_sdk.local.score import Score, score
from rft_agent_sdk.local.turns import Ask, Said, Shelf, Turn
from rft_agent_sdk.local.weights import Holder, Weights

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Limits of the sampling thread."""

    max_rows: int = 128
    """Most turns sampled at one time."""
    active_tokens: int = 524_288
    """Most columns of all their rows together; one turn is sampled in any case."""
    kept_tokens: int = 524_288
    """Tokens of sessions between turns whose keys and values are kept."""
    prefill_tokens: int = 4096
    """Most new tokens of a forward pass over prompts."""
    seed: int = 0
    """Of turns that bring no seed of their own."""


class Decoder:
    """Samples a model, with any weights of it. Safe between threads.

    Its keys and values are of one version of the weights each; `drop` throws a version's away.
    """

    def __init__(self, model: LocalModel, settings: SamplingSettings | None = None) -> None:
        """Start the thread.

        Args:
            model: Whose architecture and frozen weights are sampled; it may go on training.
            settings: Limits.

        Raises:
            UsageError: A kind of model that cannot be sampled here.
        """
        self.settings = settings or SamplingSettings()
        self._holder = Holder(model)
        self._model = self._holder.model
        self._slabs = Slabs.of(self._model)
        self._masks = Masks(self._model)
        self._shelf = Shelf(self.settings.kept_tokens)
        with torch.inference_mode():
            self._new_batch().check()
        self._pending: deque[tuple[Weights, Turn]] = deque()
        self._calls: deque[tuple[Weights, Callable[[LocalModel], Any], Future[Any]]] = deque()
        self._dropped: set[int] = set()
        self._gone: set[int] = set()
        self._batches: dict[int, tuple[Weights, Batch]] = {}
        self._fresh: dict[int, list[Turn]] = {}
        self._wake = threading.Condition()
        self._is_closed = False
        self._seeds = itertools.count(self.settings.seed << 32)
        self._done_read = self._done_sampled = 0
        self._thread = threading.Thread(target=self._run, name="rft-decoder", daemon=True)
        self._thread.start()

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a turn, as the model's own files have it."""
        return self._model.eos_ids

    @property
    def max_positions(self) -> int | None:
        """Most tokens of a prompt and its turn together; `None` for no limit."""
        return self._model.max_positions

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens read from prompts, and sampled, so far."""
        batches = [batch for _, batch in list(self._batches.values())]
        return (
            self._done_read + sum(batch.read for batch in batches),
            self._done_sampled + sum(batch.sampled for batch in batches),
        )

    @property
    def shelf(self) -> Shelf:
        """What is kept of sessions between turns."""
        return self._shelf

    def next_seed(self) -> int:
        """Return a seed for a turn that brings none."""
        return next(self._seeds)

    def seeds_from(self, seed: int) -> None:
        """Go on with the seeds of turns that bring none, as after a resumed run's last one."""
        self._seeds = itertools.count(seed + 1)

    def submit(self, weights: Weights, ask: Ask) -> Future[Said]:
        """Ask for a turn. Cancelling the future gives its place to others.

        Raises:
            UsageError: A prompt that the model cannot read, or no room for a token.
        """
        self._model.check_tokens(ask.prompt)
        most = self._model.max_positions
        if most is not None and len(ask.prompt) + 1 > most:
            raise UsageError(
                f"a prompt of {len(ask.prompt)} tokens leaves no room in the model's context of {most}"
            )
        if ask.max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, got {ask.max_tokens!r}")
        if most is not None and len(ask.prompt) + ask.max_tokens > most:
            ask = replace(ask, max_tokens=most - len(ask.prompt))
        future: Future[Said] = Future()
        self._put(self._pending, (weights, Turn(ask, (weights.number, ask.session), future)))
        return future

    def score(self, weights: Weights, tokens: Sequence[int], top_k: int = 0) -> Future[Score]:
        """Ask for the log-probabilities of given tokens.

        Raises:
            UsageError: Tokens that the model cannot read.
        """
        self._model.check_tokens(tokens)
        future: Future[Score] = Future()
        self._put(self._calls, (weights, lambda model: score(model, tokens, top_k), future))
        return future

    def drop(self, weights: Weights) -> None:
        """Throw away what sessions left under some weights; turns under way end as they would."""
        with self._wake:
            self._dropped.add(weights.number)
            self._wake.notify()

    def close(self) -> None:
        """End the thread; turns under way fail."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        self._thread.join()

    def _put(self, queue: deque[Any], item: Any) -> None:
        with self._wake:
            if self._is_closed:
                raise EngineError("the sampling thread has ended: start a new engine")
            queue.append(item)
            self._wake.notify()

    def _run(self) -> None:
        with torch.inference_mode():
            while self._wait():
                try:
                    self._drop_dropped()
                    self._answer_calls()
                    self._sample()
                except Exception as error:
                    logger.exception("the sampling thread failed, and goes on with what comes next")
                    self._fail(EngineError(f"sampling failed: {type(error).__name__}: {error}"))
        self._fail(EngineError("the engine was stopped while this turn was sampled"))

    def _wait(self) -> bool:
        """Wait for something to do; tell whether to go on."""
        with self._wake:
            self._wake.wait_for(
                lambda: (
                    self._is_closed
                    or self._pending
                    or self._calls
                    or self._dropped
                    or any(batch.turns for _, batch in self._batches.values())
                )
            )
            return not self._is_closed

    def _sample(self) -> None:
        """Admit whom there is room for, and sample one token of every turn, weights after weights."""
        self._fresh = self._admitted()
        for number, (weights, batch) in list(self._batches.items()):
            batch.drop_cancelled()
            self._holder.hold(weights)
            if batch.turns:
                batch.step()
            if number in self._fresh:
                batch.admit(self._fresh[number])
            if not batch.turns and (len(self._batches) > 1 or number in self._gone):
                self._retire(number)

    def _admitted(self) -> dict[int, list[Turn]]:
        """Take turns from the queue while there is room, in their order."""
        found: dict[int, list[Turn]] = {}
        rows = sum(len(batch.turns) for _, batch in self._batches.values())
        longest = max(
            (turn.wanted for _, batch in self._batches.values() for turn in batch.turns), default=0
        )
        with self._wake:
            while self._pending and rows < self.settings.max_rows:
                weights, turn = self._pending[0]
                if turn.future.cancelled():
                    self._pending.popleft()
                    continue
                longest = max(longest, turn.wanted)
                if rows and (rows + 1) * longest > self.settings.active_tokens:
                    break
                self._pending.popleft()
                rows += 1
                found.setdefault(weights.number, []).append(turn)
                if weights.number not in self._batches:
                    self._batches[weights.number] = (weights, self._new_batch())
        return found

    def _new_batch(self) -> Batch:
        return Batch(
            self._model,
            self._slabs,
            self._masks,
            self._shelf,
            prefill_tokens=self.settings.prefill_tokens,
        )

    def _retire(self, number: int) -> None:
        _, batch = self._batches.pop(number)
        if number in self._gone:  # its last turns have left something, too
            self._shelf.drop(number)
        self._done_read += batch.read
        self._done_sampled += batch.sampled

    def _drop_dropped(self) -> None:
        with self._wake:
            dropped, self._dropped = self._dropped, set()
        self._gone |= dropped
        for number in dropped:
            self._shelf.drop(number)

    def _answer_calls(self) -> None:
        while True:
            with self._wake:
                if not self._calls:
                    return
                weights, call, future = self._calls.popleft()
            if future.cancelled():
                continue
            self._holder.hold(weights)
            try:
                settle(future, call(self._model))
            except Exception as error:  # noqa: BLE001 - told to whom it concerns
                settle(future, error=EngineError(f"{type(error).__name__}: {error}"))

    def _fail(self, error: EngineError) -> None:
        """Tell everyone who is sampled that it cannot be done; once it is closed, everyone who waits, too."""
        failed = [turn.future for turns in self._fresh.values() for turn in turns]
        with self._wake:
            if self._is_closed:
                failed += [turn.future for _, turn in self._pending]
                for _, _, call in self._calls:
                    settle(call, error=error)
        for future in failed:
            settle(future, error=error)
        for number in list(self._batches):
            self._batches[number][1].fail(error)
            self._retire(number)
        self._shelf.clear()  # memory may be what was lacking
