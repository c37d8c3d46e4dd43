"""What checks cannot be made without, and how to give it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rft_agent_sdk.errors import RftError
from rft_agent_sdk.mtrl.doctor.check import Skipped
from rft_agent_sdk.mtrl.doctor.setup import Setup


@dataclass(frozen=True, slots=True)
class Need:
    """Something that checks cannot be made without."""

    text: str
    """As the table of checks names it."""
    check: Callable[[Setup], object]
    """Raises `Skipped` where it is not there."""


def _given(told: Callable[[Setup], object], text: str) -> Need:
    """Return the need of something that the command line is given."""

    def check(setup: Setup) -> None:
        if not told(setup):
            raise Skipped(f"{text.split()[0]} was not given", f"Give {text}.")

    return Need(text, check)


def _has_project(setup: Setup) -> None:
    if not (setup.root / "agentcore").is_dir():
        raise Skipped(
            f"there is no folder agentcore/ in {setup.root.resolve()}",
            "Run it from the project's root, or name that with --project DIR.",
        )


def _reaches_aws(setup: Setup) -> None:
    setup.credentials()
    try:
        setup.caller()
    except (RftError, OSError) as error:
        raise Skipped("it is not known who asks", "See the check identity.") from error


NEEDS = {
    "credentials": Need("AWS credentials", Setup.credentials),
    "aws": Need("AWS credentials", _reaches_aws),
    "agentcore": Need("a project's folder agentcore/", _has_project),
    "project": Need("a project's readable agentcore.json", Setup.runtimes),
    "agent": _given(lambda setup: setup.agent, "--agent ARN"),
    "role": _given(lambda setup: setup.launch.role, "--role ARN"),
    "s3_output": _given(lambda setup: setup.launch.s3_output, "--s3-output s3://BUCKET/PREFIX"),
    "mlflow_app": _given(lambda setup: setup.launch.mlflow_app, "--mlflow-app ARN"),
    "model": _given(lambda setup: setup.launch.model, "--model NAME"),
    "dataset": _given(lambda setup: setup.dataset, "--dataset FILE"),
    "validation": _given(lambda setup: setup.validation, "--validation-dataset FILE"),
    "invoke": _given(lambda setup: setup.invoke, "--invoke"),
    "url": _given(lambda setup: setup.url, "--url URL"),
}
