"""The in-repo gateway: the server agents call for every turn, outside of SageMaker.

It speaks the Job Runtime protocol, as a local twin of the managed service, and OpenAI chat completions
and Anthropic Messages for sessions of an own training loop. `Gateway` holds the state, `create_app` is
its ASGI application, `GatewayServer` serves it.
"""

import rft_agent_sdk.gateway._extra  # noqa: F401 - says what to install, before an import fails
from rft_agent_sdk.gateway.app import create_app
from rft_agent_sdk.gateway.core import Gateway
from rft_agent_sdk.gateway.faults import Fault, Faults
from rft_agent_sdk.gateway.job_runtime import Job, Trajectory
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.remote import RemoteGateway, RemoteSession
from rft_agent_sdk.gateway.render import Renderer, load_renderer
from rft_agent_sdk.gateway.rollout import Call, RolloutState
from rft_agent_sdk.gateway.samplers import (
    Delta,
    OpenAIPolicy,
    Policy,
    PolicyRequest,
    Reply,
    ScriptedPolicy,
    ToolChoice,
)
from rft_agent_sdk.gateway.samplers.pool import SamplerPool
from rft_agent_sdk.gateway.samplers.scripted_tokens import ScriptedSampler
from rft_agent_sdk.gateway.samplers.sglang import SGLangSampler
from rft_agent_sdk.gateway.samplers.token import Sampled, Sampler, SampleRequest
from rft_agent_sdk.gateway.samplers.vllm import VLLMSampler
from rft_agent_sdk.gateway.server import GatewayServer
from rft_agent_sdk.gateway.sessions import Session, SessionResult

__all__ = [
    "Call",
    "Delta",
    "Fault",
    "Faults",
    "Gateway",
    "GatewayServer",
    "Job",
    "OpenAIPolicy",
    "Policy",
    "PolicyRequest",
    "Refusal",
    "RemoteGateway",
    "RemoteSession",
    "Renderer",
    "Reply",
    "RolloutState",
    "SGLangSampler",
    "SampleRequest",
    "Sampled",
    "Sampler",
    "SamplerPool",
    "ScriptedPolicy",
    "ScriptedSampler",
    "Session",
    "SessionResult",
    "ToolChoice",
    "Trajectory",
    "VLLMSampler",
    "create_app",
    "load_renderer",
]
