"""The rules of a campaign that concern several fields at once, checked before anything is launched.

Each rule yields its problems, one line each: the field, its value, what is allowed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from volumetry import ebs, fio
from volumetry.errors import not_allowed
from volumetry.naming import NAME_HELP, is_name
from volumetry.spec import (
    MAX_RUNTIME_S,
    STACKS,
    Campaign,
    Load,
    NetworkTuning,
    Topology,
    Tuning,
    Workload,
    cells,
    groups,
    loads,
)

# Enough for every published study; a mistyped matrix is caught before it costs a month.
MAX_TRIALS = 5000
# Topologies that share host1: as many volumes under test as it is given device names for.
MAX_TOGETHER = 10
LOADS = ("fio", "job_file", "job", "pgbench", "dbench")
# Instance families before Nitro: no Multi-Attach, and EBS volumes without NVMe.
XEN_FAMILIES = frozenset("t1 t2 m1 m2 m3 m4 c1 c3 c4 r3 r4 i2 i3 d2 x1 x1e".split())


def rules(campaign: Campaign) -> Iterator[str]:
    """What is wrong with a campaign whose shape is right."""
    for name, topology in campaign.topologies.items():
        yield from _topology_rules(f"topologies.{name}", topology)
    yield from _together_rules(campaign)
    for name, tuning in campaign.tunings.items():
        yield from _tuning_rules(f"tunings.{name}", tuning)
        yield from _buffer_rules(f"tunings.{name}.network", tuning.network)
    for position, topology_name in enumerate(campaign.ladder or []):
        yield from _reference(f"ladder.{position}", topology_name, campaign.topologies)
    if campaign.ladder and len(set(campaign.ladder)) != len(campaign.ladder):
        yield "ladder: names a topology twice; allowed: each topology once"
    yield from _published_rules(campaign)
    broken = list(_matrix_references(campaign))
    for name, workload in campaign.workloads.items():
        broken += _workload_rules(campaign, name, workload)
    yield from broken
    if not broken:
        yield from _matrix_rules(campaign)


def _published_rules(campaign: Campaign) -> Iterator[str]:
    for position, ratio in enumerate(campaign.published.ratios if campaign.published else []):
        field = f"published.ratios.{position}"
        yield from _reference(f"{field}.workload", ratio.workload, campaign.workloads)
        yield from _reference(f"{field}.topology", ratio.topology, campaign.topologies)
        yield from _reference(f"{field}.base", ratio.base, campaign.topologies)


def _matrix_references(campaign: Campaign) -> Iterator[str]:
    for position, part in enumerate(campaign.matrix or []):
        for field in ("topologies", "tunings", "workloads"):
            for name in getattr(part, field) or []:
                yield from _reference(f"matrix.{position}.{field}", name, getattr(campaign, field))


def _reference(field: str, name: str, known: Mapping[str, Any]) -> Iterator[str]:
    if name not in known:
        yield not_allowed(field, name, known)


def _topology_rules(field: str, topology: Topology) -> Iterator[str]:
    stack = STACKS[topology.stack]
    low, high = stack.hosts
    count = len(topology.host_azs)
    if not low <= count <= high:
        span = str(low) if low == high else f"{low} to {high}"
        yield f"{field}.hosts: {count} is not allowed; stack {topology.stack} takes {span} hosts"
    if len(topology.azs) not in (1, count):
        yield f"{field}.azs: names {len(topology.azs)} AZs; allowed: one for all, or one for each of {count} hosts"
    if stack.one_az and len(set(topology.azs)) > 1:
        shown = ", ".join(topology.azs)
        yield f"{field}.azs: {shown} is not allowed; a Multi-Attach volume lives in one AZ"
    if topology.links > stack.links:
        yield f"{field}.links: {topology.links} is not allowed; stack {topology.stack} takes {stack.links}"
    if topology.drbd is not None and topology.stack != "drbd":
        yield f"{field}.drbd: is for stack drbd, not {topology.stack}"
    if topology.filesystem is not None and not stack.block_device:
        yield f"{field}.filesystem: needs a block device; stack {topology.stack} serves its volume on a socket"
    if topology.image not in stack.images:
        yield not_allowed(f"{field}.image", topology.image, stack.images)
    volume = topology.volume
    for clause in ebs.problems(volume.type, volume.size_gib, volume.iops, volume.throughput_mibps):
        yield f"{field}.volume.{clause}"
    if topology.stack == "shared":
        kinds = [kind for kind, facts in ebs.TYPES.items() if facts.multi_attach]
        if volume.type not in kinds:
            yield not_allowed(f"{field}.volume.type", volume.type, kinds) + " (Multi-Attach)"
        if topology.instance_type.split(".")[0] in XEN_FAMILIES:
            yield f"{field}.instance_type: {topology.instance_type!r} is not allowed; Multi-Attach needs Nitro"


# What hosts that are shared have in common.
_HOSTS_OWN = ("instance_type", "image", "kernel", "links")


def _together_rules(campaign: Campaign) -> Iterator[str]:
    for name, topology in campaign.topologies.items():
        field = f"topologies.{name}.together"
        if topology.together is None:
            continue
        if topology.together in campaign.topologies:
            yield f"{field}: {topology.together!r} is a topology's name; allowed: a name of its own"
            continue
        if topology.stack == "shared":
            yield f"{field}: stack shared is launched alone: its volume is attached after its hosts run"
        first = campaign.topologies[groups(campaign)[topology.together][0]]
        for own in _HOSTS_OWN:
            if getattr(first, own) != getattr(topology, own):
                yield f"topologies.{name}.{own}: {getattr(topology, own)!r} differs from its group's; they share host1"
        if first.host_azs[0] != topology.host_azs[0]:
            yield f"topologies.{name}.azs: begins in {topology.host_azs[0]}; allowed: {first.host_azs[0]}, host1's"
    for name, members in groups(campaign).items():
        if len(members) > MAX_TOGETHER:
            yield f"topologies: {len(members)} are together as {name}; allowed: at most {MAX_TOGETHER}"


def _tuning_rules(field: str, tuning: Tuning) -> Iterator[str]:
    for part in Tuning.model_fields:
        values: BaseModel | None = getattr(tuning, part)
        if values is not None and not values.model_dump(exclude_none=True):
            allowed = [known.alias or name for name, known in type(values).model_fields.items()]
            yield f"{field}.{part}: is empty; allowed: {', '.join(allowed)}"


def _buffer_rules(field: str, tuning: NetworkTuning | None) -> Iterator[str]:
    for name in ("tcp_rmem", "tcp_wmem"):
        values = getattr(tuning, name, None)
        if values and values != sorted(values):
            yield f"{field}.{name}: {values} is not allowed; allowed: min, default, max in rising order"


def _workload_rules(campaign: Campaign, name: str, workload: Workload) -> Iterator[str]:
    field = f"workloads.{name}"
    given = [key for key in LOADS if getattr(workload, key) is not None]
    if given == ["job_file"]:
        yield f"{field}.job_file: is read by the command line alone; here give the job file's text as job"
        return
    if len(given) != 1:
        yield f"{field}: has {' and '.join(given) or 'no load'}; allowed: exactly one of {', '.join(LOADS)}"
        return
    if workload.pgbench and (workload.pgbench.time is None) == (workload.pgbench.transactions is None):
        yield f"{field}.pgbench: needs exactly one of time and transactions"
        return
    try:
        expanded = loads(name, workload)
    except ValueError as error:
        joint = "." if given == ["fio"] else ": "
        yield f"{field}.{given[0]}{joint}{error}"
        return
    if len(expanded) > MAX_TRIALS:
        yield f"{field}: expands to {len(expanded)} workloads; allowed: at most {MAX_TRIALS} trials"
        return
    for load in expanded:
        broken = list(_load_rules(f"{field}.{given[0]}", campaign, load))
        yield from broken
        if not broken:
            yield from _failure_rules(field, load)


def _failure_rules(field: str, load: Load) -> Iterator[str]:
    if load.decompose and (load.tool != "fio" or load.option("iodepth", "1") != "1"):
        yield f"{field}.decompose: is for fio at iodepth 1: a queue hides the path"
    if load.failure is None:
        return
    for name in ("at", "lasts"):
        value = getattr(load.failure, name)
        try:
            fio.parse_time_s(value)
        except ValueError as error:
            yield f"{field}.failure.{name}: {value!r} is not allowed; allowed: {error}"
            return
    over_s, end_s = fio.parse_time_s(load.failure.at) + fio.parse_time_s(load.failure.lasts), sum(load.seconds)
    if over_s >= end_s:
        yield f"{field}.failure: ends {over_s:g} s after the load began; allowed: before its end at {end_s:g} s"
    if load.tool == "dbench":
        yield f"{field}.failure: is for fio and pgbench, whose every operation is timed"


def _load_rules(field: str, campaign: Campaign, load: Load) -> Iterator[str]:
    if not is_name(load.name):
        yield f"{field}: makes the name {load.name!r}; allowed: {NAME_HELP}"
    if load.tool != "fio":
        return
    for _, options in load.sections:
        for needed in ("rw", "runtime"):
            if needed not in options:
                yield f"{field}.{needed}: is missing; fio needs it, and Volumetry to know how long a trial runs"
        if fio.parse_time_s(options.get("runtime", "0")) > MAX_RUNTIME_S:
            yield f"{field}.runtime: {options['runtime']!r} is not allowed; allowed: at most 12h"
        if "rwmixread" in options and options.get("rw") not in ("rw", "readwrite", "randrw"):
            yield f"{field}.rwmixread: needs rw: rw or rw: randrw, not {options.get('rw')!r}"
    if any("runtime" not in options for _, options in load.sections):
        return
    extent = load.extent_bytes
    smallest = min(topology.volume.size_gib for topology in campaign.topologies.values())
    if extent is not None and extent > smallest * ebs.GIB:
        yield f"{field}.size: reaches byte {extent}; allowed: at most {smallest} GiB, the smallest volume"


def _matrix_rules(campaign: Campaign) -> Iterator[str]:
    matrix = cells(campaign)
    total = sum(count for *_, count in matrix)
    if total > MAX_TRIALS:
        yield f"matrix: makes {total:,} trials; allowed: at most {MAX_TRIALS:,}"
    yield from dict.fromkeys(
        problem for topology, tuning, load, _ in matrix for problem in _cell_rules(campaign, topology, tuning, load)
    )
    used = {topology for topology, *_ in matrix}
    for name in campaign.topologies:
        if name not in used:
            yield f"topologies.{name}: is in no part of the matrix"


def _cell_rules(campaign: Campaign, name: str, tuning_name: str, load: Load) -> Iterator[str]:
    """What must fit together where topology, tuning and workload meet; a matrix can keep them apart."""
    topology, tuning = campaign.topologies[name], campaign.tunings[tuning_name]
    stack, where = STACKS[topology.stack], f"on topology {name}; a matrix can keep them apart"
    if tuning.replication is not None and topology.stack != "drbd":
        yield f"tunings.{tuning_name}.replication: is for stack drbd, and is asked for {where}"
    mounted = tuning.filesystem is not None and tuning.filesystem.model_dump(exclude={"scheduler"}, exclude_none=True)
    if mounted and topology.filesystem is None:
        yield f"tunings.{tuning_name}.filesystem: needs a filesystem {where}"
    if tuning.filesystem and tuning.filesystem.journal and topology.filesystem == "xfs":
        yield f"tunings.{tuning_name}.filesystem.journal: is for ext4, and is asked for {where}"
    if tuning.filesystem and tuning.filesystem.barrier is not None and topology.filesystem == "xfs":
        yield f"tunings.{tuning_name}.filesystem.barrier: is for ext4 (xfs has no switch since Linux 4.19) {where}"
    if load.tool != "fio" and topology.filesystem is None:
        yield f"workloads.{load.name}.{load.tool}: needs a filesystem {where}"
    if load.tool == "fio" and topology.filesystem and load.extent_bytes is None:
        yield f"workloads.{load.name}.fio.size: is missing or in per cent; a file needs a size {where}"
    if load.failure and not stack.mirror:
        yield f"workloads.{load.name}.failure: needs a mirror, and is asked for {where}"
    if load.failure and load.failure.event == "cut-one-link" and topology.links < 2:
        yield f"workloads.{load.name}.failure.event: cut-one-link needs links: 2 {where}"
    if load.decompose and topology.stack != "drbd":
        yield f"workloads.{load.name}.decompose: is for stack drbd, which can write without its peer; asked for {where}"
