"""A campaign that cannot run is refused in one line that names field, value, what is allowed and the nearest word."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from volumetry.errors import CampaignRefused
from volumetry.reading import check_campaign, read_campaign
from volumetry.spec import canonical, cells, groups, needs_kernel

CAMPAIGNS = Path(__file__).parent.parent / "campaigns"
DEMO = yaml.safe_load((CAMPAIGNS / "demo.yaml").read_text())
SINGLE = ("topologies", "single")
FIO = ("workloads", "randrw-4k", "fio")


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(campaign: dict[str, Any]) -> None:
        place = campaign
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def drop(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(campaign: dict[str, Any]) -> None:
        place = campaign
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


MISTAKES = [
    ("unknown field", put("repetitons", value=3), "repetitons: is not a field", "did you mean 'repetitions'?"),
    ("wrong type", put("repetitions", value="3"), "repetitions: '3' is not allowed", "a whole number"),
    ("text for a list", put(*SINGLE, "azs", value="a"), "topologies.single.azs: 'a' is not allowed", "a list"),
    ("true for a number", put("seed", value=True), "seed: True is not allowed", "a whole number"),
    ("negative seed", put("seed", value=-1), "seed: -1 is not allowed", "at least 0"),
    ("zero repetitions", put("repetitions", value=0), "repetitions: 0 is not allowed", "at least 1"),
    ("unknown stack", put(*SINGLE, "stack", value="nbd-miror"), "'nbd-miror' is not allowed", "did you mean 'nbd-mirror'?"),
    ("impossible AZ", put(*SINGLE, "azs", value=["q"]), "topologies.single.azs.0: 'q' is not allowed", "a, b, c"),
    ("shared disk in two AZs", put("topologies", "shared", "azs", value=["a", "b"]), "topologies.shared.azs", "one AZ"),
    ("too many hosts", put("topologies", "mirror", "hosts", value=3), "topologies.mirror.hosts: 3", "takes 2 hosts"),
    ("links of a single host", put(*SINGLE, "links", value=2), "topologies.single.links: 2", "takes 1"),
    ("negative size", put(*SINGLE, "volume", "size_gib", value=-4), "topologies.single.volume.size_gib: -4", "at least 1"),
    ("too many IOPS", put(*SINGLE, "volume", "iops", value=9_999_999), "iops: 9999999", "100 to 256000"),
    ("IOPS per GiB", put(*SINGLE, "volume", "iops", value=5000), "iops: 5000", "1000 per GiB"),
    ("IOPS of gp2", put(*SINGLE, "volume", value={"type": "gp2", "iops": 500}), "iops: 500", "gp2 takes no"),
    ("shared disk of gp3", put("topologies", "shared", "volume", value={"type": "gp3"}), "'gp3'", "io1, io2 (Multi-Attach)"),
    ("Xen for a shared disk", put("topologies", "shared", "instance_type", value="t2.large"), "'t2.large'", "Nitro"),
    ("no instance type", put(*SINGLE, "instance_type", value="big one"), "'big one' is not allowed", "such as m6i.large"),
    ("mirror on Amazon Linux", put("topologies", "mirror", "image", value="al2023"), "'al2023'", "ubuntu-24.04"),
    ("empty topologies", put("topologies", value={}), "topologies: {} is not allowed", "at least 1"),
    ("empty matrix", put("matrix", value=[]), "matrix: [] is not allowed", "at least 1"),
    ("empty list in a matrix", put(*FIO, "iodepth", value=[]), "fio.iodepth: [] is not allowed", "a list of values"),
    ("10,000 trials", put("repetitions", value=1000), "matrix: makes 10,000 trials", "at most 5,000"),
    ("shell in the campaign", put("campaign", value="demo; rm -rf /"), "'demo; rm -rf /' is not allowed", "lower-case"),
    ("shell in a topology", put("topologies", "$(reboot)", value=DEMO["topologies"]["single"]), "'$(reboot)'", "lower-case"),
    ("shell in a workload", put("workloads", "`id`", value=DEMO["workloads"]["randrw-4k"]), "'`id`'", "lower-case"),
    ("no workload", put("workloads", "x", value={}), "workloads.x: has no load", "exactly one of fio, job_file, job"),
    ("two kinds of load", put("workloads", "randrw-4k", "job", value="[a]"), "has fio and job", "exactly one of"),
    ("misspelt option", put(*FIO, "iodept", value=4), "fio.iodept: is not an option", "did you mean 'iodepth'?"),
    ("bad block size", put(*FIO, "bs", value="4q"), "fio.bs: '4q' is not allowed", "such as 4k"),
    ("bad rw", put(*FIO, "rw", value="randwr"), "fio.rw: 'randwr' is not allowed", "did you mean 'randrw'?"),
    ("shell in an option", put(*FIO, "bs", value="4k\nexec_prerun=reboot"), "is not allowed", "such as 4k"),
    ("option of the service", put(*FIO, "filename", value="/dev/sda"), "fio.filename: is set by Volumetry", "remove it"),
    ("a program to run", put(*FIO, "exec_prerun", value="reboot"), "fio.exec_prerun: is set by Volumetry", "remove it"),
    ("an engine that runs programs", put(*FIO, "ioengine", value="exec"), "fio.ioengine: 'exec' is not allowed", "libaio"),
    ("more than all", put(*FIO, "rwmixread", value=150), "fio.rwmixread: '150' is not allowed", "0 to 100"),
    ("no runtime", drop(*FIO, "runtime"), "fio.runtime: is missing", "how long a trial runs"),
    ("no rw", drop(*FIO, "rw"), "fio.rw: is missing", ""),
    ("bad time", put(*FIO, "runtime", value="soon"), "fio.runtime: 'soon' is not allowed", "500ms"),
    ("endless", put(*FIO, "runtime", value="2d"), "fio.runtime: '2d' is not allowed", "at most 12h"),
    ("larger than the volume", put(*FIO, "size", value="100g"), "fio.size: reaches byte", "the smallest volume"),
    ("ladder misspelt", put("ladder", value=["single", "mirorr"]), "ladder.1: 'mirorr'", "did you mean 'mirror'?"),
    ("ladder of one", put("ladder", value=["single"]), "ladder: ['single'] is not allowed", "at least 2"),
    ("ladder twice", put("ladder", value=["single", "single"]), "ladder: names a topology twice", "once"),
    ("matrix misspelt", put("matrix", value=[{"topologies": ["singel"]}]), "'singel'", "did you mean 'single'?"),
    ("topology left out", put("matrix", value=[{"topologies": ["single"]}]), "topologies.mirror: is in no part", ""),
    ("MTU", put("tunings", value={"x": {"network": {"mtu": 90000}}}), "network.mtu: 90000 is not allowed", "at most 9001"),
    (
        "buffers in disorder",
        put("tunings", value={"x": {"network": {"tcp_rmem": [8192, 4096, 16384]}}}),
        "tcp_rmem: [8192, 4096, 16384] is not allowed",
        "rising order",
    ),
    ("empty tuning", put("tunings", value={"x": {"network": {}}}), "tunings.x.network: is empty", "mtu"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says", "allows"), [case[1:] for case in MISTAKES], ids=[c[0] for c in MISTAKES])
def test_a_mistake_is_refused_in_one_line(change: Callable[[dict[str, Any]], None], says: str, allows: str) -> None:
    campaign = copy.deepcopy(DEMO)
    change(campaign)
    with pytest.raises(CampaignRefused) as refusal:
        check_campaign(campaign)
    lines = [problem for problem in refusal.value.problems if says in problem and allows in problem]
    assert lines, refusal.value.problems
    assert all("\n" not in problem for problem in refusal.value.problems)


@pytest.mark.parametrize("data", [None, [], "demo", 3, {}, {"campaign": "x"}])
def test_what_is_no_campaign_is_refused(data: object) -> None:
    with pytest.raises(CampaignRefused):
        check_campaign(data)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("campaign: [", "is neither YAML nor JSON"),
        ("campaign: a\ncampaign: b\n", "'campaign' is written twice"),
        ("a: &a [*a]\n", "must be"),
        ("!!python/object/apply:os.system ['id']", "is neither YAML nor JSON"),
        ("x" * 300_000, "allowed: at most"),
    ],
)
def test_a_file_that_is_no_campaign_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "campaign.yaml"
    file.write_text(text)
    with pytest.raises(CampaignRefused) as refusal:
        read_campaign(file)
    assert says in str(refusal.value) or "is not a field" in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CampaignRefused, match="cannot be read"):
        read_campaign(tmp_path / "nothing.yaml")


@pytest.mark.parametrize("path", sorted(CAMPAIGNS.glob("*.yaml")), ids=lambda path: path.stem)
def test_our_own_campaigns_are_accepted(path: Path) -> None:
    assert cells(read_campaign(path))


def test_equal_campaigns_are_equal_text() -> None:
    reordered = dict(reversed(list(DEMO.items())))
    assert canonical(check_campaign(DEMO)) == canonical(check_campaign(reordered))


def test_a_list_of_values_is_a_matrix() -> None:
    campaign = copy.deepcopy(DEMO)
    campaign["workloads"] = {
        "w": {"fio": DEMO["workloads"]["randrw-4k"]["fio"] | {"bs": ["4k", "64k"], "iodepth": [1, 16]}}
    }
    names = [load.name for topology, _, load, _ in cells(check_campaign(campaign)) if topology == "single"]
    assert names == ["w-bs-4k-iodepth-1", "w-bs-4k-iodepth-16", "w-bs-64k-iodepth-1", "w-bs-64k-iodepth-16"]


JOB_FILE = """
; a user's own file
[global]
bs=64k
runtime=10s

[first]
rw=write
size=1g
[beside]
rw=read
[second]
stonewall
rw=randwrite
"""


def test_a_job_file_becomes_a_workload_for_each_group(tmp_path: Path) -> None:
    (tmp_path / "job.fio").write_text(JOB_FILE)
    campaign = DEMO | {"workloads": {"mine": {"job_file": "job.fio"}}}
    (tmp_path / "campaign.yaml").write_text(yaml.safe_dump(campaign))
    found = [load for topology, _, load, _ in cells(read_campaign(tmp_path / "campaign.yaml")) if topology == "single"]
    assert [load.name for load in found] == ["mine-first", "mine-second"]
    assert [name for name, _ in found[0].sections] == ["first", "beside"]
    assert found[0].sections[1][1] == {"bs": "64k", "runtime": "10s", "rw": "read"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("filename=/dev/nvme0n1", "[a] filename: is set by Volumetry"),
        ("exec_postrun=reboot", "[a] exec_postrun: is set by Volumetry"),
        ("ioengine=external:/tmp/x.so", "[a] ioengine: 'external:/tmp/x.so' is not allowed"),
        ("iodepht=4", "did you mean 'iodepth'?"),
    ],
)
def test_a_job_file_is_held_to_the_same_rules(line: str, says: str) -> None:
    job = f"[a]\nrw=read\nruntime=3\n{line}\n"
    with pytest.raises(CampaignRefused) as refusal:
        check_campaign(DEMO | {"workloads": {"mine": {"job": job}}})
    assert says in str(refusal.value)


@pytest.mark.parametrize(("job", "says"), [("rw=read\n", "is not a fio job file"), ("[global]\nrw=read\n", "no job")])
def test_a_job_file_without_a_job_is_refused(job: str, says: str) -> None:
    with pytest.raises(CampaignRefused, match=says):
        check_campaign(DEMO | {"workloads": {"mine": {"job": job}}})


# Rules of launches, mirrors, file systems, tools and failures: a campaign of each, and the one line that it earns.

FIO_LOAD = {"rw": "randwrite", "size": "64m", "runtime": "30s"}
APART = "a matrix can keep them apart"


def study(**parts: Any) -> dict[str, Any]:
    """A small campaign of a DRBD mirror with a file system; ``parts`` replace topologies, tunings, workloads."""
    base = {"campaign": "x", "topologies": {"t": {"stack": "drbd"}}, "workloads": {"w": {"fio": FIO_LOAD}}}
    return base | parts


def on(**fields: Any) -> dict[str, Any]:
    return study(topologies={"t": {"stack": "drbd"} | fields})


def pair(first: dict[str, Any], second: dict[str, Any], name: str = "pair") -> dict[str, Any]:
    local = {"stack": "local", "together": name}
    return study(topologies={"one": local | first, "two": local | second})


def failing(topology: dict[str, Any] | None = None, **failure: str) -> dict[str, Any]:
    load = {"fio": FIO_LOAD, "failure": {"event": "kill-peer", "at": "5s"} | failure}
    return study(topologies={"t": topology or {"stack": "drbd"}}, workloads={"w": load})


def load(topology: dict[str, Any] | None = None, **workload: Any) -> dict[str, Any]:
    return study(topologies={"t": topology or {"stack": "drbd"}}, workloads={"w": workload})


def tuned(topology: dict[str, Any], **tuning: Any) -> dict[str, Any]:
    return study(topologies={"t": topology}, tunings={"x": tuning})


LOCAL: dict[str, Any] = {"stack": "local"}
XFS: dict[str, Any] = {"stack": "drbd", "filesystem": "xfs"}

RULES = [
    (
        study(topologies={"t": {"stack": "nbd-mirror", "filesystem": "xfs"}}),
        "topologies.t.filesystem: needs a block device; stack nbd-mirror serves its volume on a socket",
    ),
    (on(links=3), "topologies.t.links: 3 is not allowed; allowed: at most 2"),
    (
        study(topologies={"t": {"stack": "md-nvme-tcp", "links": 2}}),
        "topologies.t.links: 2 is not allowed; stack md-nvme-tcp takes 1",
    ),
    (on(hosts=3), "topologies.t.hosts: 3 is not allowed; stack drbd takes 2 hosts"),
    (on(image="al2023"), "topologies.t.image: 'al2023' is not allowed; allowed: ubuntu-24.04"),
    (
        study(topologies={"t": LOCAL | {"drbd": {"protocol": "A"}}}),
        "topologies.t.drbd: is for stack drbd, not local",
    ),
    (on(drbd={"protocol": "D"}), "topologies.t.drbd.protocol: 'D' is not allowed; allowed: A, B, C"),
    (on(filesystem="ext3"), "topologies.t.filesystem: 'ext3' is not allowed; allowed: ext4, xfs; did you mean 'ext4'?"),
    (on(overwrite="yes"), "topologies.t.overwrite: 'yes' is not allowed; allowed: true or false"),
    (on(kernel="linux; reboot"), "topologies.t.kernel: 'linux; reboot' is not allowed; allowed: a package's name such as linux-image-cloud-amd64"),
    (pair({}, {"together": None}, "two"), "topologies.one.together: 'two' is a topology's name; allowed: a name of its own"),
    (
        pair({"stack": "shared", "volume": {"type": "io2", "iops": 3000}}, {}),
        "topologies.one.together: stack shared is launched alone: its volume is attached after its hosts run",
    ),
    (
        pair({}, {"instance_type": "m6i.xlarge"}),
        "topologies.two.instance_type: 'm6i.xlarge' differs from its group's; they share host1",
    ),
    (pair({}, {"image": "al2023"}), "topologies.two.image: 'al2023' differs from its group's; they share host1"),
    (
        pair({"kernel": "linux-aws"}, {}),
        "topologies.two.kernel: None differs from its group's; they share host1",
    ),
    (
        pair({"stack": "drbd"}, {"stack": "drbd", "links": 2}),
        "topologies.two.links: 2 differs from its group's; they share host1",
    ),
    (pair({}, {"azs": ["b"]}), "topologies.two.azs: begins in b; allowed: a, host1's"),
    (
        study(topologies={f"t{number}": LOCAL | {"together": "all"} for number in range(11)}),
        "topologies: 11 are together as all; allowed: at most 10",
    ),
    (
        tuned({"stack": "drbd"}, replication={}),
        "tunings.x.replication: is empty; allowed: max-buffers, max-epoch-size, sndbuf-size, rcvbuf-size, al-extents, "
        "unplug-watermark, c-max-rate, disk-barrier, disk-flushes, md-flushes, protocol",
    ),
    (
        tuned({"stack": "drbd"}, replication={"max-bufers": 8000}),
        "tunings.x.replication.max-bufers: is not a field; allowed: al-extents, c-max-rate, disk-barrier, disk-flushes, "
        "max-buffers, max-epoch-size, md-flushes, protocol, rcvbuf-size, sndbuf-size, unplug-watermark; "
        "did you mean 'max-buffers'?",
    ),
    (
        tuned({"stack": "drbd"}, replication={"max-buffers": 8}),
        "tunings.x.replication.max-buffers: 8 is not allowed; allowed: at least 32",
    ),
    (
        tuned({"stack": "drbd"}, replication={"max-buffers": "8k"}),
        "tunings.x.replication.max-buffers: '8k' is not allowed; allowed: a whole number",
    ),
    (
        tuned(LOCAL, replication={"max-buffers": 8000}),
        f"tunings.x.replication: is for stack drbd, and is asked for on topology t; {APART}",
    ),
    (tuned(XFS, filesystem={}), "tunings.x.filesystem: is empty; allowed: barrier, discard, journal, scheduler"),
    (
        tuned(LOCAL, filesystem={"discard": True}),
        f"tunings.x.filesystem: needs a filesystem on topology t; {APART}",
    ),
    (
        tuned(XFS, filesystem={"journal": "writeback"}),
        f"tunings.x.filesystem.journal: is for ext4, and is asked for on topology t; {APART}",
    ),
    (
        tuned(XFS, filesystem={"barrier": False}),
        f"tunings.x.filesystem.barrier: is for ext4 (xfs has no switch since Linux 4.19) on topology t; {APART}",
    ),
    (
        load(XFS, pgbench={"time": 3}, dbench={"timelimit": 5}),
        "workloads.w: has pgbench and dbench; allowed: exactly one of fio, job_file, job, pgbench, dbench",
    ),
    (load(XFS, pgbench={}), "workloads.w.pgbench: needs exactly one of time and transactions"),
    (
        load(XFS, pgbench={"time": 3, "transactions": 100}),
        "workloads.w.pgbench: needs exactly one of time and transactions",
    ),
    (load(XFS, pgbench={"time": 3, "client": 0}), "workloads.w.pgbench.client: 0 is not allowed; allowed: at least 1"),
    (
        load(XFS, pgbench={"time": 3, "builtin": "tpcb"}),
        "workloads.w.pgbench.builtin: 'tpcb' is not allowed; allowed: select-only, simple-update, tpcb-like; "
        "did you mean 'tpcb-like'?",
    ),
    (load(XFS, dbench={}), "workloads.w.dbench.timelimit: is missing"),
    (load(pgbench={"time": 3}), f"workloads.w.pgbench: needs a filesystem on topology t; {APART}"),
    (load(LOCAL, dbench={"timelimit": 5}), f"workloads.w.dbench: needs a filesystem on topology t; {APART}"),
    (
        load(XFS, fio={"rw": "randwrite", "runtime": "3s"}),
        f"workloads.w.fio.size: is missing or in per cent; a file needs a size on topology t; {APART}",
    ),
    (
        load(XFS, fio=FIO_LOAD | {"size": "50%"}),
        f"workloads.w.fio.size: is missing or in per cent; a file needs a size on topology t; {APART}",
    ),
    (
        load(fio=FIO_LOAD | {"iodepth": 4}, decompose=True),
        "workloads.w.decompose: is for fio at iodepth 1: a queue hides the path",
    ),
    (
        load(XFS, pgbench={"time": 3}, decompose=True),
        "workloads.w.decompose: is for fio at iodepth 1: a queue hides the path",
    ),
    (
        load({"stack": "nbd-mirror"}, fio=FIO_LOAD, decompose=True),
        f"workloads.w.decompose: is for stack drbd, which can write without its peer; asked for on topology t; {APART}",
    ),
    (
        failing(event="kill-per"),
        "workloads.w.failure.event: 'kill-per' is not allowed; allowed: cut-all-links, cut-one-link, fill-peer-disk, "
        "freeze-peer, kill-peer; did you mean 'kill-peer'?",
    ),
    (failing(LOCAL), f"workloads.w.failure: needs a mirror, and is asked for on topology t; {APART}"),
    (
        failing(event="cut-one-link"),
        f"workloads.w.failure.event: cut-one-link needs links: 2 on topology t; {APART}",
    ),
    (
        failing(at="25s"),
        "workloads.w.failure: ends 35 s after the load began; allowed: before its end at 30 s",
    ),
    (
        failing(at="20s", lasts="10s"),
        "workloads.w.failure: ends 30 s after the load began; allowed: before its end at 30 s",
    ),
    (
        load(XFS, dbench={"timelimit": 30}, failure={"event": "kill-peer", "at": "5s"}),
        "workloads.w.failure: is for fio and pgbench, whose every operation is timed",
    ),
    (failing(at="soon"), "workloads.w.failure.at: 'soon' is not allowed; allowed: a time such as 30s, 500ms or 2m"),
    (failing(lasts="-1"), "workloads.w.failure.lasts: '-1' is not allowed; allowed: a time such as 30s, 500ms or 2m"),
    (
        study(published={"source": "s", "ratios": [{"workload": "v", "topology": "t", "base": "t", "percent": 62.5}]}),
        "published.ratios.0.workload: 'v' is not allowed; allowed: w",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("campaign", "line"), RULES, ids=[line for _, line in RULES])
def test_a_rule_that_is_broken_is_one_line(campaign: dict[str, Any], line: str) -> None:
    with pytest.raises(CampaignRefused) as refusal:
        check_campaign(campaign)
    assert refusal.value.problems == (line,)


def test_a_line_that_a_whole_matrix_earns_is_said_once() -> None:
    with pytest.raises(CampaignRefused) as refusal:
        check_campaign(load(fio=FIO_LOAD | {"iodepth": [2, 4], "bs": ["4k", "8k"]}, decompose=True))
    assert len(refusal.value.problems) == 1


def test_drbd_s_options_are_read_with_hyphens_and_with_underscores() -> None:
    spellings = [{"max-buffers": 8000, "disk-flushes": False}, {"max_buffers": 8000, "disk_flushes": False}]
    first, second = (check_campaign(tuned({"stack": "drbd"}, replication=each)) for each in spellings)
    assert first == second
    values = first.tunings["x"].replication
    assert values is not None
    assert (values.max_buffers, values.disk_flushes) == (8000, False)
    # What the service keeps of a campaign reads back as the same campaign.
    assert check_campaign(json.loads(canonical(first))) == first


def test_an_option_in_two_spellings_is_written_twice() -> None:
    with pytest.raises(CampaignRefused, match=r"replication\.max_buffers: is not a field"):
        check_campaign(tuned({"stack": "drbd"}, replication={"max-buffers": 8000, "max_buffers": 9000}))


def test_a_matrix_keeps_apart_what_does_not_go_together() -> None:
    campaign = study(
        topologies={"raw": {"stack": "drbd"}, "files": XFS},
        workloads={"w": {"fio": FIO_LOAD}, "sql": {"pgbench": {"time": 3}}},
        matrix=[{"topologies": ["raw"], "workloads": ["w"]}, {"topologies": ["files"], "workloads": ["sql"]}],
    )
    assert [(topology, load.name) for topology, _, load, _ in cells(check_campaign(campaign))] == [
        ("raw", "w"),
        ("files", "sql"),
    ]


def test_topologies_are_launched_alone_unless_they_are_together() -> None:
    local = {"stack": "local"}
    campaign = study(
        topologies={"one": local | {"together": "pair"}, "two": local, "three": local | {"together": "pair"}}
    )
    assert groups(check_campaign(campaign)) == {"pair": ["one", "three"], "two": ["two"]}


@pytest.mark.parametrize(
    ("topology", "fields"),
    [
        ({"stack": "local"}, []),
        ({"stack": "nbd-mirror"}, []),
        ({"stack": "drbd"}, ["topologies.t.stack"]),
        ({"stack": "md-nvme-tcp"}, ["topologies.t.stack"]),
        (
            {"stack": "local", "filesystem": "xfs", "kernel": "linux-aws"},
            ["topologies.t.filesystem", "topologies.t.kernel"],
        ),
    ],
)
def test_what_needs_a_kernel_of_its_own_is_told_by_field(topology: dict[str, Any], fields: list[str]) -> None:
    assert needs_kernel(check_campaign(study(topologies={"t": topology}))) == fields
