"""Serves an entrypoint until whoever started it ends, however that ends: `python -m rft_agent_sdk.cli.leash FOLDER PORT`.

A parent that was killed can stop nobody any more. It holds the other end of this process's standard input, though, and
the system closes that.
"""

from __future__ import annotations

import os
import sys
import threading

import uvicorn


def main(folder: str, port: int) -> None:
    """Serve `main:app` of a folder on loopback."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.path.insert(0, folder)
    uvicorn.run("main:app", host="127.0.0.1", port=port, log_level="warning")


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing is ever written: this returns when the other end is closed
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
