"""`rft training-sessions`: SageMaker's training sessions on this machine, for code written for the real ones."""

from __future__ import annotations

import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from rft_agent_sdk.local.model import LocalModel
    from rft_agent_sdk.twins.backend import TrainingBackend
    from rft_agent_sdk.types import JSON


@click.group("training-sessions", short_help="Serve training sessions from this machine.")
def command() -> None:
    """Serve SageMaker training sessions from this machine. Needs the [local] extra."""


@command.command("serve", short_help="Train a model here, driven by the real clients.")
@click.option("--model", "path", required=True, metavar="PATH", help="Folder, or name on the hub.")
@click.option("--port", default=0, show_default="a free one", type=click.IntRange(0, 65535))
@click.option(
    "--lora-rank",
    type=click.IntRange(0),
    default=None,
    help="In place of what a session asks for; 0 trains all weights.",
)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32")
@click.option("--device", default="auto", show_default=True, help="cpu, mps, cuda, cuda:1 or auto.")
@click.option(
    "--threads",
    type=click.IntRange(0),
    default=0,
    help="Threads of torch on the CPU; 0 leaves that to torch.",
)
@click.option("--region", default="us-west-2", show_default=True, help="Region in ARNs.")
def serve_command(
    path: str,
    port: int,
    lora_rank: int | None,
    dtype: Any,
    device: str,
    threads: int,
    region: str,
) -> None:
    """Serve the training-session API on 127.0.0.1 with a model that is trained here.

    Prints the environment variables that send the real clients here. Every session begins as the model, whatever
    base model it names. What is saved is in memory: it ends with the server. No signature is verified.
    """
    from rft_agent_sdk.cli import composing
    from rft_agent_sdk.local.model import ModelSettings, load
    from rft_agent_sdk.twins.training_sessions import TrainingSessionServer

    composing.check_local()
    base = load(ModelSettings(path, dtype=dtype, device=device, threads=threads))
    server = TrainingSessionServer(
        backend_of(base, lora_rank),
        region=region,
        tokenizer=path,
        port=port,
        threads=256,
        hold_s=20.0,  # the client sleeps two seconds after each poll that comes back with nothing
    )
    with server:
        for name, value in {**server.environment(), "AWS_DEFAULT_REGION": region}.items():
            click.echo(f"export {name}={value}")
        click.echo(
            "training sessions are served until Ctrl-C. Any credentials will do; pass s3_output_path and "
            "model_package_group_arn, for which the client would ask other services",
            err=True,
        )
        _until_ended()


def backend_of(base: LocalModel, lora_rank: int | None) -> Callable[[JSON], TrainingBackend]:
    """Return what makes a session's backend of its request.

    Args:
        base: Model that sessions begin as.
        lora_rank: Rank in place of what a session asks for.
    """
    from rft_agent_sdk.twins.torch_backend import TorchBackend

    def make(request: JSON) -> TrainingBackend:
        asked = request["LoraConfig"]
        rank = asked["Rank"] if lora_rank is None else lora_rank
        click.echo(f"session {json.dumps(request['TrainingSessionName'])}: rank {rank}", err=True)
        return TorchBackend(base, lora_rank=rank, lora_alpha=asked["Alpha"])

    return make


def _until_ended() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while not ended.wait(3600.0):
        pass
