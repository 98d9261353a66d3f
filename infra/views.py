"""The views of ``queries/views`` as Glue tables: what ``CREATE VIEW`` in Athena would store, known at synthesis.

Athena keeps a view's column types beside its SQL and refuses the view when they do not fit. They are asked of the
engine that answers Athena's calls in the local region, over empty tables.
"""

import base64
import json
import re
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp

from local_region import athena
from local_region.trino import CATALOG
from volumetry.tables import TABLES, glue_partition_keys

# Athena's names of a view's types, and Glue's; views hold nothing but scalars.
_GLUE_TYPES = {
    "varchar": "string",
    "integer": "int",
    "bigint": "bigint",
    "double": "double",
    "boolean": "boolean",
    "timestamp": "timestamp",
}


def view_inputs(database: str, queries: Path) -> list[dict[str, Any]]:
    """``TableInput`` of each view in ``queries/views``, each after the views that it rests on."""
    texts = {path.stem: path.read_text() for path in (queries / "views").glob("*.sql")}
    known = [_empty_table(database, name) for name in TABLES]
    inputs = []
    for name in in_order(texts):
        view = _input(database, name, texts[name], known)
        known.append(view | {"DatabaseName": database})
        inputs.append(view)
    return inputs


def in_order(texts: dict[str, str]) -> Iterable[str]:
    """Names of views (name -> SQL), each after those that it rests on, else in the order of the alphabet."""
    rests_on = {name: _tables(text) & texts.keys() for name, text in sorted(texts.items())}
    return TopologicalSorter(rests_on).static_order()


def _tables(text: str) -> set[str]:
    return {table.name for table in sqlglot.parse_one(text, read="athena").find_all(exp.Table)}


def _empty_table(database: str, name: str) -> dict[str, Any]:
    return {
        "DatabaseName": database,
        "Name": name,
        "StorageDescriptor": {"Columns": TABLES[name].glue_columns(), "Location": f"s3://empty/{name}/"},
        "PartitionKeys": glue_partition_keys(),
    }


def answers(text: str) -> str:
    """The first clause of the comment that heads a query: what it answers."""
    comment = " ".join(line.removeprefix("-- ") for line in text.splitlines() if line.startswith("-- "))
    return re.split(r"[.:;?] ", comment)[0]


def _input(database: str, name: str, text: str, known: list[dict[str, Any]]) -> dict[str, Any]:
    described = athena.run(
        text, database=database, tables=known, folder=lambda location: Path("/nonexistent") / location
    )
    columns = list(zip(described.columns, described.types, strict=True))
    definition = {
        "originalSql": text,
        "catalog": CATALOG,
        "schema": database,
        "columns": [{"name": column, "type": kind} for column, kind in columns],
    }
    encoded = base64.b64encode(json.dumps(definition).encode()).decode()
    return {
        "Name": name,
        "Description": answers(text),
        "TableType": "VIRTUAL_VIEW",
        "Parameters": {"presto_view": "true", "comment": "Presto View"},
        "PartitionKeys": [],
        "StorageDescriptor": {
            "Columns": [{"Name": column, "Type": _GLUE_TYPES[kind]} for column, kind in columns],
            "SerdeInfo": {},
        },
        "ViewOriginalText": f"/* Presto View: {encoded} */",
        "ViewExpandedText": "/* Presto View */",
    }
