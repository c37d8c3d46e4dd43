"""Look through an AgentCore project for what `agentcore validate` lets through: no Node, no network, no AWS.

`validate` reads the two JSON files against their schema. It drops keys it does not know, and looks at nothing that
they name: not the code, not what is installed, not the role. What is wrong there shows after minutes, in a
deployment that fails, or after hours, in a job that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from rft_agent_sdk.mtrl.findings import Finding, Place
from rft_agent_sdk.mtrl.project_code import check_code, code_of
from rft_agent_sdk.mtrl.project_runtime import check_runtime
from rft_agent_sdk.mtrl.project_shape import PROJECT, get, unfit
from rft_agent_sdk.mtrl.project_targets import check_payload, check_targets
from rft_agent_sdk.mtrl.project_variables import check_variables
from rft_agent_sdk.types import JSON

RESERVED = frozenset({
    "agui", "aguiadk", "aguilanggraph", "aguiprotocol", "aguistrands", "aisdk", "anthropic", "autogen",
    "autogenagentchat", "autogenext", "awsopentelemetrydistro", "bedrock", "bedrockagentcore", "boto3", "botocore",
    "build", "dist", "env", "googleadk", "googlegenerativeai", "hatchling", "httpx", "langchain",
    "langchainanthropic", "langchainaws", "langchaingooglegenai", "langchainmcpadapters", "langchainopenai",
    "langgraph", "lib", "mcp", "openai", "openaiagents", "pip", "pytest", "pytestasyncio", "pythondotenv",
    "setuptools", "site", "src", "strands", "strandsagents", "strandsagentstools", "test", "tests", "uv", "venv",
    "vercelai", "wheel",
})  # fmt: skip
"""Names of projects that the CLI refuses, in any case: packages of these names would be hidden."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,22}", re.ASCII)
_FOLDER = "agentcore"


def check_project(root: Path, *, today: date | None = None) -> list[Finding]:
    """Return what is wrong with the AgentCore project at `root`, in the order of its files.

    Args:
        root: The folder that holds `agentcore/`.
        today: What a Python's last day of support is compared with; `None` is today.

    Returns:
        The findings; none where nothing is wrong. It raises for nothing that a project's files may hold.
    """
    today = today or datetime.now(UTC).date()
    place = Place(f"{_FOLDER}/aws-targets.json")
    found: list[Finding] = []
    targets = _read(place, root, found)
    if targets is not None and not isinstance(targets, list):
        found.append(place.error("wrong-type", "wanted a list of targets", "Write it so."))
    targets = targets if isinstance(targets, list) else []
    if not found:
        found += check_targets(place, targets)
    payload = Place("payload.json")
    if (root / payload.where).exists():
        value = _read(payload, root, found)
        found += check_payload(payload, value, targets) if value is not None else ()
    return [*_spec(root, targets, today), *found, *_stack(root)]


def _spec(root: Path, targets: list[object], today: date) -> Iterator[Finding]:
    place = Place(f"{_FOLDER}/agentcore.json")
    found: list[Finding] = []
    spec = _read(place, root, found)
    yield from found
    if spec is None:
        return
    if not isinstance(spec, dict):
        yield place.error("wrong-type", "wanted an object", "Write it so.")
        return
    yield from unfit(place, spec, PROJECT)
    name = get(spec, "name", "")
    if not _NAME.fullmatch(name) or name.lower() in RESERVED:
        yield place.at("name").error(
            "project-name",
            f"wanted a letter, then up to 22 letters or digits, and no package's name, got {name[:60]!r}",
            "Rename the project.",
        )
    runtimes: list[object] = get(spec, "runtimes", [])
    if not runtimes:
        yield place.at("runtimes").error(
            "no-runtime",
            "it names no runtime, as after `agentcore remove all`; deployed so, it takes the stack down",
            "Restore it from git, unless that is what you want.",
        )
    names = [get(one, "name", "") for one in runtimes]
    if twice := sorted({one for one in names if names.count(one) > 1}):
        yield place.at("runtimes").error(
            "runtime-name", f"{twice[0][:60]!r} stands there twice", "Rename one of the two."
        )
    for index, runtime in enumerate(runtimes):
        at = place.at(f"runtimes[{index}]")
        if isinstance(runtime, dict):
            yield from _runtime(at, runtime, name, root, targets, today)
        else:
            yield at.error("wrong-type", "wanted an object", "Write it so.")


def _runtime(
    place: Place, runtime: JSON, project: str, root: Path, targets: list[object], today: date
) -> Iterator[Finding]:
    code = code_of(runtime, root)
    regions = tuple(region for target in targets if (region := get(target, "region", "")))
    yield from check_runtime(
        place, runtime, project=project, code=code, regions=regions, today=today
    )
    yield from check_variables(place, runtime, code, regions)
    yield from check_code(place, runtime, code)


def _stack(root: Path) -> Iterator[Finding]:
    path = Path(_FOLDER) / "cdk" / "package.json"
    if not (root / path).is_file():
        yield Place(path.as_posix()).error(
            "stack-missing",
            "`agentcore deploy` builds the stack there, and it is gone",
            "Restore it from git.",
        )


def _read(place: Place, root: Path, found: list[Finding]) -> object:
    """Return a JSON file's value; `None`, and a finding more, where there is none."""
    try:
        value: object = json.loads((root / place.where).read_text(encoding="utf-8"))
    except FileNotFoundError:
        found.append(
            place.error(
                "file-missing",
                "it is not there",
                "Restore it from git, or run where agentcore/ is.",
            )
        )
    except (OSError, ValueError, RecursionError) as error:
        found.append(place.error("file-unreadable", f"it is no JSON: {error}", "Correct it."))
    else:
        if value is not None:
            return value
        found.append(place.error("wrong-type", "it holds null", "Restore it from git."))
    return None
