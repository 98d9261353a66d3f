"""Commits an attempt: checks its evidence, judges it, and writes its rows; a trial that failed is marked, not lost."""

import io
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from functions.environment import Queries, queries
from functions.logging import logger
from functions.store import Store
from volumetry import naming
from volumetry.commands import Host
from volumetry.errors import EvidenceMissing
from volumetry.evidence import HostEvidence, Manifest, read_archive, read_host
from volumetry.plan import Plan, log_window_s
from volumetry.rows import Attempt, Committed, Row, from_evidence, without_evidence
from volumetry.tables import TABLES, partition
from volumetry.verdicts import Verdict


class Event(BaseModel):
    """``error`` and ``cause`` are those of the step that ended the attempt; empty: every step succeeded."""

    execution: str
    began: datetime
    trial: str
    attempt: int
    error: str = ""
    cause: str = ""


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    request = Event.model_validate(event)
    logger.append_keys(execution=request.execution, trial=request.trial, attempt=request.attempt)
    return commit(request, queries(), Store(queries().results_bucket))


def commit(request: Event, environment: Queries, store: Store) -> dict[str, Any]:
    """Judge the attempt and write what it came to; doing it again writes the same."""
    keys = naming.Keys(request.execution)
    planned = Plan.model_validate_json(store.get(keys.plan) or b"")
    trial = planned.trial(request.trial)
    names = keys.attempt(request.trial, request.attempt)
    state = store.get_json(keys.topology(trial.topology)) or {}
    attempt = Attempt(
        execution=request.execution,
        number=request.attempt,
        plan=planned,
        trial=trial,
        hosts=[Host(**host) for host in state.get("hosts", [])],
        region=environment.aws_region,
        evidence=names.evidence,
    )
    committed = _judge(request, attempt, names, store)
    for table, rows in committed.rows.items():
        if rows:
            store.put(names.rows(table, partition(request.began)), _parquet(table, rows), "application/octet-stream")
    outcome = {
        "state": "committed",
        "verdict": committed.verdict.word,
        "reason": committed.verdict.reason,
        "iops": committed.iops,
        "figure": committed.figure,
        "run_s": committed.run_s,
        "whole": committed.whole,
    }
    key = keys.trial(request.trial, request.attempt)
    store.put_json(key, (store.get_json(key) or {}) | outcome)
    logger.info("committed", extra=outcome)
    return outcome


def _judge(request: Event, attempt: Attempt, names: naming.AttemptKeys, store: Store) -> Committed:
    if request.error:
        return without_evidence(attempt, _verdict_of(request))
    try:
        return from_evidence(attempt, _read(attempt, names, store))
    except EvidenceMissing as error:
        return without_evidence(attempt, Verdict("failed", str(error)))


def _verdict_of(request: Event) -> Verdict:
    """A step that timed out may or may not have had its effect; one that failed did not."""
    word: Literal["indeterminate", "failed"] = (
        "indeterminate" if request.error == "Volumetry.CommandTimedOut" else "failed"
    )
    return Verdict(word, " ".join(request.cause.split()) or request.error)


def _read(attempt: Attempt, names: naming.AttemptKeys, store: Store) -> dict[str, HostEvidence]:
    """Every host's evidence, its checksums held; raises EvidenceMissing."""
    window_s, tool = log_window_s(attempt.load), attempt.load.tool
    evidence = {}
    for host in attempt.hosts:
        text, archive = store.get(names.manifest(host.name)), store.get(names.archive(host.name))
        if text is None or archive is None:
            raise EvidenceMissing(f"{host.name} uploaded no {'manifest' if text is None else 'archive'}")
        evidence[host.name] = read_host(read_archive(archive, Manifest.parse(text)), window_s, tool)
    return evidence


def _parquet(table: str, rows: list[Row]) -> bytes:
    columns = TABLES[table].arrow_schema()
    unknown = {name for row in rows for name in row} - set(columns.names)
    if unknown:
        raise KeyError(f"table {table} has no columns {sorted(unknown)}")
    buffer = io.BytesIO()
    # Milliseconds are what Athena keeps of a timestamp.
    table_data = pa.Table.from_pylist([_trimmed(row) for row in rows], schema=columns)
    pq.write_table(table_data, buffer, compression="zstd")
    return buffer.getvalue()


def _trimmed(row: Row) -> Row:
    return {
        name: value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=None)
        if isinstance(value, datetime)
        else value
        for name, value in row.items()
    }
