"""From a campaign to everything that will be done: pure, and the same for the same campaign, seed and environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from volumetry import ebs, fio
from volumetry.ceilings import Ceiling, InstanceFacts, ceilings
from volumetry.errors import CampaignRefused
from volumetry.naming import TrialId
from volumetry.order import blocks
from volumetry.spec import Campaign, Drbd, Load, Published, Topology, Tuning, cells, groups, needs_kernel
from volumetry.topologies import host_names

# The lane of all topologies whose hosts share hardware.
SHARED_LANE = "interleaved"
# Sequential fill at the volume's own rate, but never taken for faster than this.
PRECONDITION_BYTES_PER_S = 400 * ebs.MIB
# Guesses, to plan by: making a database or a file set; waiting for a mirror to be whole again and reading it all.
TOOL_SETUP_S = 30
FAILURE_SETTLE_S = 60


@dataclass(frozen=True)
class Environment:
    """What the plan needs to know of where it will run.

    ``launch_s`` and ``trial_overhead_s`` are what a launch, and a trial beyond its load, take there; they shape
    expectations and time-outs, never results.
    """

    name: str
    hosts_share_hardware: bool
    launch_s: float
    trial_overhead_s: float
    live_every_s: float = 1.0  # so often at most a host tells a person who watches
    instances: Mapping[str, InstanceFacts] = field(default_factory=dict)


AWS = Environment("aws", hosts_share_hardware=False, launch_s=300, trial_overhead_s=12)
LOCAL = Environment("local", hosts_share_hardware=True, launch_s=8, trial_overhead_s=2)
# Virtual machines, where a campaign needs kernels of its own: on an emulated CPU all but the load is slow.
LOCAL_GUESTS = Environment("local", hosts_share_hardware=True, launch_s=45, trial_overhead_s=8, live_every_s=5)


def local(campaign: Campaign) -> Environment:
    """The local region, with the hosts that the campaign needs."""
    return LOCAL_GUESTS if needs_kernel(campaign) else LOCAL


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedTopology(_Model):
    """A topology with its hosts named; ``volume`` holds the fields of the campaign's ``volume``."""

    stack: str
    launch: str  # what it is launched as: its own name, or that of the group it shares host1 with
    number: int  # its place in that group, from 0
    hosts: dict[str, str]  # name -> AZ letter
    clients: list[str]
    links: int
    instance_type: str
    image: str
    volume: dict[str, Any]
    filesystem: str | None
    drbd: dict[str, str]
    kernel: str | None
    overwrite: bool
    precondition_bytes: int
    precondition_s: float


class PlannedFailure(_Model):
    """A failure under load, in seconds from the start of the load."""

    event: str
    at_s: float
    lasts_s: float


class PlannedLoad(_Model):
    """A load: the sections of its fio job file, or another tool's options, and how long it runs."""

    tool: str
    sections: list[tuple[str, dict[str, str]]]
    options: dict[str, str]
    ramp_s: float
    runtime_s: float
    failure: PlannedFailure | None
    alone: bool  # the same load first with the peer disconnected

    def option(self, name: str, default: str | None = None) -> str | None:
        """The value that all jobs share, or None where they differ."""
        sections = tuple((section, dict(options)) for section, options in self.sections)
        return Load("", sections).option(name, default)


class PlannedTrial(_Model):
    """One trial, in its place."""

    id: str
    lane: str
    sequence: int
    block: int
    topology: str
    tuning: str
    workload: str
    repetition: int
    expected_s: float
    timeout_s: int
    ceilings: list[Ceiling]


class Plan(_Model):
    """Everything that will be done, in order."""

    campaign: str
    description: str
    seed: int
    environment: str
    live_every_s: float
    ladder: list[str]
    lanes: dict[str, list[str]]  # lane -> what is launched in it
    topologies: dict[str, PlannedTopology]
    tunings: dict[str, Tuning]
    workloads: dict[str, PlannedLoad]
    published: Published | None
    trials: list[PlannedTrial]
    expected_s: float
    lane_expected_s: dict[str, float]

    def members(self, launch: str) -> dict[str, PlannedTopology]:
        """The topologies that are launched as one under that name."""
        return {name: topology for name, topology in self.topologies.items() if topology.launch == launch}

    def tools(self, topology: str) -> list[str]:
        """What makes the loads of a topology: fio, pgbench, ..."""
        return sorted({self.workloads[trial.workload].tool for trial in self.trials if trial.topology == topology})

    def trial(self, identifier: str) -> PlannedTrial:
        """The trial of that id; raises KeyError."""
        return next((trial for trial in self.trials if trial.id == identifier), None) or _missing(identifier)

    def to_json(self) -> str:
        """JSON in the order of the fields: equal plans give equal text."""
        return self.model_dump_json(indent=1) + "\n"


def _missing(identifier: str) -> PlannedTrial:
    raise KeyError(identifier)


def plan(campaign: Campaign, environment: Environment) -> Plan:
    """The plan of ``campaign`` in ``environment``; raises CampaignRefused when an instance type is not known there."""
    _check_instances(campaign, environment)
    matrix = cells(campaign)
    used = [name for name in campaign.topologies if any(name == topology for topology, *_ in matrix)]
    shared = environment.hosts_share_hardware
    launches = groups(campaign)
    lanes = {SHARED_LANE: list(launches)} if shared else {name: [name] for name in launches}
    trials = [
        trial
        for lane, launched in lanes.items()
        for trial in _lane_trials(campaign, environment, lane, [name for each in launched for name in launches[each]])
    ]
    topologies = {name: _topology(name, campaign) for name in used}
    spans = {
        lane: _lane_seconds(environment, trials, lane, [one for one in topologies.values() if one.launch in launched])
        for lane, launched in lanes.items()
    }
    return Plan(
        campaign=campaign.campaign,
        description=campaign.description,
        seed=campaign.seed,
        environment=environment.name,
        live_every_s=environment.live_every_s,
        ladder=campaign.ladder or used,
        lanes=lanes,
        topologies=topologies,
        tunings=dict(campaign.tunings),
        workloads={load.name: _load(load) for _, _, load, _ in matrix},
        published=campaign.published,
        trials=trials,
        expected_s=max(spans.values()),
        lane_expected_s=spans,
    )


def _check_instances(campaign: Campaign, environment: Environment) -> None:
    known = environment.instances
    problems = [
        f"topologies.{name}.instance_type: {topology.instance_type!r} does not exist in this region"
        for name, topology in campaign.topologies.items()
        if known and topology.instance_type not in known
    ]
    if problems:
        raise CampaignRefused(problems)


def _lane_trials(campaign: Campaign, environment: Environment, lane: str, names: list[str]) -> list[PlannedTrial]:
    matrix = [
        ((topology, tuning, load), count) for topology, tuning, load, count in cells(campaign) if topology in names
    ]
    trials: list[PlannedTrial] = []
    for block, present in enumerate(blocks(matrix, campaign.seed, lane), start=1):
        for topology, tuning, load in present:
            facts = environment.instances.get(campaign.topologies[topology].instance_type, InstanceFacts())
            expected_s = _expected_s(load, environment)
            trials.append(
                PlannedTrial(
                    id=str(TrialId(topology, tuning, load.name, block)),
                    lane=lane,
                    sequence=len(trials) + 1,
                    block=block,
                    topology=topology,
                    tuning=tuning,
                    workload=load.name,
                    repetition=block,
                    expected_s=expected_s,
                    # A mirror whose peer froze hangs without limit: the command is stopped then.
                    timeout_s=int(2 * expected_s + 60),
                    ceilings=ceilings(campaign.topologies[topology], load, facts),
                )
            )
    return trials


def _expected_s(load: Load, environment: Environment) -> float:
    """A trial beyond its load takes the environment's overhead; what a tool must set up first is a guess."""
    setup_s = 0 if load.tool == "fio" else TOOL_SETUP_S
    again = 2 if load.decompose else 1
    settle_s = FAILURE_SETTLE_S if load.failure else 0
    return again * sum(load.seconds) + setup_s + settle_s + environment.trial_overhead_s


def _topology(name: str, campaign: Campaign) -> PlannedTopology:
    topology = campaign.topologies[name]
    extent = _extent_bytes(topology, [load for used, _, load, _ in cells(campaign) if used == name])
    volume = topology.volume
    limit = ebs.limits(volume.type, volume.size_gib, volume.iops, volume.throughput_mibps)
    rate = min(limit.throughput_bytes_per_s, limit.iops * limit.io_bytes, PRECONDITION_BYTES_PER_S)
    launch = topology.together or name
    members = groups(campaign)[launch]
    names = host_names(campaign.topologies, members)[name]
    drbd = (topology.drbd or Drbd()).model_dump() if topology.stack == "drbd" else {}
    return PlannedTopology(
        stack=topology.stack,
        launch=launch,
        number=members.index(name),
        hosts=dict(zip(names, topology.host_azs, strict=True)),
        clients=names[:1],
        links=topology.links,
        instance_type=topology.instance_type,
        image=topology.image,
        volume=volume.model_dump(exclude_none=True),
        filesystem=topology.filesystem,
        drbd=drbd,
        kernel=topology.kernel,
        overwrite=topology.overwrite,
        # A file system's blocks are written when its files are.
        precondition_bytes=0 if topology.filesystem else extent,
        precondition_s=0 if topology.filesystem else extent / rate,
    )


def _extent_bytes(topology: Topology, loads: list[Load]) -> int:
    """The part of the volume that the loads touch: it is written once before the first trial."""
    whole = topology.volume.size_gib * ebs.GIB
    extents = [load.extent_bytes for load in loads if load.tool == "fio"]
    return max((whole if extent is None else extent for extent in extents), default=whole)


def _load(load: Load) -> PlannedLoad:
    ramp_s, runtime_s = load.seconds
    failure = load.failure and PlannedFailure(
        event=load.failure.event,
        at_s=fio.parse_time_s(load.failure.at),
        lasts_s=fio.parse_time_s(load.failure.lasts),
    )
    return PlannedLoad(
        tool=load.tool,
        sections=list(load.sections),
        options=dict(load.options),
        ramp_s=ramp_s,
        runtime_s=runtime_s,
        failure=failure,
        alone=load.decompose,
    )


def _lane_seconds(
    environment: Environment,
    trials: list[PlannedTrial],
    lane: str,
    topologies: list[PlannedTopology],
) -> float:
    fill_s = [topology.precondition_s for topology in topologies]
    filling_s = sum(fill_s) if environment.hosts_share_hardware else max(fill_s)
    return environment.launch_s + filling_s + sum(trial.expected_s for trial in trials if trial.lane == lane)


# The service's own part of every job file: what makes evidence, and what fio must not leave to chance.
SERVICE_OPTIONS = {
    "direct": "1",
    "time_based": "1",
    "group_reporting": "1",
    "randrepeat": "0",
    "thread": "1",
    "per_job_logs": "0",
    "write_iops_log": "log",
    "write_bw_log": "log",
    "write_lat_log": "log",
}

# Under a failure every write is remembered and read back: each block is written once, and never twice.
FAILURE_OPTIONS = {
    "verify": "crc32c",
    "do_verify": "0",
    "verify_state_save": "1",
}


# The five rounds of the steady-state test need at least a window each; a short run gets shorter windows.
SHORT_RUN_S = 10


def log_window_s(load: PlannedLoad) -> float:
    """Averaging window of fio's logs in seconds: one second, or a fifth of one in a run of less than ten."""
    return 1.0 if load.runtime_s >= SHORT_RUN_S else 0.2


def job_file(load: PlannedLoad) -> str:
    """The fio job file of a trial; the host adds the engine and the volume under test to ``[global]``."""
    options = SERVICE_OPTIONS | {"log_avg_msec": f"{1000 * log_window_s(load):.0f}"}
    if load.failure is not None and "write" in (load.option("rw") or ""):
        options = {name: value for name, value in options.items() if name != "time_based"} | FAILURE_OPTIONS
    return fio.render_job_file(load.sections, options)
