"""What was measured on, told by topology, and what each tuning made of it."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from volumetry.analysis.asking import Asked, topologies
from volumetry.plan import Plan
from volumetry.report.model import Provenance, Tuned

# What each column of ``provenance`` is called on the page.
_FACTS = {
    "stack": "storage stack",
    "stack_driver": "driver",
    "stack_module": "module and tools",
    "stack_status": "state of the stack, first trial",
    "stack_parameters": "parameters",
    "first_sync_skipped": "first sync skipped",
    "filesystem": "file system",
    "mount_options": "mount options",
    "instance_types": "instance types",
    "az_ids": "AZ ids",
    "volume_type": "volume type",
    "volume_size_gib": "volume size, GiB",
    "volume_iops": "provisioned IOPS",
    "volume_throughput_mibps": "provisioned MiB/s",
    "os": "operating system",
    "kernel": "kernel",
    "tool": "load made by",
    "tool_version": "version of that",
    "fio_version": "fio",
    "ioengine": "I/O engine",
    "ami": "AMI",
    "instance_ids": "instances",
    "volume_ids": "volumes",
    "host_kind": "hosts",
    "region": "region",
}
# What a tuning is there to change: told of the first tuning alone, and of the others among the tuned values.
_TUNED = ("stack_status", "stack_parameters", "mount_options")

Rows = list[dict[str, Any]]


def provenance(asked: Asked, plan: Plan) -> tuple[tuple[Provenance, ...], tuple[Tuned, ...]]:
    """The facts of each topology, and the values of each tuning on it, as the hosts read them back."""
    rows: dict[str, dict[str, Rows]] = defaultdict(lambda: defaultdict(list))
    for row in asked.raw("provenance"):
        rows[row["topology"]][row["tuning"]].append(row)
    told = sorted(rows, key=topologies(plan).index)
    return (
        tuple(Provenance(topology, _facts(plan, rows[topology])) for topology in told),
        tuple(tuned for topology in told for tuned in _tuned(plan, topology, rows[topology])),
    )


def _facts(plan: Plan, rows: Mapping[str, Rows]) -> dict[str, str]:
    base = next(tuning for tuning in plan.tunings if tuning in rows)
    facts = {}
    for column, name in _FACTS.items():
        where = [base] if column in _TUNED else rows
        values = {_words(row[column]) for tuning in where for row in rows[tuning] if row[column] is not None}
        if values - {""}:
            facts[name] = "; ".join(sorted(values - {""}))
    return facts


def _words(value: Any) -> str:
    """A fact as a person reads it: a JSON object as its fields, a list with room to wrap."""
    text = {"true": "yes", "false": "no"}.get(str(value).lower(), str(value))
    if text.startswith("{"):
        return ", ".join(f"{name} {setting}" for name, setting in json.loads(text).items())
    return ", ".join(dict.fromkeys(part.strip() for part in text.split(",")))


def _tuned(plan: Plan, topology: str, rows: Mapping[str, Rows]) -> Iterator[Tuned]:
    for tuning in plan.tunings:
        values: dict[str, str] = {}
        for row in rows.get(tuning, []):
            values |= dict(_flat(json.loads(row["tuning_values"] or "{}")))
        if values:
            yield Tuned(topology, tuning, values, dict(_seen(plan, rows, tuning)))


def _seen(plan: Plan, rows: Mapping[str, Rows], tuning: str) -> Iterator[tuple[str, str]]:
    """What the kernel had that it has not under the first tuning that this topology was measured with."""
    base = next(name for name in plan.tunings if name in rows)
    settings = {name: _settings(rows[name]) for name in (base, tuning)}
    for setting, value in settings[tuning].items():
        if settings[base].get(setting) != value:
            yield setting, value


def _settings(rows: Rows) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in rows:
        found |= dict(_flat(json.loads(row["stack_parameters"] or "{}")))
        if row["mount_options"]:
            found["mounted"] = row["mount_options"]
    return found


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Settings by name, however deep they lie."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield name, " ".join(map(str, value)) if isinstance(value, list) else str(value)
