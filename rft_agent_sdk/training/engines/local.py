"""The engine that trains on this machine, with torch: the surface of a Training Session, and nothing billed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.local.client import SamplingClient
from rft_agent_sdk.local.generate import Decoder, SamplingSettings
from rft_agent_sdk.local.losses import LossSpec
from rft_agent_sdk.local.model import ModelSettings, load
from rft_agent_sdk.local.state import load_state, save_pretrained, save_state
from rft_agent_sdk.local.trainer import Trainer, TrainerSettings, check_settings
from rft_agent_sdk.training.engines.base import AdamParams, Datum, Engine, LossName, StepMetrics
from rft_agent_sdk.training.engines.threads import on_thread
from rft_agent_sdk.training.loss import clip_bounds

__all__ = ["LocalEngine", "LocalSettings"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_LOAD_S = 3600.0


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """What a local engine is made of."""

    model: ModelSettings
    """What is loaded."""
    states: Path
    """Folder that takes saved states and weights; made when the first is saved."""
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    """How it trains."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How it samples."""
    merge_weights: bool = True
    """Whether `save_weights` adds an adapter into the weights."""
    operation_timeout_s: float = 3600.0
    """Longest wait for one operation, in seconds."""


class LocalEngine(Engine):
    """A model on this machine: `async with await LocalEngine.open(settings) as engine: ...`."""

    def __init__(self, trainer: Trainer, decoder: Decoder, settings: LocalSettings) -> None:
        """Take over a trainer and the decoder of the same model; `open` makes both."""
        self._trainer = trainer
        self._decoder = decoder
        self._settings = settings
        self._turn = asyncio.Lock()
        self._broken: str | None = None
        self._is_stopped = False

    @classmethod
    async def open(cls, settings: LocalSettings) -> LocalEngine:
        """Load the model and start the sampling thread.

        Raises:
            UsageError: There is no such model, or it cannot be trained here.
        """
        check_settings(settings.trainer)

        def start() -> tuple[Trainer, Decoder]:
            model = load(settings.model)
            return Trainer(model, settings.trainer), Decoder(model, settings.sampling)

        trainer, decoder = await on_thread(start, _LOAD_S, name="rft-local-load")
        return cls(trainer, decoder, settings)

    @property
    def trainer(self) -> Trainer:
        """What trains; to be left alone while an operation runs."""
        return self._trainer

    @property
    def decoder(self) -> Decoder:
        """What samples."""
        return self._decoder

    async def forward_backward(
        self,
        datums: Sequence[Datum],
        loss_fn: LossName,
        loss_fn_config: Mapping[str, float] | None = None,
    ) -> StepMetrics:
        """Add the gradient of the summed loss, in as many passes as memory asks for."""
        low, high = clip_bounds(loss_fn_config)
        loss = LossSpec(loss_fn, low, high)
        found = await self._perform(
            "forward_backward", lambda: self._trainer.forward_backward(datums, loss)
        )
        return found.metrics

    async def optim_step(self, params: AdamParams) -> StepMetrics:
        """Take one step of AdamW; the learning rate rises over the warm-up's steps."""
        return await self._perform(
            "optim_step", lambda: self._trainer.step(params), changes_weights=True
        )

    async def save_weights_and_get_sampling_client(self) -> SamplingClient:
        """Copy the weights, and return what samples the copy."""
        weights = await self._perform("save_weights", self._trainer.weights)
        return SamplingClient(self._decoder, weights)

    async def save_state(self, description: str = "") -> str:
        """Save weights, moments and random numbers in a new folder; return its path."""
        folder = self._fresh("state", description)
        about = {"description": description, "seeds": self._decoder.next_seed()}
        await self._perform("save_state", lambda: save_state(self._trainer, folder, about))
        return str(folder)

    async def load_state(self, name: str, *, with_optimizer: bool = True) -> None:
        """Take up a saved state by its folder, also another run's."""
        about = await self._perform(
            "load_state",
            lambda: load_state(self._trainer, Path(name), with_optimizer=with_optimizer),
            changes_weights=True,
        )
        self._decoder.seeds_from(int(about.get("seeds", 0)))

    async def save_weights(self, description: str = "") -> str:
        """Save the weights as transformers loads them, in a new folder; return its path."""
        folder = self._fresh("weights", description)
        merge = self._settings.merge_weights
        await self._perform(
            "save_weights", lambda: save_pretrained(self._trainer, folder, merge=merge)
        )
        return str(folder)

    def get_tokenizer(self) -> Any:
        """Return the model's tokenizer."""
        return self._trainer.model.tokenizer

    async def stop(self) -> None:
        """End the sampling thread; turns under way fail."""
        if self._is_stopped:
            return
        self._is_stopped = True
        await on_thread(self._decoder.close, 60.0, name="rft-local-stop")

    async def __aenter__(self) -> LocalEngine:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _fresh(self, kind: str, description: str) -> Path:
        """Return a folder that is not there yet, named after a count and a description."""
        said = re.sub(r"[^A-Za-z0-9]+", "-", description).strip("-")[:40]
        folder = self._settings.states
        taken = [int(one.name.split("-")[1]) for one in folder.glob(f"{kind}-[0-9]*-*")]
        number = max(taken, default=0) + 1
        return folder / f"{kind}-{number:04d}-{said or 'unnamed'}"

    async def _perform(
        self, what: str, work: Callable[[], _T], *, changes_weights: bool = False
    ) -> _T:
        """Run one operation on a thread; on a failure, find out whether the engine can go on.

        Nobody can stop a thread: where the caller is cancelled, the operation ends all the same, and the next one
        waits for it. Only of one that changes the weights is it then not known how far it came.
        """
        await self._turn.acquire()
        running = asyncio.ensure_future(self._run(what, work))
        running.add_done_callback(self._ended)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if changes_weights:
                self._broken = f"{what} was cancelled while it ran"
            raise

    def _ended(self, done: asyncio.Future[Any]) -> None:
        self._turn.release()
        if not done.cancelled():
            done.exception()  # heard of, also where nobody waits any more

    async def _run(self, what: str, work: Callable[[], _T]) -> _T:
        if self._broken is not None or self._is_stopped:
            why = self._broken or "it was stopped"
            raise EngineError(f"{what}: the engine cannot go on: {why}")
        try:
            return await on_thread(
                work, self._settings.operation_timeout_s, name=f"rft-local-{what}"
            )
        except (UsageError, EngineError):
            raise
        except TimeoutError as error:
            self._broken = f"{what} did not end in time"
            raise EngineError(f"{what}: {error}") from error
        except RuntimeError as error:  # torch's own, out of memory among them
            self._broken = f"{what} failed"
            raise EngineError(f"{what} failed: {type(error).__name__}: {error}") from error
