"""Look through the zip that AgentCore is given: its size, its architecture, and what must not be in it."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from rft_agent_sdk.mtrl.findings import Finding, Place

MB = 1_000_000
MAX_ZIP_MB = 250
MAX_UNPACKED_MB = 750
"""Limits of AgentCore; of these the CLI looks at the first alone."""
BAR_MB = 677 / 6
"""What ours may have unpacked: a sixth of an agent built on `sagemaker-train`. It is unpacked at every cold start."""

_AARCH64 = 183
_MACHINES = {3: "x86", 40: "32-bit ARM", 62: "x86-64", _AARCH64: "aarch64", 243: "RISC-V"}
_LIBRARY = re.compile(r".*\.so(?:\.[0-9]+)*", re.ASCII)
_TAG = re.compile(r".*\.cpython-3(?P<minor>[0-9]{1,2})-.*\.so", re.ASCII)
_SECRET = re.compile(
    r"\.env(?:\..+)?|.*\.pem|.*\.key|id_(?:rsa|ed25519|ecdsa)|\.netrc|\.pypirc|credentials"
)
_PUBLIC = re.compile(r"cacert\.pem|.*\.crt\.pem|roots\.pem")
"""Certificates that packages bring."""
_SHOWN = 5


def check_bundle(
    path: Path, *, python: str | None = None, entrypoint: str = "main.py"
) -> list[Finding]:
    """Return what is wrong with a bundle.

    Args:
        path: The zip, as `agentcore package` or a synthesized stack leaves it.
        python: What the runtime runs, such as `3.13`; `None` asks only that all libraries are for one.
        entrypoint: The file that is started.

    Returns:
        The findings; none where nothing is wrong.
    """
    place = Place(path.name)
    try:
        with zipfile.ZipFile(path) as bundle:
            files = [item for item in bundle.infolist() if not item.is_dir()]
            heads = {
                item.filename: _head(bundle, item)
                for item in files
                if _LIBRARY.fullmatch(item.filename)
            }
    except (
        OSError,
        EOFError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,  # a compression that is unknown here
        RuntimeError,  # encrypted
    ) as error:
        return [
            place.error(
                "bundle-unreadable", f"it is no zip: {error}", "Run `agentcore package` again."
            )
        ]
    names = {item.filename for item in files}
    return [
        *_weight(place, path.stat().st_size, files),
        *_architecture(place, heads),
        *_python(place, heads, python),
        *_contents(place, names, entrypoint),
    ]


def _head(bundle: zipfile.ZipFile, item: zipfile.ZipInfo) -> bytes:
    with bundle.open(item) as file:
        return file.read(20)


def _weight(place: Place, zipped: int, files: list[zipfile.ZipInfo]) -> Iterator[Finding]:
    unpacked = sum(item.file_size for item in files)
    folders: Counter[str] = Counter()
    for item in files:
        folders[item.filename.partition("/")[0]] += item.file_size
    most = ", ".join(f"{name} {size / MB:.0f}" for name, size in folders.most_common(_SHOWN))
    fix = "Take dependencies out of the agent's pyproject.toml, or data out of its folder."
    if zipped > MAX_ZIP_MB * MB:
        yield place.error(
            "bundle-size",
            f"it has {zipped / MB:.0f} MB; AgentCore takes {MAX_ZIP_MB}; most are in {most}",
            fix,
        )
    if unpacked > MAX_UNPACKED_MB * MB:
        yield place.error(
            "bundle-size",
            f"unpacked it has {unpacked / MB:.0f} MB; AgentCore takes {MAX_UNPACKED_MB}; most are in {most}",
            fix,
        )
    elif unpacked > BAR_MB * MB:
        yield place.warning(
            "bundle-heavy",
            f"unpacked it has {unpacked / MB:.0f} MB, at every cold start; an agent needs {BAR_MB:.0f} at most; most "
            f"are in {most}",
            fix,
        )


def _architecture(place: Place, heads: dict[str, bytes]) -> Iterator[Finding]:
    wrong = {name: built for name, head in heads.items() if (built := _machine(head)) != "aarch64"}
    if wrong:
        name, built = min(wrong.items())
        yield place.at(name).error(
            "bundle-architecture",
            f"it is built for {built}, and AgentCore runs Linux on ARM64; so are {len(wrong)} of {len(heads)} libraries",
            "Package with the CLI, which installs for ARM64, and keep no environment of this machine in the folder.",
        )


def _machine(head: bytes) -> str:
    """Return what a library is built for, by the first 20 bytes of an ELF file."""
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return "no Linux at all"
    (machine,) = struct.unpack_from("<H" if head[5] == 1 else ">H", head, 18)
    return _MACHINES.get(machine, f"machine {machine}")


def _python(place: Place, heads: dict[str, bytes], python: str | None) -> Iterator[Finding]:
    built: dict[str, str] = {}
    for name in sorted(heads):
        if tag := _TAG.fullmatch(name):
            built.setdefault(f"3.{tag['minor']}", name)
    if python is None and len(built) > 1:
        python = Counter(built).most_common(1)[0][0]
    for version, name in built.items():
        if python is not None and version != python:
            yield place.at(name).error(
                "bundle-python",
                f"it is built for Python {version}, and the runtime runs {python}",
                "Package again after changing runtimeVersion, and keep no environment in the folder.",
            )


def _contents(place: Place, names: set[str], entrypoint: str) -> Iterator[Finding]:
    if entrypoint not in names:
        yield place.at(entrypoint).error(
            "bundle-entrypoint",
            "what is to be started is not in it",
            "Run `agentcore package` again.",
        )
    package = "rft_agent_sdk/__init__.py"
    if package not in names:
        yield place.at(package).error(
            "bundle-package",
            "the package is not in it: the link beside the entrypoint was not followed",
            "See that agentcore/app/rft_agent_sdk leads to the package.",
        )
    for name in sorted(names):
        last = PurePosixPath(name).name
        if _SECRET.fullmatch(last) and not _PUBLIC.fullmatch(last):
            yield place.at(name).error(
                "bundle-secret",
                "it looks like a secret, and goes wherever the bundle goes",
                "Move it out of the code's folder.",
            )
