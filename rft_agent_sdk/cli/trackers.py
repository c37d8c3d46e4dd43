"""Where a run's metrics go, as its config says: connected before the run begins and anything is billed."""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.training.checkpoint import Checkpoint, RunFolder
    from rft_agent_sdk.training.config import Config
    from rft_agent_sdk.training.tracking import Tracker, Trackers

logger = logging.getLogger(__name__)

_CONNECT_S = 45.0
"""Longest wait for a tracker's server."""


async def open_trackers(
    config: Config, folder: RunFolder, steps: int, checkpoint: Checkpoint | None
) -> Trackers:
    """Return where a run's metrics go. A server that is away is left out, and said to be.

    Args:
        config: The run's.
        folder: The run's.
        steps: How many there will be.
        checkpoint: Of the run that goes on: it knows how many there were, and under which ids.

    Raises:
        UsageError: A library is not installed.
    """
    from rft_agent_sdk.training.tracking import (
        ConsoleTracker,
        JsonlTracker,
        MLflowTracker,
        Trackers,
        WandbTracker,
    )

    known = checkpoint.loggers if checkpoint else {}
    told: dict[str, Any] = {
        "run_name": config.wandb_run_name or folder.path.name,
        "config": config.model_dump(mode="json"),
    }
    servers: dict[str, Callable[[], Tracker]] = {}
    uri = config.mlflow_uri
    if not uri and all(map(importlib.util.find_spec, ("mlflow", "sqlalchemy"))):
        uri = f"sqlite:///{(folder.path / 'mlflow.db').resolve()}"
    if uri and uri != "none":
        run_id = known.get(MLflowTracker.__name__)
        servers["mlflow_uri"] = functools.partial(MLflowTracker, uri, run_id=run_id, **told)
    if config.wandb_project:
        servers["wandb_project"] = functools.partial(
            WandbTracker,
            config.wandb_project,
            run_id=known.get(WandbTracker.__name__),
            folder=folder.path,
            **told,
        )
    found: list[Tracker] = []
    try:
        for setting, connect in servers.items():
            found += await _connected(setting, connect)
        metrics = JsonlTracker(folder.metrics, resume_after=checkpoint.step if checkpoint else 0)
    except BaseException:
        Trackers(found).close()
        raise
    console = ConsoleTracker(functools.partial(click.echo, err=True), steps)
    return Trackers([console, metrics, *found], known=known)


async def _connected(setting: str, connect: Callable[[], Tracker]) -> list[Tracker]:
    """Return a tracker that has reached its server, off this thread; none where that failed."""
    from rft_agent_sdk.training.engines.threads import on_thread
    from rft_agent_sdk.training.tracking import BackgroundTracker

    try:
        return [BackgroundTracker(await on_thread(connect, _CONNECT_S, name=f"rft-{setting}"))]
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - libraries of others, over a network
        logger.warning(
            "setting=<%s> | not reached, so metrics go to metrics.jsonl without it: %s: %.300s",
            *(setting, type(error).__name__, error),
        )
        return []
