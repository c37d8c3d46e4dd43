"""The agent's container file, read as a build would: no image is pulled, the command is started here."""

import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest
import requests

from tests.test_shutdown import STOPPED, free_port

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "agentcore" / "app"


class Instruction(NamedTuple):
    stage: int
    word: str
    rest: str


def instructions() -> list[Instruction]:
    """The file's instructions, lines joined and comments left out."""
    lines = (FOLDER / "Dockerfile").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    found, stage = [], -1
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        stage += word == "FROM"
        found.append(Instruction(stage, word, rest.strip()))
    return found


FILE = instructions()
LAST = max(one.stage for one in FILE)


def last(word: str) -> str:
    """What the image's last stage says of something, which must be once."""
    (rest,) = [one.rest for one in FILE if one.word == word and one.stage == LAST]
    return rest


def command(rest: str) -> list[str]:
    return json.loads(rest[rest.index("[") :])


def copied(stage: int) -> list[tuple[str, str]]:
    """Source in the repository and target in the image of what a stage copies from the context."""
    pairs = [one.rest.split() for one in FILE if one.word == "COPY" and one.stage == stage]
    return [(pair[0], pair[1]) for pair in pairs if not pair[0].startswith("--from")]


def is_sent(path: str) -> bool:
    """Whether the ignore file lets a path into the build: the last pattern that matches decides."""
    parts = PurePosixPath(path).parts
    prefixes = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    sent = True
    for line in (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        bare = pattern.removeprefix("!")
        tried = parts if bare.startswith("**/") else prefixes
        bare = bare.removeprefix("**/")
        if any(fnmatch.fnmatchcase(one, bare) and ("/" in bare or "/" not in one) for one in tried):
            sent = pattern.startswith("!")
    return sent


def test_everything_that_is_copied_exists_is_no_link_and_reaches_the_build():
    sources = [source for stage in range(LAST + 1) for source, _ in copied(stage)]
    assert len(sources) == 4
    for source in sources:
        assert (ROOT / source).exists(), source
        assert not (ROOT / source).is_symlink(), f"{source} would be copied as a broken link"
        files = [path for path in (ROOT / source).rglob("*") if path.is_file()] or [ROOT / source]
        kept = [path for path in files if not re.search(r"__pycache__|/\.", str(path))]
        assert kept
        for path in kept:
            assert is_sent(path.relative_to(ROOT).as_posix()), path


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        "agentcore/.cli/x",
        "agentcore/agentcore.json",
        "agentcore/app/.env",
        "environments/__pycache__/x.pyc",
        "rft_agent_sdk/.env",
        "runs/x/rollout.json",
        "tests/servers.py",
    ],
)
def test_nothing_else_of_the_working_tree_reaches_the_build(path):
    assert not is_sent(path)


def test_the_build_names_no_address():
    for one in FILE:
        addresses = re.findall(r"https?://[^'\"\s]+|--(?:extra-)?index-url|git\+|\bADD\b", one.rest)
        assert [address for address in addresses if "127.0.0.1" not in address] == []
    assert not any(one.word == "ADD" for one in FILE)


def test_the_python_is_the_one_that_is_deployed():
    (version,) = [one.rest.partition("=")[2] for one in FILE if one.word == "ARG"]
    images = [one.rest.split()[0] for one in FILE if one.word == "FROM"]
    assert set(images) == {"python:${PYTHON}-slim"}
    runtimes = json.loads((ROOT / "agentcore/agentcore.json").read_text("utf-8"))["runtimes"]
    assert {runtime["runtimeVersion"] for runtime in runtimes} == {
        "PYTHON_" + version.replace(".", "_")
    }


def test_what_is_installed_is_what_agentcore_installs():
    program = re.search(r'python -c "(import tomllib;[^"]+)"', " ".join(one.rest for one in FILE))
    assert program is not None
    written = program[1].replace("/tmp/pyproject.toml", str(FOLDER / "pyproject.toml"))
    done = subprocess.run(
        [sys.executable, "-c", written],
        capture_output=True,
        text=True,
        check=True,
    )
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text("utf-8"))["project"]
    assert done.stdout.split() == project["dependencies"]


def test_it_runs_as_nobody_in_particular():
    user = last("USER")
    assert user.isdigit()  # Kubernetes' runAsNonRoot reads numbers only
    assert int(user) > 0
    words = [one.word for one in FILE if one.stage == LAST]
    assert words.index("USER") < words.index("CMD")


@pytest.mark.slow
def test_the_command_starts_answers_its_own_health_check_and_stops(tmp_path):
    for source, target in copied(LAST):
        place = tmp_path / target
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, place)
    port = str(free_port())
    assert last("EXPOSE") == "8080"

    def here(rest):
        words = [word.replace("8080", port) for word in command(rest)]
        assert words[0] == "python"
        return [sys.executable, *words[1:]]

    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = subprocess.run(
        [sys.executable, "-c", "import rft_agent_sdk; print(rft_agent_sdk.__file__)"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(tmp_path))
    with subprocess.Popen(here(last("CMD")), cwd=tmp_path, env=environ) as process:
        try:
            check = here(last("HEALTHCHECK"))
            until = time.monotonic() + 30
            while subprocess.run(check, stderr=subprocess.DEVNULL, check=False).returncode:
                assert time.monotonic() < until
                assert process.poll() is None
            body = json.loads((ROOT / "payload.json").read_text("utf-8"))
            body = {"prompt": body["prompt"], "_config": {"base_url": "http://127.0.0.1:9"}}
            body["_config"]["deadline_s"] = 1
            answer = requests.post(f"http://127.0.0.1:{port}/rollout", json=body, timeout=20)
            assert answer.json()["reward"] == -1.5
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) in STOPPED
        finally:
            process.kill()
