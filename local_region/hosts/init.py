"""Process 1 of a process host: sets it up, runs scripts on request, reaps. Standard library only.

It runs alone inside the sandbox (`python -I -S init.py INSTANCE FD CONFIGURATION`), so it imports nothing of
the package. FD is the channel to the region; each message on it carries one end of a conversation and the
request's own descriptors. When the channel closes the host has lost its region, and goes down.
"""

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

MESSAGE_BYTES = 128 * 1024
MOST_DESCRIPTORS = 32
# From <linux/if_tun.h>.
TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000

BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
# A new network namespace inherits the machine's own tuning; hosts start from the kernel's defaults.
KERNEL_DEFAULTS = {
    "ipv4/tcp_rmem": "4096 131072 6291456",
    "ipv4/tcp_wmem": "4096 16384 4194304",
    "ipv4/tcp_congestion_control": "cubic",
}
SCRIPTS = Path("/run/ssm")
BY_ID = Path("/dev/disk/by-id")
# Routing tables of the interfaces, by index.
FIRST_TABLE = 101

Message = dict[str, Any]


class Init:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.selector = selectors.DefaultSelector()
        self.running: dict[int, tuple[socket.socket, Path]] = {}
        self._scripts = 0

    def serve(self) -> None:
        wakeup, notify = socket.socketpair()
        for end in (wakeup, notify):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(notify.fileno())
        self.selector.register(self.channel, selectors.EVENT_READ, self.accept)
        self.selector.register(wakeup, selectors.EVENT_READ, lambda: self.reap(wakeup))
        while True:
            for key, _ in self.selector.select():
                key.data()

    def accept(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self.channel, MESSAGE_BYTES, MOST_DESCRIPTORS)
        if not data:
            sys.exit()
        conversation = socket.socket(fileno=descriptors[0])
        message: Message = json.loads(data)
        if message["do"] == "run":
            self.run(conversation, message["environment"], descriptors[1:])
            return
        with conversation:
            try:
                match message["do"]:
                    case "attach":
                        attach(conversation, BY_ID / message["name"])
                    case "detach":
                        detach(conversation, BY_ID / message["name"])
                    case "plug":
                        plug(conversation, message["interface"], message["index"])
            except (OSError, RuntimeError) as error:
                reply(conversation, {"error": str(error)})

    def run(self, conversation: socket.socket, environment: dict[str, str], descriptors: list[int]) -> None:
        """`descriptors` are the script's text, and where its stdout and stderr go."""
        script, stdout, stderr = descriptors
        self._scripts += 1
        path = SCRIPTS / str(self._scripts)
        try:
            path.write_bytes(os.pread(script, os.fstat(script).st_size, 0))
            path.chmod(0o700)
            pid = spawn(path, environment, stdout, stderr)
        except OSError as error:
            os.write(stderr, f"cannot run the script: {error.strerror}\n".encode())
            with conversation:
                reply(conversation, {"exit_code": 126})
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.running[pid] = conversation, path
        self.selector.register(conversation, selectors.EVENT_READ, lambda: self.kill(pid))

    def kill(self, pid: int) -> None:
        """Who asked has gone away: time-out or cancellation. The Systems Manager agent kills the group, too."""
        if pid in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self.finish(pid, None)

    def finish(self, pid: int, answer: Message | None) -> None:
        if pid not in self.running:
            # An orphan that process 1 inherited.
            return
        conversation, path = self.running.pop(pid)
        self.selector.unregister(conversation)
        path.unlink(missing_ok=True)
        with conversation:
            if answer:
                reply(conversation, answer)

    def reap(self, wakeup: socket.socket) -> None:
        wakeup.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                code = os.waitstatus_to_exitcode(status)
                self.finish(pid, {"exit_code": code if code >= 0 else 128 - code})


def spawn(path: Path, environment: dict[str, str], stdout: int, stderr: int) -> int:
    """Start a script in a process group of its own, with default signal actions."""
    argv = [str(path)] if path.read_bytes()[:2] == b"#!" else ["/bin/bash", str(path)]
    return os.posix_spawn(
        argv[0],
        argv,
        BASE_ENVIRONMENT | environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ],
        setpgroup=0,
        # Python ignores these two, and an ignored signal would stay ignored in the script.
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )


def reply(channel: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    # Who asked may be gone by now; there is nobody left to tell.
    with contextlib.suppress(OSError):
        socket.send_fds(channel, [json.dumps(message).encode()], descriptors)


def attach(conversation: socket.socket, device: Path) -> None:
    """Open the device's socket here, where it vanishes with the host, and hand it to the volume."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(device))
        listener.listen(64)
        reply(conversation, {}, (listener.fileno(),))


def detach(conversation: socket.socket, device: Path) -> None:
    device.unlink(missing_ok=True)
    reply(conversation, {})


def open_tun(name: str) -> int:
    """A layer 3 interface; its packets are read from and written to the descriptor."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def command(*argv: str) -> None:
    status = os.waitpid(os.posix_spawnp(argv[0], argv, BASE_ENVIRONMENT), 0)[1]
    if status:
        raise RuntimeError(f"{' '.join(argv)}: {os.waitstatus_to_exitcode(status)}")


def set_kernel_defaults() -> None:
    for name, value in KERNEL_DEFAULTS.items():
        # A machine may not let its namespaces choose the congestion control.
        with contextlib.suppress(OSError):
            Path("/proc/sys/net", name).write_text(value)


def plug(conversation: socket.socket, interface: Message, index: int) -> None:
    """Bring one more interface up, and hand its packets out."""
    tun = configure([interface], index)
    reply(conversation, {}, tuple(tun))
    os.close(tun[0])


def configure(interfaces: list[Message], first_index: int = 0) -> list[int]:
    """Bring the interfaces up. A packet leaves by the interface whose address it bears, as on EC2."""
    tuns = [open_tun(interface["name"]) for interface in interfaces]
    lines = []
    for index, interface in enumerate(interfaces, start=first_index):
        name, address, table = interface["name"], interface["address"], FIRST_TABLE + index
        lines += [
            f"address add {address}/{interface['prefix_length']} dev {name} noprefixroute",
            f"link set {name} mtu {interface['mtu']} up",
            f"route add default dev {name} src {address} table {table}",
            f"rule add from {address} table {table}",
        ]
        if index == 0:
            lines.append(f"route add default dev {name} src {address}")
    batch = Path("/run/network")
    batch.write_text("\n".join(lines))
    command("ip", "-batch", str(batch))
    batch.unlink()
    return tuns


def main() -> None:
    _, _, number, text = sys.argv
    configuration: Message = json.loads(text)
    channel = socket.socket(fileno=int(number))
    channel.set_inheritable(False)
    SCRIPTS.mkdir()
    command("mount", "-t", "sysfs", "-o", "ro", "sysfs", "/sys")
    set_kernel_defaults()
    tuns = configure(configuration["interfaces"])
    endpoint = socket.create_server(("127.0.0.1", configuration["endpoint_port"]), backlog=64)
    stat = os.open("/proc/stat", os.O_WRONLY)
    passed = (endpoint.fileno(), stat, *tuns)
    reply(channel, {"ready": True}, passed)
    for descriptor in passed[1:]:
        os.close(descriptor)
    endpoint.close()
    Init(channel).serve()


if __name__ == "__main__":
    main()
