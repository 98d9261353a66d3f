"""A campaign that cannot run is refused in one line that names field, value, what is allowed and the nearest word."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from volumetry.errors import CampaignRefused
from volumetry.reading import check_campaign, read_campaign
from volumetry.spec import canonical, cells

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
