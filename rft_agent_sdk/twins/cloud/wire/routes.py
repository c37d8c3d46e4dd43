"""Which operation a REST request is: by method, path, and the parameters that tell siblings apart."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote

from botocore.model import OperationModel

from rft_agent_sdk.twins.cloud.wire.models import operation_model
from rft_agent_sdk.twins.cloud.wire.received import Received

_LABEL = re.compile(r"\{(\w+)(\+?)\}")


def find_operation(service: str, names: Iterable[str], received: Received) -> str | None:
    """Return which of the operations is meant: the one that accounts for most of the request."""
    best, most = None, -1
    for name in names:
        weight = _weight(operation_model(service, name), received)
        if weight is not None and weight > most:
            best, most = name, weight
    return best


def path_labels(model: OperationModel, path: str) -> dict[str, str]:
    """Return the path's parts by their names in the model, decoded."""
    match = _path_pattern(model.http["requestUri"]).fullmatch(path)
    assert match is not None, f"{path!r} is not a path of {model.name}"
    return {name: unquote(value) for name, value in match.groupdict().items()}


@functools.cache
def _path_pattern(uri: str) -> re.Pattern[str]:
    path = uri.partition("?")[0]
    parts, end = [], 0
    for label in _LABEL.finditer(path):
        parts.append(re.escape(path[end : label.start()]))
        parts.append(f"(?P<{label[1]}>{'.+' if label[2] else '[^/]+'})")
        end = label.end()
    # A slash at the end is a matter of taste on the real services too.
    return re.compile("".join([*parts, re.escape(path[end:])]).removesuffix("/") + "/?")


def _weight(model: OperationModel, received: Received) -> int | None:
    if model.http["method"] != received.method:
        return None
    uri = model.http["requestUri"]
    match = _path_pattern(uri).fullmatch(received.path)
    if match is None:
        return None
    query = received.query
    fixed = dict(parse_qsl(uri.partition("?")[2], keep_blank_values=True))
    if any(query.get(name) != value for name, value in fixed.items()):
        return None
    weight = len(fixed)
    shape = model.input_shape
    for name in shape.required_members if shape else ():
        place = shape.members[name].serialization
        key = place.get("name", name)
        if place.get("location") == "querystring":
            if key not in query:
                return None
            weight += 1
        elif place.get("location") == "header":
            if key.lower() not in received.headers:
                continue  # the check of parameters says what is missing
            weight += 1
    return weight
