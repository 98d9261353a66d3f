"""Guest hosts, for real: virtual machines with Debian's kernels, their network, volumes, starts and ends."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import inet_aton
from typing import Any

import pytest

from local_region.ebs import limits
from local_region.hosts.base import (
    Completed,
    Distances,
    HostSpec,
    HostsUnavailableError,
    Interface,
    VolumeSpec,
    device_path,
)
from local_region.hosts.fabric import EthernetPort
from local_region.hosts.guest import GuestHost, GuestHosts
from local_region.hosts.guest_image import require

ROOT = Path(__file__).resolve().parents[1]
GIB = 1024**3
# Far beyond what an emulated CPU on a busy machine adds by itself.
NEAR_S, FAR_S = 0.002, 0.042

hosts = pytest.mark.hosts


class _Endpoint(http.server.BaseHTTPRequestHandler):
    received: str = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")

    def do_PUT(self) -> None:
        type(self).received = hashlib.sha256(self.rfile.read(int(self.headers["Content-Length"]))).hexdigest()
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
def driver(tmp_path_factory: pytest.TempPathFactory, endpoint_port: int) -> Iterator[GuestHosts]:
    try:
        require()
    except HostsUnavailableError as error:
        pytest.skip(str(error))
    distances = Distances(same_az_round_trip_s=NEAR_S, cross_az_round_trip_s=FAR_S)
    folder = tmp_path_factory.mktemp("region") / "hosts"
    driver = GuestHosts(folder, endpoint_port=endpoint_port, distances=distances)
    yield driver
    driver.close()
    assert driver.leftovers() == []


def spec(number: int, *, links: int = 1) -> HostSpec:
    """Its first link is in one subnet, its second in another, and so as far away as another zone."""
    interfaces = (Interface(f"ens{5 + link}", f"10.0.{link}.{9 + number}", 24) for link in range(links))
    # Process hosts are found by their ids, too, and their tests may run at the same time.
    return HostSpec(f"i-{0x6E57 << 32 | number:017x}", "m5.large", "a", tuple(interfaces))


died: list[str] = []


@pytest.fixture(scope="module")
def pair(driver: GuestHosts) -> list[GuestHost]:
    """Two guests, started side by side, for the tests that leave them as they were."""
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda number: driver.launch(spec(number, links=2), on_death=died.append), (1, 2)))


@pytest.fixture
def one(pair: list[GuestHost]) -> GuestHost:
    return pair[0]


@pytest.fixture
def other(pair: list[GuestHost]) -> GuestHost:
    return pair[1]


def run(host: GuestHost, script: str, timeout_s: float = 60, **environment: str) -> Completed:
    return host.run(script, environment=environment, timeout_s=timeout_s)


def said(host: GuestHost, script: str, **environment: str) -> str:
    done = run(host, script, **environment)
    assert done.exit_code == 0, done
    return done.stdout.decode().strip()


def until(true: Callable[[], bool], timeout_s: float = 5) -> bool:
    deadline = time.monotonic() + timeout_s
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


# --- scripts


@hosts
def test_a_script_runs_as_root_with_its_environment_and_keeps_its_streams_apart(one: GuestHost) -> None:
    done = run(one, 'id -u; echo "$SSM_Name" >&2; exit 3', SSM_Name='a "b" $c')
    assert done == Completed(3, b"0\n", b'a "b" $c\n')
    assert said(one, "#!/usr/bin/awk -f\nBEGIN { print 6 * 7 }") == "42"
    assert run(one, "kill -9 $$").exit_code == 137


@hosts
def test_scripts_of_a_host_run_side_by_side(one: GuestHost) -> None:
    start = time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        codes = [done.exit_code for done in threads.map(lambda _: run(one, "sleep 4"), range(6))]
    assert codes == [0] * 6
    assert time.monotonic() - start < 12


@hosts
def test_time_out_and_cancellation_kill_the_whole_group(one: GuestHost) -> None:
    assert run(one, "echo begun; sleep 61 & sleep 61", timeout_s=3) == Completed(None, b"begun\n", b"", "timed-out")
    cancel = threading.Event()
    threading.Timer(1, cancel.set).start()
    done = one.run("sleep 61 & sleep 61", environment={}, timeout_s=60, cancel=cancel)
    assert (done.exit_code, done.reason) == (None, "cancelled")
    assert said(one, "pgrep -fc 'sleep 61' || true") == "0"


@hosts
def test_a_daemon_outlives_its_script(one: GuestHost) -> None:
    said(one, "setsid sleep 62 & echo $! >/run/daemon")
    said(one, "kill $(cat /run/daemon)")


@hosts
def test_output_has_no_limit_of_the_agent(one: GuestHost) -> None:
    done = run(one, "head -c 6000000 /dev/urandom | tee /run/random; sha256sum /run/random >&2; rm /run/random")
    assert hashlib.sha256(done.stdout).hexdigest() == done.stderr.decode().split()[0]


@hosts
def test_the_endpoint_has_the_same_url_inside_and_shows_in_no_list_of_addresses(
    one: GuestHost, endpoint_port: int
) -> None:
    url = f"http://127.0.0.1:{endpoint_port}/x"
    assert said(one, f"curl -sf {url}") == "here"
    script = (
        f"head -c 12000000 /dev/urandom >/var/tmp/u; curl -sfT /var/tmp/u {url} && sha256sum /var/tmp/u; rm /var/tmp/u"
    )
    assert said(one, script).split()[0] == _Endpoint.received
    assert said(one, "ip -o -4 addr show scope global | awk '{ print $2 }'").split() == ["ens5", "ens6"]
    assert said(one, "ls /sys/class/net").split() == ["ens5", "ens6", "lo", "mgmt0"]


@hosts
def test_the_clock_is_the_machines(one: GuestHost) -> None:
    differences = []
    for _ in range(5):
        before = time.time()
        inside = one._machine.agent.ask("guest-get-time") / 1e9
        differences.append(inside - (before + time.time()) / 2)
    assert abs(sorted(differences)[2]) < 0.02


# --- network


def rtt_ms(host: GuestHost, source: str, target: str) -> float:
    """The least of some pings: what a busy machine adds is no distance."""
    lines = said(host, f"ping -i 0.05 -c 15 -I {source} {target}")
    return min(float(time) for time in re.findall(r"time=([\d.]+)", lines))


@hosts
def test_links_have_names_addresses_and_routes(one: GuestHost) -> None:
    assert said(one, "hostname") == "ip-10-0-0-10"
    shown = {line["ifname"]: line for line in json.loads(said(one, "ip -json -4 address"))}
    assert {name: shown[name]["mtu"] for name in ("ens5", "ens6")} == {"ens5": 9001, "ens6": 9001}
    assert [shown[name]["addr_info"][0]["local"] for name in ("ens5", "ens6")] == ["10.0.0.10", "10.0.1.10"]
    assert said(one, "ip route show default").startswith("default via 10.0.0.1 dev ens5")


@hosts
def test_distance_shows_in_the_round_trip(one: GuestHost, other: GuestHost) -> None:
    near = rtt_ms(one, "10.0.0.10", "10.0.0.11")
    far = rtt_ms(one, "10.0.0.10", "10.0.1.11")
    assert near >= NEAR_S * 1e3
    assert far >= FAR_S * 1e3
    assert near < far - (FAR_S - NEAR_S) * 1e3 / 2


@hosts
def test_frames_are_jumbo_and_data_arrives_whole(one: GuestHost, other: GuestHost) -> None:
    said(one, "ping -c 1 -W 5 -M do -s 8973 10.0.0.11")
    assert run(one, "ping -c 1 -W 1 -M do -s 8974 10.0.0.11").exit_code != 0
    with ThreadPoolExecutor(1) as threads:
        received = threads.submit(said, other, "timeout 50 socat -u TCP-LISTEN:5000,bind=10.0.0.11 - | sha256sum")
        sent = said(
            one,
            "head -c 8000000 /dev/urandom >/run/data; sha256sum </run/data;"
            " socat -u OPEN:/run/data TCP:10.0.0.11:5000,retry=50,interval=0.2; rm /run/data",
        )
        assert sent == received.result()


@hosts
def test_a_link_is_cut_while_commands_still_run(driver: GuestHosts, one: GuestHost, other: GuestHost) -> None:
    ping = "ping -c 2 -i 0.2 -W 2 -I {} {} >/dev/null && echo heard || echo lost; cat /sys/class/net/ens5/carrier"
    first, second = ping.format("10.0.0.10", "10.0.0.11"), ping.format("10.0.1.10", "10.0.1.11")
    driver.set_link(other.instance_id, "ens5", up=False)
    assert (said(one, first), said(one, second)) == ("lost\n1", "heard\n1")
    assert said(other, "echo here") == "here"
    driver.set_link(other.instance_id, "ens5", up=True)
    sides = ([one.instance_id], [other.instance_id])
    driver.set_partition(*sides, cut=True)
    assert (said(one, first), said(one, second)) == ("lost\n1", "lost\n1")
    driver.set_partition(*sides, cut=False)
    assert (said(one, first), said(one, second)) == ("heard\n1", "heard\n1")


@hosts
def test_a_link_that_is_plugged_has_a_carrier_and_no_address(one: GuestHost) -> None:
    one.plug(Interface("ens7", "10.0.0.99", 24))
    assert said(one, "cat /sys/class/net/ens7/carrier /sys/class/net/ens7/mtu").split() == ["1", "9001"]
    assert said(one, "ip -o -4 address show dev ens7") == ""
    one.unplug("ens7")
    assert run(one, "ls /sys/class/net/ens7").exit_code != 0
    with pytest.raises(ValueError, match="already in use"):
        one.plug(Interface("ens7", "10.0.0.11", 24))
    with pytest.raises(ValueError, match="no place"):
        one.plug(Interface("ens40", "10.0.0.98", 24))


# --- volumes


def volume(driver: GuestHosts, number: int, **options: Any) -> str:
    name = f"vol-{number:017x}"
    driver.create_volume(VolumeSpec(name, GIB, options.pop("allowed", limits("gp3", 100)), "a", **options))
    return name


def fio(host: GuestHost, device: str, *options: str, seconds: int = 3) -> Any:
    always = "--name=job --ioengine=libaio --direct=1 --size=64M --time_based --ramp_time=1 --output-format=json"
    return json.loads(said(host, f"fio {always} --runtime={seconds} --filename={device} {' '.join(options)}"))["jobs"][
        0
    ]


@hosts
def test_a_volume_comes_and_goes_while_the_guest_runs(driver: GuestHosts, one: GuestHost) -> None:
    name = volume(driver, 1)
    device = device_path(name)
    one.attach(name)
    assert said(one, f"lsblk --noheadings --nodeps --output SERIAL,SIZE {device}").split() == [
        name.replace("-", ""),
        "1G",
    ]
    # As EBS, it has no volatile cache, so no kernel sends it flushes.
    assert said(one, f"cat /sys/block/$(basename $(readlink {device}))/queue/write_cache") == "write through"
    with pytest.raises(ValueError, match="is already attached"):
        one.attach(name)
    with pytest.raises(ValueError, match="is attached to"):
        driver.delete_volume(name)
    full = fio(one, device, "--rw=randwrite", "--bs=64k", "--iodepth=16")["write"]
    assert full["bw_bytes"] < 125 * 1024**2 * 1.07
    said(one, f"echo kept >/run/x; truncate -s 512 /run/x; dd if=/run/x of={device} oflag=direct status=none")
    one.detach(name)
    assert said(one, "ls /dev/disk/by-id") == ""
    assert said(one, "lsblk --noheadings --nodeps | wc -l") == "1"
    with pytest.raises(ValueError, match="is not attached"):
        one.detach(name)
    one.attach(name)
    assert said(one, f"head -c 4 {device}") == "kept"
    one.detach(name)
    driver.delete_volume(name)


@hosts
def test_a_volume_keeps_to_its_limit(driver: GuestHosts, one: GuestHost) -> None:
    name = volume(driver, 2, allowed=limits("io2", 10, 400))
    one.attach(name)
    job = fio(one, device_path(name), "--rw=randread", "--bs=4k", "--iodepth=16")
    # On a machine that is busy it may be fewer.
    assert 150 < job["read"]["iops"] < 440
    one.detach(name)
    driver.delete_volume(name)


@hosts
def test_multi_attach_shares_the_data(driver: GuestHosts, one: GuestHost, other: GuestHost) -> None:
    name = volume(driver, 3, allowed=limits("io2", 10, 1_000), multi_attach=True)
    device = device_path(name)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda host: host.attach(name), (one, other)))
    said(one, f"echo shared >/run/x; truncate -s 512 /run/x; dd if=/run/x of={device} oflag=direct status=none")
    assert said(other, f"dd if={device} iflag=direct bs=512 count=1 status=none | head -c 6") == "shared"
    for host in (one, other):
        host.detach(name)
    driver.delete_volume(name)


@hosts
def test_attachments_that_ec2_refuses_are_refused(driver: GuestHosts, one: GuestHost, other: GuestHost) -> None:
    with pytest.raises(ValueError, match="there is no volume"):
        one.attach("vol-0eeeeeeeeeeeeeeee")
    name = volume(driver, 4)
    one.attach(name)
    with pytest.raises(ValueError, match="not Multi-Attach"):
        other.attach(name)
    one.detach(name)
    driver.delete_volume(name)


# --- life and death


@hosts
def test_a_frozen_guest_does_not_answer_and_thaws(driver: GuestHosts, other: GuestHost) -> None:
    driver.set_frozen(other.instance_id, frozen=True)
    assert run(other, "true", timeout_s=1).reason == "timed-out"
    driver.set_frozen(other.instance_id, frozen=False)
    assert said(other, "echo here") == "here"


@hosts
def test_a_guest_that_starts_anew_comes_back_as_it_was_on_the_kernel_it_chose(
    driver: GuestHosts, one: GuestHost, other: GuestHost
) -> None:
    name = volume(driver, 5)
    one.attach(name)
    one.plug(Interface("ens7", "10.0.0.99", 24))
    # The second column is how the link does, which the kernel says a little late.
    look = "ip -br address | sort | awk '{ $2 = \"\"; print }'; ip rule; ip route; ls /dev/disk/by-id"
    before = said(one, look)
    kernel, chosen = said(one, "uname -r; ls /lib/modules | grep -v cloud").split()
    assert kernel != chosen
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(run, one, "sleep 60")
        run(one, f"echo {chosen} >/boot/volumetry-kernel; echo kept >/var/lib/kept; sync; echo b >/proc/sysrq-trigger")
        assert until(lambda: not one.answers())
        assert one.alive()
        assert lost.result().reason == "host-lost"
    assert run(one, "true", timeout_s=0.5).reason == "timed-out"
    assert run(one, "true", timeout_s=240).exit_code == 0
    assert said(one, "uname -r; cat /var/lib/kept").split() == [chosen, "kept"]
    assert said(one, look) == before
    assert "netem" in said(one, "modprobe -a drbd xfs; tc qdisc show dev ens5")
    said(one, "ping -c 1 -W 5 10.0.0.11")
    one.unplug("ens7")
    one.detach(name)
    driver.delete_volume(name)
    assert died == []


@hosts
def test_an_end_that_nobody_asked_for_is_told_once(driver: GuestHosts) -> None:
    told: list[str] = []
    with ThreadPoolExecutor(2) as threads:
        off, killed = threads.map(lambda number: driver.launch(spec(number), on_death=told.append), (3, 4))
        name = volume(driver, 6)
        off.attach(name)
        sleeping = threads.submit(run, killed, "sleep 60")
        assert run(off, "echo o >/proc/sysrq-trigger; sleep 60").reason == "host-lost"
        os.kill(killed._machine.process.pid, signal.SIGKILL)
        assert sleeping.result().reason == "host-lost"
    assert until(lambda: len(told) == 2)
    for host in (off, killed):
        host.stop()
        assert not host.alive()
        assert run(host, "true").reason == "host-lost"
    assert sorted(told) == [off.instance_id, killed.instance_id]
    # The volume is free, and the address, and nothing is left of either guest.
    driver.delete_volume(name)
    assert not any(host.instance_id in left for left in driver.leftovers() for host in (off, killed))


@hosts
def test_nothing_outlives_a_region_that_is_killed(tmp_path: Path) -> None:
    try:
        require()
    except HostsUnavailableError as error:
        pytest.skip(str(error))
    program = f"""
import time
from pathlib import Path
from local_region.ebs import limits
from local_region.hosts.base import HostSpec, Interface, VolumeSpec
from local_region.hosts.guest import GuestHosts
driver = GuestHosts(Path({str(tmp_path)!r}) / "hosts", endpoint_port=1)
driver.create_volume(VolumeSpec("vol-0123456789abcdef0", 1 << 30, limits("gp3", 1), "a"))
spec = HostSpec("i-0aaaaaaaaaaaaaaaa", "m5.large", "a", (Interface("ens5", "10.0.0.5", 24),))
host = driver.launch(spec, on_death=print)
host.attach("vol-0123456789abcdef0")
print("ready", flush=True)
time.sleep(60)
"""
    region = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert region.stdout
    assert region.stdout.readline() == "ready\n"
    assert (tmp_path / "hosts").exists()
    region.kill()
    region.wait()
    region.stdout.close()

    def left() -> list[str]:
        found = subprocess.run(["pgrep", "-f", f"hosts-of={tmp_path}"], capture_output=True, text=True, check=False)
        return [*found.stdout.split(), *map(str, tmp_path.iterdir())]

    assert until(lambda: not left()), left()


# --- frames


@pytest.fixture
def card() -> Iterator[tuple[EthernetPort, socket.socket]]:
    """A port of the network, and the guest's end of it."""
    ours, guest = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    guest.settimeout(1)
    with ours, guest:
        yield EthernetPort(inet_aton("10.0.0.5"), "a", ours.fileno(), card=b"\x02\0\x0a\0\0\x05"), guest


def question(target: str) -> bytes:
    """Who has this address? asks 10.0.0.5."""
    ours = b"\x02\0\x0a\0\0\x05"
    who = bytes.fromhex("0001080006040001") + ours + inet_aton("10.0.0.5") + bytes(6) + inet_aton(target)
    return b"\xff" * 6 + ours + b"\x08\x06" + who


def test_every_address_but_a_cards_own_is_the_routers(card: tuple[EthernetPort, socket.socket]) -> None:
    port, guest = card
    guest.send(question("10.0.0.77"))
    assert port.read() is None
    answer = guest.recv(2000)
    assert answer[:14] == port.card + bytes.fromhex("0200000000010806")
    assert answer[20:32] == bytes.fromhex("0002020000000001") + inet_aton("10.0.0.77")
    guest.send(question("10.0.0.5"))
    assert port.read() is None
    guest.settimeout(0.05)
    with pytest.raises(TimeoutError):
        guest.recv(2000)


def test_packets_lose_their_frame_and_get_a_new_one(card: tuple[EthernetPort, socket.socket]) -> None:
    port, guest = card
    guest.send(bytes(12) + b"\x08\x00" + b"a packet")
    assert port.read() == b"a packet"
    guest.send(bytes(12) + b"\x86\xdd" + b"of version 6")
    assert port.read() is None
    port.write(b"another")
    assert guest.recv(2000) == port.card + bytes.fromhex("020000000001") + b"\x08\x00another"
