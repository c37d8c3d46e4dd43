"""Run an entrypoint's file as the runtime runs it, `python main.py`, on a port of ours.

Run as a script of its own, so that the file's folder is where modules come from, as deployed; nothing of this
package is imported here. Whether the file serves at all is its own doing: one that does not is a finding.

    python _entrypoint.py FILE PORT
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any


def main(path: str, port: int) -> None:
    """Run a file as `__main__`, with each server that uvicorn starts in it moved to a port of loopback."""
    import uvicorn

    run = uvicorn.run

    def moved(app: Any, *args: Any, **kwargs: Any) -> None:
        run(app, *args, **{**kwargs, "host": "127.0.0.1", "port": port})

    # Every entrypoint of AgentCore ends here: the SDK's app.run() calls it, and so do other ASGI apps.
    uvicorn.run = moved
    sys.path[0] = str(Path(path).parent.resolve())
    sys.argv = [path]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
