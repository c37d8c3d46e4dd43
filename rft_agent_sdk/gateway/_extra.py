"""Imported before anything else of the gateway: says what to install where its extra is missing."""

import importlib.util

for _part in ("orjson", "jinja2", "tokenizers", "uvicorn"):
    if importlib.util.find_spec(_part) is None:
        raise ModuleNotFoundError(
            f"the gateway needs {_part}: pip install 'rft-agent-sdk[gateway]'", name=_part
        )
