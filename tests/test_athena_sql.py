"""The local Athena: what it answers, what it refuses, and in which words."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from local_region import athena
from local_region.trino import QueryFailed

COLUMNS = {
    "trial": "string",
    "iops": "double",
    "ios": "bigint",
    "repetition": "int",
    "steady": "boolean",
    "started_at": "timestamp",
}
ARROW = pa.schema(
    [
        ("trial", pa.string()),
        ("iops", pa.float64()),
        ("ios", pa.int64()),
        ("repetition", pa.int32()),
        ("steady", pa.bool_()),
        ("started_at", pa.timestamp("ms")),
    ]
)
Ask = Callable[..., athena.Result]


def table(name: str = "trials", columns: dict[str, str] = COLUMNS, **parameters: str) -> dict[str, Any]:
    return {
        "DatabaseName": "volumetry",
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "StorageDescriptor": {
            "Columns": [{"Name": column, "Type": kind} for column, kind in columns.items()],
            "Location": f"s3://results/tables/{name}/",
        },
        "PartitionKeys": [{"Name": "dt", "Type": "string"}],
        "Parameters": {
            "projection.enabled": "true",
            "projection.dt.type": "date",
            "projection.dt.format": "yyyy-MM-dd",
            "projection.dt.range": "2026-01-01,NOW",
        }
        | parameters,
    }


def view(name: str, sql: str, columns: dict[str, str]) -> dict[str, Any]:
    definition = {
        "originalSql": sql,
        "catalog": "awsdatacatalog",
        "schema": "volumetry",
        "columns": [{"name": column, "type": kind} for column, kind in columns.items()],
    }
    encoded = base64.b64encode(json.dumps(definition).encode()).decode()
    return {
        "DatabaseName": "volumetry",
        "Name": name,
        "TableType": "VIRTUAL_VIEW",
        "ViewOriginalText": f"/* Presto View: {encoded} */",
        "StorageDescriptor": {"Columns": [{"Name": column, "Type": kind} for column, kind in columns.items()]},
    }


def write(folder: Path, day: str, rows: list[dict[str, Any]], name: str = "a", schema: pa.Schema = ARROW) -> None:
    partition = folder / f"dt={day}"
    partition.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), partition / f"{name}.parquet", compression="zstd")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.fixture
def ask(folder: Path) -> Ask:
    def ask(sql: str, *extra: dict[str, Any], trials: dict[str, Any] | None = None) -> athena.Result:
        return athena.run(
            sql,
            database="volumetry",
            tables=[trials or table(), *extra],
            folder=lambda location: folder / location.rstrip("/").rpartition("/")[2],
        )

    return ask


@pytest.fixture
def trials(folder: Path) -> None:
    write(
        folder / "trials",
        "2026-01-05",
        [
            {"trial": "a", "iops": 3000.5, "ios": 7, "repetition": 1, "steady": True, "started_at": 1767600000000},
            {"trial": "b", "iops": None, "ios": 2, "repetition": 2, "steady": None, "started_at": None},
        ],
    )


def one(result: athena.Result) -> str | None:
    assert len(result.rows) == 1
    assert len(result.columns) == 1
    return result.rows[0][0]


def refusal(ask: Ask, sql: str, *extra: dict[str, Any]) -> str:
    with pytest.raises(QueryFailed) as caught:
        ask(sql, *extra)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what it answers --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("trials")
def test_rows_come_as_athena_prints_them(ask: Ask) -> None:
    result = ask("SELECT * FROM trials ORDER BY trial")
    assert result.columns == (*COLUMNS, "dt")
    assert result.types == ("varchar", "double", "bigint", "integer", "boolean", "timestamp", "varchar")
    assert result.rows == [
        ("a", "3000.5", "7", "1", "true", "2026-01-05 08:00:00.000", "2026-01-05"),
        ("b", None, "2", "2", None, None, "2026-01-05"),
    ]
    assert result.bytes_scanned > 0


def test_a_table_without_objects_is_empty_and_keeps_its_types(ask: Ask) -> None:
    result = ask("SELECT iops, dt, sum(ios) AS ios FROM trials GROUP BY iops, dt")
    assert (result.rows, result.types) == ([], ("double", "varchar", "bigint"))


def test_a_column_that_older_objects_lack_is_null(ask: Ask, folder: Path) -> None:
    write(folder / "trials", "2026-01-05", [{"trial": "old"}], "old", pa.schema([("trial", pa.string())]))
    write(folder / "trials", "2026-01-06", [{"trial": "new", "iops": 1.0}], "new")
    assert ask("SELECT trial, iops FROM trials ORDER BY trial").rows == [("new", "1.0"), ("old", None)]


def test_partitions_that_projection_does_not_yield_are_not_read(ask: Ask, folder: Path) -> None:
    for day in ("2025-12-31", "2026-01-05", "2999-01-01", "not-a-day"):
        write(folder / "trials", day, [{"trial": day}])
    write(folder / "trials", "2026-01-05", [{"trial": "hidden"}], "_hidden")
    assert ask("SELECT trial FROM trials").rows == [("2026-01-05",)]
    assert ask("SELECT trial FROM trials WHERE dt = '2026-01-06'").rows == []


@pytest.mark.usefixtures("trials")
def test_without_projection_nobody_added_a_partition(ask: Ask) -> None:
    assert ask("SELECT trial FROM trials", trials=table(**{"projection.enabled": "false"})).rows == []


def test_a_relative_range_of_projection(ask: Ask, folder: Path) -> None:
    write(folder / "trials", "2026-01-05", [{"trial": "a"}])
    assert ask("SELECT 1 FROM trials", trials=table(**{"projection.dt.range": "NOW-90YEARS,NOW+1DAY"})).rows
    assert not ask("SELECT 1 FROM trials", trials=table(**{"projection.dt.range": "NOW+1DAYS,NOW+2DAYS"})).rows


def test_only_the_partitions_asked_for_are_scanned(ask: Ask, folder: Path) -> None:
    for day in range(1, 10):
        rows = [{"trial": f"{day} {n}", "iops": n / 7} for n in range(40_000)]
        write(folder / "trials", f"2026-01-0{day}", rows)
    everything = ask("SELECT sum(iops) FROM trials").bytes_scanned
    assert ask("SELECT sum(iops) FROM trials WHERE dt = '2026-01-03'").bytes_scanned < everything / 2


@pytest.mark.usefixtures("trials")
def test_views_rest_on_views(ask: Ask) -> None:
    measured = view(
        "measured", "SELECT trial, iops FROM trials WHERE iops IS NOT NULL", {"trial": "varchar", "iops": "double"}
    )
    count = view("counted", "SELECT count(*) AS n FROM measured", {"n": "bigint"})
    assert one(ask("SELECT n FROM counted", measured, count)) == "1"
    assert one(ask("SELECT count(*) FROM counted JOIN measured ON true", measured, count)) == "1"


@pytest.mark.usefixtures("trials")
def test_a_cte_may_bear_the_name_of_its_table(ask: Ask) -> None:
    sql = "WITH trials AS (SELECT * FROM trials WHERE trial = 'a') SELECT count(*) FROM trials"
    assert one(ask(sql)) == "1"


@pytest.mark.usefixtures("trials")
@pytest.mark.parametrize("name", ["trials", "TRIALS", "volumetry.trials", '"awsdatacatalog"."volumetry"."trials"'])
def test_names_of_a_table(ask: Ask, name: str) -> None:
    assert one(ask(f"SELECT count(*) FROM {name}")) == "2"


# Values printed by Trino 435.
@pytest.mark.parametrize(
    ("expression", "value", "kind"),
    [
        ("7 / 2", "3", "integer"),
        ("7 / 2e0", "3.5", "double"),
        ("date_diff('day', timestamp '2026-01-01 23:00:00', timestamp '2026-01-02 01:00:00')", "0", "bigint"),
        ("date_diff('hour', timestamp '2026-01-01 23:00:00', timestamp '2026-01-02 01:30:00')", "2", "bigint"),
        ("slice(ARRAY[1, 2, 3, 4], 2, 2)", "[2, 3]", "array"),
        ("regexp_extract('abc', 'x')", None, "varchar"),
        ("regexp_extract('abc', 'a(b)', 1)", "b", "varchar"),
        ("split_part('a,b', ',', 2)", "b", "varchar"),
        ("split_part('a,,b', ',', 2)", "", "varchar"),
        ("split_part('a,b', ',', 3)", None, "varchar"),
        ("regexp_replace('abc', '(a)', '$1$1')", "aabc", "varchar"),
        ("extract(DOW FROM date '2026-01-04')", "7", "bigint"),
        ("sum(x) FROM (VALUES BIGINT '1', BIGINT '2') AS t (x)", "3", "bigint"),
        ("array_join(ARRAY['a', NULL, 'b'], ',')", "a,b", "varchar"),
        ("1e10", "1.0E10", "double"),
        ("1.25e-4", "1.25E-4", "double"),
        ("1e-3", "0.001", "double"),
        ("1234567e0", "1234567.0", "double"),
        ("sqrt(-1e0)", "NaN", "double"),
        ("from_unixtime(0)", "1970-01-01 00:00:00.000 UTC", "timestamp with time zone"),
        ("date '2026-01-04'", "2026-01-04", "date"),
        ("CAST(ROW(1, true) AS ROW(a integer, b boolean))", "{a=1, b=true}", "row"),
    ],
)
def test_an_expression_means_what_it_means_on_athena(ask: Ask, expression: str, value: str | None, kind: str) -> None:
    result = ask(f"SELECT {expression}")
    assert (one(result), result.types) == (value, (kind,))


@pytest.mark.usefixtures("trials")
def test_columns_without_a_name_are_numbered(ask: Ask) -> None:
    assert ask("SELECT max(iops), trial, 1 FROM trials GROUP BY trial").columns == ("_col0", "trial", "_col2")
    assert ask("SELECT 1 UNION ALL SELECT 2 AS x").columns == ("_col0",)


def test_show_describe_and_explain(ask: Ask) -> None:
    assert ask("SHOW DATABASES").rows == [("volumetry",)]
    assert ask("show tables in volumetry;").rows == [("trials",)]
    assert ask("DESCRIBE trials").rows[1] == ("iops", "double", "")
    assert ask("SHOW COLUMNS FROM volumetry.trials").rows[-1] == ("dt", "string", "")
    assert ask("EXPLAIN SELECT iops FROM trials").rows


# --- what it refuses --------------------------------------------------------------------------------------------


def test_a_function_that_only_athena_has(ask: Ask) -> None:
    assert refusal(ask, "SELECT infinity()") == (
        "NOT_SUPPORTED: line 1:8: the local region does not have Athena's 'infinity'"
    )


def test_an_unknown_column_and_the_nearest_known(ask: Ask) -> None:
    assert refusal(ask, "SELECT trial, iopz FROM trials") == (
        "COLUMN_NOT_FOUND: line 1:15: Column 'iopz' cannot be resolved or requester is not authorized to access "
        "requested resources. Did you mean 'iops'?"
    )
    assert refusal(ask, "SELECT trial\nFROM trials AS t\nWHERE t.approx = 1").startswith(
        "COLUMN_NOT_FOUND: line 3:7: Column 't.approx' cannot be resolved"
    )
    assert "Column 'x.iops' cannot be resolved" in refusal(ask, "SELECT x.iops FROM trials t")


def test_an_unknown_table_schema_or_function(ask: Ask) -> None:
    assert refusal(ask, "SELECT * FROM trails") == (
        "TABLE_NOT_FOUND: line 1:15: Table 'awsdatacatalog.volumetry.trails' does not exist. Did you mean 'trials'?"
    )
    assert refusal(ask, "SELECT * FROM nowhere.trials").startswith("SCHEMA_NOT_FOUND: line 1:")
    assert refusal(ask, "SELECT * FROM other.volumetry.trials").startswith("CATALOG_NOT_FOUND: line 1:")
    assert refusal(ask, "SELECT approx_precentile(iops, 0.5) FROM trials") == (
        "FUNCTION_NOT_FOUND: line 1:8: Function 'approx_precentile' not registered. Did you mean 'approx_percentile'?"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT median(iops) FROM trials",
        "SELECT list_sort(ARRAY[1])",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT getenv('HOME')",
    ],
)
def test_what_only_duckdb_knows(ask: Ask, sql: str) -> None:
    assert refusal(ask, sql).startswith("FUNCTION_NOT_FOUND: line 1:")


def test_other_files_cannot_be_read(ask: Ask, tmp_path: Path) -> None:
    write(tmp_path / "secret", "2026-01-05", [{"trial": "secret"}])
    secret = tmp_path / "secret" / "dt=2026-01-05" / "a.parquet"
    assert refusal(ask, f'SELECT * FROM "{secret}"').startswith("TABLE_NOT_FOUND")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT a FORM trials", "SYNTAX_ERROR: line 1:15: mismatched input 'trials'"),
        ("SELECT trial, FROM trials", "SYNTAX_ERROR: line 1:15: mismatched input 'FROM'"),
        ("SELECT trial FROM trials WHERE (iops > 1", "SYNTAX_ERROR: line 1:"),
        ("SELECT 'x FROM trials", "SYNTAX_ERROR: line 1:"),
        ("SELECT iops::bigint FROM trials", "SYNTAX_ERROR: line 1:12: mismatched input '::'"),
        ("SELECT 1; SELECT 2", "SYNTAX_ERROR: line 1:9: Only one sql statement is allowed."),
        ("", "SYNTAX_ERROR: line 1:1: the statement is empty"),
        ("SELECT trial FROM trials WHERE trial ILIKE 'a'", "SYNTAX_ERROR: ILIKE"),
        ("FROM trials", "NOT_SUPPORTED: line 1:1: the local region runs SELECT"),
        ("DROP TABLE trials", "NOT_SUPPORTED: line 1:1: the local region runs SELECT"),
        ("SHOW GRANTS", "NOT_SUPPORTED: of SHOW"),
        ("DESCRIBE trails", "TABLE_NOT_FOUND: line 1:1: Table 'awsdatacatalog.volumetry.trails' does not exist"),
        ("SELECT trial, sum(iops) FROM trials", "EXPRESSION_NOT_AGGREGATE: line 1:8: 'trial' must be an aggregate"),
        ("SELECT iops FROM trials a JOIN trials b ON true", "AMBIGUOUS_NAME: line 1:8: Column 'iops' is ambiguous"),
        ("SELECT CAST('x' AS integer)", "INVALID_CAST_ARGUMENT: Could not convert string 'x'"),
        ("SELECT trial + 1 FROM trials", "TYPE_MISMATCH: "),
        ("SELECT 1 / 0", "DIVISION_BY_ZERO: "),
    ],
)
def test_what_athena_would_refuse(ask: Ask, sql: str, words: str) -> None:
    assert refusal(ask, sql).startswith(words)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT iops AS x, x + 1 FROM trials",
        "SELECT iops AS x FROM trials WHERE x > 1",
        "SELECT trial AS x, count(*) FROM trials GROUP BY x",
        "SELECT trial, max(iops) AS x FROM trials GROUP BY trial HAVING x > 1",
    ],
)
def test_an_alias_is_seen_in_order_by_alone(ask: Ask, sql: str) -> None:
    assert "Column 'x' cannot be resolved" in refusal(ask, sql)
    assert ask("SELECT iops AS x FROM trials ORDER BY x").columns == ("x",)
    assert ask("SELECT max(iops) AS iops FROM trials GROUP BY trial HAVING max(iops) > 1").columns == ("iops",)


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("approx_percentile(iops, 0.5) FROM trials", "histograms"),
        ("1.0 / 3", "1e0"),
        ("iops / 2. FROM trials", "1e0"),
        ("reduce(ARRAY[1], 0, (s, x) -> s + x, s -> s * 2)", "outside"),
        ("skewness(iops) FROM trials", "avg"),
        ("format('%s', iops) FROM trials", "concat"),
        ("iops FROM trials ORDER BY iops FETCH FIRST 1 ROWS WITH TIES", "rank()"),
        ("millisecond(started_at) FROM trials", "avoid"),
    ],
)
def test_what_the_engines_would_answer_differently_is_refused_with_advice(
    ask: Ask, expression: str, advice: str
) -> None:
    said = refusal(ask, f"SELECT {expression}")
    assert said.startswith("NOT_SUPPORTED: the local region would answer otherwise than Athena")
    assert advice in said


def test_a_file_whose_type_is_not_the_tables(ask: Ask, folder: Path) -> None:
    write(folder / "trials", "2026-01-05", [{"iops": 1}], schema=pa.schema([("iops", pa.int64())]))
    said = refusal(ask, "SELECT iops FROM trials")
    assert said.startswith(
        "HIVE_BAD_DATA: Field iops's type BIGINT in parquet file a.parquet is incompatible with type double"
    )


def test_an_object_that_is_no_parquet(ask: Ask, folder: Path) -> None:
    (folder / "trials" / "dt=2026-01-05").mkdir(parents=True)
    (folder / "trials" / "dt=2026-01-05" / "a.parquet").write_text("not Parquet at all, but long enough")
    assert "a.parquet" in refusal(ask, "SELECT iops FROM trials")


def test_a_view_that_no_longer_fits(ask: Ask) -> None:
    stale = view("stale", "SELECT trial FROM trials", {"gone": "varchar"})
    assert refusal(ask, "SELECT * FROM stale", stale).startswith(
        "VIEW_IS_STALE: View 'awsdatacatalog.volumetry.stale' is stale or in invalid state"
    )
