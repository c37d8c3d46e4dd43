"""The two agents that are compared: their files, their dependencies, and a place to run them.

What is built here stays in ignored folders named `.venv-bench-*`, so that a second run starts at once.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.bench.table import progress

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"


@dataclass(frozen=True, slots=True)
class Side:
    """One agent."""

    name: str
    source: Path
    """Folder with `main.py` and `pyproject.toml`."""

    @property
    def venv(self) -> Path:
        """Environment of this interpreter, with the agent's dependencies and nothing else."""
        return ROOT / f".venv-bench-{self.name}"

    @property
    def python(self) -> Path:
        """Interpreter of that environment."""
        return self.venv / "bin" / "python"

    @property
    def app(self) -> Path:
        """Copy of the agent's files, links followed, as they are deployed."""
        return self.venv / "app"

    @property
    def dependencies(self) -> list[str]:
        """What the agent's project asks for."""
        project = tomllib.loads((self.source / "pyproject.toml").read_text(encoding="utf-8"))
        found: list[str] = project["project"]["dependencies"]
        return found

    def copy_source(self, target: Path) -> None:
        """Copy the agent's files as the AgentCore CLI does: links followed, caches left out."""
        shutil.copytree(
            self.source,
            target,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", ".venv", ".pytest_cache"),
        )

    def install(self) -> None:
        """Make the environment if its dependencies changed, and copy the agent beside it."""
        stamp = self.venv / "installed"
        wanted = "\n".join([sys.version, *self.dependencies])
        if not stamp.exists() or stamp.read_text() != wanted:
            progress(f"installing the dependencies of {self.name}")
            shutil.rmtree(self.venv, ignore_errors=True)
            uv("venv", "--python", sys.executable, str(self.venv))
            uv("pip", "install", "--python", str(self.python), *self.dependencies)
            stamp.write_text(wanted)
        shutil.rmtree(self.app, ignore_errors=True)
        self.copy_source(self.app)

    def drop_bytecode(self) -> None:
        """Remove every .pyc of the environment and the agent: the state of a fresh bundle."""
        for cache in list(self.venv.rglob("__pycache__")):
            shutil.rmtree(cache)

    def compile_bytecode(self) -> None:
        """Write a .pyc for every module of the environment and the agent."""
        command = [str(self.python), "-m", "compileall", "-q", str(self.venv)]
        # Some packages ship files for other Pythons, which do not compile; that is no failure.
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


OURS = Side("ours", ROOT / "agentcore" / "app")
PEER = Side("peer", ROOT / "tests" / "bench" / "peers")


def uv(*arguments: str) -> None:
    """Run uv without this project's settings and without fetching an interpreter."""
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    subprocess.run(
        [str(UV), *arguments, "--quiet", "--no-config"], check=True, cwd=ROOT, env=environment
    )
