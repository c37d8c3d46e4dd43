"""Requests to parameters, named and nested as boto3's caller wrote them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

from botocore.model import OperationModel, Shape

from rft_agent_sdk.twins.cloud.wire.chunks import unchunk
from rft_agent_sdk.twins.cloud.wire.received import Received
from rft_agent_sdk.twins.cloud.wire.routes import path_labels
from rft_agent_sdk.types import JSON


class Undecodable(ValueError):
    """The request is not of its protocol."""


def decode(model: OperationModel, received: Received) -> JSON:
    """Return the parameters of a request.

    Timestamps stay as the wire has them: epoch seconds, or text.

    Raises:
        Undecodable: The body is not what the protocol says.
    """
    protocol = model.service_model.protocol
    shape = model.input_shape
    if shape is None:
        return {}
    parameters: JSON
    if protocol == "json":
        parameters = _from_json(shape, _parse_json(received.body))
    elif protocol == "query":
        pairs = dict(parse_qsl(received.body.decode(), keep_blank_values=True))
        parameters = _from_query(shape, pairs or received.query, "")
    else:
        parameters = {**_located(model, received), **_body(model, received)}
    return parameters


def _located(model: OperationModel, received: Received) -> JSON:
    labels = path_labels(model, received.path)
    query, found = received.query, {}
    for name, member in model.input_shape.members.items():
        place = member.serialization
        key = place.get("name", name)
        raw: str | None = None
        match place.get("location"):
            case "uri":
                raw = labels[key]
            case "querystring":
                raw = query.get(key)
            case "header":
                raw = received.headers.get(key.lower())
            case "headers":
                found[name] = {
                    header[len(key) :]: value
                    for header, value in received.headers.items()
                    if header.startswith(key)
                }
        if raw is not None:
            found[name] = _scalar(member, raw)
    return found


def _body(model: OperationModel, received: Received) -> JSON:
    shape = model.input_shape
    body = received.body
    if "aws-chunked" in received.headers.get("content-encoding", ""):
        body = unchunk(body)
    payload = shape.serialization.get("payload")
    if payload is not None:
        member = shape.members[payload]
        if member.type_name in ("blob", "string"):
            return {payload: body if member.type_name == "blob" else body.decode()}
        if not body:
            return {}
        return {payload: _from_xml(member, _parse_xml(body))}
    members = {
        name: member
        for name, member in shape.members.items()
        if "location" not in member.serialization
    }
    if not members or not body:
        return {}
    parsed = _parse_json(body)
    return {
        name: _from_json(member, parsed[key])
        for name, member in members.items()
        if (key := member.serialization.get("name", name)) in parsed
    }


def _from_json(shape: Shape, value: Any) -> Any:
    """Decode what JSON cannot hold: blobs. Names that the model lacks are kept for the check."""
    match shape.type_name:
        case "structure" if isinstance(value, dict):
            return {
                name: _from_json(shape.members[name], item) if name in shape.members else item
                for name, item in value.items()
                if item is not None
            }
        case "list" if isinstance(value, list):
            return [_from_json(shape.member, item) for item in value]
        case "map" if isinstance(value, dict):
            return {name: _from_json(shape.value, item) for name, item in value.items()}
        case "blob" if isinstance(value, str):
            return _unbase64(value)
    return value


def _from_query(shape: Shape, pairs: Mapping[str, str], prefix: str) -> Any:
    match shape.type_name:
        case "structure":
            members = {}
            for name, member in shape.members.items():
                key = f"{prefix}{member.serialization.get('name', name)}"
                if _holds(pairs, key):
                    members[name] = _from_query(member, pairs, _join(member, key))
            return members
        case "list":
            items: list[Any] = []
            while _holds(pairs, key := f"{prefix}{len(items) + 1}"):
                items.append(_from_query(shape.member, pairs, _join(shape.member, key)))
            return items
    return _scalar(shape, pairs[prefix])


def _holds(pairs: Mapping[str, str], key: str) -> bool:
    return any(pair == key or pair.startswith(f"{key}.") for pair in pairs)


def _join(shape: Shape, key: str) -> str:
    match shape.type_name:
        case "structure":
            return f"{key}."
        case "list":
            return f"{key}." if shape.serialization.get("flattened") else f"{key}.member."
    return key


def _from_xml(shape: Shape, node: ElementTree.Element) -> Any:
    match shape.type_name:
        case "structure":
            members: JSON = {}
            for name, member in shape.members.items():
                children = _children(node, _xml_name(member, name))
                if not children:
                    continue
                if member.type_name == "list" and member.serialization.get("flattened"):
                    members[name] = [_from_xml(member.member, child) for child in children]
                else:
                    members[name] = _from_xml(member, children[0])
            return members
        case "list":
            return [_from_xml(shape.member, child) for child in node]
    return _scalar(shape, node.text or "")


def _xml_name(member: Shape, name: str) -> str:
    if member.type_name == "list" and member.serialization.get("flattened"):
        inner = member.member.serialization.get("name")
        if inner is not None:
            return str(inner)
    return str(member.serialization.get("name", name))


def _children(node: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [child for child in node if child.tag.rpartition("}")[2] == name]


def _scalar(shape: Shape, raw: str) -> Any:
    try:
        match shape.type_name:
            case "integer" | "long":
                return int(raw)
            case "float" | "double":
                return float(raw)
            case "boolean":
                return raw == "true"
            case "blob":
                return _unbase64(raw)
    except ValueError:
        raise Undecodable(f"{raw!r} is not of type {shape.type_name}") from None
    return raw


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Undecodable("a blob is not base64") from None


def _parse_json(body: bytes) -> JSON:
    try:
        parsed: Any = json.loads(body or b"{}")
    except ValueError:
        raise Undecodable("the body is not JSON") from None
    if not isinstance(parsed, dict):
        raise Undecodable("the body is no JSON object")
    return parsed


def _parse_xml(body: bytes) -> ElementTree.Element:
    try:
        # Loopback only, and expat refuses what expands too far.
        return ElementTree.fromstring(body)  # noqa: S314
    except ElementTree.ParseError:
        raise Undecodable("the body is not XML") from None
