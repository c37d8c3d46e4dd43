"""An environment is found by name, and what is not one is refused by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rft_agent_sdk.environment import (
    ENTRY_POINT_GROUP,
    Environment,
    Episode,
    available_environments,
    load_environment,
)
from rft_agent_sdk.errors import UnknownEnvironmentError
from rft_agent_sdk.reward import Reward
from rft_agent_sdk.types import Outcome, ToolResult, ToolSpec

SOURCE = """
from rft_agent_sdk.environment import Environment

class Coin(Environment):
    name = "coin"
    floor = -1.0

    def start(self, task):
        raise NotImplementedError

class Structural:
    name = "structural"
    floor = -1.0

    def start(self, task):
        raise NotImplementedError

    def policies(self):
        return {}

    def tasks(self, split, count, seed=0):
        return []

class Needy(Structural):
    def __init__(self, sides):
        self.sides = sides

class Poor:
    name = "poor"
    floor = 0.0

    def start(self, task): ...

coin = Coin()
make = lambda: Coin()
nothing = lambda: None
number = 5
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with a module `coin_module`; whatever is imported from it is forgotten."""
    before = set(sys.modules)
    (tmp_path / "coin_module.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["coin", "make", "Coin", "Structural"])
def test_an_object_a_class_and_a_factory_are_found_in_a_module(package, name):
    found = load_environment(f"coin_module:{name}")
    assert isinstance(found, Environment)
    assert not isinstance(found, type)
    assert found.floor == -1.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("coin_module:absent", "no object 'absent'"),
        ("coin_module:", "no object ''"),
        ("coin_module:number", "a int that has no name, floor, start"),
        ("coin_module:nothing", "a NoneType that has no name"),
        ("coin_module:Poor", "a Poor that has no .*policies;"),
        ("coin_module:Needy", "takes arguments"),
        ("absent_module:x", "no module 'absent_module'"),
        ("coin_module.inner:x", "no module"),
        (":x", "full name"),
        (".coin_module:x", "full name"),
        ("a..b:x", "full name"),
        ("a/b:x", "full name"),
        ("os.path:join", "a function that has no name"),
        ("absent", "no environment 'absent'"),
        ("", "no environment ''"),
        ("../wordle", "no environment"),
    ],
)
def test_what_is_no_environment_is_refused_by_name(package, name, said):
    with pytest.raises(UnknownEnvironmentError, match="(?s)" + said):
        load_environment(name)


def test_the_refusal_of_an_unknown_name_lists_those_there_are():
    with pytest.raises(UnknownEnvironmentError, match=r"wordle.*module:object"):
        load_environment("wordel")


def test_the_shipped_environment_is_found_by_its_folder_name():
    assert "wordle" in available_environments()
    assert load_environment("wordle").name == "wordle"


def test_a_module_missing_inside_an_environment_is_not_called_a_missing_environment(package):
    (package / "broken_module.py").write_text("import module_that_is_absent")
    with pytest.raises(ModuleNotFoundError, match="module_that_is_absent"):
        load_environment("broken_module:x")


def test_what_an_environment_raises_on_import_is_not_hidden(package):
    (package / "failing_module.py").write_text("raise ValueError('bad table')")
    with pytest.raises(ValueError, match="bad table") as raised:
        load_environment("failing_module:x")
    assert not isinstance(raised.value, UnknownEnvironmentError)


def test_an_entry_point_of_an_installed_package_is_found(package):
    info = package / "coin_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: coin-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nflip = coin_module:Coin\n")
    assert "flip" in available_environments()
    assert load_environment("flip").name == "coin"


def test_somebodys_module_called_environments_is_not_in_the_way(package):
    (package / "environments.py").write_text("")
    code = "from rft_agent_sdk.environment import load_environment as load; print(load('coin_module:coin').name)"
    code += "; load('absent')"
    root = Path(__file__).parents[1]
    path = {"PYTHONPATH": f"{package}:{root}"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=package,
        env=path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "coin\n"
    assert "no environment 'absent'" in done.stderr


class Toss(Episode):
    """Declares what it must and nothing more."""

    system_prompt = ""
    prompt = "Call it."
    tools: Sequence[ToolSpec] = (ToolSpec("call_it", "", {"type": "object", "properties": {}}),)

    @property
    def done(self) -> bool:
        return False

    @property
    def acted(self) -> bool:
        return False

    def call(
        self, name: str, arguments: Mapping[str, Any], *, recovered: bool = False
    ) -> ToolResult:
        return ToolResult(name)

    def reward(self, outcome: Outcome) -> Reward:
        return Reward(0.0)


def test_an_episode_inherits_recovery_and_a_terse_second_prompt():
    toss = Toss()
    assert [call.name for call in toss.recover("call_it()")] == ["call_it"]
    assert toss.retry_prompt.startswith("Call it.\n\n")
    assert isinstance(toss, Episode)


def test_an_episode_that_leaves_a_part_out_cannot_be_made():
    class Partial(Toss):
        call = Episode.call

    with pytest.raises(TypeError, match="call"):
        Partial()


def test_an_environment_has_no_reference_policies_unless_it_says_so(package):
    assert load_environment("coin_module:coin").policies() == {}
