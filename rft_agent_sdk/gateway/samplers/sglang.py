"""Token-level sampling with an SGLang server."""

from __future__ import annotations

from typing import Any

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


class SGLangSampler(EngineSampler):
    """Samples at an SGLang server through its own `POST /generate`.

    Ids go in as `input_ids` and come back as `output_ids`, and once more inside
    `meta_info.output_token_logprobs`, entries of `[logprob, id, null]`; the two must agree. The id that
    ended the turn is among them with its logprob: SGLang trims it from the text only.

    A streamed event holds everything so far, or with `--incremental-streaming-output` (once
    `--stream-output`) what is new; `completion_tokens` counts everything in both, which tells them apart.

    Logprobs are of the distribution after temperature and before top_p, top_k and min_p, unless the
    server was started with SGLANG_RETURN_ORIGINAL_LOGPROB. NaN and infinity become null in its JSON.
    It honours a seed only if started with `--enable-deterministic-inference`.

    Source: sglang/srt/managers/tokenizer_manager.py (`_handle_batch_output`, `add_logprob_to_meta_info`,
    `_validate_one_request`), sglang/srt/sampling/sampling_params.py, sglang/srt/entrypoints/http_server.py.
    """

    _path = "/generate"
    _error_status = 400  # what SGLang writes into a stream is the ValueError of a request at fault

    def __init__(
        self,
        url: str,
        *,
        lora_path: str | None = None,
        version: Version | None = None,
        max_tokens: int = 4096,
        max_context_tokens: int | None = None,
        key_variable: str = "SGLANG_API_KEY",
        timeout_s: float = 600.0,
        connect_timeout_s: float = 10.0,
        max_connections: int = 512,
    ) -> None:
        """Describe the server; nothing is opened yet.

        Args:
            url: Base URL, with or without `/v1`.
            lora_path: Name of a loaded LoRA adapter; `None` for the base model.
            version: Policy version that the server, or the adapter, holds; `None` takes the
                `weight_version` that the server tells with each turn.
            max_tokens: New tokens of a turn whose request sets no limit; SGLang would stop at 128.
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
        self._lora_path = lora_path
        self._told_version: Version | None = None

    @property
    def version(self) -> Version:
        """The version given; else the one the server told last, 0 before it told any."""
        if self._version is not None:
            return self._version
        return 0 if self._told_version is None else self._told_version

    def _body(self, request: SampleRequest, max_tokens: int) -> JSON:
        given = request.sampling.as_openai()
        given.pop("max_tokens", None)
        params: JSON = {
            **NEUTRAL,
            **request.extras,
            **given,
            "max_new_tokens": max_tokens,
            "stop_token_ids": sorted(request.stop_ids),
            "n": 1,
            "no_stop_trim": True,
            "skip_special_tokens": False,
        }
        if request.seed is not None:
            params["sampling_seed"] = request.seed
        body: JSON = {
            "input_ids": list(request.prompt),
            "sampling_params": params,
            "return_logprob": True,
            "logprob_start_len": -1,  # none of the prompt, which would cost its prefix cache
            "return_text_in_logprobs": False,
        }
        if self._lora_path is not None:
            body["lora_path"] = self._lora_path
        return body

    def _take(self, answer: JSON, turn: TurnSoFar) -> SampledPiece:
        meta: JSON = answer["meta_info"]
        seen = meta.get("prompt_tokens")
        if seen is not None and seen != len(turn.request.prompt):
            raise SampleFault(
                f"SGLang sampled after {seen} prompt tokens instead of {len(turn.request.prompt)}:"
                " is --allow-auto-truncate set?"
            )
        if meta.get("finish_reason") is not None:
            turn.finish_reason = _end_of(meta["finish_reason"])
        if self._version is None and meta.get("weight_version") is not None:
            self._told_version = turn.version = meta["weight_version"]
        total = meta.get("completion_tokens")
        is_last = meta.get("finish_reason") is not None
        ids = _fresh(answer.get("output_ids"), len(turn.ids), total, is_last=is_last)
        entries = _fresh(meta.get("output_token_logprobs"), len(turn.ids), total, is_last=is_last)
        if ids is None and entries is None:
            raise SampleFault("SGLang answered with neither output_ids nor output_token_logprobs")
        if entries is None:
            return self._checked(ids, None)
        told = [entry[1] for entry in entries]
        if ids is not None and len(ids) == len(told) and ids != told:
            raise SampleFault(
                f"SGLang's logprobs are of other tokens: ids {ids!r}, theirs {told!r}"
            )
        return self._checked(told if ids is None else ids, [entry[0] for entry in entries])


def _fresh(values: Any, seen: int, total: object, *, is_last: bool) -> list[Any] | None:
    """Return what of a list is new: all of it, or what lies between `seen` and `total`.

    A list of everything may run ahead of its own event's `total`, the server sharing it between events.
    """
    if values is None:
        return None
    if not isinstance(total, int):
        raise SampleFault(f"wanted a number of completion_tokens, got {total!r}")
    if len(values) == total - seen:
        return list(values)
    if len(values) < total or (is_last and len(values) > total) or total < seen:
        raise SampleFault(
            f"SGLang tells of {total} sampled tokens and lists {len(values)}, after {seen} seen"
        )
    return list(values[seen:total])


def _end_of(reason: JSON) -> SampleEnd:
    kind = reason["type"]
    if kind == "abort":
        message = f"SGLang aborted the request: {str(reason.get('message'))[:200]}"
        if reason.get("status_code") == 400:
            raise Refusal(400, message)
        raise TransientRefusal(502, message)
    if kind not in ("stop", "length"):
        raise Refusal(502, f"SGLang ended the turn with {kind!r}, wanted stop or length")
    return "stop" if kind == "stop" else "length"
