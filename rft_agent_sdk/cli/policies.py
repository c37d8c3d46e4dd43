"""Policies and samplers by name, as the verbs' options give them."""

from __future__ import annotations

from typing import Any

from rft_agent_sdk.errors import UsageError


def find_policy(name: str, environment: str) -> Any:
    """Return the policy called `name`: `openai:<url>`, or a reference policy of an environment.

    Raises:
        UsageError: The environment has no such policy.
    """
    from rft_agent_sdk.environment import load_environment

    if name.startswith("openai:"):
        return name
    policies = load_environment(environment).policies()
    if name not in policies:
        known = ", ".join(sorted(policies)) or "none"
        raise UsageError(
            f"environment {environment!r} has no policy {name!r}: it has {known}; a server is openai:URL"
        )
    return policies[name]


def find_sampler(name: str, renderer: Any, environment: str) -> Any:
    """Return the sampler called `name`: `vllm:URL#MODEL`, `sglang:URL#ADAPTER`, or a policy of an environment.

    Raises:
        UsageError: There is none such.
    """
    kind, _, place = name.partition(":")
    if kind == "openai":
        raise UsageError(
            f"--sampler {name!r} gives no token ids: wanted vllm:URL, sglang:URL or a policy's name"
        )
    if kind in ("vllm", "sglang"):
        from rft_agent_sdk.gateway.samplers.pool import SamplerPool
        from rft_agent_sdk.gateway.samplers.sglang import SGLangSampler
        from rft_agent_sdk.gateway.samplers.vllm import VLLMSampler

        url, _, served = place.partition("#")
        if kind == "vllm":
            return SamplerPool(VLLMSampler(url, model=served or None))
        return SamplerPool(SGLangSampler(url, lora_path=served or None))
    from rft_agent_sdk.gateway.samplers.scripted_tokens import ScriptedSampler

    return ScriptedSampler(find_policy(name, environment), renderer)
