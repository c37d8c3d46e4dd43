"""The project as files: the lock, the changelog, and what must stand in none of them."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
TOP_LEVEL = {
    ".ci",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "NOTICE",
    "README.md",
    "SECURITY.md",
    "agentcore",
    "environments",
    "payload.json",
    "pyproject.toml",
    "requirements.lock",
    "rft_agent_sdk",
    "tests",
}

FORBIDDEN = {
    "a path of somebody's machine": r"(^|[^\w./-])/(work|farm|root|home/\w+|Users/\w+|opt/\w+)/",
    "a package registry's address": r"(pypi\.org|pythonhosted\.org|registry\.npmjs\.org|/simple[/])",
    "talk about how the project was made": r"\.\./shared|notes[/]brief|\bH(0[1-9]|[1-9]\d)\b",
    "an access key that is not the documentation's": r"\b(AKIA|ASIA)(?![0-9A-Z]*EXAMPLE)[0-9A-Z]{16}\b",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY",
}


def project_files() -> list[Path]:
    """Every file that is committed or could be: what git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def locked() -> dict[str, set[str]]:
    """The versions of every locked distribution: more than one where a marker chooses."""
    versions: dict[str, set[str]] = {}
    for line in LOCK.splitlines():
        if line[:1].isalnum():
            requirement = Requirement(line.removesuffix("\\"))
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", f"not pinned: {line}"
            name = canonicalize_name(requirement.name)
            versions.setdefault(name, set()).add(specifier.version)
    return versions


def direct_requirements() -> list[str]:
    extras = PYPROJECT["project"]["optional-dependencies"]
    installed = [*extras["dev"], *extras["cli"], *extras["gateway"]]
    listed = [
        *PYPROJECT["project"]["dependencies"],
        *PYPROJECT["build-system"]["requires"],
        *installed,
    ]
    return [text for text in listed if not text.startswith("rft-agent-sdk")]


@pytest.mark.parametrize("text", direct_requirements())
def test_every_direct_dependency_is_locked_at_a_version_it_allows(text):
    requirement = Requirement(text)
    versions = locked().get(canonicalize_name(requirement.name), set())
    assert versions, f"{requirement.name} is not in requirements.lock: run `make lock`"
    assert all(requirement.specifier.contains(version) for version in versions)


def test_the_lock_holds_no_address_no_path_and_no_option():
    for line in LOCK.splitlines():
        assert re.fullmatch(
            r"[\w.-]+==[\w.+!-]+( ; [^/\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line
        )


def test_every_locked_distribution_has_a_hash():
    lines = LOCK.splitlines()
    names = [number for number, line in enumerate(lines) if line[:1].isalnum()]
    assert names
    assert all(lines[number + 1].startswith("    --hash=sha256:") for number in names)


def test_the_newest_entry_of_the_changelog_is_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", text, re.MULTILINE)
    assert newest is not None
    assert newest[1] == PYPROJECT["project"]["version"]


def test_the_check_of_every_change_is_executable():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("name", PYPROJECT["project"]["license-files"])
def test_every_licence_file_that_ships_exists(name):
    assert (ROOT / name).stat().st_size > 0


def test_nothing_else_lies_at_the_top():
    names = {path.relative_to(ROOT).parts[0] for path in project_files()}
    assert names - TOP_LEVEL == set()


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what):
    pattern = re.compile(FORBIDDEN[what], re.MULTILINE)
    hits = []
    for path in project_files():
        text = path.read_text(encoding="utf-8", errors="ignore")
        hits += [f"{path.relative_to(ROOT)}: {match[0]!r}" for match in pattern.finditer(text)]
    assert hits == []


def test_no_file_is_larger_than_a_person_would_commit():
    big = {str(path.relative_to(ROOT)): path.stat().st_size for path in project_files()}
    assert {name: size for name, size in big.items() if size > 600_000} == {}
