"""What a user asks for: the campaign, as a strict model, and every rule that it must keep before anything is launched.

Shape (types, unknown fields, ranges) is pydantic's; ``_rules`` holds what concerns several fields at once.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from volumetry import ebs, fio
from volumetry.errors import CampaignRefused, nearest, not_allowed
from volumetry.naming import NAME, NAME_HELP, is_name

# Enough for every published study; a mistyped matrix is caught before it costs a month.
MAX_TRIALS = 5000
MAX_CAMPAIGN_BYTES = 200_000  # the execution input may hold 262,144 bytes in all
MAX_RUNTIME_S = 12 * 3600
AZS = ("a", "b", "c")
# Instance families before Nitro: no Multi-Attach, and EBS volumes without NVMe.
XEN_FAMILIES = frozenset("t1 t2 m1 m2 m3 m4 c1 c3 c4 r3 r4 i2 i3 d2 x1 x1e".split())

Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
StackName = Literal["local", "shared", "nbd-mirror"]
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
    links: int = Field(1, ge=1, le=2, description="network links that carry replication (nbd-mirror)")
    instance_type: str = Field(
        "m6i.large", pattern=r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$", description="EC2 instance type of every host"
    )
    image: Image = Field("ubuntu-24.04", description="operating system of every host")
    volume: Volume = Field(default_factory=Volume)

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
    images: tuple[str, ...] = get_args(Image)


STACKS: dict[str, StackFacts] = {
    "local": StackFacts(hosts=(1, 1)),
    "shared": StackFacts(hosts=(2, 16), one_az=True),
    # Amazon Linux packages no qemu-storage-daemon.
    "nbd-mirror": StackFacts(hosts=(2, 2), links=2, images=("ubuntu-24.04",)),
}


class NetworkTuning(_Model):
    """Network settings of every host, set before a trial and set back after it."""

    mtu: int | None = Field(None, ge=576, le=9001, description="bytes; a VPC carries at most 9001")
    tcp_rmem: SocketBuffers | None = Field(None, description="net.ipv4.tcp_rmem: min, default, max in bytes")
    tcp_wmem: SocketBuffers | None = Field(None, description="net.ipv4.tcp_wmem: min, default, max in bytes")


class Tuning(_Model):
    """A named set of values, applied before a trial and undone after it; empty: the hosts as they come."""

    network: NetworkTuning | None = None


class Workload(_Model):
    """A load: fio options by fio's own names (a list is a matrix), or a fio job file."""

    fio: dict[str, Any] | None = Field(None, description="fio options; a list of values makes one workload each")
    job_file: str | None = Field(None, description="path of a fio job file, relative to the campaign's file")
    job: str | None = Field(None, description="text of a fio job file")


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
    """One workload after its matrix is expanded: fio jobs that run at once."""

    name: str
    sections: tuple[fio.Section, ...]

    def option(self, name: str, default: str | None = None) -> str | None:
        """The value that every job shares, or None where jobs differ."""
        values = {options.get(name, default) for _, options in self.sections}
        return values.pop() if len(values) == 1 else None

    @property
    def seconds(self) -> tuple[float, float]:
        """(ramp_time, runtime) in seconds: of the longest job."""
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
    if workload.fio is not None:
        return list(_matrix_loads(name, workload.fio))
    groups = fio.read_job_file(workload.job or "")
    if len(groups) == 1:
        return [Load(name, tuple(groups[0]))]
    return [Load(f"{name}-{_slug(group[0][0])}", tuple(group)) for group in groups]


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
    for name, tuning in campaign.tunings.items():
        if tuning.network is not None and not tuning.network.model_dump(exclude_none=True):
            yield f"tunings.{name}.network: is empty; allowed: mtu, tcp_rmem, tcp_wmem"
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


def _buffer_rules(field: str, tuning: NetworkTuning | None) -> Iterator[str]:
    for name in ("tcp_rmem", "tcp_wmem"):
        values = getattr(tuning, name, None)
        if values and values != sorted(values):
            yield f"{field}.{name}: {values} is not allowed; allowed: min, default, max in rising order"


def _workload_rules(campaign: Campaign, name: str, workload: Workload) -> Iterator[str]:
    field = f"workloads.{name}"
    given = [key for key in ("fio", "job_file", "job") if getattr(workload, key) is not None]
    if given == ["job_file"]:
        yield f"{field}.job_file: is read by the command line alone; here give the job file's text as job"
        return
    if len(given) != 1:
        yield f"{field}: has {' and '.join(given) or 'no load'}; allowed: exactly one of fio, job_file, job"
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
        yield from _load_rules(f"{field}.{given[0]}", campaign, load)


def _load_rules(field: str, campaign: Campaign, load: Load) -> Iterator[str]:
    if not is_name(load.name):
        yield f"{field}: makes the name {load.name!r}; allowed: {NAME_HELP}"
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
    used = {topology for topology, *_ in matrix}
    for name in campaign.topologies:
        if name not in used:
            yield f"topologies.{name}: is in no part of the matrix"
