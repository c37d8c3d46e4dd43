"""A training session's beginning: its settings, the client's package, and creating it without leaving one behind."""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
import uuid
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.engines.threads import on_thread

logger = logging.getLogger(__name__)

STOP_S = 90.0
"""Longest time a stop may take: the client drains for 5 s, then calls with 3 attempts of up to a minute."""


@dataclass(frozen=True, slots=True)
class SageMakerSettings:
    """Where and what to train; whatever the client would otherwise fetch or create is required here."""

    role_arn: str
    """Execution role of the session."""
    base_model_arn: str
    """Hub content ARN of the base model. A name would be looked up in the hub first."""
    s3_output_path: str
    """Where packages are written. Without one the client asks STS for an account's default bucket."""
    model_package_group_arn: str
    """Group of the saved packages. Without one the client creates a shared default group."""
    region: str | None = None
    """AWS region; `None` leaves it to the environment."""
    lora_rank: int = 32
    """Rank of the adapter."""
    lora_alpha: int = 64
    """Scale of the adapter."""
    kms_key_arn: str | None = None
    """Key that encrypts packages; `None` leaves it to S3."""
    session_prefix: str = "rft"
    """Start of the session's name, by which `rft sessions list` finds it."""
    merge_weights: bool = False
    """Whether `save_weights` writes full weights too, beside the adapter."""
    operation_timeout_s: float = 600.0
    """Longest wait for one operation, queueing included."""
    start_timeout_s: float = 900.0
    """Longest wait for a session to run; the client itself gives up after 600 s."""

    def __post_init__(self) -> None:
        for name in ("role_arn", "base_model_arn", "model_package_group_arn"):
            if not getattr(self, name).startswith("arn:"):
                raise UsageError(f"{name}: wanted an ARN, got {getattr(self, name)!r}")
        if not self.s3_output_path.startswith("s3://"):
            raise UsageError(
                f"s3_output_path: wanted s3://BUCKET/PREFIX, got {self.s3_output_path!r}"
            )


class SessionStart:
    """Creating a session on a thread, which may be abandoned halfway."""

    def __init__(self, settings: SageMakerSettings) -> None:
        self.name = f"{settings.session_prefix}-{uuid.uuid4().hex[:8]}"
        self.service: Any = None
        self._settings = settings
        self._lock = threading.Lock()
        self._abandoned = threading.Event()

    def run(self) -> Any:
        """Return the training client of a running session; blocks for minutes."""
        given = self._settings
        sdk = load_sdk()
        try:
            self.service = sdk.ServiceClient(
                given.region,
                role_arn=given.role_arn,
                model_package_group_arn=given.model_package_group_arn,
                s3_output_path=given.s3_output_path,
                kms_key_arn=given.kms_key_arn,
            )
        except ValueError as error:
            raise UsageError(f"the sagemaker engine cannot start: {error}") from error
        if self._abandoned.is_set():
            raise RuntimeError("nobody waits for the session any more")
        client = self.service.create_lora_training_client(
            given.base_model_arn,
            rank=given.lora_rank,
            alpha=given.lora_alpha,
            training_session_name=self.name,
        )
        with self._lock:
            if self._abandoned.is_set():
                client.stop()
        return client

    async def abandon(self) -> None:
        """Stop the session if it is there, and see to it that it is stopped if it comes later."""
        with self._lock:
            self._abandoned.set()
        service = self.service
        if service is None:
            return
        stopping = asyncio.ensure_future(
            on_thread(
                lambda: service.stop_session(self.name),
                STOP_S,
                name="rft-session-stop",
                daemon=False,
            )
        )
        try:
            await asyncio.shield(stopping)
        except (BotoCoreError, ClientError, TimeoutError) as error:
            logger.warning(
                "session=<%s> | not there to be stopped, see `rft sessions list`: %s",
                self.name,
                said(error),
            )


def load_sdk() -> Any:
    """Return `sagemaker.train.training_session`.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return importlib.import_module("sagemaker.train.training_session")
    except ModuleNotFoundError as error:
        raise UsageError(
            "the sagemaker engine needs sagemaker-train: pip install 'rft-agent-sdk[sagemaker]'"
        ) from error


def said(error: BaseException) -> str:
    """Return what an error says, for a message: its kind, and not all of a long text."""
    return f"{type(error).__name__}: {str(error)[:500]}"
