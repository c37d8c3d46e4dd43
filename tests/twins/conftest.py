"""A local cloud, where a test asks for one."""

from collections.abc import Iterator

import pytest

from tests.twins.cloud_play import Play, playing


@pytest.fixture
def play() -> Iterator[Play]:
    """A running cloud with all that a job needs, and boto3's clients of it."""
    with playing() as made:
        yield made


@pytest.fixture(scope="module")
def standing() -> Iterator[Play]:
    """The same for all of a module's tests, since a stop takes 0.2 s: for what leaves nothing behind."""
    with playing() as made:
        yield made
