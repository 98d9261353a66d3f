"""Athena's engine over Parquet objects on disk, on DuckDB: one statement in, columns, types and rows out."""

import base64
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from math import isinf, isnan
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
from sqlglot import exp

from local_region.trino import CATALOG, Catalogue, GlueTable, Query, QueryFailed, columns_of, no_table, one_line


@dataclass(frozen=True)
class Result:
    """``rows`` hold text as ``GetQueryResults`` shows it (NULL is None); ``types`` are those of its ``ColumnInfo``."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[str | None, ...]]
    bytes_scanned: int


def run(statement: str, *, database: str, tables: Iterable[GlueTable], folder: Callable[[str], Path]) -> Result:
    """Run one statement as Athena would.

    ``tables`` are all tables and views of the catalog. ``folder`` gives the directory of an ``s3://`` location; it need
    not exist: a table without objects is empty. SELECT, WITH, SHOW, DESCRIBE and EXPLAIN run; raises QueryFailed.
    """
    catalogue = Catalogue(tables)
    statement = statement.strip().removesuffix(";").rstrip()
    listing = _listing(statement, database, catalogue)
    if listing is not None:
        return listing
    explained = re.match(r"EXPLAIN\s+", statement, re.IGNORECASE)
    if explained:
        statement = statement[explained.end() :]
    query = Query(statement, database, catalogue)
    try:
        with duckdb.connect(":memory:") as connection:
            session = _Session(connection, catalogue, folder)
            session.prepare(query)
            return session.plan(query) if explained else session.run(query)
    except duckdb.Error as error:
        raise _failure(error, query) from error


_LISTINGS = (
    ("databases", re.compile(r"SHOW\s+(?:DATABASES|SCHEMAS)", re.IGNORECASE)),
    ("tables", re.compile(r"SHOW\s+TABLES(?:\s+(?:IN|FROM)\s+(?P<name>\S+))?", re.IGNORECASE)),
    ("columns", re.compile(r"(?:DESC|DESCRIBE|SHOW\s+COLUMNS\s+(?:IN|FROM))\s+(?P<name>\S+)", re.IGNORECASE)),
)


def _listing(statement: str, database: str, catalogue: Catalogue) -> Result | None:
    """The answer to a SHOW or DESCRIBE; None for any other statement."""
    if not re.match(r"(SHOW|DESC|DESCRIBE)\b", statement, re.IGNORECASE):
        return None
    kind, match = next(
        ((kind, match) for kind, pattern in _LISTINGS if (match := pattern.fullmatch(statement))), ("", None)
    )
    if match is None:
        raise QueryFailed("NOT_SUPPORTED: of SHOW, the local region knows DATABASES, TABLES and COLUMNS.")
    parts = [part.strip('"`') for part in (match.groupdict().get("name") or "").split(".") if part]
    if kind == "databases":
        return _texts(["database_name"], [(one,) for one in catalogue.databases])
    if kind == "tables":
        return _texts(["tab_name"], [(one,) for one in catalogue.names(parts[-1] if parts else database)])
    owner = parts[-2] if len(parts) > 1 else database
    table = catalogue.find(owner, parts[-1])
    if table is None:
        raise no_table(owner, parts[-1], "line 1:1", catalogue)
    columns = [(c["Name"], c["Type"], c.get("Comment", "")) for c in columns_of(table)]
    return _texts(["col_name", "data_type", "comment"], columns)


def _texts(columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Result:
    return Result(tuple(columns), ("varchar",) * len(columns), list(rows), 0)


# Types that a Parquet file may have for a column of this type; Athena reads no others.
_READABLE = {
    "VARCHAR": {"VARCHAR"},
    "BOOLEAN": {"BOOLEAN"},
    "INTEGER": {"INTEGER", "SMALLINT", "TINYINT"},
    "BIGINT": {"BIGINT", "INTEGER", "SMALLINT", "TINYINT"},
    "DOUBLE": {"DOUBLE", "FLOAT"},
    "TIMESTAMP": {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"},
}


class _Session:
    """One DuckDB database in memory, with a view for each table that the query needs."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, catalogue: Catalogue, folder: Callable[[str], Path]
    ) -> None:
        self._connection = connection
        self._catalogue = catalogue
        self._folder = folder
        self._declared: set[tuple[str, str]] = set()
        self._folders: set[str] = set()
        connection.execute("SET integer_division = true; SET TimeZone = 'UTC'; SET errors_as_json = true")
        connection.execute("PRAGMA enable_profiling = 'no_output'")

    def prepare(self, query: Query) -> None:
        """Declare the query's tables, then close the door: a query reads those tables' folders and nothing else."""
        for table in query.tables:
            self._declare(table)
        self._connection.execute(f"SET allowed_directories = {_list(sorted(self._folders))}")
        self._connection.execute("SET enable_external_access = false; SET lock_configuration = true")

    def run(self, query: Query) -> Result:
        cursor = self._connection.execute(query.duckdb)
        names, types = zip(*((column[0], str(column[1])) for column in cursor.description), strict=True)
        if _WITH_ZONE in types:
            cursor = self._connection.execute(_without_zones(query.duckdb, types))
        rows = [tuple(_text(value, kind) for value, kind in zip(row, types, strict=True)) for row in cursor.fetchall()]
        profile = json.loads(self._connection.get_profiling_information())
        scanned = profile.get("io", {}).get("total_bytes_read", 0)
        return Result(tuple(names), tuple(_athena_type(kind) for kind in types), rows, scanned)

    def plan(self, query: Query) -> Result:
        plans = self._connection.execute(f"EXPLAIN {query.duckdb}").fetchall()
        return _texts(["Query Plan"], [(line,) for _, plan in plans for line in plan.splitlines()])

    def _declare(self, table: GlueTable) -> None:
        """Make a view of this name, and what it rests on."""
        database, name = table["DatabaseName"].lower(), table["Name"].lower()
        if (database, name) in self._declared:
            return
        self._declared.add((database, name))
        relation = self._view(table) if table.get("TableType") == "VIRTUAL_VIEW" else self._files(table)
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(database)}")
        try:
            self._connection.execute(f"CREATE VIEW {_quoted(database)}.{_quoted(name)} AS {relation}")
        except duckdb.BinderException as error:
            raise QueryFailed(
                f"VIEW_IS_STALE: View '{CATALOG}.{database}.{name}' is stale or in invalid state: {_said(error)}"
            ) from error

    def _view(self, table: GlueTable) -> str:
        """A view as Athena stores it: its SQL, cast to the column types that were stored with it."""
        encoded = re.fullmatch(r"/\* Presto View: (\S+) \*/", table["ViewOriginalText"])
        if encoded is None:
            raise QueryFailed(f"INVALID_VIEW: '{table['Name']}' holds no Presto view.")
        definition = json.loads(base64.b64decode(encoded[1]))
        query = Query(definition["originalSql"], definition["schema"], self._catalogue)
        for inner in query.tables:
            self._declare(inner)
        columns = [(c["name"], _duckdb_type(c["type"], "athena")) for c in definition["columns"]]
        casts = ", ".join(f"CAST({_quoted(name)} AS {kind}) AS {_quoted(name)}" for name, kind in columns)
        return f"SELECT {casts} FROM ({query.duckdb})"  # noqa: S608

    def _files(self, table: GlueTable) -> str:
        """The table's Parquet objects; a column that no file has is NULL, and a table without objects is empty."""
        folder = self._folder(table["StorageDescriptor"]["Location"])
        self._folders.add(str(folder))
        files = _objects(table, folder)
        keys = {key["Name"].lower() for key in table.get("PartitionKeys", [])}
        held = self._held(files, table) | keys if files else set()
        selected = ", ".join(
            f"CAST({_quoted(column['Name']) if column['Name'].lower() in held else 'NULL'} "
            f"AS {_duckdb_type(column['Type'], 'hive')}) AS {_quoted(column['Name'])}"
            for column in columns_of(table)
        )
        if not files:
            return f"SELECT {selected} WHERE false"
        options = "union_by_name = true, hive_partitioning = false"
        if keys:
            types = ", ".join(f"{_quoted(key)}: VARCHAR" for key in sorted(keys))
            options = f"union_by_name = true, hive_partitioning = true, hive_types = {{{types}}}"
        objects = _list(map(str, files))
        return f"SELECT {selected} FROM read_parquet({objects}, {options})"  # noqa: S608

    def _held(self, files: Sequence[Path], table: GlueTable) -> set[str]:
        """Columns that the files have, lower case, after a check that Athena could read them as declared."""
        declared = {c["Name"].lower(): _duckdb_type(c["Type"], "hive") for c in columns_of(table)}
        found = self._connection.execute(
            "SELECT lower(name), duckdb_type, min(file_name) FROM parquet_schema(?) "
            "WHERE num_children IS NULL GROUP BY ALL",
            [[str(file) for file in files]],
        ).fetchall()
        for name, kind, file in found:
            readable = _READABLE.get(declared.get(name, ""))
            if readable is not None and kind not in readable:
                raise QueryFailed(
                    f"HIVE_BAD_DATA: Field {name}'s type {kind} in parquet file {Path(file).name} is incompatible with "
                    f"type {declared[name].lower()} defined in table schema"
                )
        return {name for name, _, _ in found}


def _objects(table: GlueTable, folder: Path) -> list[Path]:
    """The objects that Athena would read, sorted: neither hidden ones nor those of partitions it does not know."""
    keys = [key["Name"] for key in table.get("PartitionKeys", [])]
    folders = [folder]
    for key in keys:
        folders = [
            inner
            for outer in folders
            for inner in sorted(outer.glob(f"{key}=*"))
            if _projected(table, key, unquote(inner.name.partition("=")[2]))
        ]
    found = (file for one in folders for file in (one.iterdir() if keys and one.is_dir() else one.rglob("*")))
    return sorted(file for file in found if file.is_file() and not file.name.startswith(("_", ".")))


def _projected(table: GlueTable, key: str, value: str) -> bool:
    """Whether partition projection yields this value; without projection, no partition was ever added."""
    parameters = table.get("Parameters", {})
    if parameters.get("projection.enabled", "").lower() != "true":
        return False
    kind = parameters.get(f"projection.{key}.type")
    if kind == "enum":
        return value in parameters[f"projection.{key}.values"].split(",")
    if kind != "date":
        return True
    pattern = parameters.get(f"projection.{key}.format", "yyyy-MM-dd")
    for java, python in (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H")):
        pattern = pattern.replace(java, python)
    try:
        moment = datetime.strptime(value, pattern).replace(tzinfo=UTC)
    except ValueError:
        return False
    first, last = (_moment(edge.strip(), pattern) for edge in parameters[f"projection.{key}.range"].split(","))
    return first <= moment <= last


def _moment(text: str, pattern: str) -> datetime:
    """An edge of a projected range: a date, NOW, or NOW and a count of units."""
    relative = re.fullmatch(r"NOW\s*(?:([+-])\s*(\d+)\s*(HOUR|DAY|WEEK|MONTH|YEAR)S?)?", text)
    if relative is None:
        return datetime.strptime(text, pattern).replace(tzinfo=UTC)
    hours = {"HOUR": 1, "DAY": 24, "WEEK": 168, "MONTH": 744, "YEAR": 8784}
    away = int(relative[2]) * hours[relative[3]] if relative[1] else 0
    return datetime.now(UTC) + timedelta(hours=-away if relative[1] == "-" else away)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join("'" + text.replace("'", "''") + "'" for text in texts) + "]"


@cache
def _duckdb_type(text: str, dialect: str) -> str:
    """A type in the words of Glue (``hive``) or of a view (``athena``), in DuckDB's."""
    kind = exp.DataType.build(text, dialect=dialect).sql(dialect="duckdb")
    aliases = {"TEXT": "VARCHAR", "INT": "INTEGER"}
    return aliases.get(kind, "TIMESTAMP" if re.fullmatch(r"TIMESTAMP\(\d+\)", kind) else kind)


_WITH_ZONE = "TIMESTAMP WITH TIME ZONE"
_ATHENA_TYPES = {
    "HUGEINT": "bigint",
    "BLOB": "varbinary",
    "STRUCT": "row",
    '"NULL"': "unknown",
    _WITH_ZONE: "timestamp with time zone",
    "TIMESTAMP_MS": "timestamp",
}


def _athena_type(kind: str) -> str:
    """A DuckDB type as ``ColumnInfo`` names it."""
    base = kind.partition("(")[0]
    return "array" if kind.endswith("]") else _ATHENA_TYPES.get(base, base.lower())


def _without_zones(query: str, types: Sequence[str]) -> str:
    """The query with moments as UTC timestamps: Python reads the others only with a package of time zones."""
    columns = (f"timezone('UTC', #{i})" if kind == _WITH_ZONE else f"#{i}" for i, kind in enumerate(types, 1))
    return f"SELECT {', '.join(columns)} FROM ({query})"  # noqa: S608


def _text(value: Any, kind: str = "") -> str | None:
    """A value as ``GetQueryResults`` writes it."""
    match value:
        case None:
            text = None
        case bool():
            text = str(value).lower()
        case float():
            text = _float(value)
        case datetime():
            text = f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}" + (" UTC" if "ZONE" in kind else "")
        case bytes():
            text = value.hex(" ")
        case list():
            text = f"[{', '.join(_text(item) or 'null' for item in value)}]"
        case dict():
            text = "{" + ", ".join(f"{_text(key)}={_text(item) or 'null'}" for key, item in value.items()) + "}"
        case _:
            text = str(value)
    return text


def _float(value: float) -> str:
    """As Java prints a double, since Athena does: 1.0, 1.0E10, 1.0E-4."""
    if isnan(value) or isinf(value):
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    plain = Decimal(repr(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{plain:f}"
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = plain.normalize().as_tuple()
    assert isinstance(exponent, int)
    tail = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{tail}E{exponent + len(digits) - 1}"


_COLUMN = "column"
_FUNCTION = "function"
_FAILURES = (
    (r'Referenced column "([^"]+)"', _COLUMN),
    (r'does not have a column named "([^"]+)"', _COLUMN),
    (r'Referenced table "([^"]+)"', _COLUMN),
    (r"(?:Function|Macro) with name (\S+) does not exist", _FUNCTION),
    (
        r'column "?([^" ]+)"? must appear in the GROUP BY',
        "EXPRESSION_NOT_AGGREGATE: {place}: '{name}' must be an aggregate expression or appear in GROUP BY clause",
    ),
    (r'Ambiguous reference to column name "([^"]+)"', "AMBIGUOUS_NAME: {place}: Column '{name}' is ambiguous"),
)
_CODES: dict[type[duckdb.Error], str] = {
    duckdb.ConversionException: "INVALID_CAST_ARGUMENT",
    duckdb.OutOfRangeException: "NUMERIC_VALUE_OUT_OF_RANGE",
    duckdb.BinderException: "TYPE_MISMATCH",
    # Athena fails for integers alone; a double divided by zero is an Infinity there, so no query may rest on either.
    duckdb.InvalidInputException: "DIVISION_BY_ZERO",
}


def _failure(error: duckdb.Error, query: Query) -> QueryFailed:
    """What DuckDB says, in Athena's words where it has its own."""
    said = _said(error)
    for pattern, words in _FAILURES:
        match = re.search(pattern, said)
        if match and words == _COLUMN:
            return query.no_column(match[1])
        if match and words == _FUNCTION:
            return query.no_function(match[1].lower())
        if match:
            return QueryFailed(words.format(place=query.at(match[1]), name=match[1]))
    return QueryFailed(f"{_CODES.get(type(error), 'GENERIC_USER_ERROR')}: {said}")


def _said(error: duckdb.Error) -> str:
    """The first line of DuckDB's message, on one line."""
    match = re.search(r"\{.*\}", str(error), re.DOTALL)
    message = json.loads(match[0])["exception_message"] if match else str(error)
    return one_line(message.partition("\n")[0])
