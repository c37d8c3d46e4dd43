"""What samples one version of the weights, for as long as it is held."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from concurrent.futures import Future

from rft_agent_sdk.local.generate import Decoder
from rft_agent_sdk.local.score import Score
from rft_agent_sdk.local.turns import Ask, Said
from rft_agent_sdk.local.weights import Weights


class SamplingClient:
    """Samples weights as they were when it was made. Safe between threads and event loops."""

    def __init__(self, decoder: Decoder, weights: Weights) -> None:
        """Hold weights; the decoder stays its maker's to close."""
        self.decoder = decoder
        self.weights = weights
        # What sessions left is of no use to any other weights.
        self._drop = weakref.finalize(self, decoder.drop, weights)
        self._drop.atexit = False

    def submit(self, ask: Ask) -> Future[Said]:
        """Ask for a turn; see `Decoder.submit`."""
        return self.decoder.submit(self.weights, ask)

    async def sample(self, ask: Ask) -> Said:
        """Sample a turn; cancelling gives its place to others.

        Raises:
            UsageError: A prompt that the model cannot read.
            EngineError: It failed, or the engine was stopped.
        """
        return await asyncio.wrap_future(self.submit(ask))

    async def score(self, tokens: Sequence[int], top_k: int = 0) -> Score:
        """Return the log-probabilities of given tokens; see `Decoder.score`."""
        return await asyncio.wrap_future(self.decoder.score(self.weights, tokens, top_k))

    def close(self) -> None:
        """Throw away what sessions left. Turns under way end as they would, and new ones may still come."""
        self.decoder.drop(self.weights)
