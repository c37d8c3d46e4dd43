"""The README's Python is run, its files exist, and its commands are the project's own."""

import json
import re
from pathlib import Path

import pytest

from rft_agent_sdk import Rollout, play
from rft_agent_sdk.context import rollout_context
from rft_agent_sdk.payload import parse_request
from tests.servers import ScriptedServer, completion

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_python_block_runs(block):
    exec(compile(block, "README.md", "exec"), {})


def test_the_environment_in_the_readme_is_played():
    names: dict = {}
    exec(compile(BLOCKS[0], "README.md", "exec"), names)

    def bisect(seen, count):
        told = [m["content"] for m in seen.json["messages"] if m["role"] == "tool"]
        low, high = 1, 100
        for text in map(str, told):
            middle = (low + high) // 2
            low, high = (middle + 1, high) if "higher" in text else (low, middle - 1)
        return completion("", calls=[("guess", json.dumps({"n": (low + high) // 2}))])

    with ScriptedServer(bisect) as server:
        config = {"base_url": server.url, "api_key": "k"}
        rollout = Rollout(parse_request({"prompt": '{"secret": 37}', "_config": config}))
        with rollout_context(rollout):
            reward = play(names["environment"], rollout)
    assert reward.total == pytest.approx(1 - 0.1 * len(server.samples))
    assert reward.total > 0


def test_every_file_in_the_map_exists():
    listing = TEXT.split("## Files")[1].split("```")[1]
    folder = ROOT
    for line in listing.strip().splitlines():
        names = re.split(r"\s{2,}", line.strip())[0].replace(";", "").split()
        if not line.startswith(" "):
            folder = ROOT / names[0] if names[0] == "rft_agent_sdk/" else ROOT
        for name in names:
            base = folder if line.startswith(" ") else ROOT
            assert (base / name).exists(), f"{name} is in the README's map and not in the project"


def test_every_linked_file_exists():
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_the_variables_in_the_readme_are_read_somewhere():
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "rft_agent_sdk").rglob("*.py"))
    sources += (ROOT / "agentcore/app/main.py").read_text("utf-8")
    for name in re.findall(r"^\| `([A-Z_]+)`", TEXT, re.MULTILINE):
        assert f'"{name}"' in sources, name
