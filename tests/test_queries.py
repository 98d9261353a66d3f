"""The SQL of queries/: against the same figures computed in Python, and on DuckDB alone as its README says."""

import re
import statistics as stdlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
import synthetic
import synthetic_drbd
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.views import in_order, view_inputs
from volumetry.statistics import median_interval, median_ranks, percentile, ratio
from volumetry.tables import TABLES, partition

VIEWS = {path.stem: path.read_text() for path in (synthetic.QUERIES / "views").glob("*.sql")}
NAMED = {path.stem: path.read_text() for path in (synthetic.QUERIES / "named").glob("*.sql")}
PARAMETERS = {
    "execution": synthetic.EXECUTION,
    "dt": partition(synthetic.BEGAN),
    "ladder": ",".join(synthetic.CAMPAIGN["ladder"]),
    "step_s": "5",
}
Cell = tuple[str, str, str]


def filled(name: str, **changes: str) -> str:
    text = NAMED[name]
    for parameter, value in (PARAMETERS | changes).items():
        text = text.replace(f"${{{parameter}}}", value)
    return text


def duck(view: str) -> str:
    return sqlglot.transpile(VIEWS[view], read="athena", write="duckdb")[0]


@pytest.fixture(scope="module")
def made() -> synthetic.Synthetic:
    return synthetic.standard()


def cell(row: dict[str, Any]) -> Cell:
    return row["topology"], row["tuning"], row["workload"]


def last_attempts(made: synthetic.Synthetic) -> dict[str, list[dict[str, Any]]]:
    """Rows of each trial's last attempt, by trial."""
    last = {row["trial"]: row["attempt"] for row in sorted(made.rows["trials"], key=lambda row: row["attempt"])}
    found = defaultdict(list)
    for row in made.rows["trials"]:
        if row["attempt"] == last[row["trial"]]:
            found[row["trial"]].append(row)
    return found


def valid_iops(made: synthetic.Synthetic) -> dict[Cell, dict[int, float]]:
    """IOPS of valid trials by cell and block, directions summed."""
    found: dict[Cell, dict[int, float]] = defaultdict(dict)
    for rows in last_attempts(made).values():
        if rows[0]["verdict"] == "valid":
            found[cell(rows[0])][rows[0]["block"]] = sum(row["iops"] for row in rows)
    return found


# --- the figures ------------------------------------------------------------------------------------------------


def test_cells_are_medians_of_valid_trials(made: synthetic.Synthetic) -> None:
    expected = valid_iops(made)
    counts = Counter(cell(rows[0]) for rows in last_attempts(made).values())
    cells = made.query(filled("cells"))
    assert {cell(row) for row in cells} == set(counts)
    for row in cells:
        values = list(expected[cell(row)].values())
        assert int(row["trials"]) == counts[cell(row)]
        assert int(row["trials_valid"]) == len(values)
        assert int(row["trials_left_out"]) == counts[cell(row)] - len(values)
        if not values:
            assert row["iops"] is None
            continue
        interval = median_interval(values)
        assert float(row["iops"]) == pytest.approx(stdlib.median(values))
        assert (row["iops_low"] is None) == (interval is None)
        if interval is not None:
            assert (float(row["iops_low"]), float(row["iops_high"])) == pytest.approx((interval.low, interval.high))


def test_some_cells_have_an_interval_and_some_have_too_few_trials(made: synthetic.Synthetic) -> None:
    trials = {cell(row): (row["trials_valid"], row["iops_low"]) for row in made.query(filled("cells"))}
    assert trials["single", "stock", "randrw-4k"][0] == "6"
    assert trials["single", "stock", "randrw-4k"][1] is not None
    assert trials["mirror", "stock", "randrw-4k"] == ("5", None)


def test_a_step_costs_the_median_of_the_blocks_ratios(made: synthetic.Synthetic) -> None:
    values = valid_iops(made)
    rows = [row for row in made.query(filled("ladder")) if row["metric"] == "iops"]
    ladder = synthetic.CAMPAIGN["ladder"]
    assert [row["topology"] for row in rows if row["workload"] == "randrw-4k"] == ladder
    compared = 0
    for row in rows:
        place, (topology, tuning, workload) = int(row["step"]) - 1, cell(row)
        for base, prefix in ((ladder[place - 1], "of_previous"), (ladder[0], "of_first")):
            if place == 0:
                assert row[prefix] is None
                continue
            found = ratio(values.get((base, tuning, workload), {}), values.get((topology, tuning, workload), {}))
            if found is None:
                assert row[prefix] is None
                continue
            compared += 1
            assert float(row[prefix]) == pytest.approx(found.value)
            assert int(row[f"{prefix}_blocks"]) == found.blocks
            assert (row[f"{prefix}_low"] is None) == (found.interval is None)
            if found.interval is not None:
                bounds = float(row[f"{prefix}_low"]), float(row[f"{prefix}_high"])
                assert bounds == pytest.approx((found.interval.low, found.interval.high))
    assert compared == 17  # two loads with four steps and two bases, and mtu-1500 with two neighbours


def test_percentiles_come_from_added_histograms(made: synthetic.Synthetic) -> None:
    valid = {
        (rows[0]["trial"], rows[0]["attempt"]) for rows in last_attempts(made).values() if rows[0]["verdict"] == "valid"
    }
    counts: dict[tuple[Cell, str], Counter[int]] = defaultdict(Counter)
    for row in made.rows["histograms"]:
        if (row["trial"], row["attempt"]) in valid:
            middle = (row["lower_ns"] + row["upper_ns"]) // 2
            counts[cell(row), row["direction"]][middle] += row["n"]
            counts[cell(row), "all"][middle] += row["n"]
    rows = made.query(filled("latency"))
    assert {(cell(row), row["direction"]) for row in rows} == set(counts)
    for row in rows:
        histogram = counts[cell(row), row["direction"]]
        assert int(row["n"]) == sum(histogram.values())
        for name, share in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)):
            expected = percentile(histogram, share)
            assert expected is not None
            assert float(row[name]) == pytest.approx(expected / 1000)


def test_a_distribution_rises_to_all_of_its_operations(made: synthetic.Synthetic) -> None:
    curves: dict[Cell, list[tuple[float, float]]] = defaultdict(list)
    for row in made.query(filled("latency_distribution")):
        curves[cell(row)].append((float(row["share"]), float(row["latency_us"])))
    medians = {cell(row): float(row["p50_us"]) for row in made.query(filled("latency")) if row["direction"] == "all"}
    assert set(curves) == set(medians)
    for which, points in curves.items():
        assert points == sorted(points)
        assert points[-1][0] == 1.0
        assert 20 < len(points) < 200
        assert points[0][1] < medians[which] < points[-1][1]


def test_what_is_left_out_says_why(made: synthetic.Synthetic) -> None:
    rows = made.query(filled("left_out"))
    assert Counter(row["verdict"] for row in rows) == {
        "capped": 36,
        "unsteady": 1,
        "degraded": 1,
        "superseded, failed": 1,
    }
    assert all(row["reason"] for row in rows)
    counts = Counter(rows[0]["verdict"] for rows in last_attempts(made).values())
    told: Counter[str] = Counter()
    for row in made.query(filled("verdicts")):
        told[row["verdict"]] += int(row["trials"])
    assert told == counts


def test_iops_over_time_is_the_sum_over_directions(made: synthetic.Synthetic) -> None:
    fine = made.query(filled("iops_over_time", step_s="not a number"))
    coarse = made.query(filled("iops_over_time", step_s="10"))
    assert len(fine) == 30 * 120
    assert len(coarse) == 3 * 120
    expected = defaultdict(list)
    for row in made.rows["intervals"]:
        expected[(*cell(row), row["repetition"], row["second"])].append(row["iops"])
    for row in fine:
        key = (*cell(row), int(row["repetition"]), int(row["from_second"]))
        assert float(row["iops"]) == pytest.approx(sum(expected[key]))
    first = [float(row["iops"]) for row in fine[:30]]
    assert float(coarse[0]["iops"]) == pytest.approx(stdlib.fmean(first[:10]))


def test_drift_is_what_was_put_in(made: synthetic.Synthetic) -> None:
    rows = made.query(filled("drift"))
    (slope,) = {float(row["drift_pct_per_hour"]) for row in rows}
    assert slope == pytest.approx(-2.2, abs=1.0)  # 3 % in 80 minutes
    assert min(float(row["hours"]) for row in rows) == 0


def test_telemetry_and_provenance(made: synthetic.Synthetic) -> None:
    hosts = made.query(filled("telemetry"))
    assert {row["host"] for row in hosts if row["topology"] == "mirror"} == {"host1", "host2"}
    assert all(0 < float(row["cpu_pct"]) < 20 for row in hosts)
    provenance = [row for row in made.query(filled("provenance")) if row["topology"] == "mirror-across-azs"]
    told = [(row["tuning"], row["az_ids"]) for row in provenance]
    assert told == [("mtu-1500", "local1-az1,local1-az2"), ("stock", "local1-az1,local1-az2")]


def test_executions_are_listed_with_what_the_others_ask_for(made: synthetic.Synthetic) -> None:
    (row,) = made.query(filled("executions"))
    assert (row["execution"], row["dt"]) == (PARAMETERS["execution"], PARAMETERS["dt"])
    assert (row["trials"], row["attempts"], row["trials_valid"]) == ("120", "121", "82")


def test_a_direction_without_a_figure_leaves_its_trial_without_one(tmp_path: Path) -> None:
    identity = {"execution": "e", "topology": "t", "tuning": "n", "workload": "w", "trial": "x", "attempt": 1}
    row = identity | {"repetition": 1, "block": 1, "campaign": "c", "stack": "s", "verdict": "valid"}
    told = [row | {"direction": "read", "iops": 10.0}, row | {"direction": "write", "iops": None}]
    synthetic.write(tmp_path, {"trials": told})
    (attempt,) = synthetic.port(tmp_path)("SELECT iops, cpu_pct_per_kiops, is_last FROM attempts")
    assert attempt == {"iops": None, "cpu_pct_per_kiops": None, "is_last": "true"}


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=40))
@settings(max_examples=15, deadline=None)
def test_medians_and_intervals_of_any_number_of_trials(values: list[float]) -> None:
    db = duckdb.connect()
    db.execute("CREATE TABLE samples (dt text, execution text, workload text, topology text, tuning text, "
               "base_topology text, base_tuning text, metric text, value double)")  # fmt: skip
    db.executemany("INSERT INTO samples VALUES ('d', 'e', 'w', 't', 'u', NULL, NULL, 'iops', ?)", [[v] for v in values])
    db.execute(f"CREATE VIEW median_ranks AS {duck('median_ranks')}")
    row = db.execute(f"SELECT n, median, low, high FROM ({duck('medians')})").fetchone()
    interval = median_interval(values)
    assert row is not None
    assert row[:2] == (len(values), pytest.approx(stdlib.median(values)))
    assert row[2:] == (None, None) if interval is None else row[2:] == (interval.low, interval.high)


def test_the_ranks_in_sql_are_those_of_statistics() -> None:
    rows = duckdb.connect().execute(duck("median_ranks")).fetchall()
    told = {n: k for n_from, n_to, k in rows for n in range(n_from, min(n_to, 102) + 1)}
    assert told == {n: ranks[0] for n in range(1, 103) if (ranks := median_ranks(n))}


# --- the files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_named_query_is_a_statement_as_it_stands_and_finds_nothing_in_empty_tables(tmp_path: Path, name: str) -> None:
    assert synthetic.port(tmp_path)(NAMED[name]) == []


@pytest.mark.parametrize("name", [*sorted(VIEWS), *sorted(NAMED)])
def test_a_query_says_what_it_answers(name: str) -> None:
    text = (VIEWS | NAMED)[name]
    assert text.startswith("-- ")
    assert not text.rstrip().endswith(";")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    for parameter in re.findall(r".\$\{\w+\}.", body):
        assert (parameter[0], parameter[-1]) == ("'", "'")  # else it is no statement as it stands
        assert parameter[3:-2] in PARAMETERS


def test_the_readme_lists_views_in_an_order_that_works_on_duckdb_alone() -> None:
    made = synthetic_drbd.study()  # which has rows in every table
    readme = (synthetic.QUERIES / "README.md").read_text()
    assert sorted(re.findall(r"\| `\$\{(\w+)\}`", readme)) == sorted(PARAMETERS)
    code = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {"data": made.folder, "sql": synthetic.QUERIES}
    exec(code[1].replace("print(", "found = ("), names)
    assert names["found"].fetchall()[0][1] == synthetic.EXECUTION
    for name in NAMED:
        statement = names["duck"](synthetic.QUERIES / "named" / f"{name}.sql")
        for parameter, value in PARAMETERS.items():
            statement = statement.replace(f"${{{parameter}}}", value)
        alone = names["db"].execute(statement).fetchall()
        assert len(alone) == len(made.query(filled(name))), name


def test_views_are_what_create_view_in_athena_would_store() -> None:
    views = {view["Name"]: view for view in view_inputs("volumetry", synthetic.QUERIES)}
    assert list(views) == list(in_order(VIEWS))
    assert set(views) == set(VIEWS)
    columns = {c["Name"]: c["Type"] for c in views["cells"]["StorageDescriptor"]["Columns"]}
    assert (columns["trials"], columns["iops"], columns["topology"]) == ("bigint", "double", "string")
    assert views["attempts"]["Description"] == "One row an attempt at a trial"
    assert {view["TableType"] for view in views.values()} == {"VIRTUAL_VIEW"}


# --- the tables -------------------------------------------------------------------------------------------------


def test_every_table_begins_with_the_identity_of_the_attempt() -> None:
    identity = ["execution", "campaign", "topology", "stack", "tuning", "workload", "repetition", "trial", "attempt"]
    for table in TABLES.values():
        assert [column.name for column in table.columns][:9] == identity
        assert table.arrow_schema().names == [column["Name"] for column in table.glue_columns()]


def test_a_partition_is_a_utc_date() -> None:
    assert partition(synthetic.BEGAN) == "2026-11-20"
    with pytest.raises(ValueError, match="time zone"):
        partition(synthetic.BEGAN.replace(tzinfo=None))
