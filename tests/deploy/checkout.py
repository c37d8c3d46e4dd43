"""A copy of the project that the AgentCore CLI may write into, and the CLI itself, kept from AWS and from telemetry."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CLI = Path(__file__).parent / "node_modules" / ".bin" / "agentcore"
LIBRARIES = ROOT / "agentcore" / "cdk" / "node_modules"
RUNTIME = "Wordle"
PARTS = ("agentcore", "environments", "rft_agent_sdk", "payload.json")
MADE = shutil.ignore_patterns(
    "__pycache__", ".*cache", ".cli", ".venv", "*.zip", "cdk.out", "dist", "node_modules", "staging"
)
CLEARED = ("AWS_", "RFT_", "REASONING_", "ROLLOUT_", "OTEL_", "AGENTCORE_")


class Checkout:
    """The project in a folder of its own, with the installed libraries of its stack linked in."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir(parents=True)
        for name in PARTS:
            source, target = ROOT / name, self.root / name
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=MADE)
            else:
                shutil.copy2(source, target)
        self.stack.joinpath("node_modules").symlink_to(LIBRARIES)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.settings = folder / "settings"
        self.settings.mkdir()
        # Written before the first call: the CLI asks nobody, and tells nobody.
        self.settings.joinpath("config.json").write_text('{"telemetry": {"enabled": false}}')

    @property
    def stack(self) -> Path:
        return self.root / "agentcore" / "cdk"

    @property
    def bundle(self) -> Path:
        return self.root / "agentcore" / f"{RUNTIME}.zip"

    def spec(self) -> Any:
        return json.loads((self.root / "agentcore" / "agentcore.json").read_text("utf-8"))

    def rewrite(self, spec: Any) -> None:
        (self.root / "agentcore" / "agentcore.json").write_text(json.dumps(spec), "utf-8")

    def environ(self, added: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of the tools: no AWS, uv on PATH, and the Python that the tests run on."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(CLEARED)}
        return {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(self.temporary),
            "AGENTCORE_CONFIG_DIR": str(self.settings),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(self.temporary / "absent"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.temporary / "absent"),
            "NODE_NO_WARNINGS": "1",
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_SYSTEM_CERTS": "true",
            **(added or {}),
        }

    def run(
        self, *command: object, folder: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            cwd=folder or self.root,
            env=self.environ(environ),
            capture_output=True,
            text=True,
            timeout=600,
        )

    def agentcore(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Any:
        return self.run(CLI, *arguments, environ=environ)

    def compile(self) -> None:
        done = self.run("node", "node_modules/typescript/bin/tsc", folder=self.stack)
        assert done.returncode == 0, done.stdout + done.stderr

    def synthesize(self, folder: Path) -> dict[str, Any]:
        """Run the stack's program as the CLI does, and return the one template it writes."""
        done = self.run(
            "node", "dist/bin/cdk.js", folder=self.stack, environ={"CDK_OUTDIR": str(folder)}
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (path,) = folder.glob("*.template.json")
        template: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return template
