"""The public names: sorted, importable, and the same in every list that has them."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rft_agent_sdk

SOURCE = Path(rft_agent_sdk.__file__)


def type_checking_imports():
    """Every name that type checkers are told of, with the module it comes from."""
    for node in ast.parse(SOURCE.read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                for alias in statement.names:
                    assert alias.asname is None
                    yield alias.name, statement.module


def test_the_list_is_sorted_and_has_no_name_twice():
    assert rft_agent_sdk.__all__ == sorted(set(rft_agent_sdk.__all__))


def test_type_checkers_are_told_of_the_same_names():
    assert sorted(name for name, _ in type_checking_imports()) == rft_agent_sdk.__all__


@pytest.mark.parametrize("name", rft_agent_sdk.__all__)
def test_every_name_is_what_its_module_calls_so(name):
    home = dict(type_checking_imports())[name]
    assert getattr(rft_agent_sdk, name) is getattr(importlib.import_module(home), name)


def test_a_star_import_brings_exactly_these_names():
    names: dict[str, object] = {}
    exec("from rft_agent_sdk import *", names)
    assert sorted(set(names) - {"__builtins__"}) == rft_agent_sdk.__all__


def test_every_name_is_listed_before_it_is_used():
    program = "import rft_agent_sdk as r; print(set(r.__all__) - set(dir(r)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_a_name_that_is_none_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'rft_agent_sdk' has no attribute 'nonsense'"):
        _ = rft_agent_sdk.nonsense
    with pytest.raises(ImportError):
        exec("from rft_agent_sdk import nonsense")


def test_every_public_name_says_what_it_is():
    for name in rft_agent_sdk.__all__:
        assert getattr(rft_agent_sdk, name).__doc__, name


def test_the_help_of_no_module_shows_an_environment_variable():
    code = """
import pkgutil, pydoc, importlib, rft_agent_sdk
for found in pkgutil.iter_modules(rft_agent_sdk.__path__, "rft_agent_sdk."):
    if not found.ispkg:
        print(pydoc.plaintext.document(importlib.import_module(found.name)))
"""
    env = {**os.environ, "RFT_TEST_SECRET": "only-in-the-environment"}
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    ).stdout
    assert "class Rollout" in shown
    assert "only-in-the-environment" not in shown
