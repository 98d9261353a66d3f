"""Process hosts, for real: sandboxes, their network, their volumes, fio, and mirrors of QEMU's storage daemon."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from local_region.ebs import Bucket, Limits, limits
from local_region.hosts.accounting import Foreign, Process, Usage, descendants, read_machine
from local_region.hosts.base import (
    Completed,
    HostSpec,
    HostsUnavailableError,
    Interface,
    VolumeSpec,
    device_path,
)
from local_region.hosts.process import ProcessHost, ProcessHosts
from local_region.hosts.sandbox import require
from local_region.hosts.volumes import Admission

ROOT = Path(__file__).resolve().parents[1]
GIB = 1024**3
KIB = 1024
BODY = b"x" * 300_000

hosts = pytest.mark.hosts


class _Endpoint(http.server.BaseHTTPRequestHandler):
    received: bytes = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def do_PUT(self) -> None:
        type(self).received = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint_port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, endpoint_port: int) -> Iterator[ProcessHosts]:
    try:
        require()
    except HostsUnavailableError as error:
        pytest.skip(str(error))
    driver = ProcessHosts(tmp_path_factory.mktemp("region") / "hosts", endpoint_port=endpoint_port)
    yield driver
    driver.close()
    assert driver.leftovers() == []


class Region:
    """Launches hosts and volumes with fresh names, and takes them away at the end of a test."""

    serial = 0

    def __init__(self, driver: ProcessHosts) -> None:
        self.driver = driver
        self.hosts: list[ProcessHost] = []
        self.volumes: list[str] = []
        self.died: list[str] = []

    def host(self, zone: str = "a", links: int = 1) -> ProcessHost:
        Region.serial += 1
        number = Region.serial
        interfaces = tuple(
            Interface(f"ens{5 + link}", f"10.{link}.{number // 250}.{number % 250 + 1}", 16) for link in range(links)
        )
        spec = HostSpec(f"i-{number:017x}", "m5.large", zone, interfaces)
        self.hosts.append(self.driver.launch(spec, on_death=self.died.append))
        return self.hosts[-1]

    def volume(self, allowed: Limits | None = None, zone: str = "a", *, multi_attach: bool = False) -> str:
        Region.serial += 1
        name = f"vol-{Region.serial:017x}"
        self.driver.create_volume(VolumeSpec(name, GIB, allowed or limits("gp3", 100), zone, multi_attach))
        self.volumes.append(name)
        return name

    def close(self) -> None:
        for host in self.hosts:
            host.stop()
        for volume in self.volumes:
            self.driver.delete_volume(volume)
        assert self.driver.leftovers() == []


@pytest.fixture
def region(driver: ProcessHosts) -> Iterator[Region]:
    region = Region(driver)
    yield region
    region.close()


def address(host: ProcessHost, link: int = 0) -> str:
    return host.spec.interfaces[link].address


def run(host: ProcessHost, script: str, timeout_s: float = 30, **environment: str) -> Completed:
    return host.run(script, environment=environment, timeout_s=timeout_s)


def said(host: ProcessHost, script: str, **environment: str) -> str:
    done = run(host, script, **environment)
    assert done.exit_code == 0, done
    return done.stdout.decode().strip()


def fio(host: ProcessHost, device: str, *options: str, seconds: float = 2) -> Any:
    """The job of fio's report. fio's nbd engine prints a line before its JSON."""
    always = "--name=job --ioengine=nbd --size=64M --time_based --ramp_time=0.3 --output-format=json"
    command = f"fio {always} --runtime={seconds} --uri='nbd+unix:///?socket={device}' {' '.join(options)}"
    text = said(host, command)
    return json.loads(text[text.index("\n{") :])["jobs"][0]


# --- scripts


@hosts
def test_a_script_runs_as_root_with_its_environment_and_keeps_its_streams_apart(region: Region) -> None:
    done = run(region.host(), 'id -u; echo "$SSM_Name" >&2; exit 3', SSM_Name='a "b" $c')
    assert done == Completed(3, b"0\n", b'a "b" $c\n')


@hosts
def test_a_shebang_is_honoured(region: Region) -> None:
    host = region.host()
    assert said(host, "#!/usr/bin/awk -f\nBEGIN { print 6 * 7 }") == "42"
    assert run(host, "#!/no/such/interpreter\n").exit_code == 126


@hosts
def test_scripts_of_a_host_run_side_by_side(region: Region) -> None:
    host = region.host()
    start = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        codes = [done.exit_code for done in threads.map(lambda _: run(host, "sleep 0.5"), range(8))]
    assert codes == [0] * 8
    assert time.monotonic() - start < 2


@hosts
def test_time_out_and_cancellation_kill_the_whole_group(region: Region) -> None:
    host = region.host()
    assert run(host, "echo begun; sleep 60 & sleep 60", timeout_s=0.3) == Completed(None, b"begun\n", b"", "timed-out")
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    done = host.run("sleep 60 & sleep 60", environment={}, timeout_s=60, cancel=cancel)
    assert (done.exit_code, done.reason) == (None, "cancelled")
    assert said(host, "pgrep -c sleep || true") == "0"


@hosts
def test_a_daemon_outlives_its_script_and_a_signal_shows_as_a_shell_shows_it(region: Region) -> None:
    host = region.host()
    said(host, "setsid sleep 60 &")
    assert said(host, "pgrep -c sleep") == "1"
    assert run(host, "kill -9 $$").exit_code == 137


@hosts
def test_launching_and_starting_scripts_is_quick(region: Region) -> None:
    start = time.monotonic()
    host = region.host()
    assert time.monotonic() - start < 1.5
    start = time.monotonic()
    for _ in range(10):
        said(host, "true")
    assert (time.monotonic() - start) / 10 < 0.1


# --- what a host has to itself


@hosts
def test_files_processes_and_names_are_private(region: Region) -> None:
    one, other = region.host(), region.host()
    said(one, "touch /run/volumetry/mine /var/tmp/mine /tmp/mine; sleep 5 &")
    seen = "ls -d /run/volumetry/* /var/tmp/* /tmp/mine 2>/dev/null; pgrep -c sleep || true"
    assert said(other, seen) == "0"
    assert said(other, "ls /var/tmp") == ""
    assert said(one, "hostname") == "ip-" + address(one).replace(".", "-")
    assert run(one, "touch /etc/mine").exit_code != 0


@hosts
def test_network_tuning_is_the_hosts_own(region: Region) -> None:
    one, other = region.host(), region.host()
    said(one, "sysctl -qw net.ipv4.tcp_rmem='4096 65536 65536' && ip link set ens5 mtu 1500")
    assert said(one, "sysctl -n net.ipv4.tcp_rmem").split() == ["4096", "65536", "65536"]
    assert said(other, "sysctl -n net.ipv4.tcp_rmem").split() == ["4096", "131072", "6291456"]
    assert said(one, "cat /sys/class/net/ens5/mtu") == "1500"
    assert said(other, "cat /sys/class/net/ens5/mtu") == "9001"


@hosts
def test_the_endpoint_has_the_same_url_inside(region: Region, endpoint_port: int) -> None:
    host, url = region.host(), f"http://127.0.0.1:{endpoint_port}/x"
    with ThreadPoolExecutor(4) as threads:
        sizes = list(threads.map(lambda _: said(host, f"curl -sf {url} | wc -c"), range(4)))
    assert sizes == [str(len(BODY))] * 4
    said(host, f"head -c 3000000 /dev/zero | tr '\\0' y >/var/tmp/upload; curl -sfT /var/tmp/upload {url}")
    assert _Endpoint.received == b"y" * 3_000_000


# --- network


def rtt_ms(host: ProcessHost, target: str) -> float:
    """The median of 40 pings."""
    lines = said(host, f"ping -i 0.005 -c 40 {target}")
    times = sorted(float(time) for time in re.findall(r"time=([\d.]+)", lines))
    return times[len(times) // 2]


@hosts
def test_distance_shows_in_the_round_trip(region: Region) -> None:
    here, near, far = region.host("a"), region.host("a"), region.host("b")
    assert 0.1 < rtt_ms(here, address(near)) < 0.6
    assert 1.0 < rtt_ms(here, address(far)) < 1.8


@hosts
def test_the_mtu_of_either_end_counts(region: Region) -> None:
    one, other = region.host(), region.host()
    large = f"ping -c 1 -W 1 -M do -s 8900 {address(other)}"
    said(one, large)
    said(one, "ip link set ens5 mtu 1500")
    assert run(one, large).exit_code != 0


@hosts
def test_each_link_is_its_own_way(region: Region) -> None:
    one, other = region.host(links=2), region.host(links=2)
    said(one, f"ping -c 2 -i 0.1 -I {address(one, 1)} {address(other, 1)}")
    sent = {name: int(said(one, f"cat /sys/class/net/{name}/statistics/tx_packets")) for name in ("ens5", "ens6")}
    region.driver.set_link(other.instance_id, "ens6", up=False)
    assert run(one, f"ping -c 1 -W 1 -I {address(one, 1)} {address(other, 1)}").exit_code == 1
    said(one, f"ping -c 1 -W 1 {address(other)}")
    region.driver.set_link(other.instance_id, "ens6", up=True)
    said(one, f"ping -c 1 -W 1 -I {address(one, 1)} {address(other, 1)}")
    assert sent["ens6"] >= 2


@hosts
def test_a_partition_cuts_between_its_sides_alone(region: Region) -> None:
    one, other, third = region.host(), region.host(), region.host()
    sides = ([one.instance_id], [other.instance_id])
    region.driver.set_partition(*sides, cut=True)
    assert run(one, f"ping -c 1 -W 1 {address(other)}").exit_code == 1
    said(one, f"ping -c 1 -W 1 {address(third)}")
    region.driver.set_partition(*sides, cut=False)
    said(one, f"ping -c 1 -W 1 {address(other)}")


@hosts
def test_an_address_is_given_once(region: Region) -> None:
    taken = region.host()
    spec = HostSpec("i-0fffffffffffffff0", "m5.large", "a", taken.spec.interfaces)
    with pytest.raises(ValueError, match="already in use"):
        region.driver.launch(spec, on_death=region.died.append)
    assert not any("i-0fffffffffffffff0" in left for left in region.driver.leftovers())
    said(region.host(), f"ping -c 1 -W 1 {address(taken)}")


# --- life and death


def outer_pids(host: ProcessHost) -> list[int]:
    found = subprocess.run(["pgrep", "-f", host.instance_id], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


@hosts
@pytest.mark.parametrize("victim", ["bwrap", "init"])
def test_a_host_killed_from_outside_is_noticed_once_and_at_once(region: Region, victim: str) -> None:
    host = region.host()
    volume = region.volume()
    host.attach(volume)
    bwrap, init = sorted(outer_pids(host))
    kill_at = threading.Timer(0.3, os.kill, [bwrap if victim == "bwrap" else init, signal.SIGKILL])
    kill_at.start()
    done = run(host, "sleep 30")
    assert (done.exit_code, done.reason) == (None, "host-lost")
    deadline = time.monotonic() + 2
    while not region.died and time.monotonic() < deadline:
        time.sleep(0.01)
    host.stop()
    assert region.died == [host.instance_id]
    assert not host.alive()
    assert outer_pids(host) == []
    assert run(host, "true").reason == "host-lost"
    region.host().attach(volume)


@hosts
def test_stopping_is_no_death(region: Region) -> None:
    host = region.host()
    with ThreadPoolExecutor(1) as threads:
        script = threads.submit(run, host, "sleep 30")
        time.sleep(0.2)
        host.stop()
        assert script.result().reason == "host-lost"
    host.stop()
    assert region.died == []
    assert outer_pids(host) == []


@hosts
def test_nothing_outlives_a_region_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from local_region.ebs import limits
from local_region.hosts.base import HostSpec, Interface, VolumeSpec
from local_region.hosts.process import ProcessHosts
driver = ProcessHosts(Path({str(tmp_path)!r}) / "hosts", endpoint_port=1)
driver.create_volume(VolumeSpec("vol-0123456789abcdef0", 1 << 30, limits("gp3", 1), "a"))
spec = HostSpec("i-0aaaaaaaaaaaaaaaa", "m5.large", "a", (Interface("ens5", "10.0.0.1", 16),))
host = driver.launch(spec, on_death=print)
host.attach("vol-0123456789abcdef0")
host.run("setsid sleep 4242 & touch /var/tmp/x", environment={{}}, timeout_s=5)
print("ready", flush=True)
time.sleep(60)
"""
    region = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert region.stdout
    assert region.stdout.readline() == "ready\n"
    assert (tmp_path / "hosts").exists()
    # Not even those that cannot see the region go.
    subprocess.run(["pkill", "-STOP", "-f", f"python.*hosts-of={tmp_path}"], check=True)
    region.kill()
    region.wait()
    region.stdout.close()
    left, deadline = ["?"], time.monotonic() + 5
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        found = subprocess.run(["pgrep", "-f", f"hosts-of={tmp_path}|sleep 4242"], capture_output=True, check=False)
        left = [*found.stdout.decode().split(), *map(str, tmp_path.iterdir())]
    assert left == []


# --- volumes


@hosts
def test_a_volume_answers_as_late_and_as_often_as_it_should(region: Region) -> None:
    host, volume = region.host(), region.volume()
    host.attach(volume)
    one = fio(host, device_path(volume), "--rw=randwrite", "--bs=4k", "--iodepth=1")["write"]
    assert 0.5 < one["clat_ns"]["percentile"]["50.000000"] / 1e6 < 1.0
    full = fio(host, device_path(volume), "--rw=randrw", "--bs=4k", "--iodepth=16")
    assert full["read"]["iops"] + full["write"]["iops"] == pytest.approx(3_000, rel=0.05)
    wide = fio(host, device_path(volume), "--rw=write", "--bs=128k", "--iodepth=8")["write"]
    assert wide["bw_bytes"] == pytest.approx(125 * 1024 * KIB, rel=0.07)


@hosts
def test_a_bucket_is_spent_and_then_the_base_rate_stays(region: Region) -> None:
    host = region.host()
    volume = region.volume(Limits(100, GIB, Bucket("io", 1_000, 1_800), 256 * KIB))
    host.attach(volume)
    device = device_path(volume)
    # 1,800 credits at 1,000 IOPS, refilled by 100 a second, last 2 s.
    burst = fio(host, device, "--rw=randread", "--bs=4k", "--iodepth=8", "--ramp_time=0", seconds=1)["read"]
    assert burst["iops"] == pytest.approx(1_000, rel=0.1)
    fio(host, device, "--rw=randread", "--bs=4k", "--iodepth=8", seconds=1.5)
    base = fio(host, device, "--rw=randread", "--bs=4k", "--iodepth=8", seconds=2)["read"]
    assert base["iops"] == pytest.approx(100, rel=0.15)


@hosts
def test_data_outlives_the_host_and_moves_with_the_volume(region: Region) -> None:
    one, other, volume = region.host(), region.host(), region.volume()
    verify = ("--bs=4k", "--iodepth=4", "--verify=crc32c", "--size=4M", "--time_based=0", "--ramp_time=0")
    one.attach(volume)
    fio(one, device_path(volume), "--rw=randwrite", "--do_verify=0", *verify)
    with pytest.raises(ValueError, match="not Multi-Attach"):
        other.attach(volume)
    one.stop()
    other.attach(volume)
    job = fio(other, device_path(volume), "--rw=randwrite", "--verify_only", *verify)
    assert job["error"] == 0
    other.detach(volume)
    assert said(other, "ls /dev/disk/by-id") == ""
    assert run(other, f"fio --name=x --ioengine=nbd --uri='nbd+unix:///?socket={device_path(volume)}'").exit_code != 0


@hosts
def test_multi_attach_shares_the_data_and_the_limit(region: Region) -> None:
    both = [region.host(), region.host()]
    volume = region.volume(limits("io2", 10, 1_000), multi_attach=True)
    for host in both:
        host.attach(volume)
        assert said(host, f"[ -S {device_path(volume)} ] && echo socket") == "socket"
    with ThreadPoolExecutor(2) as threads:
        jobs = list(
            threads.map(lambda host: fio(host, device_path(volume), "--rw=randread", "--bs=4k", "--iodepth=8"), both)
        )
    assert sum(job["read"]["iops"] for job in jobs) == pytest.approx(1_000, rel=0.1)


@hosts
def test_attachments_that_ec2_refuses_are_refused(region: Region) -> None:
    host, elsewhere, volume = region.host(), region.host("b"), region.volume()
    with pytest.raises(ValueError, match="there is no volume"):
        host.attach("vol-0eeeeeeeeeeeeeeee")
    with pytest.raises(ValueError, match="is in a, not b"):
        elsewhere.attach(volume)
    with pytest.raises(ValueError, match="is not attached"):
        host.detach(volume)
    host.attach(volume)
    with pytest.raises(ValueError, match="is attached to"):
        region.driver.delete_volume(volume)


@hosts
def test_a_frozen_host_does_not_hold_up_the_others_of_a_shared_volume(region: Region) -> None:
    frozen, other = region.host(), region.host()
    volume = region.volume(limits("io2", 100, 20_000), multi_attach=True)
    for host in (frozen, other):
        host.attach(volume)
    said(
        frozen,
        f"fio --name=x --ioengine=nbd --uri='nbd+unix:///?socket={device_path(volume)}' --rw=read --bs=1M"
        " --iodepth=32 --size=64M --time_based --runtime=30 >/dev/null 2>&1 & sleep 0.7; pkill -STOP fio",
    )
    job = fio(other, device_path(volume), "--rw=randread", "--bs=4k", "--iodepth=1", seconds=1)
    assert job["read"]["iops"] > 500


# --- /proc/stat


def cpu_ticks(host: ProcessHost) -> dict[str, int]:
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return dict(zip(names, map(int, said(host, "head -1 /proc/stat").split()[1:9]), strict=True))


@hosts
def test_proc_stat_tells_own_work_from_the_neighbours_and_from_foreign_work(region: Region) -> None:
    host, neighbour = region.host(), region.host()
    before, start = cpu_ticks(host), time.monotonic()
    said(host, "timeout 1 bash -c 'while :; do :; done' || true")
    said(neighbour, "timeout 1 bash -c 'while :; do :; done' || true")
    time.sleep(0.7)
    after, elapsed = cpu_ticks(host), time.monotonic() - start
    spent = {name: after[name] - before[name] for name in before}
    assert 70 < spent["user"] + spent["system"] < 130
    assert sum(spent.values()) == pytest.approx(elapsed * 100 * (os.cpu_count() or 1), rel=0.25)


@hosts
def test_foreign_work_shows_as_steal(region: Region) -> None:
    host = region.host()
    before = cpu_ticks(host)
    # A process that leaves this region's tree: its parent ends at once.
    subprocess.run(["sh", "-c", "timeout 1.5 sh -c 'while :; do :; done' &"], check=True, start_new_session=True)
    time.sleep(2.2)
    assert cpu_ticks(host)["steal"] - before["steal"] > 100


def test_the_dead_count_with_who_reaped_them_and_strangers_do_not() -> None:
    processes = {pid: Process(parent, Usage(1, 0)) for pid, parent in [(1, 0), (5, 1), (6, 5), (7, 6), (9, 1)]}
    assert descendants(processes, 5) == {5, 6, 7}
    assert descendants(processes, 4) == set()


def test_foreign_ticks_never_fall_and_forget_a_debt() -> None:
    foreign = Foreign(busy=100, region=50)
    foreign.update(busy=150, region=60)
    assert foreign.ticks == 40
    foreign.update(busy=150, region=500)
    assert foreign.ticks == 40
    foreign.update(busy=200, region=500)
    assert foreign.ticks == 80
    # A region that has lost a child uncounted tells nothing.
    foreign.update(busy=300, region=400)
    assert foreign.ticks == 80


def test_the_machines_own_proc_stat_is_understood() -> None:
    text = (
        "cpu  10 1 5 100 2 0 3 4 0 0\ncpu0 5 1 2 50 1 0 3 2 0 0\ncpu1 5 0 3 50 1 0 0 2 0 0\nintr 9 9\nctxt 7\nbtime 8\n"
    )
    machine = read_machine(text)
    assert (machine.cores, machine.busy, machine.elapsed) == (2, 23, 125)
    assert machine.counters == ("ctxt 7", "btime 8")


# --- admission


def test_requests_beyond_the_unit_count_as_several() -> None:
    admission = Admission(Limits(100, GIB, None, 256 * KIB))
    last = max(admission.admit(0.0, 1024 * KIB) for _ in range(100))
    assert last == pytest.approx(4, rel=0.05)


def test_the_tighter_limit_decides() -> None:
    admission = Admission(limits("gp3", 100))
    last = max(admission.admit(0.0, 128 * KIB) for _ in range(1_000))
    assert last == pytest.approx(1, rel=0.05)


def test_a_bucket_lasts_credits_over_what_it_adds() -> None:
    # The bucket of a 100 GiB gp2, a hundredth of its size: 54,000 credits last 54,000 / (3,000 - 300) = 20 s.
    admission = Admission(Limits(300, GIB, Bucket("io", 3_000, 54_000), 256 * KIB))
    times = [admission.admit(0.0, 4 * KIB) for _ in range(63_000)]
    assert times[59_999] == pytest.approx(20, rel=0.01)
    assert times[62_999] == pytest.approx(30, rel=0.01)


# --- mirrors, as the documents make them

MIRROR = "/run/volumetry/mirror.sock"
EXPORT = """
qemu-storage-daemon --daemonize --pidfile /run/volumetry/export.pid \
  --blockdev driver=nbd,node-name=local,server.type=unix,server.path=$DEVICE \
  --nbd-server addr.type=inet,addr.host=$ADDRESS,addr.port=10809 \
  --export type=nbd,id=export,node-name=local,name=mirror,writable=on
"""
QUORUM = """
qemu-storage-daemon --daemonize --pidfile /run/volumetry/mirror.pid \
  --blockdev driver=nbd,node-name=local,server.type=unix,server.path=$DEVICE \
  --blockdev driver=nbd,node-name=remote,server.type=inet,server.host=$PEER,server.port=10809,export=mirror \
  --blockdev driver=quorum,node-name=mirror,vote-threshold=1,read-pattern=fifo,children.0=local,children.1=remote \
  --nbd-server addr.type=unix,addr.path=/run/volumetry/mirror.sock \
  --export type=nbd,id=mirror,node-name=mirror,name=,writable=on
"""


def mirrored(region: Region, zone: str) -> tuple[ProcessHost, ProcessHost]:
    """A primary in zone a whose mirror is at MIRROR, and its peer."""
    primary, peer = region.host("a"), region.host(zone)
    ours, theirs = region.volume(), region.volume(zone=zone)
    primary.attach(ours)
    peer.attach(theirs)
    said(peer, EXPORT, DEVICE=device_path(theirs), ADDRESS=address(peer))
    said(primary, QUORUM, DEVICE=device_path(ours), PEER=address(peer))
    return primary, peer


@hosts
def test_each_step_away_costs_writes(region: Region) -> None:
    single, volume = region.host(), region.volume()
    single.attach(volume)
    near, far = mirrored(region, "a")[0], mirrored(region, "b")[0]
    arms = ((single, device_path(volume)), (near, MIRROR), (far, MIRROR))
    writes = [
        [fio(*arm, "--rw=randwrite", "--bs=4k", "--iodepth=1")["write"]["iops"] for arm in arms] for _ in range(3)
    ]
    alone, in_zone, across = (sorted(column)[1] for column in zip(*writes, strict=True))
    assert 0.4 < in_zone / alone < 0.9
    assert across / in_zone < 0.75


@hosts
def test_a_mirror_goes_on_when_its_peer_is_killed_and_both_legs_were_equal(region: Region) -> None:
    primary, peer = mirrored(region, "a")
    options = ("--rw=randwrite", "--bs=4k", "--iodepth=1", "--size=4M")
    fio(primary, MIRROR, *options, "--verify=crc32c", "--do_verify=0", "--time_based=0", "--ramp_time=0")
    leg = next(path for path in said(peer, "ls /dev/disk/by-id/*").split())
    check = fio(peer, leg, *options, "--verify=crc32c", "--verify_only", "--time_based=0", "--ramp_time=0")
    assert check["error"] == 0
    said(peer, "kill -9 $(cat /run/volumetry/export.pid)")
    assert fio(primary, MIRROR, *options, seconds=1)["write"]["iops"] > 500
