"""Token-level sampling with a vLLM server."""

from __future__ import annotations

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.backend import TransientRefusal
from rft_agent_sdk.gateway.samplers.engine import NEUTRAL, EngineSampler, TurnSoFar
from rft_agent_sdk.gateway.samplers.token import (
    SampledPiece,
    SampleEnd,
    SampleFault,
    SampleRequest,
    Version,
)
from rft_agent_sdk.types import JSON

_ENDS: dict[str, SampleEnd] = {
    "stop": "stop",
    "length": "length",
    "repetition": "length",  # the engine gave up on a loop: the policy did not end its turn
}


class VLLMSampler(EngineSampler):
    """Samples at a vLLM server, 0.10.2 or newer, through `POST /v1/completions`.

    The prompt goes as ids and the answer's `token_ids` (`return_token_ids`) come back as sampled: the
    engine decodes them into text as well, which nobody reads. The id that ended the turn, a stop id or
    the model's own EOS, is among them with its logprob; vLLM leaves it out of the text only.

    A token that vLLM sampled at minus infinity comes with logprob -9999, which counts as none.

    Logprobs are of the model before temperature, top_p and penalties, unless the server was started
    with `--logprobs-mode processed_logprobs`; with temperature 1 and top_p 1 both are the same.

    `/inference/v1/generate` takes and returns ids as well; it is younger, streams only in the latest
    versions, and does not tell back the prompt it saw.

    Source: vllm/entrypoints/openai/completion/{protocol,serving}.py, vllm/v1/engine/detokenizer.py
    (a stop token stays in `token_ids`), vllm/entrypoints/serve/utils/api_utils.py (`get_max_tokens`).
    """

    _path = "/v1/completions"
    _too_long_params = frozenset({"input_tokens", "input_text"})

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        version: Version | None = None,
        max_tokens: int = 4096,
        max_context_tokens: int | None = None,
        key_variable: str = "VLLM_API_KEY",
        timeout_s: float = 600.0,
        connect_timeout_s: float = 10.0,
        max_connections: int = 512,
    ) -> None:
        """Describe the server; nothing is opened yet.

        Args:
            url: Base URL, with or without `/v1`.
            model: Name of the served model or of a LoRA adapter; `None` for the base model.
            version: Policy version that the server, or the adapter, holds; `None` for 0.
            max_tokens: New tokens of a turn whose request sets no limit; vLLM would stop at 16.
            max_context_tokens: Prompt and answer together; `None` asks the server's `/v1/models`.
            key_variable: Environment variable that holds the server's `--api-key`, if it has one.
            timeout_s: Longest silence from the server, in seconds.
            connect_timeout_s: Longest wait for a connection, in seconds.
            max_connections: Most calls at one time; further ones queue.

        Raises:
            UsageError: The URL is not http or https.
        """
        super().__init__(
            url,
            version=version,
            max_tokens=max_tokens,
            max_context_tokens=max_context_tokens,
            key_variable=key_variable,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            max_connections=max_connections,
        )
        self._model = model

    def _body(self, request: SampleRequest, max_tokens: int) -> JSON:
        body: JSON = {
            **NEUTRAL,
            **request.extras,
            **request.sampling.as_openai(),
            "max_tokens": max_tokens,
            "prompt": list(request.prompt),
            "stop_token_ids": sorted(request.stop_ids),
            "n": 1,
            "logprobs": 0,  # the sampled token's only; it comes whatever the number of others
            "return_token_ids": True,
            # Else each token is decoded alone, which has no valid text for a part of a character.
            "return_tokens_as_token_ids": True,
        }
        if self._model is not None:
            body["model"] = self._model
        if request.seed is not None:
            body["seed"] = request.seed
        return body

    def _take(self, answer: JSON, turn: TurnSoFar) -> SampledPiece:
        choices = answer["choices"]
        if not choices:  # the chunk that tells the usage
            return SampledPiece([], [])
        choice = choices[0]
        prompt = choice.get("prompt_token_ids")
        if prompt is not None and prompt != list(turn.request.prompt):
            raise SampleFault(
                f"vLLM sampled after another prompt, of {len(prompt)} tokens instead of"
                f" {len(turn.request.prompt)}: is truncate_prompt_tokens set?"
            )
        if choice.get("finish_reason") is not None:
            turn.finish_reason = _end_of(choice["finish_reason"])
        ids = choice.get("token_ids")
        if ids is None:
            raise SampleFault("vLLM answered without token_ids: it must be 0.10.2 or newer")
        logprobs = choice.get("logprobs")
        return self._checked(ids, None if logprobs is None else logprobs["token_logprobs"])


def _end_of(reason: object) -> SampleEnd:
    if reason == "abort":
        raise TransientRefusal(502, "vLLM aborted the request, as it does when it is paused")
    if not isinstance(reason, str) or reason not in _ENDS:
        raise Refusal(502, f"vLLM ended the turn with {reason!r}, wanted one of {sorted(_ENDS)}")
    return _ENDS[reason]
