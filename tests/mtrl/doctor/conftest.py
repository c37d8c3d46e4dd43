from collections.abc import Iterator

import botocore.loaders
import pytest

from tests.mtrl.doctor.world import World, sound

_LOADER = botocore.loaders.create_loader()


@pytest.fixture(autouse=True)
def models_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read botocore's models of the services from disk once for all tests here, not once for each."""
    monkeypatch.setattr(botocore.loaders, "create_loader", lambda path=None: _LOADER)


@pytest.fixture
def world(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with sound(tmp_path, monkeypatch) as made:
        yield made
