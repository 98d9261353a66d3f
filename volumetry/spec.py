"""What a user asks for: the campaign, as a strict model, and every rule that it must keep before anything is launched.

Shape (types, unknown fields, ranges) is pydantic's; ``_rules`` holds what concerns several fields at once.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from volumetry import ebs, fio
from volumetry.errors import CampaignRefused, nearest, not_allowed
from volumetry.naming import NAME, NAME_HELP, is_name

# Enough for every published study; a mistyped matrix is caught before it costs a month.
MAX_TRIALS = 5000
# Topologies that share host1: as many volumes under test as it is given device names for.
MAX_TOGETHER = 10
LOADS = ("fio", "job_file", "job", "pgbench", "dbench")
MAX_CAMPAIGN_BYTES = 200_000  # the execution input may hold 262,144 bytes in all
MAX_RUNTIME_S = 12 * 3600
AZS = ("a", "b", "c")
# Instance families before Nitro: no Multi-Attach, and EBS volumes without NVMe.
XEN_FAMILIES = frozenset("t1 t2 m1 m2 m3 m4 c1 c3 c4 r3 r4 i2 i3 d2 x1 x1e".split())

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
    images: tuple[str, ...] = get_args(Image)


STACKS: dict[str, StackFacts] = {
    "local": StackFacts(hosts=(1, 1)),
    "shared": StackFacts(hosts=(2, 16), one_az=True),
    # Amazon Linux packages no qemu-storage-daemon.
    "nbd-mirror": StackFacts(hosts=(2, 2), links=2, mirror=True, images=("ubuntu-24.04",)),
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
    """DRBD's options by DRBD's names (hyphens or underscores), on both hosts. Ranges: drbd.conf(5)."""

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

    @model_validator(mode="before")
    @classmethod
    def _hyphens(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key.replace("-", "_") if isinstance(key, str) else key: value for key, value in data.items()}


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


class _UniqueKeys(yaml.SafeLoader):
    """YAML that refuses a key written twice, where PyYAML keeps the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is written twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep=deep)


def read_campaign(path: Path) -> Campaign:
    """The campaign in a YAML or JSON file, its fio job files read in; raises CampaignRefused."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CampaignRefused([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise CampaignRefused([f"{path}: is not UTF-8 text"]) from None
    if len(text) > MAX_CAMPAIGN_BYTES:
        raise CampaignRefused([f"{path}: holds {len(text)} bytes; allowed: at most {MAX_CAMPAIGN_BYTES}"])
    try:
        data = yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise CampaignRefused([f"{path}: is neither YAML nor JSON: {_yaml_problem(error)}"]) from None
    if isinstance(data, dict):
        data = _with_job_files(data, path.parent)
    return check_campaign(data)


def _yaml_problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + " ".join(str(getattr(error, "problem", None) or error).split())


def _with_job_files(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    workloads = data.get("workloads")
    if not isinstance(workloads, dict):
        return data
    read = {}
    for name, workload in workloads.items():
        read[name] = workload
        if isinstance(workload, dict) and isinstance(workload.get("job_file"), str) and "job" not in workload:
            path = folder / workload["job_file"]
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError, ValueError):
                problem = f"workloads.{name}.job_file: {workload['job_file']!r} cannot be read"
                raise CampaignRefused([problem]) from None
            read[name] = {key: value for key, value in workload.items() if key != "job_file"} | {"job": text}
    return data | {"workloads": read}


def check_campaign(data: object) -> Campaign:
    """The campaign that ``data`` (parsed YAML or JSON) stands for; raises CampaignRefused, one line a problem."""
    if not isinstance(data, dict):
        raise CampaignRefused(["campaign: must be a mapping of fields, such as campaign:, topologies:, workloads:"])
    try:
        campaign = Campaign.model_validate(data)
    except ValidationError as error:
        raise CampaignRefused(_shape_problems(error)) from None
    problems = list(_rules(campaign))
    if problems:
        raise CampaignRefused(problems)
    return campaign


def canonical(campaign: Campaign) -> str:
    """The campaign as JSON, its names in the user's order: that is the ladder's, and the first tuning is the base."""
    return json.dumps(campaign.model_dump(mode="json", exclude_none=True))


def _shape_problems(error: ValidationError) -> list[str]:
    lines = [_shape_problem(item["type"], item["loc"], item["input"], item["msg"], item.get("ctx", {}))
             for item in error.errors(include_url=False)]  # fmt: skip
    return list(dict.fromkeys(lines))


def _shape_problem(
    kind: str, location: tuple[int | str, ...], value: Any, message: str, context: Mapping[str, Any]
) -> str:
    field = ".".join(str(part) for part in location if part != "[key]")
    shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    if kind == "extra_forbidden":
        allowed = _fields_at(location[:-1])
        return f"{field}: is not a field; allowed: {', '.join(allowed)}{nearest(location[-1], allowed)}"
    if kind == "missing":
        return f"{field}: is missing"
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        return not_allowed(field, value, allowed)
    if "[key]" in location or kind == "string_pattern_mismatch":
        is_type = field.endswith("instance_type")
        allowed_text = "an instance type such as m6i.large" if is_type else NAME_HELP
        return f"{field}: {shown} is not allowed; allowed: {allowed_text}"
    allowed_text = _ALLOWED.get(kind, message).format_map(context)
    return f"{field}: {shown} is not allowed; allowed: {allowed_text}"


# What pydantic's error types allow, in words.
_ALLOWED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
    "string_too_long": "at most {max_length} characters",
}


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of the model at ``location`` in a campaign."""
    model: type[BaseModel] = Campaign
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            found = _models_in(model.model_fields[part].annotation)
            model = found[0] if found else model
    return sorted(model.model_fields)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _rules(campaign: Campaign) -> Iterator[str]:
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
    broken = list(_matrix_references(campaign))
    for name, workload in campaign.workloads.items():
        broken += _workload_rules(campaign, name, workload)
    yield from broken
    if not broken:
        yield from _matrix_rules(campaign)


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


def groups(campaign: Campaign) -> dict[str, list[str]]:
    """What is launched as one: its name -> its topologies, in the campaign's order. Most go alone."""
    found: dict[str, list[str]] = {}
    for name, topology in campaign.topologies.items():
        found.setdefault(topology.together or name, []).append(name)
    return found


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
            yield f"{field}.{part}: is empty; allowed: {', '.join(type(values).model_fields)}"


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
        try:
            fio.parse_time_s(getattr(load.failure, name))
        except ValueError as error:
            yield f"{field}.failure.{name}: {error}"
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
