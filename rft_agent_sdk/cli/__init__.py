"""The command line: one verb per file, loaded when it is called.

Results go to standard output, progress and logs to standard error. Exit codes: 0 done, 1 the run
failed, 2 you can fix it, 130 interrupted.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.errors import RftError, UsageError

if TYPE_CHECKING:
    import click

VERBS = ("demo", "gateway", "invoke", "play", "serve")


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    try:
        import click
    except ModuleNotFoundError:
        print("rft needs its command-line parts: pip install 'rft-agent-sdk[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    try:
        code = _group().main(args, prog_name="rft", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(2) from None
    except (UsageError, OSError) as error:
        print(f"rft: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except RftError as error:
        print(f"rft: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _group() -> click.Group:
    import click

    class Verbs(click.Group):
        def list_commands(self, context: click.Context) -> list[str]:
            return list(VERBS)

        def get_command(self, context: click.Context, name: str) -> click.Command | None:
            if name not in VERBS:
                return None
            command: click.Command = importlib.import_module(f"{__name__}.{name}").command
            return command

    def start(verbose: bool) -> None:
        logging.basicConfig(
            stream=sys.stderr,
            level=logging.DEBUG if verbose else logging.INFO,
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )
        # Of the libraries below only what matters: their debug output can hold request headers.
        for name in ("botocore", "httpcore", "httpx", "openai", "strands", "urllib3", "uvicorn"):
            logging.getLogger(name).setLevel(logging.WARNING)

    return Verbs(
        name="rft",
        help="Play, serve and train agents with multi-turn reinforcement learning.",
        callback=start,
        params=[click.Option(["-v", "--verbose"], is_flag=True, help="Log debug messages too.")],
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def __getattr__(name: str) -> Any:
    """Give documentation tools the group as `rft_agent_sdk.cli.group`."""
    if name == "group":
        return _group()
    raise AttributeError(name)
