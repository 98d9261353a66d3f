"""Storage documents on two real guests: DRBD, md over NVMe/TCP, file systems, and what each document refuses.

The tests of this file are in the order in which a topology lives: each leaves the hosts as the next one expects them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from infra import documents
from local_region.ebs import limits
from local_region.hosts.base import Completed, HostSpec, HostsUnavailableError, Interface, VolumeSpec, device_path
from local_region.hosts.guest import GuestHost, GuestHosts
from local_region.hosts.guest_image import require

pytestmark = pytest.mark.hosts

MIB = 1024**2
NAMES = ("host1", "host2")
ADDRESSES = {"host1": "10.0.0.11", "host2": "10.0.0.12"}
# XFS wants 300 MiB; a first sync is to be short.
SIZES = {"mirror": 320 * MIB, "small": 12 * MIB, "md": 64 * MIB}


class Pair:
    """Two guests, each with a volume for every topology of this file."""

    def __init__(self, driver: GuestHosts) -> None:
        self.driver = driver
        self.pool = ThreadPoolExecutor(8)
        self.hosts: dict[str, GuestHost] = {}
        self.volumes = {
            topology: {name: f"vol-{10 * number + int(name[-1]):017x}" for name in NAMES}
            for number, topology in enumerate(SIZES, start=1)
        }
        for topology, pair in self.volumes.items():
            for volume in pair.values():
                driver.create_volume(VolumeSpec(volume, SIZES[topology], limits("gp3", 100), "a"))
        for name, host in zip(NAMES, self.pool.map(self._launch, NAMES), strict=True):
            self.hosts[name] = host
        self.both("prepare", Hosts=",".join(f"{name}={ADDRESSES[name]}" for name in NAMES), Stack="local")
        # It looks for half a minute; meanwhile the others run.
        lost = "host1=vol-00000000000000aaa,host2=vol-00000000000000bbb"
        self.lost: Future[Completed] = self.pool.submit(self.run, "host2", "stack-drbd", Target="lost", Volumes=lost)

    def _launch(self, name: str) -> GuestHost:
        interface = Interface("ens5", ADDRESSES[name], 16)
        spec = HostSpec(f"i-{int(name[-1]):017x}", "m5.large", "a", (interface,))
        host = self.driver.launch(spec, on_death=lambda _: None)
        for pair in self.volumes.values():
            host.attach(pair[name])
        return host

    def volumes_of(self, topology: str) -> str:
        return ",".join(f"{name}={volume}" for name, volume in self.volumes[topology].items())

    def run(self, name: str, document: str, **given: str) -> Completed:
        """A document as the agent would run it: its parameters are the script's environment."""
        content = documents.content(document)
        parameters = {
            name: each["default"] for name, each in content["parameters"].items() if "default" in each
        } | given
        assert set(parameters) == set(content["parameters"])
        for parameter, value in parameters.items():
            declared = content["parameters"][parameter]
            assert value in declared.get("allowedValues", [value])
            assert re.search(declared.get("allowedPattern", ""), value)
        (step,) = content["mainSteps"]
        environment = {f"SSM_{parameter}": value for parameter, value in parameters.items()}
        script = "\n".join(step["inputs"]["runCommand"])
        return self.hosts[name].run(script, environment=environment, timeout_s=120)

    def both(self, document: str, **given: str) -> list[str]:
        """On both hosts at once; what each of them said."""
        done = [self.pool.submit(self.run, name, document, **given) for name in NAMES]
        results = [each.result() for each in done]
        for result in results:
            assert result.exit_code == 0, result
        return [result.stdout.decode() for result in results]

    def shell(self, name: str, script: str) -> str:
        done = self.hosts[name].run(f"set -e\n{script}", environment={}, timeout_s=60)
        assert done.exit_code == 0, done
        return done.stdout.decode().strip()

    def tool(self, name: str, topology: str, tool: str) -> str:
        return self.shell(name, f"bash /run/volumetry/targets/{topology}/{tool}")

    def facts(self, name: str, topology: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.tool(name, topology, "facts").splitlines())

    def leg_sum(self, name: str, topology: str, mib: int) -> str:
        """A checksum of what is on a leg; not through the cache, in which another time's content may be."""
        device = device_path(self.volumes[topology][name])
        return self.shell(name, f"dd if={device} bs=1M count={mib} iflag=direct status=none | sha1sum")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    try:
        require()
    except HostsUnavailableError as error:
        pytest.skip(str(error))
    driver = GuestHosts(tmp_path_factory.mktemp("guests") / "hosts", endpoint_port=9)
    try:
        yield Pair(driver)
    finally:
        driver.close()
    assert driver.leftovers() == []


def refusal(done: Completed) -> str:
    assert done.exit_code == 1, done
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("volumetry: "), done
    return last.removeprefix("volumetry: ")


def drbd(pair: Pair, topology: str, **given: str) -> list[str]:
    number = str(list(SIZES).index(topology))
    return pair.both("stack-drbd", Target=topology, Number=number, Volumes=pair.volumes_of(topology), **given)


def test_nothing_is_written_to_what_is_not_ours(pair: Pair) -> None:
    ours = {"Target": "small", "Number": "1", "Volumes": pair.volumes_of("small")}
    volume, device = pair.volumes["small"]["host1"], device_path(pair.volumes["small"]["host1"])
    pair.shell("host1", f"mkfs.ext4 -q {device}; mkdir -p /mnt/other")

    for stack in ("stack-drbd", "stack-md-nvme-tcp", "stack-shared", "stack-local"):
        given = (
            ours if stack in ("stack-drbd", "stack-md-nvme-tcp") else {key: ours[key] for key in ("Target", "Volumes")}
        )
        said = refusal(pair.run("host1", stack, **given))
        assert said.startswith(f"volume {volume} holds a ext4 signature: it is not ours to write")
    pair.shell("host1", f"mount {device} /mnt/other")
    # Not even when told to overwrite.
    said = refusal(pair.run("host1", "stack-drbd", **ours, Overwrite="yes"))
    assert said == f"volume {volume} is in use: it is mounted at /mnt/other"
    # Still whole, and DRBD knows nothing of it.
    pair.shell("host1", f"umount /mnt/other; fsck.ext4 -fn {device}; ! grep -q cs: /proc/drbd")

    two = {"Links": "2", "SecondAddresses": "host1=10.0.1.11,host2=10.0.1.12"}
    said = refusal(pair.run("host1", "stack-drbd", **ours | {"Volumes": pair.volumes_of("mirror")}, **two))
    assert re.fullmatch(r"two links need DRBD 9, and this host's is 8\.4\.\d+", said)
    said = refusal(
        pair.run("host1", "stack-shared", Target="mirror", Volumes=pair.volumes_of("mirror"), Reservations="yes")
    )
    assert "knows no NVMe reservations" in said


def test_a_mirror_without_a_first_sync(pair: Pair) -> None:
    assert drbd(pair, "mirror")[0] == "Connected Primary/Secondary UpToDate/UpToDate oos=0\n"
    assert pair.tool("host2", "mirror", "state") == "Connected Secondary/Primary UpToDate/UpToDate oos=0"
    assert "first_sync_skipped=true" in pair.shell("host2", "cat /run/volumetry/targets/mirror/stack")
    facts = pair.facts("host1", "mirror")
    assert facts["drbd_version"].startswith("8.4.")
    assert "srcversion" in facts["stack_module"]
    assert '"protocol": "C"' in facts["stack_parameters"]
    assert '"write-ordering": "flush"' in facts["stack_parameters"]
    assert pair.tool("host1", "mirror", "check") == ""


def test_again_it_keeps_what_is_on_it(pair: Pair) -> None:
    pair.shell("host1", "yes volumetry | dd of=/dev/drbd0 bs=1M count=4 iflag=fullblock oflag=direct status=none")
    before = pair.leg_sum("host1", "mirror", 4)
    drbd(pair, "mirror")
    assert pair.leg_sum("host1", "mirror", 4) == pair.leg_sum("host2", "mirror", 4) == before


def test_a_path_is_taken_apart_and_put_together(pair: Pair) -> None:
    pair.tool("host1", "mirror", "alone")
    assert pair.tool("host1", "mirror", "state").startswith("StandAlone Primary/Unknown UpToDate/")
    assert pair.tool("host1", "mirror", "check").startswith("mirror_broken=DRBD is at StandAlone")
    pair.shell("host1", "yes alone | dd of=/dev/drbd0 bs=1M count=2 iflag=fullblock oflag=direct status=none")
    pair.tool("host1", "mirror", "together")
    assert pair.tool("host1", "mirror", "check") == ""
    assert pair.leg_sum("host1", "mirror", 4) == pair.leg_sum("host2", "mirror", 4)
    # The peer reads its own leg when it may.
    pair.tool("host1", "mirror", "secondary")
    pair.tool("host2", "mirror", "primary")
    pair.tool("host2", "mirror", "secondary")
    pair.tool("host1", "mirror", "primary")


def test_tunings_of_the_mirror_are_read_back_and_undone(pair: Pair) -> None:
    stock = pair.facts("host2", "mirror")["stack_parameters"]
    given = {
        "MaxBuffers": "8000",
        "MaxEpochSize": "8000",
        "SndbufSize": "2097152",
        "RcvbufSize": "1048576",
        "AlExtents": "6007",
        "UnplugWatermark": "16",
        "CMaxRate": "51200",
        "DiskFlushes": "no",
        "MdFlushes": "no",
        "Protocol": "A",
    }
    pair.both("tune-replication", Target="mirror", Action="apply", **given)
    for name in NAMES:
        tuned = pair.shell(name, "cat /run/volumetry/tuned/tune-replication").splitlines()
        assert len(tuned) == len(given)
        assert {"tuned.sndbuf-size=2097152", "tuned.c-max-rate=51200", "tuned.protocol=A"} < set(tuned)
        used = pair.facts(name, "mirror")["stack_parameters"]
        for part in ('"max-buffers": 8000', '"al-extents": 6007', '"write-ordering": "drain"', '"protocol": "A"'):
            assert part in used
        # The sockets are new, and have their buffers.
        assert "tb2097152" in pair.shell(name, "ss -tnm '( sport = :7789 or dport = :7789 )'")
    # Made anew in the middle, as a tuning of the network has it made, it stays tuned.
    drbd(pair, "mirror")
    assert '"max-buffers": 8000' in pair.facts("host1", "mirror")["stack_parameters"]
    for _ in range(2):
        pair.both("tune-replication", Target="mirror", Action="undo")
    assert pair.facts("host2", "mirror")["stack_parameters"] == stock
    pair.shell("host1", "! test -e /run/volumetry/tuned/tune-replication")


def test_a_tuning_without_effect_is_refused_and_undone(pair: Pair) -> None:
    stock = pair.facts("host1", "mirror")["stack_parameters"]
    for given, reason in (
        ({"DiskBarrier": "yes"}, "disk-barrier has no effect"),
        ({"AlExtents": "65534"}, "al-extents is 6433 in the kernel, not 65534"),
    ):
        done = [
            pair.pool.submit(pair.run, name, "tune-replication", Target="mirror", Action="apply", **given)
            for name in NAMES
        ]
        for each in done:
            assert refusal(each.result()).startswith(reason)
    assert pair.facts("host1", "mirror")["stack_parameters"] == stock


def test_file_systems_are_made_once_and_tuned(pair: Pair) -> None:
    make = {"Target": "mirror", "Client": "host1"}
    for kind, options in (("xfs", "noatime"), ("ext4", "")):
        said, nothing = pair.both("filesystem", **make, Type=kind, MountOptions=options)
        assert said.startswith(f"{kind} at /mnt/volumetry/mirror: rw,{options}")
        assert nothing == ""
        pair.shell("host1", "echo kept >/mnt/volumetry/mirror/file")
        pair.both("filesystem", **make, Type=kind, MountOptions=options)
        assert pair.shell("host1", "cat /mnt/volumetry/mirror/file") == "kept"
        if kind == "xfs":
            said = refusal(pair.run("host1", "tune-filesystem", **make, Action="apply", Barrier="no"))
            assert said.startswith("xfs has no barrier switch in kernel")
            # A stack that is made anew leaves the load in its folder.
            drbd(pair, "mirror")
            fio = pair.shell("host1", "cat /run/volumetry/targets/mirror/fio")
            assert fio == "ioengine=libaio\ndirectory=/mnt/volumetry/mirror"
    stock = pair.shell("host1", "grep volumetry /proc/mounts; cat /sys/class/block/nvme*/queue/scheduler")
    tuning = {"Barrier": "no", "Discard": "yes", "Journal": "writeback", "Scheduler": "mq-deadline"}
    pair.both("tune-filesystem", **make, Action="apply", **tuning)
    mounted = pair.shell("host1", "grep volumetry /proc/mounts").split()[3].split(",")
    assert {"nobarrier", "discard", "data=writeback"} < set(mounted)
    assert pair.shell("host2", "cat /run/volumetry/tuned/tune-filesystem") == "tuned.scheduler=mq-deadline"
    assert "tuned.barrier=no" in pair.shell("host1", "cat /run/volumetry/tuned/tune-filesystem").splitlines()
    pair.both("tune-filesystem", **make, Action="undo")
    assert pair.shell("host1", "grep volumetry /proc/mounts; cat /sys/class/block/nvme*/queue/scheduler") == stock
    assert pair.shell("host1", "cat /mnt/volumetry/mirror/file") == "kept"
    pair.both("filesystem", **make, Type="none")
    assert pair.shell("host1", "cat /run/volumetry/targets/mirror/fio") == "ioengine=libaio\nfilename=/dev/drbd0"


def test_a_volume_that_is_not_there_is_named(pair: Pair) -> None:
    assert refusal(pair.lost.result()).startswith("volume vol-00000000000000bbb is not attached to host2")


def test_a_first_sync_makes_the_legs_equal(pair: Pair) -> None:
    # host1's still has the file system that was refused above.
    states = drbd(pair, "small", InitialSync="full", Overwrite="yes")
    assert states[0] == "Connected Primary/Secondary UpToDate/UpToDate oos=0\n"
    assert "first_sync_skipped=false" in pair.shell("host1", "cat /run/volumetry/targets/small/stack")
    assert pair.leg_sum("host1", "small", 11) == pair.leg_sum("host2", "small", 11)


def test_md_over_nvme_tcp(pair: Pair) -> None:
    given = {"Target": "md", "Number": "2", "Volumes": pair.volumes_of("md")}
    for _ in range(2):
        pair.both("stack-md-nvme-tcp", **given)
        assert pair.tool("host1", "md", "state") == "Connected Primary/Secondary UpToDate/UpToDate"
    assert '"level": "raid1"' in pair.facts("host1", "md")["stack_parameters"]
    assert "[1](W)" in pair.shell("host1", "cat /proc/mdstat")
    pair.tool("host1", "md", "alone")
    assert pair.tool("host1", "md", "check") == "mirror_broken=legs of md102: U_"
    pair.shell("host1", "yes alone | dd of=/dev/md102 bs=1M count=2 iflag=fullblock oflag=direct status=none")
    pair.tool("host1", "md", "together")
    assert pair.tool("host1", "md", "check") == ""
    assert pair.leg_sum("host1", "md", 4) == pair.leg_sum("host2", "md", 4)


def test_a_host_that_was_restarted_rejoins(pair: Pair) -> None:
    pair.shell("host2", "cp -a /run/volumetry /var/lib/volumetry/state; sync")
    pair.hosts["host2"].run("reboot -f", environment={}, timeout_s=10)
    pair.shell("host2", "cp -a /var/lib/volumetry/state /run/volumetry")
    for topology in ("mirror", "small", "md"):
        pair.tool("host2", topology, "rejoin")
    pair.tool("host1", "mirror", "together")
    assert pair.tool("host2", "mirror", "state") == "Connected Secondary/Primary UpToDate/UpToDate oos=0"


NINE = """
kept=/tmp/nine drbd_resource=mirror drbd_conf=/tmp/nine/drbd.conf drbd_major=9 drbd_minor=3 drbd_side=second port=7792
node=$(uname -n) peer_node=host1 device=/dev/nvme1n1 peer_device=/dev/nvme2n1
own=10.0.0.12 other=10.0.0.11 own2=10.0.1.12 peer2=10.0.1.11
mkdir -p $kept
drbd_members >$kept/members
printf '%s\\n' "net protocol A" "net max-buffers 8000" "disk al-extents 6007" "disk c-max-rate 51200" >$kept/options
echo "net max-buffers 9000" >$kept/tuned
write_drbd_conf
export DRBD_DRIVER_VERSION_OVERRIDE=9.2.12
drbdadm --config-file $drbd_conf --dry-run adjust mirror
drbdadm --config-file $drbd_conf --dry-run -- --force create-md mirror
drbdadm --config-file $drbd_conf --dry-run new-current-uuid --clear-bitmap mirror/0
"""


def test_drbd_9s_tools_understand_its_configuration(pair: Pair) -> None:
    """No DRBD 9 is packaged for the guests, but its tools are, and say what they would do."""
    library = documents.script(["common.sh", "drbd.sh", "drbd-members.sh"])
    commands = pair.shell("host2", library + NINE).splitlines()
    assert commands[0] == "drbdsetup new-resource mirror 1"
    (peer,) = [line for line in commands if line.startswith("drbdsetup new-peer mirror 0 ")]
    assert {"--_name=host1", "--protocol=A", "--max-buffers=9000"} <= set(peer.split())
    assert [line for line in commands if "new-path" in line] == [
        "drbdsetup new-path mirror 0 ipv4:10.0.0.12:7792 ipv4:10.0.0.11:7792",
        "drbdsetup new-path mirror 0 ipv4:10.0.1.12:7792 ipv4:10.0.1.11:7792",
    ]
    (attach,) = [line for line in commands if line.startswith("drbdsetup attach 3 /dev/nvme1n1 ")]
    assert "--al-extents=6007" in attach
    assert any(line.startswith("drbdsetup peer-device-options") and "--c-max-rate=51200" in line for line in commands)
    assert commands[-2:] == [
        "drbdmeta 3 v09 /dev/nvme1n1 internal create-md 1 --force",
        "drbdsetup new-current-uuid 3 --clear-bitmap",
    ]


def test_drbd_9s_state_reads_as_8s_does(pair: Pair) -> None:
    # events2 has one form in both; 8.4's state comes from /proc/drbd.
    eight = pair.tool("host1", "mirror", "state")
    nine = pair.shell("host1", 'sed \'s/drbd_major="8"/drbd_major="9"/\' /run/volumetry/targets/mirror/state | bash')
    assert nine == eight


def test_a_kernel_is_chosen(pair: Pair) -> None:
    running = pair.shell("host1", "uname -r")
    flavour, other = ("cloud", "generic") if "cloud" in running else ("generic", "cloud")
    assert pair.run("host1", "choose-kernel", Kernel=flavour).stdout.decode() == f"kernel {running}\n"
    done = pair.run("host1", "choose-kernel", Kernel=other)
    assert done.exit_code == 194, done
    chosen = pair.shell("host1", "cat /boot/volumetry-kernel; rm /boot/volumetry-kernel")
    assert ("cloud" in chosen) == (other == "cloud")
