"""Asks Athena one statement, and waits for the answer: the command line and the analysis alike."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from volumetry.errors import BadRequest, short

if TYPE_CHECKING:
    from mypy_boto3_athena import AthenaClient
    from mypy_boto3_athena.type_defs import GetQueryResultsOutputTypeDef

LONGEST_PAUSE_S = 1.0
# Athena's types that are numbers here; every other value stays text.
_NUMBERS: Mapping[str, Any] = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint"), int),
    **dict.fromkeys(("float", "real", "double"), float),
    "boolean": lambda text: text == "true",
}


@dataclass(frozen=True)
class Answer:
    """The rows of a query, each value of the type that its column has; NULL is None."""

    columns: list[str]
    rows: list[list[Any]]

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def ask(client: "AthenaClient", sql: str, *, database: str, workgroup: str) -> Answer:
    """Run one statement of Athena SQL; raises BadRequest with Athena's own reason when it fails."""
    try:
        started = client.start_query_execution(
            QueryString=sql, WorkGroup=workgroup, QueryExecutionContext={"Database": database}
        )
    except ClientError as error:
        raise BadRequest(short(error)) from None
    identifier, pause_s = started["QueryExecutionId"], 0.02
    while True:
        status = client.get_query_execution(QueryExecutionId=identifier)["QueryExecution"]["Status"]
        if status["State"] == "SUCCEEDED":
            break
        if status["State"] in ("FAILED", "CANCELLED"):
            raise BadRequest(" ".join(status.get("StateChangeReason", status["State"]).split()))
        time.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, 1.5 * pause_s)
    return _answer(client.get_paginator("get_query_results").paginate(QueryExecutionId=identifier))


def _answer(pages: "Iterable[GetQueryResultsOutputTypeDef]") -> Answer:
    columns: list[str] = []
    types: list[str] = []
    rows: list[list[Any]] = []
    for page in pages:
        found = page["ResultSet"]
        data = [[cell.get("VarCharValue") for cell in row["Data"]] for row in found["Rows"]]
        if not columns:
            info = found["ResultSetMetadata"]["ColumnInfo"]
            columns, types = [column["Name"] for column in info], [column["Type"] for column in info]
            # The first row of a SELECT's first page repeats the names.
            data = data[1:] if data and data[0] == columns else data
        rows += [[_typed(text, kind) for text, kind in zip(row, types, strict=True)] for row in data]
    return Answer(columns, rows)


def _typed(text: str | None, kind: str) -> Any:
    return None if text is None else _NUMBERS.get(kind, str)(text)
