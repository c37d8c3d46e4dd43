"""One copy of the project for all tests that leave its files as they are."""

import shutil

import pytest

from tests.deploy.checkout import CLI, LIBRARIES, Checkout


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Checkout:
    assert CLI.exists(), "the AgentCore CLI is not installed: run make test-deploy"
    assert LIBRARIES.is_dir(), "the stack's libraries are not installed: run make test-deploy"
    return Checkout(tmp_path_factory.mktemp("deploy"))


@pytest.fixture(scope="session")
def compiled(checkout) -> Checkout:
    """The same, with its stack compiled."""
    checkout.compile()
    return checkout


@pytest.fixture
def own_checkout(tmp_path) -> Checkout:
    """A copy to write into."""
    return Checkout(tmp_path)


@pytest.fixture
def own_compiled(own_checkout, compiled) -> Checkout:
    """A copy to write into, with its stack compiled."""
    shutil.copytree(compiled.stack / "dist", own_checkout.stack / "dist")
    return own_checkout
