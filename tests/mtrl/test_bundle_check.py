"""Each fault a bundle can have is found in a zip that has it."""

import struct
import zipfile
from pathlib import Path

import pytest

from rft_agent_sdk.mtrl import bundle_check
from rft_agent_sdk.mtrl.bundle_check import MB, check_bundle
from rft_agent_sdk.mtrl.findings import Severity


def library(machine: int = 183, order: str = "<") -> bytes:
    """The head of an ELF library of that machine; 183 is aarch64."""
    ident = b"\x7fELF" + bytes([2, 1 if order == "<" else 2, 1]) + bytes(9)
    return ident + struct.pack(f"{order}HH", 3, machine) + bytes(100)


SOUND = {
    "main.py": b"",
    "rft_agent_sdk/__init__.py": b"",
    "certifi/cacert.pem": b"",
    "yaml/_yaml.cpython-313-aarch64-linux-gnu.so": library(),
    "pyarrow/libarrow.so.2500": library(),
    "stable.abi3.so": library(),
}


@pytest.fixture
def bundle(tmp_path):
    def make(**changes: bytes) -> Path:
        path = tmp_path / "Game.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            for name, content in (SOUND | changes).items():
                target.writestr(name, content)
        return path

    return make


def ids(path: Path, **options: str) -> list[str]:
    return [finding.id for finding in check_bundle(path, **options)]


def test_a_sound_bundle_has_no_findings(bundle):
    assert check_bundle(bundle(), python="3.13") == []


@pytest.mark.parametrize(
    ("head", "built"),
    [
        (library(62), "x86-64"),
        (library(62, ">"), "x86-64"),
        (library(7777), "machine 7777"),
        (b"\xcf\xfa\xed\xfe" + bytes(100), "no Linux"),
        (b"", "no Linux"),
    ],
)
def test_a_library_of_another_machine_is_found(bundle, head, built):
    (finding,) = check_bundle(bundle(**{"numpy/core.abi3.so": head}))
    assert finding.id == "bundle-architecture"
    assert finding.severity is Severity.ERROR
    assert "numpy/core.abi3.so" in finding.where
    assert built in finding.message


def test_only_libraries_are_asked_for_their_machine(bundle):
    assert ids(bundle(**{"data/notes.so.txt": b"text", "also.so/": b""})) == []


def test_a_library_for_another_python_is_found(bundle):
    assert ids(bundle(), python="3.12") == ["bundle-python"]
    odd = {"a.cpython-311-aarch64-linux-gnu.so": library()}
    assert ids(bundle(**odd), python="3.13") == ["bundle-python"]
    assert ids(bundle(**odd)) == ["bundle-python"]


def test_a_bundle_without_its_entrypoint_is_found(bundle):
    assert ids(bundle(), entrypoint="agent.py") == ["bundle-entrypoint"]


def test_a_bundle_whose_links_were_not_followed_is_found(tmp_path):
    path = tmp_path / "Game.zip"
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("main.py", "")
        target.writestr("rft_agent_sdk", "../../rft_agent_sdk")
    assert ids(path) == ["bundle-package"]


@pytest.mark.parametrize("name", [".env", ".env.local", "keys/id_rsa", "server.pem", ".netrc"])
def test_what_looks_like_a_secret_is_found(bundle, name):
    (finding,) = check_bundle(bundle(**{name: b"hunter2"}))
    assert finding.id == "bundle-secret"
    assert name in finding.where
    assert "hunter2" not in repr(finding)


def test_more_than_an_agent_needs_is_a_warning_and_names_what_is_large(bundle):
    path = bundle(**{"pyarrow/data": bytes(110 * MB), "scipy/data": bytes(5 * MB)})
    (finding,) = check_bundle(path)
    assert (finding.id, finding.severity) == ("bundle-heavy", Severity.WARNING)
    assert "pyarrow 110, scipy 5" in finding.message


def test_the_limits_of_the_service_are_errors(bundle, monkeypatch):
    monkeypatch.setattr(bundle_check, "MAX_UNPACKED_MB", 2)
    monkeypatch.setattr(bundle_check, "MAX_ZIP_MB", 0.001)
    findings = check_bundle(bundle(large=bytes(3 * MB)))
    assert [finding.id for finding in findings] == ["bundle-size", "bundle-size"]
    assert {finding.severity for finding in findings} == {Severity.ERROR}


def test_what_is_no_zip_is_found(tmp_path):
    path = tmp_path / "Game.zip"
    assert ids(path) == ["bundle-unreadable"]
    path.write_bytes(b"not a zip")
    assert ids(path) == ["bundle-unreadable"]


def test_a_damaged_zip_is_a_finding_and_no_failure_of_the_check(bundle):
    path = bundle()
    whole = path.read_bytes()
    found: set[str] = set()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        found.update(ids(path))
    assert "bundle-unreadable" in found
