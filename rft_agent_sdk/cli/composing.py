"""What `rft grpo` and `rft evaluate` compose: an engine, a gateway that samples it, an agent that plays."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.gateway import Gateway, GatewayServer
    from rft_agent_sdk.training.agents import AgentRunner
    from rft_agent_sdk.training.config import Config
    from rft_agent_sdk.training.engines.base import Engine

_ENDINGS = ("SIGTERM", "SIGHUP")
"""Signals that end a run in order: a terminal that is closed, or a connection lost, sends the second."""
_LOCAL_PARTS = ("torch", "transformers", "peft")
SIGTERM_EXIT = 143
"""What a shell makes of a process that SIGTERM ended."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A gateway that captures tokens, and what it samples with."""

    gateway: Gateway
    bind: Callable[[Any, int], None]
    """Takes an engine's sampling client and a policy version: sampled from now on."""


async def open_engine(config: Config) -> Engine:
    """Start the engine that a config names.

    Args:
        config: The run's; an engine on this machine saves its states in `run_dir`.

    Raises:
        UsageError: It is not there.
        EngineError: It did not start.
    """
    if config.engine == "local":
        return await _open_local(config)
    from rft_agent_sdk.training.engines.sagemaker import SageMakerEngine, SageMakerSettings

    settings = SageMakerSettings(
        role_arn=config.role_arn,
        base_model_arn=config.base_model_arn,
        s3_output_path=config.s3_output_path,
        model_package_group_arn=config.model_package_group_arn,
        region=config.region,
        lora_rank=config.lora_rank,
        lora_alpha=config.lora_alpha,
        operation_timeout_s=config.train_op_timeout,
    )
    return await SageMakerEngine.open(settings)


async def _open_local(config: Config) -> Engine:
    from rft_agent_sdk.local.generate import SamplingSettings
    from rft_agent_sdk.local.model import ModelSettings
    from rft_agent_sdk.local.trainer import TrainerSettings
    from rft_agent_sdk.training.engines.local import LocalEngine, LocalSettings

    model = ModelSettings(
        config.base_model,
        dtype=config.dtype,
        device=config.device,
        lora_rank=config.lora_rank,
        lora_alpha=config.lora_alpha,
        seed=config.seed,
        threads=config.threads,
        gradient_checkpointing=config.gradient_checkpointing,
    )
    trainer = TrainerSettings(
        micro_batch_tokens=config.micro_batch_tokens,
        packed=config.packed,
        warmup_steps=config.warmup_steps,
        kl_coef=config.kl_coef,
        kl_kind=config.kl_kind,
    )
    sampling = SamplingSettings(
        max_rows=config.max_sampled_rows,
        active_tokens=config.kv_cache_tokens,
        kept_tokens=config.kv_cache_tokens,
        seed=config.seed,
    )
    states = Path(config.run_dir or "runs", "states")
    return await LocalEngine.open(
        LocalSettings(model, states, trainer, sampling, operation_timeout_s=config.train_op_timeout)
    )


def check_engine(config: Config) -> None:
    """Make sure of what the engine will need later, before anything is billed.

    Raises:
        UsageError: It is not installed.
    """
    if config.engine == "local":
        check_local()
    if config.engine == "sagemaker" and importlib.util.find_spec("transformers") is None:
        raise UsageError(
            "the model's tokenizer needs transformers: pip install 'sagemaker-train[tokenizer]'"
        )


def check_local() -> None:
    """Make sure that a model can be loaded on this machine.

    Raises:
        UsageError: What that needs is not installed.
    """
    missing = [name for name in _LOCAL_PARTS if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a model on this machine needs {', '.join(missing)}: pip install 'rft-agent-sdk[local]'"
        )


def check_gateway(agent_url: str, host: str = "", port: int = 0) -> None:
    """Make sure that the gateway can be served, before anything is billed; see `server_for`.

    Raises:
        UsageError: It cannot: the port is taken, say, or the address is another machine's.
    """
    host = host or _host_for(agent_url)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        raise UsageError(
            f"the gateway cannot be served at {host!r}, port {port}: {error.strerror}. Set gateway_port to one "
            "that is free (0 takes any), and gateway_host to an address of this machine"
        ) from error


def capture(
    config: Config, engine: Engine, sampler_of: Callable[[Any, int], Any] | None = None
) -> Capture:
    """Return a gateway for an engine's model; it samples once something is bound.

    Args:
        config: The run's.
        engine: Whose tokenizer renders.
        sampler_of: Makes a sampler of a sampling client and a version; `None` for the config's engine's.
    """
    from rft_agent_sdk.gateway import Gateway, SamplerPool, load_renderer
    from rft_agent_sdk.gateway.samplers.sagemaker import SageMakerSampler

    def of_local(client: Any, version: int) -> Any:
        from rft_agent_sdk.gateway.samplers.local import LocalSampler

        return LocalSampler(
            client,
            version=version,
            max_tokens=config.max_new_tokens,
            max_context_tokens=config.max_context_tokens,
        )

    def of_session(client: Any, version: int) -> Any:
        return SageMakerSampler(
            client,
            version=version,
            max_tokens=config.max_new_tokens,
            max_context_tokens=config.max_context_tokens,
            timeout_s=config.train_op_timeout,
        )

    make = sampler_of or (of_local if config.engine == "local" else of_session)
    pool = SamplerPool(_unbound(), timeout_s=config.train_op_timeout)
    renderer = load_renderer(
        tokenizer=engine.get_tokenizer(), chat_template_kwargs=config.chat_template_kwargs
    )
    gateway = Gateway(
        renderer=renderer, sampler=pool, history_mode=config.history_mode, model=model_id(config)
    )

    def bind(client: Any, version: int) -> None:
        pool.rebind(make(client, version))

    return Capture(gateway, bind)


def model_id(config: Config) -> str:
    """Return the model's name, as agents are told it."""
    return config.base_model_arn or config.base_model or "default"


def serve(config: Config, gateway: Gateway) -> GatewayServer:
    """Return the server of a gateway, bound to where the config's agent can reach it."""
    return server_for(gateway, config.agent_url, config.gateway_host, config.gateway_port)


def server_for(gateway: Gateway, agent_url: str, host: str = "", port: int = 0) -> GatewayServer:
    """Return a gateway's server, on loopback for an agent on this machine, else on the primary address.

    Args:
        gateway: What is served.
        agent_url: Where the agent is; empty for a runtime on AgentCore.
        host: Address to bind in place of the one that is found.
        port: Port to bind; 0 takes a free one.
    """
    from rft_agent_sdk.gateway import GatewayServer

    host = host or _host_for(agent_url)
    is_any = host in ("0.0.0.0", "::")  # noqa: S104 - asked for by name
    return GatewayServer(
        gateway,
        host=host,
        port=port,
        url_host=primary_address() if is_any else None,
        allow_remote=not _is_loopback(host),
    )


def agent_of(
    url: str, arn: str, *, tps: float = 5.0, concurrency: int = 128, rollout_s: float = 1800.0
) -> AgentRunner:
    """Return what invokes an agent: a served one by its URL, or a runtime by its ARN."""
    from rft_agent_sdk.training.agents import AgentCoreAgent, HttpAgent

    if url:
        return HttpAgent(url)
    return AgentCoreAgent(arn, tps=tps, concurrency=concurrency, timeout_s=rollout_s + 60)


def primary_address() -> str:
    """Return this machine's address on its default route. Nothing is sent.

    Raises:
        UsageError: It has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address of documentation: only the route matters
        except OSError as error:
            raise UsageError(
                f"this machine has no route out, so no address an agent could reach ({error}): name one "
                "with gateway_host"
            ) from None
        return str(probe.getsockname()[0])


def run(work: Coroutine[Any, Any, Any]) -> int:
    """Run to the end and return the exit code.

    SIGTERM, SIGHUP and Ctrl-C cancel, and what is open is closed. The first signal counts: a terminal that
    is closed may send several, and none is to interrupt the closing.
    """
    ended_by: list[int] = []

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end(number: int) -> None:
            if not ended_by and task is not None:
                task.cancel()
            ended_by.append(number)

        for number in filter(None, (getattr(signal, name, None) for name in _ENDINGS)):
            if signal.getsignal(number) is signal.SIG_IGN:  # as nohup wants it
                continue
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, end, int(number))
        await work

    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        if not ended_by:
            raise
        return 128 + ended_by[0]
    return 0


@contextlib.contextmanager
def closing(tracker: Any) -> Iterator[Any]:
    """Close trackers, whatever happens."""
    try:
        yield tracker
    finally:
        tracker.close()


def _unbound() -> Any:
    from rft_agent_sdk.gateway import Refusal, Sampler

    class Unbound(Sampler):
        """Stands in until the engine has given a client."""

        @property
        def version(self) -> str:
            return "none"

        async def sample(self, request: Any) -> Any:
            raise Refusal(503, "no policy is bound yet")

    return Unbound()


def _host_for(agent_url: str) -> str:
    here = urlsplit(agent_url).hostname or ""
    return "127.0.0.1" if _is_loopback(here) else primary_address()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
