"""Token-level sampling with a SageMaker training session, through `sagemaker-train`'s own client."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampleEnd,
    SampleFault,
    Sampler,
    SampleRequest,
    Version,
    cut,
    too_long,
)
from rft_agent_sdk.types import JSON

_LEAST_TOKENS = 512
"""The service samples at least this many, unless the turn ends: `SamplingParams.maxTokens` has it as
minimum, and botocore refuses less."""
_MOST_TOKENS = 131072
_EXTRAS = ("top_k",)


class SampleFuture(Protocol):
    """`sagemaker.train.training_session.futures.APIFuture`."""

    async def result_async(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - its signature
        """Return the response, or raise `TimeoutError` after `timeout` seconds."""
        ...


class SamplingClient(Protocol):
    """`sagemaker.train.training_session.SamplingClient`, as far as a sampler needs it."""

    model_package_arn: str

    def sample(
        self, prompt: Any, num_samples: int = 1, sampling_params: Any = None
    ) -> SampleFuture:
        """Submit a sampling operation; errors surface when the future is awaited."""
        ...


class SageMakerSampler(Sampler):
    """Samples with the weights of one `SamplingClient`, which stays its maker's to stop.

    The client retries what is transient by itself (150 times, some five minutes), polls every two
    seconds, and cannot take an operation back: a cancelled call is still sampled, and billed, there.

    The service wants stop *texts* and stops at the model's own EOS; ids after the first stop id of the
    request are dropped here, and a limit under 512 is kept by dropping what is beyond it. Whether the
    service keeps the stop token itself is not documented: `finish_reason` is its word, and where the
    last id is no stop id, the turn has no closer of its own.

    Pass a client made for a model package: without one the service documentation says the latest
    checkpoint is sampled, and the client's says the base model.

    Source: sagemaker-train 1.27 (`training_session/sampling_client.py`, `types.py`, `futures.py`);
    `sagemakertrainingsessionruntime` in botocore's service models.
    """

    min_new_tokens = _LEAST_TOKENS

    def __init__(
        self,
        client: SamplingClient,
        *,
        version: Version | None = None,
        max_tokens: int = 4096,
        max_context_tokens: int | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        """Wrap a client; nothing is called yet.

        Args:
            client: Who samples; `TrainingClient.save_weights_and_get_sampling_client` makes one.
            version: Policy version it samples; `None` for its model package, or `base`.
            max_tokens: New tokens of a turn whose request sets no limit.
            max_context_tokens: Prompt and answer together; `None` leaves that to the service, whose
                refusal does not say what was wrong other than in words.
            timeout_s: Longest wait for a turn, in seconds, queueing included.
        """
        self._client = client
        self._version = (client.model_package_arn or "base") if version is None else version
        self._max_tokens = max_tokens
        self._max_context_tokens = max_context_tokens
        self._timeout_s = timeout_s

    @property
    def version(self) -> Version:
        """The policy version given, else the model package."""
        return self._version

    async def sample(self, request: SampleRequest) -> Sampled:
        """Sample one turn."""
        params = self._params(request)
        try:
            future = self._client.sample(list(request.prompt), 1, params)
            response = await future.result_async(timeout=self._timeout_s)
        except TimeoutError as error:
            raise Refusal(504, f"the service did not sample within {self._timeout_s} s") from error
        except _service_errors() as error:
            raise _refusal(error) from error
        sequences = response.sequences
        if len(sequences) != 1:
            raise SampleFault(f"wanted one sampled sequence, got {len(sequences)}")
        return self._read(sequences[0], request)

    def _params(self, request: SampleRequest) -> JSON:
        wanted = request.sampling.max_tokens or self._max_tokens
        wanted = min(max(wanted, _LEAST_TOKENS), _MOST_TOKENS)
        limit = self._max_context_tokens
        if limit is not None:
            room = limit - len(request.prompt)
            if room < _LEAST_TOKENS:
                raise too_long(len(request.prompt), _LEAST_TOKENS, limit)
            wanted = min(wanted, room)
        sampling = request.sampling
        return {
            "top_k": -1,
            **{name: request.extras[name] for name in _EXTRAS if name in request.extras},
            "max_tokens": wanted,
            "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
            "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
            **({} if request.seed is None else {"seed": request.seed}),
        }

    def _read(self, sequence: Any, request: SampleRequest) -> Sampled:
        piece = self._checked(sequence.tokens, sequence.logprobs)
        if not piece.ids:
            raise SampleFault("the service sampled no token")
        stop = next((i for i, one in enumerate(piece.ids) if one in request.stop_ids), None)
        if stop is not None:
            ids, logprobs = piece.ids[: stop + 1], piece.logprobs[: stop + 1]
            sampled = Sampled(ids, logprobs, "stop", self._version)
        else:
            end = _end_of(sequence.stop_reason)
            sampled = Sampled(piece.ids, piece.logprobs, end, self._version)
        return cut(sampled, request.sampling.max_tokens)


def _end_of(reason: object) -> SampleEnd:
    if reason == "stop":  # an enum of strings
        return "stop"
    if reason == "length":
        return "length"
    raise SampleFault(f"the service ended the turn with {reason!r}, wanted stop or length")


@functools.cache
def _service_errors() -> tuple[type[Exception], ...]:
    """Return what the client raises; its own kind only where it is installed."""
    try:
        module = importlib.import_module("sagemaker.train.training_session.exceptions")
    except ImportError:
        return (BotoCoreError, ClientError)
    return (BotoCoreError, ClientError, module.TrainingSessionError)


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, ClientError):
        details = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        message = f"the service says {details.get('Code')}: {str(details.get('Message'))[:500]}"
        return Refusal(status if status in (400, 429) else 502, message)
    return Refusal(502, f"the service failed to sample: {type(error).__name__}: {str(error)[:500]}")
