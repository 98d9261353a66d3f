"""The command line without a region: its errors are lines, and results are read from where they lie."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from volumetry import cli
from volumetry.cli import local
from volumetry.errors import RegionUnavailable
from volumetry.results import Folder

ROOT = Path(__file__).parent.parent


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr("sys.argv", ["volumetry", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VOLUMETRY_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def results(home: Path) -> Path:
    """A region that has ended: one execution that has a summary, and one that was lost."""
    bucket = home / "s3" / "123456789012" / "volumetry-results-x"
    objects = {
        "executions/done-1/plan.json": {},
        "executions/done-1/summary.json": {
            "execution": "done-1", "began": "2026-11-21T05:00:00", "status": "SUCCEEDED", "trials": {"valid": 2},
        },
        "executions/lost-1/plan.json": {},
    }  # fmt: skip
    for key, value in objects.items():
        path = bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
        path.with_name(path.name + ".meta.json").write_text("{}")
    return bucket


def test_before_the_first_run_there_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "list") == 1
    assert capsys.readouterr().err == (
        "error: nothing has been run on the local region yet; try `volumetry run campaigns/demo.yaml`\n"
    )


def test_executions_are_listed_without_a_region(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "list", "--json") == 0
    listed = {row["execution"]: row["status"] for row in json.loads(capsys.readouterr().out)}
    assert listed == {"done-1": "SUCCEEDED", "lost-1": "LOST"}


def test_an_unknown_execution_is_named_with_the_nearest(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "show", "dome-1") == 2
    assert "did you mean 'done-1'?" in capsys.readouterr().err


def test_keys_are_objects_alone(results: Path) -> None:
    found = Folder(results)
    assert found.keys("executions/done-1/") == ["executions/done-1/plan.json", "executions/done-1/summary.json"]
    assert found.keys("executions/done-1/s") == ["executions/done-1/summary.json"]
    assert found.get("executions/none/plan.json") is None


def test_a_region_that_no_longer_answers_counts_as_gone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "ENDING_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    (home / "region.json").write_text(json.dumps({"pid": os.getpid(), "endpoint": endpoint}))
    with pytest.raises(RegionUnavailable, match="nothing has been run"):
        local.results()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:9"), "error: AWS, or the local region, did not do"),
        (KeyError("x"), "error: this is a fault of Volumetry itself, KeyError: 'x'; details in "),
    ],
)
def test_no_traceback_reaches_a_user(
    home: Path,
    error: Exception,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> Any:
        raise error

    monkeypatch.setattr(local, "results", fail)
    assert run(monkeypatch, "list") == 1
    printed = capsys.readouterr().err
    assert printed.startswith(told)
    assert printed.count("\n") == 1


def test_a_plan_creates_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "plan", str(ROOT / "campaigns" / "demo.yaml"), "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert len(planned["trials"]) == 30
    assert list(home.iterdir()) == []
