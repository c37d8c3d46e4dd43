"""The engine that trains in a SageMaker Training Session, through `sagemaker-train`'s own client.

What it takes care of, so that the loop need not: every parameter is sent, none left to a default of the client
or the service; every wait has a limit; a refused submission does not block the ones after it; and the session,
which is billed while it runs, is stopped on every way out. Only a killed process leaves it running: then
`rft sessions list` and `rft sessions stop` do it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.training.engines.base import AdamParams, Datum, Engine, LossName, StepMetrics
from rft_agent_sdk.training.engines.sagemaker_start import (
    STOP_S,
    SageMakerSettings,
    SessionStart,
    load_sdk,
    said,
)
from rft_agent_sdk.training.engines.threads import on_thread
from rft_agent_sdk.training.orphans import control_plane, describe_session
from rft_agent_sdk.types import JSON

__all__ = ["SageMakerEngine", "SageMakerSettings", "wire_datum"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_CLIPS = {"clip_low_threshold": (0.0, 1.0), "clip_high_threshold": (1.0, 10.0)}
_TAKES_OPERATIONS = ("Running", "Blocked")


class SageMakerEngine(Engine):
    """One training session: `async with await SageMakerEngine.open(settings) as engine: ...`."""

    def __init__(self, service: Any, client: Any, settings: SageMakerSettings) -> None:
        """Take over a running session; `open` makes one.

        Args:
            service: The `ServiceClient` that made the client.
            client: Its `TrainingClient`, with nothing submitted yet. It is stopped with this engine.
            settings: What it was made with.
        """
        self._service = service
        self._client = client
        self._settings = settings
        self._turn = asyncio.Lock()
        self._broken: str | None = None
        self._is_stopped = False
        atexit.register(self._stop_at_exit)

    @classmethod
    async def open(cls, settings: SageMakerSettings) -> SageMakerEngine:
        """Create a session and wait until it runs.

        Raises:
            UsageError: `sagemaker-train` is not installed, or no region can be told.
            EngineError: The session was refused, or does not run in time. It is then stopped.
        """
        start = SessionStart(settings)
        try:
            client = await on_thread(
                start.run, settings.start_timeout_s, name="rft-session-start", daemon=False
            )
        except (BotoCoreError, ClientError, RuntimeError, TimeoutError) as error:
            await start.abandon()
            raise EngineError(
                f"training session {start.name} did not start: {said(error)}"
            ) from error
        except BaseException:  # cancelled: the session may come to be all the same
            await start.abandon()
            raise
        logger.info("session=<%s> | training session runs", start.name)
        return cls(start.service, client, settings)

    @property
    def session_name(self) -> str:
        """The session's name, by which it can be stopped from outside."""
        return str(self._client.training_session_name)

    async def forward_backward(
        self,
        datums: Sequence[Datum],
        loss_fn: LossName,
        loss_fn_config: Mapping[str, float] | None = None,
    ) -> StepMetrics:
        """Add the gradient of the summed loss; the client splits what is too large for one request."""
        if not datums:
            raise UsageError("forward_backward wants at least one datum, got none")
        config = _checked_clips(loss_fn_config)
        batch = [wire_datum(datum, loss_fn) for datum in datums]
        # By keyword: the third positional argument is the inputs, which datums that bring theirs ignore.
        result = await self._perform(
            "forward_backward",
            lambda: self._client.forward_backward(batch, loss_fn, loss_fn_config=config),
        )
        return dict(result.metrics)

    async def optim_step(self, params: AdamParams) -> StepMetrics:
        """Step with every parameter sent; the client's own defaults differ from the service's."""
        if not 0 < params.learning_rate <= 0.01:
            raise UsageError(
                f"learning_rate: a training session takes more than 0 and at most 0.01, got {params.learning_rate!r}"
            )
        result = await self._perform("optim_step", lambda: self._client.optim_step(asdict(params)))
        return dict(result.metrics)

    async def save_weights_and_get_sampling_client(self) -> Any:
        """Save the weights, load them for sampling, and return a `SamplingClient` of their package."""
        client = await self._attempt(
            "save_weights_and_get_sampling_client",
            # The client's own coroutine waits without a limit, so its blocking twin runs on a thread here.
            lambda: on_thread(
                self._client.save_weights_and_get_sampling_client,
                2 * self._settings.operation_timeout_s,
                name="rft-session-save",
            ),
            is_read=True,
        )
        _package(client.model_package_arn, "save_weights_and_get_sampling_client")
        return client

    async def save_state(self, description: str = "") -> str:
        """Save weights and optimizer; return the model package's ARN."""
        result = await self._perform(
            "save_state", lambda: self._client.save_state(description), is_read=True
        )
        return _package(result.model_package_arn, "save_state")

    async def load_state(self, name: str, *, with_optimizer: bool = True) -> None:
        """Take up a state by its model package's ARN, also another session's."""
        load = "load_state_with_optimizer" if with_optimizer else "load_state"
        await self._perform("load_state", lambda: getattr(self._client, load)(name))

    async def save_weights(self, description: str = "") -> str:
        """Save the weights for inference; return the model package's ARN."""
        merge = self._settings.merge_weights
        result = await self._perform(
            "save_weights",
            lambda: self._client.save_weights_for_sampler(description, merge_weights=merge),
            is_read=True,
        )
        return _package(result.model_package_arn, "save_weights")

    def get_tokenizer(self) -> Any:
        """Return the model's Hugging Face tokenizer; the hub says which one it is.

        Raises:
            UsageError: `transformers` is not installed.
        """
        try:
            return self._client.get_tokenizer()
        except ImportError as error:
            raise UsageError(
                "the model's tokenizer needs transformers: pip install 'sagemaker-train[tokenizer]'"
            ) from error

    async def stop(self) -> None:
        """Stop the session; what was submitted is let out first.

        Cancelling this does not take the stop back.

        Raises:
            EngineError: It could not be stopped. It goes on being billed: `rft sessions stop` it.
        """
        if self._is_stopped:
            return
        stopping = asyncio.ensure_future(
            # No daemon: a process that ends meanwhile waits for it.
            on_thread(self._client.stop, STOP_S, name="rft-session-stop", daemon=False)
        )
        try:
            await asyncio.shield(stopping)
        except (BotoCoreError, ClientError, TimeoutError) as error:
            raise EngineError(
                f"training session {self.session_name} could not be stopped and goes on being billed, "
                f"stop it with `rft sessions stop {self.session_name}`: {said(error)}"
            ) from error
        self._settled()
        logger.info("session=<%s> | training session stopped", self.session_name)

    async def __aenter__(self) -> SageMakerEngine:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _settled(self) -> None:
        self._is_stopped = True
        atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        """Stop what nobody stopped; the interpreter is about to end."""
        if self._is_stopped:
            return
        self._is_stopped = True
        logger.warning("session=<%s> | stopping a session left open", self.session_name)
        try:
            self._client.stop()
        except (BotoCoreError, ClientError) as error:
            logger.error(
                "session=<%s> | not stopped, do it with `rft sessions stop`: %s",
                self.session_name,
                said(error),
            )

    async def _perform(self, what: str, submit: Callable[[], Any], *, is_read: bool = False) -> Any:
        """Submit an operation and await its future, with a limit."""
        return await self._attempt(
            what,
            lambda: submit().result_async(timeout=self._settings.operation_timeout_s),
            is_read=is_read,
        )

    async def _attempt(self, what: str, start: Callable[[], Awaitable[_T]], *, is_read: bool) -> _T:
        """Run one operation; on a failure, find out whether the engine can go on."""
        async with self._turn:
            if self._broken is not None:
                raise EngineError(
                    f"{what}: the engine cannot go on since {self._broken}; start a new one from the last saved state"
                )
            before = self._client.current_sequence_number
            try:
                return await start()
            except TimeoutError as error:
                self._broken = f"{what} did not end in time"
                raise EngineError(f"{what}: {said(error)}") from error
            except (BotoCoreError, ClientError) as error:
                gap = await self._gap_after(before, is_read=is_read)
                refused = f"{what} was refused" + (f" and {gap}" if gap else "")
                self._broken = refused if gap else None
                raise EngineError(f"{refused}: {said(error)}", usable=gap is None) from error
            except _session_error() as error:
                self._broken = f"{what} failed"
                raise EngineError(f"{what}: {error}") from error

    async def _gap_after(self, before: int, *, is_read: bool) -> str | None:
        """Let the next operation take the number of a refused one; return why that cannot be, or `None`.

        The client has used up the number all the same, and the service runs operations in the order of their
        numbers: it would wait for the missing one for ever. A new client would not help, it starts at 1.
        """
        try:
            region = self._settings.region
            session = await on_thread(
                lambda: describe_session(control_plane(region), self.session_name),
                self._settings.operation_timeout_s,
                name="rft-session-describe",
            )
        except (EngineError, TimeoutError) as error:
            return f"the session cannot be described: {said(error)}"
        if session.status not in _TAKES_OPERATIONS:
            return f"the session is {session.status}"
        received, used = session.last_sequence_number, self._client.current_sequence_number
        if received == used:
            # All of it arrived: only polling was refused, or the step after a save.
            return None if is_read or used == before else "its outcome is not known"
        if received != before:
            return f"{received - before} of its {used - before} parts arrived"
        self._client._sequence_counter = before
        if self._client.current_sequence_number != before:
            return "this version of sagemaker-train cannot take a number again"
        logger.warning("session=<%s> number=<%s> | taken again", self.session_name, before + 1)
        return None


def wire_datum(datum: Datum, loss_fn: LossName) -> JSON:
    """Return a datum as a training session takes it, with the inputs its loss needs and no other."""
    inputs: dict[str, tuple[Sequence[float], str]] = {
        "target_tokens": (datum.targets, "int64"),
        "weights": (datum.weights, "float32"),
    }
    if loss_fn != "cross_entropy":
        inputs["logprobs"] = (datum.logprobs, "float32")
        inputs["advantages"] = (datum.advantages, "float32")
    shape = [len(datum.tokens)]
    return {
        "modelInput": {"chunks": [{"tokens": list(datum.tokens), "type": "encoded_text"}]},
        "lossFnInputs": {
            name: {"data": list(values), "dtype": dtype, "shape": shape}
            for name, (values, dtype) in inputs.items()
        },
    }


def _checked_clips(config: Mapping[str, float] | None) -> dict[str, float] | None:
    for name, value in (config or {}).items():
        if name not in _CLIPS:
            raise UsageError(f"loss_fn_config: wanted keys {', '.join(_CLIPS)}, got {name!r}")
        low, high = _CLIPS[name]
        if not low <= value <= high:
            raise UsageError(
                f"{name}: wanted a bound of the ratio from {low} to {high}, got {value!r}"
            )
    return dict(config) if config else None


def _package(arn: object, what: str) -> str:
    if not isinstance(arn, str) or not arn:
        # Sampling without a package would sample the base model, or whichever checkpoint is the latest.
        raise EngineError(f"{what}: the service named no model package", usable=True)
    return arn


def _session_error() -> type[Exception]:
    """Return the base of what the client itself raises: an operation failed, or its client is closed."""
    error: type[Exception] = load_sdk().TrainingSessionError
    return error
