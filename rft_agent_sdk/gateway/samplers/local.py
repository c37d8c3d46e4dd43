"""Token-level sampling of a model on this machine."""

from __future__ import annotations

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampleFault,
    Sampler,
    SampleRequest,
    Version,
    too_long,
)
from rft_agent_sdk.local.choose import Choosing
from rft_agent_sdk.local.client import SamplingClient
from rft_agent_sdk.local.turns import Ask


class LocalSampler(Sampler):
    """Samples with the weights of one `SamplingClient`, which is closed with it.

    A cancelled call gives its place to others. Of further parameters `top_k` and `min_p` are honoured. May be used
    on several event loops.
    """

    def __init__(
        self,
        client: SamplingClient,
        *,
        version: Version | None = None,
        max_tokens: int = 4096,
        max_context_tokens: int | None = None,
    ) -> None:
        """Wrap a client.

        Args:
            client: Who samples; `LocalEngine.save_weights_and_get_sampling_client` makes one.
            version: Policy version it samples; `None` for the number of its weights.
            max_tokens: New tokens of a turn whose request sets no limit.
            max_context_tokens: Prompt and answer together; `None` for the model's own limit.
        """
        self._client = client
        self._version = client.weights.number if version is None else version
        self._max_tokens = max_tokens
        limits = (max_context_tokens, client.decoder.max_positions)
        self._max_context_tokens = min((one for one in limits if one is not None), default=None)

    @property
    def version(self) -> Version:
        """The policy version given, else the number of the weights."""
        return self._version

    async def sample(self, request: SampleRequest) -> Sampled:
        """Sample one turn."""
        try:
            said = await self._client.sample(self._ask(request))
        except UsageError as error:
            raise Refusal(400, str(error)) from error
        except EngineError as error:
            raise SampleFault(str(error)) from error
        piece = self._checked(said.tokens, said.logprobs)
        return Sampled(piece.ids, piece.logprobs, said.end, self._version)

    async def aclose(self) -> None:
        """Throw away what sessions left under these weights."""
        self._client.close()

    def _ask(self, request: SampleRequest) -> Ask:
        sampling, extras = request.sampling, request.extras
        limit = sampling.max_tokens or self._max_tokens
        if self._max_context_tokens is not None:
            room = self._max_context_tokens - len(request.prompt)
            if room < 1:
                raise too_long(len(request.prompt), 1, self._max_context_tokens)
            limit = min(limit, room)
        seed = self._client.decoder.next_seed() if request.seed is None else request.seed
        choosing = Choosing(
            temperature=1.0 if sampling.temperature is None else sampling.temperature,
            top_k=int(extras.get("top_k") or 0),
            top_p=1.0 if sampling.top_p is None else sampling.top_p,
            min_p=float(extras.get("min_p") or 0.0),
            seed=seed,
        )
        return Ask(
            request.prompt,
            limit,
            choosing,
            request.stop_ids or self._client.decoder.eos_ids,
            request.affinity,
        )
