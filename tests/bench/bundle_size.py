"""Size of what is deployed: dependencies for Linux on ARM64, built the way the AgentCore CLI builds them."""

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.sides import OURS, PEER, ROOT, Side, uv
from tests.bench.table import Row, progress

PLATFORM = "aarch64-manylinux_2_28"
"""The oldest for which both sides have wheels."""


def build(side: Side, target: Path) -> None:
    """Put the bundle of one side into `target`: dependencies first, then the agent's files over them."""
    spec = json.loads((ROOT / "agentcore" / "agentcore.json").read_text(encoding="utf-8"))
    version = spec["runtimes"][0]["runtimeVersion"].removeprefix("PYTHON_").replace("_", ".")
    shutil.rmtree(target, ignore_errors=True)
    options = ["--python-version", version, "--python-platform", PLATFORM, "--only-binary", ":all:"]
    uv("pip", "install", "--target", str(target), *options, *side.dependencies)
    side.copy_source(target)


def files(bundle: Path) -> Iterator[Path]:
    """Every file that goes into the zip."""
    return (path for path in bundle.rglob("*") if path.is_file())


def unpacked_mb(bundle: Path) -> float:
    """Sum of the file sizes, in MB of a million bytes."""
    return sum(path.stat().st_size for path in files(bundle)) / 1e6


def zipped_mb(bundle: Path) -> float:
    """Size of the deflated zip, in MB of a million bytes."""
    archive = bundle.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in files(bundle):
            target.write(path, path.relative_to(bundle))
    return archive.stat().st_size / 1e6


def measure() -> list[Row]:
    """Build both bundles and weigh them."""
    bundles = []
    for side in (OURS, PEER):
        progress(f"building the bundle of {side.name}")
        bundles.append(ROOT / ".venv-bench-bundles" / side.name)
        build(side, bundles[-1])
    ours, peer = bundles
    return [
        Row("deployed bundle, unpacked", unpacked_mb(ours), unpacked_mb(peer), "MB", bar=6),
        Row("deployed bundle, zipped", zipped_mb(ours), zipped_mb(peer), "MB"),
    ]
