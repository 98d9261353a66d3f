"""The command line, run as a user runs it, with a home of its own."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

VOLUMETRY = [sys.executable, "-m", "volumetry"]


def start(home: Path, campaign: dict[str, Any]) -> subprocess.Popen[str]:
    home.mkdir(exist_ok=True)
    file = home / "campaign.yaml"
    file.write_text(yaml.safe_dump(campaign, sort_keys=False))
    return subprocess.Popen(
        [*VOLUMETRY, "run", str(file), "--json"],
        env=os.environ | {"VOLUMETRY_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def call(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VOLUMETRY_HOME": str(home), "COLUMNS": "200"}
    return subprocess.run([*VOLUMETRY, *arguments], env=environment, capture_output=True, text=True, check=False)


def note_of(home: Path, trial: str) -> dict[str, Any]:
    for path in home.glob(f"s3/*/volumetry-results-*/executions/*/trials/{trial}/1.json"):
        return json.loads(path.read_text())
    return {}


def wait_for_load(process: subprocess.Popen[str], home: Path, trial: str) -> None:
    """Until the trial's host uploads what fio says of itself: its load runs."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(home.glob(f"s3/*/volumetry-results-*/live/*/{trial}/1/*")):
            return
        time.sleep(0.05)
    raise AssertionError(f"{trial} did not begin: {note_of(home, trial)}")


@dataclass
class Run:
    home: Path
    outcome: dict[str, Any]
    exit_code: int

    def rows(self, sql: str) -> list[dict[str, Any]]:
        done = call(self.home, "query", sql, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def processes_of(home: Path) -> list[str]:
    found = subprocess.run(["pgrep", "-af", str(home)], capture_output=True, text=True, check=False).stdout
    return [line for line in found.splitlines() if "pytest" not in line]
