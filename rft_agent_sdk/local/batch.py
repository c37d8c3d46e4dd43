"""Turns of the same weights, sampled together: prompts read in few passes, then one token of each at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.local.cache import Masks, RowCache, Slabs, rounded
from rft_agent_sdk.local.choose import choose
from rft_agent_sdk.local.model import LocalModel
from rft_agent_sdk.local.turns import Kept, Said, Shelf, Turn, TurnEnd


class Batch:
    """Rows of a cache, and the turn in each. Used by one thread; its model holds the right weights."""

    def __init__(
        self, model: LocalModel, slabs: Slabs, masks: Masks, shelf: Shelf, *, prefill_tokens: int
    ) -> None:
        """Start empty.

        Args:
            model: Who computes.
            slabs: How its keys and values are laid out.
            masks: How its attention is masked.
            shelf: Where sessions' keys and values are between turns.
            prefill_tokens: Most new tokens of a forward pass over prompts.
        """
        self._model = model
        self._masks = masks
        self._shelf = shelf
        self._prefill_tokens = prefill_tokens
        self._cache = RowCache(slabs, model.device)
        self.turns: list[Turn] = []
        """Each in the row of its index."""
        self.read = self.sampled = 0
        """Tokens read from prompts, and sampled, so far."""

    def check(self) -> None:
        """Make sure that this kind of model says the same with the cache as without. Leaves the batch empty.

        Raises:
            UsageError: It does not.
        """
        ids = np.arange(12)[None] % self._model.vocab_size
        self._cache.reserve(1, 12)
        found = [
            self._forward(0, ids[:, start:end], np.arange(start, end)[None])
            for start, end in ((0, 5), (5, 6), (6, 12))
        ]
        whole = self._model.core(torch.from_numpy(ids).to(self._model.device), use_cache=False)
        wanted = torch.log_softmax(whole.logits[0, [4, 5, 11]].float(), dim=-1)
        apart = float((torch.log_softmax(torch.cat(found), dim=-1) - wanted).abs().mean())
        if not apart < (1e-3 if self._model.dtype == torch.float32 else 0.2):
            raise UsageError(
                f"wanted a model that says the same with a cache as without, got {type(self._model.core).__name__}, "
                f"whose log-probabilities differ by {apart:.3g} on average: it cannot be sampled here"
            )

    def admit(self, turns: Sequence[Turn]) -> None:
        """Read the prompts of more turns, and sample the first token of each."""
        first: list[Turn] = []
        later: list[Turn] = []
        sources: dict[Turn, Kept | Turn] = {}
        heads: set[tuple[int, ...]] = set()
        for turn in turns:
            source = self._own(turn) or self._like(turn)
            if source is not None:
                sources[turn] = source
            # Of those that begin in the same way one reads, and the others copy what it has read.
            is_late = source is None and turn.head in heads  # never so for an empty head
            (later if is_late else first).append(turn)
            if turn.head:
                heads.add(turn.head)
        self._join(first, sources)
        if later:
            self._join(later, {turn: like for turn in later if (like := self._like(turn))})

    def _join(self, turns: list[Turn], sources: Mapping[Turn, Kept | Turn]) -> None:
        """Give turns rows, and read what is new of their prompts.

        Args:
            turns: At least one.
            sources: Where keys and values of the tokens are that `read` counts already.
        """
        first = len(self.turns)
        # Those with about as much to read stand side by side, and are read together.
        turns.sort(key=_unread)
        self._cache.reserve(first + len(turns), max(len(one.ask.prompt) for one in turns))
        for row, turn in enumerate(turns, first):
            source = sources.get(turn)
            if isinstance(source, Kept):
                self._cache.put(row, source.banks, turn.read)
            elif source is not None:
                self._cache.move(self.turns.index(source), row, turn.read)
        self.turns += turns
        logits = [self._read(at, group) for at, group in self._groups(turns, first)]
        self._say(first, torch.cat(logits))

    def step(self) -> None:
        """Sample one more token of every turn."""
        ids = np.array([[turn.tokens[-1]] for turn in self.turns])
        positions = np.array([[turn.read] for turn in self.turns])
        self._cache.reserve(len(self.turns), int(positions.max()) + 1)
        logits = self._forward(0, ids, positions)
        for turn in self.turns:
            turn.read += 1
        self._say(0, logits)

    def drop_cancelled(self) -> None:
        """Free the rows of turns that nobody waits for any more."""
        for row in reversed(range(len(self.turns))):
            if self.turns[row].future.cancelled():
                self._free(row)

    def fail(self, error: Exception) -> None:
        """Tell everyone who waits that it cannot be done, and start empty."""
        for turn in self.turns:
            settle(turn.future, error=error)
        self.turns = []

    def _own(self, turn: Turn) -> Kept | None:
        """Take what the session left; `turn.read` is then how much of it the prompt begins with."""
        kept = self._shelf.take(turn.key) if turn.ask.session else None
        if kept is not None:
            self._know(turn, kept.tokens)
        return kept

    def _like(self, turn: Turn) -> Kept | Turn | None:
        """Find what another turn has read, if both begin in the same way."""
        if not turn.head:
            return None
        like = [one for one in reversed(self.turns) if one.head == turn.head]
        found: Kept | Turn | None = like[0] if like else self._shelf.like(turn.key[0], turn.head)
        if found is not None:
            self._know(turn, found.tokens if isinstance(found, Kept) else found.known)
        return found

    def _know(self, turn: Turn, tokens: Sequence[int]) -> None:
        # The last token is read in any case: its logits are wanted.
        turn.read = turn.reused = _common(tokens, turn.ask.prompt[:-1])

    def _groups(self, turns: Sequence[Turn], first: int) -> Iterator[tuple[int, list[Turn]]]:
        """Yield turns that are read in one pass, with the row of the first of them."""
        group: list[Turn] = []
        for turn in turns:
            if group and (len(group) + 1) * _unread(turn) > self._prefill_tokens:
                yield first, group
                first, group = first + len(group), []
            group.append(turn)
        yield first, group

    def _read(self, first: int, turns: Sequence[Turn]) -> Tensor:
        """Read the rest of prompts; return the logits after each, shape `(rows, V)`."""
        while True:
            most = max(map(_unread, turns))
            width = min(most, self._prefill_tokens)
            ids = np.zeros((len(turns), width), dtype=np.int64)
            positions = np.full_like(ids, -1)
            for row, turn in enumerate(turns):
                # A prompt too long for one pass is read alone: all others end in the first one.
                count = min(_unread(turn), width)
                ids[row, width - count :] = turn.ask.prompt[turn.read : turn.read + count]
                positions[row, width - count :] = np.arange(turn.read, turn.read + count)
                turn.read += count
                self.read += count
            logits = self._forward(first, ids, positions)
            if most <= width:
                return logits

    def _forward(self, first: int, ids: Any, positions: Any) -> Tensor:
        """Return the logits after the last column, shape `(rows, V)`.

        Args:
            first: The first of the rows.
            ids: New tokens, aligned at the right, shape `(rows, new)`.
            positions: Where they stand; -1 where there is none.
        """
        device = self._model.device
        length = min(rounded(int(positions.max()) + 1), self._cache.capacity)
        is_pad = positions < 0
        pads = torch.from_numpy(is_pad).to(device) if is_pad.any() else None
        at = torch.from_numpy(positions).to(device)
        if pads is not None:
            at = at.clamp_(min=0)
        self._cache.plan(first, at, pads, length)
        found = self._model.core(
            torch.from_numpy(ids).to(device),
            attention_mask=self._masks.of(at, length),
            position_ids=at,
            use_cache=True,
            logits_to_keep=1,
            **{self._model.cache_argument: self._cache},
        )
        logits: Tensor = found.logits[:, -1].float()
        return logits

    def _say(self, first: int, logits: Tensor) -> None:
        """Choose the next token of the turns from a row on; settle those that end with it."""
        turns = self.turns[first:]
        how = [turn.ask.choosing for turn in turns]
        tokens, logprobs = choose(logits, how, [len(turn.tokens) for turn in turns])
        self.sampled += len(turns)
        ended: list[tuple[Turn, TurnEnd | None]] = []
        for row in reversed(range(first, len(self.turns))):  # the last row fills a freed one
            turn, token, logprob = self.turns[row], tokens[row - first], logprobs[row - first]
            is_number = logprob <= 0
            if is_number:
                turn.tokens.append(token)
                turn.logprobs.append(logprob)
            end = _end(turn) if is_number else None
            if end is not None or not is_number:
                self._free(row)
                ended.append((turn, end))
        for turn, end in ended:  # once all that they leave is where the next turn will find it
            if end is None:
                settle(turn.future, error=EngineError("the model's logits are no numbers"))
            else:
                settle(turn.future, Said(turn.tokens, turn.logprobs, end, turn.reused))

    def _free(self, row: int) -> None:
        """Keep what the session has read, and give the row to the last turn."""
        turn, last = self.turns[row], len(self.turns) - 1
        if turn.ask.session and turn.read:
            self._shelf.put(turn.key, Kept(turn.known, self._cache.take(row, turn.read)))
        if row != last:
            self._cache.move(last, row, self.turns[last].read)
            self.turns[row] = self.turns[last]
        self.turns.pop()


def settle(future: Future[Any], value: Any = None, *, error: Exception | None = None) -> None:
    """Give a future its result or its error, unless it was cancelled meanwhile."""
    # Between a check and the call it could be cancelled: asking for forgiveness has no such gap.
    with suppress(Exception):
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)


def _end(turn: Turn) -> TurnEnd | None:
    ask = turn.ask
    if turn.tokens[-1] in ask.stop_ids or (ask.is_over is not None and ask.is_over(turn.tokens)):
        return "stop"
    return "length" if len(turn.tokens) >= ask.max_tokens else None


def _unread(turn: Turn) -> int:
    return len(turn.ask.prompt) - turn.read


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens both begin with."""
    least = min(len(one), len(other))
    differ = np.flatnonzero(np.array(one[:least]) != np.array(other[:least]))
    return int(differ[0]) if len(differ) else least
