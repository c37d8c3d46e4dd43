"""`rft mtrl work`: an agent that takes its rollouts from an SQS queue."""

from __future__ import annotations

import signal
from types import FrameType

import click

from rft_agent_sdk.cli.traced import traces
from rft_agent_sdk.errors import UsageError


@click.command("work", short_help="Play rollouts from the SQS queue that the forwarder fills.")
@click.option("--queue", required=True, metavar="URL", help="The queue's URL.")
@click.option(
    "--app",
    "target",
    default="agentcore/app/main.py:invoke",
    show_default=True,
    help="FILE.py:FUNCTION or MODULE:FUNCTION under @rft_handler.",
)
@click.option("--max-rollouts", default=96, show_default=True, type=click.IntRange(1))
@click.option(
    "--drain",
    "drain_s",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds that rollouts may play on after SIGTERM.",
)
@traces
def command(queue: str, target: str, max_rollouts: int, drain_s: float) -> None:
    """Play rollouts from an SQS queue until stopped.

    For agents that nothing can call: no port is opened. On SIGTERM it takes nothing more, lets what runs play
    on for a while, and sees to it that all of it is reported.
    """
    import asyncio

    from rft_agent_sdk.cli.inputs import load_app
    from rft_agent_sdk.mtrl.queue_worker import QueueWorker
    from rft_agent_sdk.shutdown import Drain, Running

    entrypoint = load_app(target)
    running = getattr(entrypoint, "running", None)
    if not isinstance(running, Running):
        raise UsageError(f"{target!r} is no function under @rft_handler: got {entrypoint!r}")

    async def work() -> None:
        worker = QueueWorker(entrypoint, queue, max_rollouts=max_rollouts)
        drain = Drain(worker.admission, drain_s)

        def stop(number: int, frame: FrameType | None) -> None:
            drain.stop(signal.Signals(number).name, running, lambda: None)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        click.echo(f"playing {target} from {queue}; Ctrl-C stops it", err=True)
        await worker.run()

    asyncio.run(work())
