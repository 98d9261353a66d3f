"""Opens an attempt at a trial: gives it a number, writes its work order, and says which commands carry it out."""

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from functions.environment import Deployment, deployment
from functions.logging import logger
from functions.store import Store
from volumetry import commands, naming
from volumetry.plan import Plan, PlannedLoad, PlannedTopology, PlannedTrial, job_file

# A function's credentials sign the URLs; they end with it, whatever is asked for.
LONGEST_URL_S = 12 * 3600
# Samples for a person who watches: at most so many objects a trial, at least so far apart.
LIVE_SAMPLES = 30
# The client tells the other hosts when its load has begun and ended, and what it wrote.
PASSED_ON = ("begun", "ended", "verify")


class Event(BaseModel):
    execution: str
    trial: str


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    request = Event.model_validate(event)
    logger.append_keys(execution=request.execution, trial=request.trial)
    return open_attempt(request, deployment(), Store(deployment().results_bucket))


def open_attempt(request: Event, environment: Deployment, store: Store) -> dict[str, Any]:
    """The attempt's number and its commands; ``go`` is false, with the reason, when its topology is not there."""
    keys = naming.Keys(request.execution)
    planned = Plan.model_validate_json(store.get(keys.plan) or b"")
    trial = planned.trial(request.trial)
    attempt = _take_number(keys, trial, store)
    state = store.get_json(keys.topology(trial.topology)) or {"status": "failed", "reason": "it was never launched"}
    if state["status"] != "ready":
        return {"attempt": attempt, "go": False, "reason": f"topology {trial.topology}: {state['reason']}"}
    topology, load = planned.topologies[trial.topology], planned.workloads[trial.workload]
    hosts = [commands.Host(**host) for host in state["hosts"]]
    url = _write_order(keys.attempt(trial.id, attempt), trial, topology, load, hosts, planned.live_every_s, store)
    tuning = planned.tunings[trial.tuning]
    stages = commands.run(trial, topology, load, hosts, url)

    def to_machine(listed: list[commands.Command]) -> list[dict[str, Any]]:
        return [command.to_machine(environment.documents) for command in listed]

    return {
        "attempt": attempt,
        "go": True,
        "before": to_machine(commands.tune(trial.topology, topology, hosts, tuning, "apply")),
        "strikes": load.failure is not None,
        "stages": [{"tracks": [{"commands": to_machine(track)} for track in stage]} for stage in stages],
        "after": to_machine(commands.tune(trial.topology, topology, hosts, tuning, "undo")),
    }


def _take_number(keys: naming.Keys, trial: PlannedTrial, store: Store) -> int:
    """The first free number: a number is taken by creating its object, so two attempts never share one."""
    note = {"state": "running", "opened_at": datetime.now(UTC).isoformat(), "expected_s": trial.expected_s}
    attempt = 1
    while not store.create_json(keys.trial(trial.id, attempt), note):
        attempt += 1
    return attempt


def _write_order(
    keys: naming.AttemptKeys,
    trial: PlannedTrial,
    topology: PlannedTopology,
    load: PlannedLoad,
    hosts: list[commands.Host],
    live_every_s: float,
    store: Store,
) -> str:
    """Write the order and the job file; gives the URL that reads the order."""
    lifetime_s = min(LONGEST_URL_S, trial.timeout_s + 3600)
    seconds = load.ramp_s + load.runtime_s
    lines = {
        "trial": trial.id,
        "attempt": str(keys.attempt),
        "target": trial.topology,
        "tool": load.tool,
        "members": " ".join(topology.hosts),
        "clients": " ".join(topology.clients),
        "duration_s": f"{seconds:g}",
        "live_interval_s": f"{max(live_every_s, round(seconds / LIVE_SAMPLES)):.0f}",
        "extent_bytes": str(topology.precondition_bytes),
        "collect": "now" if load.failure is None else "later",
        "alone": "yes" if load.alone else "no",
    }
    lines |= {f"{load.tool}.{name}": value for name, value in load.options.items()}
    if load.tool == "fio":
        store.put(keys.job, job_file(load).encode(), "text/plain")
        lines["job"] = store.url_to_read(keys.job, lifetime_s)
    if load.failure is not None:
        lines |= {f"failure.{name}": f"{value}" for name, value in load.failure.model_dump().items()}
    for what in PASSED_ON:
        lines[f"{what}.put"] = store.url_to_create(keys.passed_on(what), lifetime_s)
        lines[f"{what}.get"] = store.url_to_read(keys.passed_on(what), lifetime_s)
    for host in hosts:
        lines[f"{host.name}.archive"] = store.url_to_create(keys.archive(host.name), lifetime_s)
        lines[f"{host.name}.manifest"] = store.url_to_create(keys.manifest(host.name), lifetime_s)
    for number in range(min(LIVE_SAMPLES, int(seconds) + 1)):
        for name in topology.clients:
            lines[f"{name}.live.{number}"] = store.url_to_create(keys.live_sample(number), lifetime_s)
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    store.put(keys.order, text.encode(), "text/plain")
    return store.url_to_read(keys.order, lifetime_s)
