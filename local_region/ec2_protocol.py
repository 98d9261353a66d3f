"""EC2's wire format by botocore's own model: a request becomes a dictionary, a dictionary the answer's XML."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
Answer = tuple[int, dict[str, str], bytes]


class Refused(ValueError):
    """EC2's answer to a call that it does not carry out."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@functools.cache
def _service() -> ServiceModel:
    return botocore.session.Session().get_service_model("ec2")


@functools.cache
def operation(name: str) -> OperationModel:
    return _service().operation_model(name)


def decode(name: str, form: Mapping[str, list[str]]) -> dict[str, Any]:
    """The request of an operation, with the names and types of boto3's parameters."""
    flat = {key: values[0] for key, values in form.items()}
    shape = operation(name).input_shape
    return _structure(shape, flat, "") if isinstance(shape, StructureShape) else {}


def _structure(shape: StructureShape, flat: Mapping[str, str], prefix: str) -> dict[str, Any]:
    found = {}
    for name, member in shape.members.items():
        value = _value(member, flat, prefix + _query_name(name, member))
        if value is not None:
            found[name] = value
    return found


def _query_name(name: str, member: Shape) -> str:
    if "queryName" in member.serialization:
        return str(member.serialization["queryName"])
    wire = str(member.serialization.get("name", name))
    return wire[0].upper() + wire[1:]


def _value(shape: Shape, flat: Mapping[str, str], key: str) -> Any:
    if isinstance(shape, ListShape):
        items: list[Any] = []
        while (item := _value(shape.member, flat, f"{key}.{len(items) + 1}")) is not None:
            items.append(item)
        return items or None
    if isinstance(shape, StructureShape):
        return _structure(shape, flat, f"{key}.") or None
    text = flat.get(key)
    if text is None:
        return None
    if shape.type_name in ("integer", "long"):
        return int(text)
    if shape.type_name in ("float", "double"):
        return float(text)
    return text.lower() == "true" if shape.type_name == "boolean" else text


def encode(name: str, answer: Mapping[str, Any]) -> Answer:
    """The answer of an operation; keys that its shape does not know are left out."""
    shape = operation(name).output_shape
    body = _xml(shape, answer) if shape else "<return>true</return>"
    text = f'<{name}Response xmlns="{NAMESPACE}"><requestId>{uuid.uuid4()}</requestId>{body}</{name}Response>'
    return 200, {"Content-Type": "text/xml;charset=UTF-8"}, text.encode()


def _xml(shape: Shape, value: Any) -> str:
    if isinstance(shape, StructureShape):
        return "".join(
            f"<{wire}>{_xml(member, value[name])}</{wire}>"
            for name, member in shape.members.items()
            if value.get(name) is not None
            for wire in [member.serialization.get("name", name)]
        )
    if isinstance(shape, ListShape):
        return "".join(f"<item>{_xml(shape.member, item)}</item>" for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return escape(str(value))


def refusal(error: Refused) -> Answer:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f"<Response><Errors><Error><Code>{error.code}</Code><Message>{escape(str(error))}</Message></Error>"
        f"</Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    )
    return error.status, {"Content-Type": "text/xml;charset=UTF-8"}, text.encode()
