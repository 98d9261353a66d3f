"""Ends an execution's records: marks the trials that nobody committed, and writes its report and its summary."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from pydantic import BaseModel, TypeAdapter

from functions.commit.handler import Event as Commit
from functions.commit.handler import commit
from functions.environment import Queries, queries
from functions.logging import logger
from functions.store import Store
from volumetry import analysis, athena, naming
from volumetry.plan import Plan
from volumetry.report import page
from volumetry.report.model import Report

if TYPE_CHECKING:
    from mypy_boto3_athena import AthenaClient

# Put here when the functions are packaged.
BUNDLE = Path(__file__).resolve().parents[2] / "charts.js"


class Event(BaseModel):
    """``error`` and ``cause``: how the execution is about to fail; empty: it is not."""

    execution: str
    began: datetime
    error: str = ""
    cause: str = ""
    left_behind: list[str] = []


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    request = Event.model_validate(event)
    logger.append_keys(execution=request.execution)
    return analyse(request, queries(), Store(queries().results_bucket))


def analyse(request: Event, environment: Queries, store: Store) -> dict[str, Any]:
    """Write report and summary; gives the summary. Doing it again writes the same."""
    keys = naming.Keys(request.execution)
    planned = Plan.model_validate_json(store.get(keys.plan) or b"")
    notes = _last_notes(request, planned, environment, store)

    def query(sql: str) -> Sequence[Mapping[str, Any]]:
        found = athena.ask(_athena(), sql, database=environment.database, workgroup=environment.workgroup)
        return found.records()

    report = analysis.build(
        query,
        planned,
        execution=request.execution,
        began=request.began,
        command=f"volumetry show {request.execution} --campaign > again.json && volumetry run again.json",
    )
    store.put(keys.figures, TypeAdapter(Report).dump_json(report))
    html = page.render(report, BUNDLE.read_text(encoding="utf-8"))
    store.put(keys.report, html.encode(), "text/html; charset=utf-8")
    summary = _summary(request, planned, notes) | {"report": keys.report}
    store.put_json(keys.summary, summary)
    logger.info("analysed", extra={"trials": summary["trials"]})
    return summary


def _last_notes(request: Event, planned: Plan, environment: Queries, store: Store) -> list[dict[str, Any]]:
    """What became of each planned trial, by its last attempt; whatever was not committed is committed as it stands."""
    keys = naming.Keys(request.execution)
    attempts: dict[str, int] = {}
    for key in store.keys(keys.trials):
        trial, attempt = keys.parse_trial(key)
        attempts[trial] = max(attempt, attempts.get(trial, 0))
    notes = []
    for planned_trial in planned.trials:
        trial = planned_trial.id
        attempt = attempts.get(trial, 1)
        note = store.get_json(keys.trial(trial, attempt)) or {}
        if note.get("state") != "committed":
            note = commit(_unfinished(request, trial, attempt, began=bool(note)), environment, store)
        notes.append(note)
    return notes


def _unfinished(request: Event, trial: str, attempt: int, *, began: bool) -> Commit:
    why = " ".join(request.cause.split()) or "the campaign ended"
    return Commit(
        execution=request.execution,
        began=request.began,
        trial=trial,
        attempt=attempt,
        # A trial that ran when the campaign ended may have run to its end; one that did not begin has not.
        error="Volumetry.CommandTimedOut" if began else "Volumetry.NotRun",
        cause=f"{'cut off' if began else 'not run'}: {why}",
    )


def _summary(request: Event, planned: Plan, notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "execution": request.execution,
        "campaign": planned.campaign,
        "began": request.began.isoformat(),
        "status": "FAILED" if request.error else "SUCCEEDED",
        "error": request.error,
        "cause": request.cause,
        "trials": dict(Counter(note["verdict"] for note in notes)),
        "run_s": round(sum(note["run_s"] or 0.0 for note in notes), 1),
        "left_behind": request.left_behind,
    }


@cache
def _athena() -> "AthenaClient":
    return boto3.client("athena")
