"""A real DRBD mirror of two virtual machines as a user runs it: whole, measured, cut, whole again, checked, gone."""

import json
import re
import shutil
from collections.abc import Iterator

import pytest
from end_to_end_support import Run, processes_of, start

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="qemu-system-x86 is not installed"),
]

CAMPAIGN = {
    "campaign": "proof",
    "seed": 3,
    "repetitions": 1,
    "topologies": {"mirror": {"stack": "drbd", "volume": {"type": "io2", "size_gib": 4, "iops": 3000}}},
    "tunings": {"stock": {}, "buffers": {"replication": {"max-buffers": 8000, "al-extents": 6007}}},
    "workloads": {
        "randwrite": {"fio": {"rw": "randwrite", "bs": "4k", "size": "64m", "ramp_time": "500ms", "runtime": "3s"}},
        "cut": {
            "fio": {"rw": "randwrite", "bs": "4k", "size": "512m", "runtime": "15s"},
            "failure": {"event": "cut-all-links", "at": "4s", "lasts": "4s"},
        },
    },
    "matrix": [{"workloads": ["randwrite"]}, {"tunings": ["stock"], "workloads": ["cut"]}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("home") / "region"
    process = start(home, CAMPAIGN)
    try:
        out, errors = process.communicate(timeout=280)
    finally:
        process.kill()
    assert out, errors
    yield Run(home, json.loads(out), process.returncode)


def test_the_mirror_was_whole_and_was_measured(run: Run) -> None:
    assert run.outcome["status"] == "SUCCEEDED", run.outcome
    rows = run.rows("SELECT * FROM trials WHERE workload = 'randwrite' AND direction = 'write'")
    assert len(rows) == 2
    for row in rows:
        assert row["verdict"] in ("valid", "unsteady"), row["reason"]
        assert row["iops"] > 50
        assert "UpToDate/UpToDate" in row["stack_status"]
        assert row["stack_driver"].startswith("DRBD 8.4")
        assert re.fullmatch(r"version 8\.4\.\d+, srcversion [0-9A-F]+; drbd-utils 9[0-9.]+", row["stack_module"])
        assert row["host_kind"] == "guest"
        assert row["first_sync_skipped"] is True


def test_a_tuning_was_read_back_from_the_kernel(run: Run) -> None:
    parameters = {
        row["tuning"]: json.loads(row["stack_parameters"])
        for row in run.rows("SELECT tuning, stack_parameters FROM trials WHERE workload = 'randwrite'")
    }
    assert (parameters["buffers"]["max-buffers"], parameters["buffers"]["al-extents"]) == (8000, 6007)
    # Undone, or not yet done: the kernel's own.
    assert (parameters["stock"]["max-buffers"], parameters["stock"]["al-extents"]) == (2048, 1237)


def test_a_cut_network_lost_no_write(run: Run) -> None:
    (row,) = run.rows("SELECT * FROM trials WHERE workload = 'cut'")
    assert row["verdict"] == "valid", row["reason"]
    assert row["writes_acknowledged"] > 100
    assert row["writes_lost"] == 0
    assert row["legs_identical"] is True
    assert row["stall_s"] > 0.2
    events = [each["event"] for each in run.rows("SELECT event FROM events WHERE workload = 'cut' ORDER BY at")]
    assert events.index("fault-begin") < events.index("fault-end")


def test_nothing_is_left_behind(run: Run) -> None:
    assert run.outcome["left_behind"] == []
    assert processes_of(run.home) == []
    assert not list((run.home / "hosts").glob("*"))
