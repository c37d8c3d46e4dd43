"""`rft mtrl`: managed SageMaker multi-turn RL jobs, one verb per file of this folder.

Each file holds a click command named `command` and is loaded when it is called or listed.
"""

from __future__ import annotations

import importlib
import pkgutil

import click


class _Verbs(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        names = (module.name for module in pkgutil.iter_modules(__path__))
        return sorted(name for name in names if not name.startswith("_"))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{name}").command
        return command


command = _Verbs(
    "mtrl",
    short_help="Managed SageMaker multi-turn RL jobs: rehearse, launch, watch, evaluate.",
    help="Managed SageMaker multi-turn RL jobs: rehearse, launch, watch, evaluate, account for, clean up.",
)
