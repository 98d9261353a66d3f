"""What a user asks for: the campaign, as a strict model, and what it comes to: loads, cells, launches.

Shape (types, unknown fields, ranges) is pydantic's; what concerns several fields at once is in ``rules``.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from volumetry import ebs, fio
from volumetry.naming import NAME, NAME_HELP

MAX_RUNTIME_S = 12 * 3600

Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
StackName = Literal["local", "shared", "nbd-mirror", "drbd", "md-nvme-tcp"]
FilesystemName = Literal["xfs", "ext4"]
FailureEvent = Literal["kill-peer", "cut-one-link", "cut-all-links", "freeze-peer", "fill-peer-disk"]
# Assumed of pgbench where only transactions are given, to plan by and never to measure with.
PGBENCH_TPS = 50
Image = Literal["ubuntu-24.04", "al2023"]
SocketBuffers = Annotated[list[Annotated[int, Field(ge=4096, le=2**31 - 1)]], Field(min_length=3, max_length=3)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Volume(_Model):
    """The EBS volume under test, one for each host that has a disk of its own."""

    type: ebs.VolumeType = Field("gp3", description="EBS volume type")
    size_gib: int = Field(8, ge=1, le=65536, description="size in GiB")
    iops: int | None = Field(None, ge=1, description="provisioned IOPS; gp3 (default 3000), io1 and io2 only")
    throughput_mibps: int | None = Field(None, ge=1, description="provisioned MiB/s; gp3 only (default 125)")


class Drbd(_Model):
    """What is DRBD's own."""

    protocol: Literal["A", "B", "C"] = Field("C", description="when a write counts as done: C, when both legs have it")
    initial_sync: Literal["skip", "full"] = Field(
        "skip", description="skip declares blank volumes in sync without copying; recorded with every result"
    )


class Topology(_Model):
    """Hosts, their AZs, volumes and links, and the storage stack on them."""

    stack: StackName = Field(description="how the volume under test is made")
    hosts: int | None = Field(None, ge=1, le=32, description="number of hosts; default: what the stack needs")
    azs: list[Literal["a", "b", "c"]] = Field(
        ["a"],
        min_length=1,
        max_length=32,
        description="AZ of each host, or one for all; a, b, c are the network's first, second, third AZ",
    )
    links: int = Field(1, ge=1, le=2, description="network links that carry replication (nbd-mirror; DRBD 9)")
    instance_type: str = Field(
        "m6i.large", pattern=r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$", description="EC2 instance type of every host"
    )
    image: Image = Field("ubuntu-24.04", description="operating system of every host")
    volume: Volume = Field(default_factory=Volume)
    filesystem: FilesystemName | None = Field(
        None, description="made on the volume under test and mounted; default: loads run on the volume itself"
    )
    drbd: Drbd | None = Field(None, description="protocol and first synchronisation (stack drbd)")
    kernel: str | None = Field(
        None,
        pattern=r"^[a-z][a-z0-9.+-]{1,60}$",
        description="package of the kernel that the hosts boot, such as linux-image-cloud-amd64; default: the image's",
    )
    overwrite: bool = Field(False, description="write over volumes that hold somebody's data")
    together: Name | None = Field(
        None, description="topologies of the same name here share host1 and are launched as one; peers stay their own"
    )

    @property
    def host_azs(self) -> tuple[str, ...]:
        """The AZ letter of each host, in the order host1, host2, ..."""
        count = self.hosts or max(len(self.azs), STACKS[self.stack].hosts[0])
        return tuple(self.azs) if len(self.azs) == count else tuple(self.azs * count)[:count]


@dataclass(frozen=True)
class StackFacts:
    """What a storage stack asks of its topology."""

    hosts: tuple[int, int]
    links: int = 1
    one_az: bool = False
    mirror: bool = False
    kernel_module: bool = False
    block_device: bool = True
    images: tuple[str, ...] = get_args(Image)


STACKS: dict[str, StackFacts] = {
    "local": StackFacts(hosts=(1, 1)),
    "shared": StackFacts(hosts=(2, 16), one_az=True),
    # Amazon Linux packages no qemu-storage-daemon.
    "nbd-mirror": StackFacts(hosts=(2, 2), links=2, mirror=True, block_device=False, images=("ubuntu-24.04",)),
    # Amazon Linux packages no DRBD.
    "drbd": StackFacts(hosts=(2, 2), links=2, mirror=True, kernel_module=True, images=("ubuntu-24.04",)),
    "md-nvme-tcp": StackFacts(hosts=(2, 2), mirror=True, kernel_module=True),
}


def needs_kernel(campaign: "Campaign") -> list[str]:
    """What of the campaign needs hosts with a kernel of their own, as fields; empty: process hosts will do."""
    return [
        f"topologies.{name}.{field}"
        for name, topology in campaign.topologies.items()
        for field, needed in (
            ("stack", STACKS[topology.stack].kernel_module),
            ("filesystem", topology.filesystem is not None),
            ("kernel", topology.kernel is not None),
        )
        if needed
    ]


class NetworkTuning(_Model):
    """Network settings of every host, set before a trial and set back after it."""

    mtu: int | None = Field(None, ge=576, le=9001, description="bytes; a VPC carries at most 9001")
    tcp_rmem: SocketBuffers | None = Field(None, description="net.ipv4.tcp_rmem: min, default, max in bytes")
    tcp_wmem: SocketBuffers | None = Field(None, description="net.ipv4.tcp_wmem: min, default, max in bytes")


class ReplicationTuning(_Model):
    """DRBD's options by DRBD's names (underscores are read as well), on both hosts. Ranges: drbd.conf(5)."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), validate_by_name=True)

    max_buffers: int | None = Field(None, ge=32, le=131072, description="buffers of a page each, on the receiving side")
    max_epoch_size: int | None = Field(None, ge=1, le=20000, description="writes between two barriers")
    sndbuf_size: int | None = Field(None, ge=0, le=10 << 20, description="TCP send buffer, bytes; 0: automatic")
    rcvbuf_size: int | None = Field(None, ge=0, le=10 << 20, description="TCP receive buffer, bytes; 0: automatic")
    al_extents: int | None = Field(None, ge=67, le=65534, description="4 MiB extents that the activity log covers")
    unplug_watermark: int | None = Field(None, ge=1, le=131072, description="pending requests before an unplug")
    c_max_rate: int | None = Field(None, ge=250, le=4 << 20, description="most that a resync takes, KiB/s")
    disk_barrier: bool | None = Field(None, description="keep the order of writes by barriers")
    disk_flushes: bool | None = Field(None, description="keep the order of writes by flushes of the disk")
    md_flushes: bool | None = Field(None, description="flush the disk after writes of metadata")
    protocol: Literal["A", "B", "C"] | None = Field(None, description="when a write counts as done")


class FilesystemTuning(_Model):
    """Mount options of the file system under test, and the scheduler of the disks below it."""

    barrier: bool | None = Field(None, description="ext4: write barriers; xfs no longer has a switch")
    discard: bool | None = Field(None, description="tell the volume of freed blocks at once")
    journal: Literal["ordered", "writeback", "journal"] | None = Field(None, description="ext4: data=")
    scheduler: Literal["none", "mq-deadline", "kyber", "bfq"] | None = Field(None, description="of the volumes")


class Tuning(_Model):
    """A named set of values, applied before a trial and undone after it; empty: the hosts as they come."""

    network: NetworkTuning | None = None
    replication: ReplicationTuning | None = None
    filesystem: FilesystemTuning | None = None


class Pgbench(_Model):
    """pgbench's long options, by its own names; exactly one of time and transactions."""

    scale: int = Field(1, ge=1, le=100_000)
    client: int = Field(1, ge=1, le=1000)
    jobs: int = Field(1, ge=1, le=1000)
    time: int | None = Field(None, ge=1, le=MAX_RUNTIME_S, description="seconds")
    transactions: int | None = Field(None, ge=1, le=100_000_000, description="of each client")
    protocol: Literal["simple", "extended", "prepared"] | None = None
    rate: int | None = Field(None, ge=1, description="transactions per second, in sum")
    builtin: Literal["tpcb-like", "simple-update", "select-only"] | None = None


class Dbench(_Model):
    """dbench: how many clients replay its load file, for how long."""

    clients: int = Field(5, ge=1, le=1000)
    timelimit: int = Field(ge=5, le=MAX_RUNTIME_S, description="seconds, of which dbench warms up for a fifth")


class Failure(_Model):
    """What befalls the mirror while the load runs."""

    event: FailureEvent = Field(description="cut-one-link needs links: 2")
    at: str = Field(description="how long after the load has begun, by fio's units, such as 10s")
    lasts: str = Field("10s", description="how long it lasts; kill-peer lasts as long as a boot")


class Workload(_Model):
    """A load: fio options by fio's own names (a list is a matrix), a fio job file, pgbench or dbench."""

    fio: dict[str, Any] | None = Field(None, description="fio options; a list of values makes one workload each")
    job_file: str | None = Field(None, description="path of a fio job file, relative to the campaign's file")
    job: str | None = Field(None, description="text of a fio job file")
    pgbench: Pgbench | None = Field(None, description="PostgreSQL on the file system, driven by pgbench")
    dbench: Dbench | None = Field(None, description="dbench on the file system")
    failure: Failure | None = Field(None, description="a failure under this load")
    decompose: bool = Field(
        False, description="run the load first with the peer disconnected, to set local write and round trip beside it"
    )


class Selector(_Model):
    """A part of the matrix; a list left out means all."""

    topologies: list[Name] | None = Field(None, min_length=1)
    tunings: list[Name] | None = Field(None, min_length=1)
    workloads: list[Name] | None = Field(None, min_length=1)
    repetitions: int | None = Field(None, ge=1, le=1000)


class PublishedRatio(_Model):
    """What a study published of one topology against another, under one workload."""

    workload: Name
    topology: Name
    base: Name
    percent: float = Field(gt=0, description="of the base's rate")


class Published(_Model):
    """A study's own figures, shown beside what was measured and never mixed with it."""

    source: str = Field(max_length=300, description="which study")
    differs: str = Field("", max_length=1000, description="what was different there")
    ratios: list[PublishedRatio] = Field(min_length=1, max_length=100)


class Campaign(_Model):
    """What a user asks for: topologies x tunings x workloads x repetitions."""

    campaign: Name = Field(description="the campaign's name: " + NAME_HELP)
    description: str = Field("", max_length=1000)
    seed: int = Field(1, ge=0, le=2**32 - 1, description="draws the order of trials; the same seed, the same plan")
    repetitions: int = Field(6, ge=1, le=1000, description="blocks; fewer than six publish no interval")
    ladder: list[Name] | None = Field(None, min_length=2, description="topologies, each one step from the last")
    topologies: dict[Name, Topology] = Field(min_length=1, max_length=40)
    tunings: dict[Name, Tuning] = Field(default_factory=lambda: {"stock": Tuning()}, min_length=1)
    workloads: dict[Name, Workload] = Field(min_length=1)
    published: Published | None = Field(None, description="a study's own figures, to show beside those measured")
    matrix: list[Selector] | None = Field(None, min_length=1, description="parts of the matrix; default: all of it")


@dataclass(frozen=True)
class Load:
    """One workload after its matrix is expanded: fio jobs that run at once, or another tool with its options."""

    name: str
    sections: tuple[fio.Section, ...] = ()
    tool: str = "fio"
    options: tuple[tuple[str, str], ...] = ()
    span_s: float = 0.0  # of tools other than fio
    failure: Failure | None = None
    decompose: bool = False

    def option(self, name: str, default: str | None = None) -> str | None:
        """The value that every job shares, or None where jobs differ."""
        values = {options.get(name, default) for _, options in self.sections}
        return values.pop() if len(values) == 1 else None

    @property
    def seconds(self) -> tuple[float, float]:
        """(ramp_time, runtime) in seconds: of the longest job."""
        if self.tool != "fio":
            return 0.0, self.span_s
        spans = [
            (fio.parse_time_s(options.get("ramp_time", "0")), fio.parse_time_s(options["runtime"]))
            for _, options in self.sections
        ]
        return max(spans, key=sum)

    @property
    def extent_bytes(self) -> int | None:
        """The furthest byte that the jobs can touch, or None for the whole volume."""
        ends = []
        for _, options in self.sections:
            size = options.get("size", "100%")
            if size.endswith("%") or options.get("offset", "0").endswith("%"):
                return None
            step = fio.parse_size_bytes(options.get("offset_increment", "0"))
            shift = fio.parse_size_bytes(options.get("offset", "0")) + step * (int(options.get("numjobs", 1)) - 1)
            ends.append(shift + fio.parse_size_bytes(size))
        return max(ends)


def loads(name: str, workload: Workload) -> list[Load]:
    """The workload as the loads it stands for; raises ValueError with ``option: clause`` on a bad option."""
    extras: dict[str, Any] = {"failure": workload.failure, "decompose": workload.decompose}
    return [replace(load, **extras) for load in _plain_loads(name, workload)]


def _plain_loads(name: str, workload: Workload) -> list[Load]:
    if workload.fio is not None:
        return list(_matrix_loads(name, workload.fio))
    if workload.pgbench is not None:
        return [Load(name, tool="pgbench", options=_options(workload.pgbench), span_s=_pgbench_s(workload.pgbench))]
    if workload.dbench is not None:
        return [Load(name, tool="dbench", options=_options(workload.dbench), span_s=workload.dbench.timelimit)]
    groups = fio.read_job_file(workload.job or "")
    if len(groups) == 1:
        return [Load(name, tuple(groups[0]))]
    return [Load(f"{name}-{_slug(group[0][0])}", tuple(group)) for group in groups]


def _options(tool: Pgbench | Dbench) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in tool.model_dump(exclude_none=True).items())


def _pgbench_s(pgbench: Pgbench) -> float:
    if pgbench.time is not None:
        return pgbench.time
    return pgbench.client * (pgbench.transactions or 0) / (pgbench.rate or PGBENCH_TPS)


def _matrix_loads(name: str, options: Mapping[str, Any]) -> Iterator[Load]:
    axes = []
    for option, value in options.items():
        if value == [] or isinstance(value, dict) or value is None:
            raise ValueError(f"{option}: {value!r} is not allowed; allowed: a value, or a list of values")
        axes.append([(option, item) for item in (value if isinstance(value, list) else [value])])
    for point in itertools.product(*axes):
        checked: dict[str, str] = {}
        for option, value in point:
            try:
                known, text = fio.check_option(option, value)
            except ValueError as error:
                raise ValueError(f"{option}: {error}") from None
            checked[known] = text
        varied = [f"{option}-{_slug(str(value))}" for option, value in point if isinstance(options[option], list)]
        yield Load("-".join([name, *varied]).replace("_", "-"), ((name, checked),))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def cells(campaign: Campaign) -> list[tuple[str, str, Load, int]]:
    """Every (topology, tuning, load, repetitions) of the matrix, each once, in the order it is written."""
    seen: dict[tuple[str, str, str], tuple[Load, int]] = {}
    for part in campaign.matrix or [Selector()]:
        for topology, tuning, workload in itertools.product(
            part.topologies or campaign.topologies,
            part.tunings or campaign.tunings,
            part.workloads or campaign.workloads,
        ):
            for load in loads(workload, campaign.workloads[workload]):
                seen[topology, tuning, load.name] = (load, part.repetitions or campaign.repetitions)
    return [(topology, tuning, load, count) for (topology, tuning, _), (load, count) in seen.items()]


def groups(campaign: Campaign) -> dict[str, list[str]]:
    """What is launched as one: its name -> its topologies, in the campaign's order. Most go alone."""
    found: dict[str, list[str]] = {}
    for name, topology in campaign.topologies.items():
        found.setdefault(topology.together or name, []).append(name)
    return found


def canonical(campaign: Campaign) -> str:
    """The campaign as JSON, its names in the user's order: that is the ladder's, and the first tuning is the base."""
    return json.dumps(campaign.model_dump(mode="json", exclude_none=True))
