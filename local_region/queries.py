"""Athena: ministack keeps work groups and executions, our engine answers the statements."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from local_region import authorization
from local_region.authorization import DeniedError, Resource
from local_region.ec2_protocol import Answer
from local_region.seams import mend

log = logging.getLogger("local_region.queries")

Handler = Callable[..., Awaitable[Answer]]

# They name a query, not the workgroup whose permission they need.
_OF_A_QUERY = ("GetQueryExecution", "GetQueryResults", "StopQueryExecution")
authorization.decides(*(f"athena:{operation}" for operation in _OF_A_QUERY))

_ATHENA = "ministack.services.athena"


class RefusedError(ValueError):
    """Athena's refusal of a request."""


def handler(original: Handler) -> Handler:
    """Athena's handler: ministack's, with the rules about where results go and about tokens."""
    answers: dict[str, tuple[bytes, Answer]] = {}

    async def handle(
        method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, list[str]]
    ) -> Answer:
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        if operation in _OF_A_QUERY:
            try:
                _authorize(headers, operation, json.loads(body)["QueryExecutionId"])
            except DeniedError as denied:
                return _refusal(str(denied), "AccessDeniedException")
        if operation != "StartQueryExecution":
            return await original(method, path, headers, body, query)
        request = json.loads(body)
        token = request.get("ClientRequestToken", "")
        if token in answers:
            before, answer = answers[token]
            return answer if before == body else _refusal("Idempotent parameters do not match")
        try:
            prepared = json.dumps(_prepared(request)).encode()
        except RefusedError as error:
            return _refusal(str(error))
        answer = await original(method, path, headers, prepared, query)
        if token:
            answers[token] = (body, answer)
        return answer

    return handle


def _authorize(headers: Mapping[str, str], operation: str, query_id: str) -> None:
    """DeniedError unless the caller may do this in the query's workgroup."""
    from ministack.services import athena  # noqa: PLC0415

    group = athena._executions.get(query_id, {}).get("WorkGroup", "primary")
    resource = Resource(authorization.arn("athena", f"workgroup/{group}"))
    authorization.authorize(headers, f"athena:{operation}", [resource])


def _refusal(message: str, kind: str = "InvalidRequestException") -> Answer:
    body = {"__type": kind, "message": message, "AthenaErrorCode": "INVALID_INPUT"}
    return 400, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(body).encode()


def _prepared(request: dict[str, Any]) -> dict[str, Any]:
    """The request with its result location settled and its parameters filled in."""
    from ministack.services import athena  # noqa: PLC0415

    group = athena._workgroups.get(request.get("WorkGroup", "primary"))
    if group is None:
        raise RefusedError(f"WorkGroup {request['WorkGroup']} is not found.")
    configuration = group.get("Configuration", {})
    own = configuration.get("ResultConfiguration", {}).get("OutputLocation")
    asked = request.get("ResultConfiguration", {}).get("OutputLocation")
    enforced = str(configuration.get("EnforceWorkGroupConfiguration", True)).lower() == "true"
    location = own if enforced and own else asked or own
    if location:
        request["ResultConfiguration"] = {"OutputLocation": location.rstrip("/") + "/"}
    parameters = request.pop("ExecutionParameters", None)
    if parameters is not None:
        request["QueryString"] = _filled(request["QueryString"], parameters)
    return request


def _filled(statement: str, parameters: list[str]) -> str:
    """The statement with its question marks, outside of quotes, replaced by the parameters' literals."""
    literals = iter(parameters)
    pieces = re.split(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")", statement)
    try:
        pieces[::2] = [re.sub(r"\?", lambda _match: next(literals), piece) for piece in pieces[::2]]
    except StopIteration:
        raise RefusedError("The statement has more parameters than were given") from None
    return "".join(pieces)


@mend(
    f"{_ATHENA}:_execute_query",
    because="statements run on our engine, and results lie where the execution says",
    fingerprint="0c4e4ef19494",
)
async def _execute_query(
    _original: Callable[..., Awaitable[None]],
    query_id: str,
    statement: str,
    database: str,
    ddl: Any,
    _catalog: str | None = None,
) -> None:
    from ministack.services import athena  # noqa: PLC0415

    execution = athena._executions[query_id]
    execution["Status"]["State"] = "RUNNING"
    started = time.time()
    try:
        if ddl is None:
            columns, types, rows, scanned = await asyncio.to_thread(_run, statement, database)
        else:
            columns, types, rows, scanned = [], [], athena._run_ddl(ddl, database)["rows"], 0
        _check_cutoff(athena._workgroups[execution["WorkGroup"]], scanned)
        _save(execution["ResultConfiguration"]["OutputLocation"], columns, rows)
        execution["_results"] = {"columns": columns, "rows": rows}
        execution["_column_types"] = types
        execution["Statistics"]["DataScannedInBytes"] = scanned
        state, reason = "SUCCEEDED", ""
    except Exception as error:
        log.info("query %s failed: %s", query_id, error)
        state, reason = "FAILED", str(error)[:2000]
    elapsed_ms = int((time.time() - started) * 1000)
    execution["Statistics"].update(EngineExecutionTimeInMillis=elapsed_ms, TotalExecutionTimeInMillis=elapsed_ms)
    # A query that was stopped in the meantime stays so.
    if execution["Status"]["State"] == "RUNNING":
        execution["Status"].update(State=state, StateChangeReason=reason, CompletionDateTime=int(time.time()))


def _run(statement: str, database: str) -> tuple[list[str], list[str], list[list[str | None]], int]:
    from local_region import athena  # noqa: PLC0415 (DuckDB and sqlglot take long to import)

    with tempfile.TemporaryDirectory(prefix="query-") as linked:
        folder = functools.partial(_folder, Path(linked))
        result = athena.run(statement, database=database, tables=_tables(), folder=folder)
    return list(result.columns), list(result.types), [list(row) for row in result.rows], result.bytes_scanned


def _tables() -> Iterable[Any]:
    from ministack.services import glue  # noqa: PLC0415

    return list(glue._tables.values())


def _folder(linked: Path, location: str) -> Path:
    """A directory with the current objects of an S3 location: ministack's own holds other files beside them."""
    from ministack.services import s3  # noqa: PLC0415

    place = urlsplit(location)
    bucket, prefix = place.netloc, place.path.strip("/") + "/"
    root = linked / bucket / prefix
    for key in list(s3._buckets.get(bucket, {}).get("objects", {})):
        source = s3._object_disk_path(bucket, key) if key.startswith(prefix) else None
        if source and not key.endswith("/"):
            target = root / key.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(source)
    return root


def _check_cutoff(group: Mapping[str, Any], scanned: int) -> None:
    most = group.get("Configuration", {}).get("BytesScannedCutoffPerQuery")
    if most is not None and scanned > int(most):
        raise ValueError(f"Bytes scanned limit was exceeded: {scanned} of {most}")


def _save(location: str, columns: list[str], rows: list[list[str | None]]) -> None:
    """The result as Athena writes it: every value quoted, NULL not."""
    from ministack.services import s3  # noqa: PLC0415

    table: list[list[str | None]] = [[*columns], *rows] if columns else []
    lines = [",".join(_quoted(value) for value in row) for row in table]
    body = "".join(f"{line}\n" for line in lines).encode()
    place = urlsplit(location)
    headers = {"content-type": "application/octet-stream", "content-length": str(len(body))}
    status, _headers, answer = s3._put_object(place.netloc, place.path.lstrip("/"), body, headers)
    if status >= 300:
        raise ValueError(f"An error occurred while writing the result to {location}: {answer.decode()}")


def _quoted(value: str | None) -> str:
    return "" if value is None else '"' + value.replace('"', '""') + '"'
