"""The main job as a user runs it: real fio on real hosts, a host killed on the way, and a campaign that is stopped."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from end_to_end_support import Run, call, processes_of, start, wait_for_load

pytestmark = pytest.mark.hosts

IO2 = {"type": "io2", "size_gib": 4, "iops": 3000}
LOAD = {"iodepth": 1, "size": "64m", "ramp_time": "500ms", "runtime": "2s"}
CAMPAIGN = {
    "campaign": "proof",
    "seed": 3,
    "repetitions": 1,
    "topologies": {
        "single": {"stack": "local", "volume": IO2},
        "shared": {"stack": "shared", "volume": IO2},
        "mirror": {"stack": "nbd-mirror", "volume": IO2},
        "two-links": {"stack": "nbd-mirror", "links": 2, "volume": IO2},
        "far": {"stack": "nbd-mirror", "azs": ["a", "b"], "volume": IO2},
    },
    "tunings": {
        "stock": {},
        "small-frames": {"network": {"mtu": 1500, "tcp_rmem": [4096, 65536, 65536], "tcp_wmem": [4096, 65536, 65536]}},
    },
    "workloads": {"randwrite": {"fio": {"rw": "randwrite", "bs": "4k", **LOAD}}},
    "matrix": [{"tunings": ["stock"]}, {"topologies": ["two-links"], "tunings": ["small-frames"]}],
}
KILLED = "shared.stock.randwrite.r1"


def kill_hosts(home: Path, topology: str) -> str:
    """Kill -9 every process of the topology's first host; gives the instance's id."""
    (path,) = home.glob(f"s3/*/volumetry-results-*/executions/*/topologies/{topology}.json")
    instance: str = json.loads(path.read_text())["hosts"][0]["instance_id"]
    subprocess.run(["pkill", "-9", "-f", instance], check=True)
    return instance


@dataclass
class Killed(Run):
    lost: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    home = tmp_path_factory.mktemp("home") / "region"
    process = start(home, CAMPAIGN)
    try:
        wait_for_load(process, home, KILLED)
        lost = kill_hosts(home, "shared")
        out, errors = process.communicate(timeout=240)
    finally:
        process.kill()
    assert out, errors
    yield Killed(home, json.loads(out), process.returncode, lost)


def test_a_killed_host_costs_its_trial_alone(run: Killed) -> None:
    assert run.exit_code == 3
    assert run.outcome["status"] == "SUCCEEDED"
    assert sum(run.outcome["trials"].values()) == 6
    assert run.outcome["trials"]["failed"] == 1
    (failed,) = run.rows("SELECT trial, reason FROM trials WHERE verdict = 'failed'")
    assert failed["trial"] == KILLED
    assert run.lost in failed["reason"]


def test_nothing_is_left_behind(run: Killed) -> None:
    assert run.outcome["left_behind"] == []
    assert processes_of(run.home) == []
    assert not list((run.home / "hosts").glob("*"))


def test_each_step_away_costs(run: Killed) -> None:
    found = run.rows("SELECT topology, iops FROM trials WHERE tuning = 'stock' AND direction = 'write'")
    iops = {row["topology"]: row["iops"] for row in found}
    assert iops["single"] > 1.1 * iops["mirror"]
    assert iops["mirror"] > 1.2 * iops["far"]


def test_a_tuning_was_in_force_and_was_undone(run: Killed) -> None:
    (tuned,) = run.rows("SELECT tuning_values, verdict FROM trials WHERE tuning = 'small-frames'")
    assert json.loads(tuned["tuning_values"])["network"]["mtu"] == 1500
    # The document reads back what it sets and what it undoes; either one failing fails the trial.
    assert tuned["verdict"] in ("valid", "unsteady")


def test_tables_lie_where_the_outcome_says(run: Killed) -> None:
    for table in ("trials", "intervals", "histograms", "hosts"):
        pattern = f"{run.outcome['data']}/{table}/dt=*/*.parquet"
        assert duckdb.execute("SELECT count(*) FROM read_parquet(?)", [pattern]).fetchone() > (0,)
    assert (Path(run.outcome["sql"]) / "views" / "samples.sql").is_file()
    assert Path(run.outcome["report"]).read_text().startswith("<!doctype html>")
    assert 0 < run.outcome["seconds"]["trials"] < run.outcome["seconds"]["wall"]


def test_a_wrong_column_is_one_line(run: Killed) -> None:
    done = call(run.home, "query", "SELECT topology, approx FROM trials")
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"error: .*Column 'approx' cannot be resolved.*\n", done.stderr)


def test_results_are_shown_later(run: Killed) -> None:
    name = run.outcome["execution"]
    assert name in call(run.home, "list").stdout
    shown = call(run.home, "show", "last").stdout
    assert "failed" in shown
    assert run.lost in shown
    logs = call(run.home, "logs", name, "far.stock.randwrite.r1").stdout
    assert "stack_driver = qemu-storage-daemon" in logs
    assert "fio.json" in logs
    page = run.home / "page.html"
    assert call(run.home, "report", name, "--output", str(page)).returncode == 0
    assert "far" in page.read_text()
    again = call(run.home, "show", name, "--campaign").stdout
    assert json.loads(again)["topologies"].keys() == CAMPAIGN["topologies"].keys()


def test_ctrl_c_tears_down_and_keeps_what_was_committed(tmp_path: Path) -> None:
    home = tmp_path / "region"
    topologies = {"single": CAMPAIGN["topologies"]["single"]}
    campaign = CAMPAIGN | {"topologies": topologies, "matrix": [{"tunings": ["stock"]}], "repetitions": 9}
    process = start(home, campaign)
    try:
        wait_for_load(process, home, "single.stock.randwrite.r2")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    outcome = json.loads(out)
    assert process.returncode == 130
    assert "tearing down" in errors
    assert outcome["status"] == "ABORTED"
    assert outcome["left_behind"] == []
    assert outcome["trials"]["valid"] + outcome["trials"].get("unsteady", 0) == 1
    assert outcome["trials"]["indeterminate"] == 1
    assert processes_of(home) == []
