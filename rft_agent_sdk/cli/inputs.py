"""What the verbs read: payload files, session ids, an entrypoint's app."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
import uuid
from pathlib import Path
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON

ENTRYPOINT = "agentcore/app/main.py"
MIN_SESSION_ID, MAX_SESSION_ID = 33, 256


def read_payload(path: str) -> JSON:
    """Read a payload file; `-` is standard input.

    Raises:
        UsageError: It cannot be read, or is not one JSON object.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        payload = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"payload {path!r} cannot be read: {error}") from None
    except ValueError as error:
        raise UsageError(f"payload {path!r} is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise UsageError(
            f"payload {path!r} must hold one JSON object, got {type(payload).__name__}"
        )
    return payload


def session_id(given: str | None) -> str:
    """Return a session id that AgentCore accepts: the one given, else a fresh one.

    Raises:
        UsageError: The given one has the wrong length. AgentCore refuses it when deployed, so it is
            refused locally too.
    """
    if given is None:
        return f"rft-{uuid.uuid4()}"
    if not MIN_SESSION_ID <= len(given) <= MAX_SESSION_ID or not given.isascii():
        raise UsageError(
            f"a session id has {MIN_SESSION_ID} to {MAX_SESSION_ID} ASCII characters, got {len(given)}: "
            f"{given[:40]!r}. Leave it out for a fresh one (a UUID in hex form, 32, is one too short)"
        )
    return given


def load_app(target: str) -> Any:
    """Return the ASGI app of `file.py`, `file.py:object` or `module:object`; the object is `app` if unnamed.

    Raises:
        UsageError: There is no such file, module or object, it cannot be imported, or it is no app.
    """
    place, _, name = target.partition(":")
    name = name or "app"
    module = _module_from_file(Path(place)) if place.endswith(".py") else _module(place)
    if not hasattr(module, name):
        raise UsageError(f"{place!r} has no object {name!r}: name it as {place}:NAME")
    app = getattr(module, name)
    if not callable(app):
        raise UsageError(f"{target!r} is no ASGI app: wanted a BedrockAgentCoreApp, got {app!r}")
    return app


def _module(name: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise _unimportable(name, error) from None
        raise UsageError(f"there is no module {name!r} here; a file is named with .py") from None
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - somebody's module
        raise _unimportable(name, error) from None


def _module_from_file(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(
            f"there is no entrypoint {str(path)!r}: run from the project's root, or name your own with --app"
        )
    spec = importlib.util.spec_from_file_location("rft_entrypoint", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{str(path)!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - somebody's file
        raise _unimportable(str(path), error) from None
    return module


def _unimportable(place: str, error: Exception) -> UsageError:
    """Return what went wrong in somebody's module: the frames are theirs, ours and importlib's left out."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    lines = traceback.format_list(frames) + traceback.format_exception_only(error)
    return UsageError(f"{place!r} cannot be imported:\n{''.join(lines).rstrip()}")
