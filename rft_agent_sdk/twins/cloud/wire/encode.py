"""Answers to responses, in the protocol of their service."""

from __future__ import annotations

import base64
import datetime
import json
from email.utils import format_datetime
from typing import Any

from botocore.model import OperationModel, Shape
from starlette.responses import Response

from rft_agent_sdk.twins.cloud.wire.xml_text import element, to_xml
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

REQUEST_ID = "00000000-0000-4000-8000-000000000000"
"""Every answer's: nothing here is traced by it."""


def encode(model: OperationModel, answer: JSON) -> Response:
    """Return the response that carries an answer."""
    protocol = model.service_model.protocol
    if protocol == "json":
        version = model.service_model.metadata["jsonVersion"]
        content = _to_json(model.output_shape, answer) if model.output_shape else {}
        return _json(content, 200, f"application/x-amz-json-{version}")
    if protocol == "query":
        return _xml(_query_answer(model, answer), 200)
    return _rest(model, answer)


def encode_refusal(protocol: str, refusal: Refusal, *, is_head: bool = False) -> Response:
    """Return the response of a call that is refused."""
    if is_head:
        # There is no body to name the error in.
        return Response(status_code=refusal.status, headers={"x-amzn-requestid": REQUEST_ID})
    if protocol == "json":
        content = {"__type": refusal.code, "message": refusal.message}
        return _json(content, refusal.status, "application/x-amz-json-1.1")
    if protocol == "rest-json":
        body = {"message": refusal.message, "Message": refusal.message}
        response = _json(body, refusal.status, "application/json")
        response.headers["x-amzn-errortype"] = refusal.code
        return response
    error = element("Code", refusal.code) + element("Message", refusal.message)
    if protocol == "rest-xml":
        body_text = f"<Error>{error}{element('RequestId', REQUEST_ID)}</Error>"
        return _xml(body_text, refusal.status)
    kind = "Sender" if refusal.status < 500 else "Receiver"
    body_text = (
        f"<ErrorResponse><Error>{element('Type', kind)}{error}</Error>"
        f"{element('RequestId', REQUEST_ID)}</ErrorResponse>"
    )
    return _xml(body_text, refusal.status)


def _query_answer(model: OperationModel, answer: JSON) -> str:
    result = ""
    shape = model.output_shape
    if shape is not None:
        inner = "".join(to_xml(shape.members[name], name, value) for name, value in answer.items())
        wrapper = shape.serialization.get("resultWrapper", f"{model.name}Result")
        result = f"<{wrapper}>{inner}</{wrapper}>"
    return (
        f"<{model.name}Response>{result}<ResponseMetadata>{element('RequestId', REQUEST_ID)}"
        f"</ResponseMetadata></{model.name}Response>"
    )


def _rest(model: OperationModel, answer: JSON) -> Response:
    status = int(model.http.get("responseCode", 200))
    if "ContentRange" in answer:
        status = 206  # RFC 9110, 15.3.7: a part of what was asked for; no model says so
    headers = {"x-amzn-requestid": REQUEST_ID}
    body: JSON = {}
    shape = model.output_shape
    for name, value in answer.items():
        member = shape.members[name]
        key = member.serialization.get("name", name)
        match member.serialization.get("location"):
            case "header":
                headers[key] = _header(member, value)
            case "headers":
                headers |= {f"{key}{part}": text for part, text in value.items()}
            case "statusCode":
                status = value
            case _:
                body[name] = value
    if status == 204:
        return Response(status_code=status, headers=headers)
    payload = shape.serialization.get("payload") if shape else None
    if payload is not None and shape.members[payload].type_name in ("blob", "string"):
        return Response(body.get(payload, b""), status, headers)
    if model.service_model.protocol == "rest-json":
        response = _json(_to_json(shape, body) if shape else {}, status, "application/json")
        response.headers.update(headers)
        return response
    if model.name == "GetBucketLocation":
        # S3 answers the bare element, which its model does not say; clients read it apart.
        return _xml(element("LocationConstraint", body.get("LocationConstraint", "")), status)
    if not body:
        return Response(b"", status, headers)
    root = shape.serialization.get("name", shape.name)
    inner = "".join(to_xml(shape.members[name], name, value) for name, value in body.items())
    response = _xml(f"<{root}>{inner}</{root}>", status)
    response.headers.update(headers)
    return response


def _to_json(shape: Shape, value: Any) -> Any:
    match shape.type_name:
        case "structure":
            return {
                shape.members[name].serialization.get("name", name): _to_json(
                    shape.members[name], item
                )
                for name, item in value.items()
                if item is not None
            }
        case "list":
            return [_to_json(shape.member, item) for item in value]
        case "map":
            return {key: _to_json(shape.value, item) for key, item in value.items()}
        case "blob":
            return base64.b64encode(value).decode()
        case "timestamp" if isinstance(value, datetime.datetime):
            if shape.serialization.get("timestampFormat") == "iso8601":
                return value.isoformat()
            return value.timestamp()
    return value


def _header(shape: Shape, value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return format_datetime(value, usegmt=True)
    return str(value).lower() if shape.type_name == "boolean" else str(value)


def _json(content: Any, status: int, media_type: str) -> Response:
    return Response(
        json.dumps(content), status, {"x-amzn-requestid": REQUEST_ID}, media_type=media_type
    )


def _xml(text: str, status: int) -> Response:
    declared = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'
    return Response(
        declared, status, {"x-amzn-requestid": REQUEST_ID}, media_type="application/xml"
    )
