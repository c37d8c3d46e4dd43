"""The command line: one verb per file, loaded when it is called.

Results go to standard output, progress and logs to standard error. Exit codes: 0 done, 1 the run
failed, 2 you can fix it, 130 interrupted.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.errors import RftError, UsageError

if TYPE_CHECKING:
    import click

VERBS = (
    "dataset",
    "demo",
    "doctor",
    "evaluate",
    "gateway",
    "grpo",
    "invoke",
    "learn",
    "local",
    "mtrl",
    "play",
    "serve",
    "sessions",
    "traces",
    "training-sessions",
)

_PARTS = frozenset(
    {"click", "jinja2", "orjson", "renderers", "rich", "starlette", "tokenizers", "uvicorn"}
)
"""Modules of the `cli` extra. Some of them come with other packages too, so each may be there alone."""


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    try:
        raise SystemExit(_run(args))
    except ModuleNotFoundError as error:
        part = (error.name or "").partition(".")[0]
        if part not in _PARTS:
            raise
        print(
            f"rft needs its command-line parts, of which {part} is missing: "
            "pip install 'rft-agent-sdk[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None


def _run(args: list[str] | None) -> int:
    """Run a verb and return its exit code."""
    import click

    # As `python -m` does, and an installed script does not: `--environment module:object` is often here.
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - sys.path holds text
        sys.path.append(here)
    try:
        code = _group().main(args, prog_name="rft", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except (UsageError, OSError) as error:
        print(f"rft: {error}", file=sys.stderr)
        return 2
    except RftError as error:
        print(f"rft: {error}", file=sys.stderr)
        return 1
    return code if isinstance(code, int) else 0


def _group() -> click.Group:
    import click

    from rft_agent_sdk.cli.traced import HELP, trace_to

    class Verbs(click.Group):
        def list_commands(self, context: click.Context) -> list[str]:
            return list(VERBS)

        def get_command(self, context: click.Context, name: str) -> click.Command | None:
            if name not in VERBS:
                return None
            command: click.Command = importlib.import_module(
                f"{__name__}.{name.replace('-', '_')}"
            ).command
            return command

    def start(verbose: bool, traces: str | None) -> None:
        logging.basicConfig(
            stream=sys.stderr,
            level=logging.DEBUG if verbose else logging.INFO,
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )
        # Of the libraries below only what matters: their debug output can hold request headers.
        for name in ("botocore", "httpcore", "httpx", "openai", "strands", "urllib3", "uvicorn"):
            logging.getLogger(name).setLevel(logging.WARNING)
        trace_to(traces)

    group = Verbs(
        name="rft",
        help="Play, serve and train agents with multi-turn reinforcement learning.",
        callback=start,
        params=[
            click.Option(["-v", "--verbose"], is_flag=True, help="Log debug messages too."),
            click.Option(["--traces"], metavar="FILE", help=HELP),
        ],
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return click.version_option(package_name="rft-agent-sdk")(group)


def __getattr__(name: str) -> Any:
    """Give documentation tools the group as `rft_agent_sdk.cli.group`."""
    if name == "group":
        return _group()
    raise AttributeError(name)
