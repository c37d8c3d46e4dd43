"""The code that a runtime deploys: what must be there, what is linked, and what is installed beside it."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rft_agent_sdk.mtrl.findings import Finding, Place
from rft_agent_sdk.mtrl.project_runtime import python_of
from rft_agent_sdk.mtrl.project_shape import get
from rft_agent_sdk.types import JSON

DISTRO = "aws-opentelemetry-distro"
"""Brings `opentelemetry-instrument`, under which the CLI starts a traced agent."""
HEAVY = frozenset({
    "accelerate",
    "datasets",
    "jax",
    "matplotlib",
    "mlflow",
    "pandas",
    "polars",
    "pyarrow",
    "sagemaker",
    "sagemaker-core",
    "sagemaker-train",
    "scikit-learn",
    "scipy",
    "tensorflow",
    "torch",
    "transformers",
    "vllm",
})  # fmt: skip
"""Distributions that multiply a bundle: `sagemaker-train` alone brings some 600 MB."""

_ENTRYPOINT = re.compile(r"(?P<file>\w[\w/.-]*\.py)(?::(?P<name>[A-Za-z_]\w*))?", re.ASCII)
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[[^]]*\])?\s*(?P<rest>[^;]*)", re.ASCII
)
_PINNED = re.compile(r"===?\s*[\w.!+-]+", re.ASCII)
_BOUND = re.compile(r"(?P<sign>>=|<)\s*3\.(?P<minor>\d+)", re.ASCII)
_LEFT_OUT = {".git", ".venv", "__pycache__", "node_modules"}


def code_of(runtime: JSON, root: Path) -> Path | None:
    """Return the folder a runtime's code is in; `None` where there is none below `root`."""
    location = Path(get(runtime, "codeLocation", ""))
    code = root / location
    try:
        is_inside = code.resolve().is_relative_to(root.resolve())
        return code if location.parts and is_inside and code.is_dir() else None
    except (OSError, ValueError, RuntimeError):  # a name too long, a NUL in it, links in a circle
        return None


def check_code(place: Place, runtime: JSON, code: Path | None) -> Iterator[Finding]:
    """Yield what is wrong with the code of a runtime.

    Args:
        place: Where the runtime stands.
        runtime: The runtime.
        code: Its folder, as `code_of` returns it.
    """
    location = get(runtime, "codeLocation", "")
    if code is None:
        yield place.at("codeLocation").error(
            "code-missing",
            f"wanted a folder below the project's root, got {location[:80]!r}",
            "Name the one that main.py is in.",
        )
        return
    here = Place(Path(location).as_posix())
    yield from _links(here, code)
    yield from _entrypoint(place.at("entrypoint"), get(runtime, "entrypoint", ""), code)
    yield from _installed(Place(f"{here.where}/pyproject.toml"), runtime, code)


def is_there(test: Callable[[], bool]) -> bool:
    """Return what a path says of itself, as in `is_there(path.is_file)`; one that no file can have is not there."""
    try:
        return test()
    except (OSError, ValueError):
        return False


def _links(place: Place, code: Path) -> Iterator[Finding]:
    for folder, folders, files in os.walk(code):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for path in (Path(folder) / name for name in [*folders, *files]):
            inside = path.relative_to(code).as_posix()
            if path.is_symlink() and not path.exists():
                yield place.at(inside).error(
                    "broken-link",
                    f"the link leads to {str(path.readlink())!r}, which is not there",
                    "Link it anew, or check the repository out whole.",
                )
            elif not path.is_symlink() and path.is_file() and _is_written_out(path):
                yield place.at(inside).error(
                    "link-as-text",
                    "it is a text where a link was committed: this checkout makes no links",
                    "Run git config core.symlinks true, then git checkout -- " + inside + ".",
                )


def _is_written_out(path: Path) -> bool:
    """Whether a file holds only the path that a link of its name would lead to, as git leaves it on Windows."""
    if path.suffix or path.stat().st_size > 255:
        return False
    text = path.read_text(encoding="utf-8", errors="replace")
    return "/" in text and "\n" not in text and text.rpartition("/")[2] == path.name


def _entrypoint(place: Place, entrypoint: str, code: Path) -> Iterator[Finding]:
    match = _ENTRYPOINT.fullmatch(entrypoint)
    if match is None:
        yield place.error(
            "entrypoint",
            f"wanted a Python file such as main.py, got {entrypoint[:80]!r}",
            "Name the agent's file.",
        )
        return
    path = code / match["file"]
    if not is_there(path.is_file):
        yield place.error(
            "entrypoint",
            f"there is no {match['file']!r} in {code.name}/",
            "See that it is spelled right.",
        )
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError) as error:
        yield place.error(
            "entrypoint",
            f"{match['file']!r} is no Python: {error.__class__.__name__}",
            "Make it run here first: rft serve.",
        )
        return
    names = _defined(tree)
    if match["name"] and match["name"] not in names.made | names.imported:
        yield place.error(
            "entrypoint",
            f"{match['file']!r} defines no {match['name']!r} at its top",
            "Name the BedrockAgentCoreApp.",
        )
    package = "rft_agent_sdk"
    if package in names.packages and not (code / package).is_dir() and not _requires(code, package):
        yield place.error(
            "package-missing",
            f"{match['file']!r} imports {package}, which is neither in {code.name}/ nor installed beside it",
            f"Link {package} beside the entrypoint, or name a wheel of it in pyproject.toml.",
        )


@dataclass(frozen=True, slots=True)
class _Names:
    made: set[str]
    imported: set[str]
    packages: set[str]
    """Top-level packages of what is imported."""


def _defined(tree: ast.Module) -> _Names:
    """Return what a module makes and imports at its top."""
    names = _Names(set(), set(), set())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.made.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.made.update(one.id for one in targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.imported.update(item.asname or item.name for item in node.names)
            module = node.module if isinstance(node, ast.ImportFrom) else None
            full = [module] if module else [item.name for item in node.names]
            names.packages.update(name.partition(".")[0] for name in full)
    return names


def _requires(code: Path, package: str) -> bool:
    try:
        return package in re.sub(r"[-.]", "_", (code / "pyproject.toml").read_text("utf-8").lower())
    except (OSError, ValueError):
        return False


def _installed(place: Place, runtime: JSON, code: Path) -> Iterator[Finding]:
    try:
        document = tomllib.loads((code / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        yield place.error(
            "pyproject-missing",
            "packaging installs from it, and it is not there",
            "Write the agent's dependencies there.",
        )
        return
    except (OSError, ValueError) as error:
        yield place.error("pyproject-unreadable", f"it is no TOML: {error}", "Correct it.")
        return
    project: JSON = get(document, "project", {})
    listed: list[Any] = get(project, "dependencies", [])
    requirements = [one for one in listed if isinstance(one, str)]
    yield from _python_fits(place.at("requires-python"), project, runtime)
    names = set()
    for text in requirements:
        match = _REQUIREMENT.match(text.strip())
        name = re.sub(r"[-_.]+", "-", match["name"]).lower() if match else ""
        names.add(name)
        yield from _requirement(
            place.at("dependencies"), text, name, match["rest"].strip() if match else ""
        )
    yield from _traced(place, runtime, DISTRO in names)


def _requirement(place: Place, text: str, name: str, version: str) -> Iterator[Finding]:
    if version.startswith("@"):
        yield place.warning(
            "source-dependency",
            f"{name} is installed from an address, and packaging builds nothing from source",
            "Let it lead to a wheel for any platform or Linux on ARM64, or name a published release.",
        )
    elif not _PINNED.fullmatch(version):
        yield place.warning(
            "unpinned-dependency",
            f"packaging reads no lock, so {text[:80]!r} may be another release at each deployment",
            f"Pin it: {name}==VERSION.",
        )
    if name in HEAVY:
        yield place.warning(
            "heavy-dependency",
            f"{name} multiplies the bundle, which is unpacked at every cold start",
            "Leave it to the machine that launches jobs; an agent needs none of it.",
        )


def _python_fits(place: Place, project: JSON, runtime: JSON) -> Iterator[Finding]:
    wanted, python = get(project, "requires-python", ""), python_of(runtime)
    if not python or not re.fullmatch(r"3\.\d+", python):
        return
    minor = int(python.partition(".")[2])
    for bound in _BOUND.finditer(wanted):
        if (minor < int(bound["minor"])) == (bound["sign"] == ">="):
            yield place.error(
                "requires-python",
                f"wanted Python {wanted}, and the runtime has {python}",
                "Change one of the two.",
            )


def _traced(place: Place, runtime: JSON, has_distro: bool) -> Iterator[Finding]:
    is_traced = get(get(runtime, "instrumentation", {}), "enableOtel", True)
    if is_traced and not has_distro:
        yield place.at("dependencies").error(
            "tracing",
            f"the agent is started under opentelemetry-instrument, which {DISTRO} brings, and that is not installed",
            f'Add {DISTRO}, or write "instrumentation": {{"enableOtel": false}} in agentcore.json.',
        )
    elif has_distro and not is_traced:
        yield place.at("dependencies").warning(
            "tracing",
            f"{DISTRO} is installed and not used: every cold start unpacks it in vain",
            "Take it out, or leave enableOtel on.",
        )
