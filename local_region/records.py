"""What the records of instances, volumes and interfaces have in common: ids, tags, filters, tokens."""

from __future__ import annotations

import fnmatch
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from local_region.ec2_protocol import Refused

# A record is a dictionary in the shape of the API's answer; keys that begin with "_" are ours.
Record = dict[str, Any]
Tags = list[dict[str, str]]


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(9)[:17]}"


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def tags_of(resource_id: str) -> Tags:
    """Tags live with ministack, whose CreateTags, DeleteTags and DescribeTags serve every kind of resource."""
    from ministack.services import ec2  # noqa: PLC0415 (reads its environment at import)

    found: Tags = ec2._tags.get(resource_id) or []
    return found


def tag(resource_id: str, tags: Tags) -> None:
    from ministack.services import ec2  # noqa: PLC0415

    if tags:
        merged = {item["Key"]: item.get("Value", "") for item in [*tags_of(resource_id), *tags]}
        ec2._tags[resource_id] = [{"Key": key, "Value": value} for key, value in merged.items()]


def untag(resource_id: str) -> None:
    from ministack.services import ec2  # noqa: PLC0415

    ec2._tags.pop(resource_id, None)


def tag_map(tags: Tags) -> dict[str, str]:
    return {item["Key"]: item.get("Value", "") for item in tags}


def specified_tags(request: Mapping[str, Any], kind: str) -> Tags:
    """The tags that a request specifies for what it creates of a kind."""
    return [
        item
        for specification in request.get("TagSpecifications", [])
        if specification.get("ResourceType") == kind
        for item in specification.get("Tags", [])
    ]


def select(
    records: Iterable[Record],
    request: Mapping[str, Any],
    *,
    id_key: str,
    filters: Mapping[str, str],
) -> list[Record]:
    """Records that pass all filters, with their tags. `filters` maps filter names to paths in the record."""
    wanted = request.get("Filters", [])
    for one in wanted:
        if one["Name"] not in filters and not one["Name"].startswith("tag"):
            raise Refused("InvalidParameterValue", f"The filter '{one['Name']}' is invalid")
    described = [{**record, **_tagged(record[id_key])} for record in records]
    return [
        record
        for record in described
        if all(_passes(record, one["Name"], one.get("Values", []), filters) for one in wanted)
    ]


def _tagged(resource_id: str) -> Record:
    return {"Tags": tags_of(resource_id)}


def _passes(record: Record, name: str, values: list[str], filters: Mapping[str, str]) -> bool:
    tags = tag_map(record["Tags"])
    if name == "tag-key":
        found: list[Any] = list(tags)
    elif name == "tag-value":
        found = list(tags.values())
    elif name.startswith("tag:"):
        found = [tags[name[4:]]] if name[4:] in tags else []
    else:
        found = list(_at(record, filters[name].split(".")))
    return any(fnmatch.fnmatchcase(_text(one), pattern) for one in found for pattern in values)


def _at(value: Any, path: list[str]) -> Iterable[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _at(item, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and value.get(path[0]) is not None:
        yield from _at(value[path[0]], path[1:])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Tokens:
    """Client tokens: the same request under the same token is answered by what it made the first time."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[Mapping[str, Any], Any]] = {}

    def recall(self, operation: str, request: Mapping[str, Any]) -> Any:
        """What the token made before, or None. Refused: the token came with other parameters then."""
        known = self._answers.get((operation, request.get("ClientToken", "")))
        if known is None:
            return None
        before, made = known
        if before != request:
            raise Refused(
                "IdempotentParameterMismatch",
                "The client token you have provided is associated with a resource that was created with "
                "parameters that differ from the parameters in this request",
            )
        return made

    def remember(self, operation: str, request: Mapping[str, Any], made: Any) -> None:
        if "ClientToken" in request:
            self._answers[operation, request["ClientToken"]] = (request, made)
