"""The guests' image: a root file system with two kernels, made of the distribution's own packages.

Built once, kept in the user's cache under a name that follows from its recipe, and checked before use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from local_region.hosts.base import HostsUnavailableError

_FILES = Path(__file__).with_name("image")
# Those that go into the image; the others are told to a running guest.
_BAKED = ("init", "initrd-init", "make-initrds", "reboot")
_INSIDE = "/usr/lib/volumetry"

_PACKAGES = """
    linux-image-cloud-amd64 linux-image-amd64 kexec-tools busybox-static kmod procps util-linux
    qemu-guest-agent socat iproute2 iputils-ping curl ca-certificates python3
    e2fsprogs xfsprogs nvme-cli mdadm drbd-utils qemu-system-common nbdkit
    fio dbench sysstat postgresql postgresql-contrib
""".split()
# Documentation, drivers of what no guest has, the compiler of PostgreSQL's queries, and initial RAM disks: ours are
# smaller by far.
_LEFT_OUT = """
    /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/*
    /usr/lib/*/libLLVM* /usr/lib/*/libz3* /usr/lib/llvm* /usr/lib/postgresql/*/lib/llvmjit*
    /usr/lib/postgresql/*/lib/bitcode/* /etc/kernel/postinst.d/initramfs-tools
    /lib/modules/*/kernel/drivers/gpu/* /lib/modules/*/kernel/drivers/media/* /lib/modules/*/kernel/sound/*
    /lib/modules/*/kernel/drivers/net/wireless/* /lib/modules/*/kernel/drivers/infiniband/*
    /lib/modules/*/kernel/drivers/staging/* /lib/modules/*/kernel/drivers/iio/*
""".split()
_STEPS = (
    f'mkdir "$1{_INSIDE}"',
    f"copy-in {' '.join(shlex.quote(str(_FILES / name)) for name in _BAKED)} {_INSIDE}",
    f'chmod 755 "$1{_INSIDE}"/*',
    f'for name in reboot poweroff halt; do ln -s {_INSIDE}/reboot "$1/usr/sbin/$name"; done',
    # The agent sets the clock of the hardware, too, which takes a second, and is kept by QEMU.
    'ln -sf /usr/bin/true "$1/usr/sbin/hwclock"',
    f'chroot "$1" {_INSIDE}/make-initrds',
    f'chroot "$1" dpkg-query --show >"$1{_INSIDE}/packages.txt"',
)
_FREE_MIB = 500
_DEFAULT_KERNEL = "vmlinuz-*-cloud-amd64"

_TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "fakeroot": "fakeroot",
    "mke2fs": "e2fsprogs",
    "setpriv": "util-linux",
}
_PROBE_S = 10.0


@dataclass(frozen=True)
class Accelerator:
    """QEMU's options, and what the kernel is told besides."""

    options: tuple[str, ...]
    kernel: str = ""


# The model max of QEMU 7.2 has five levels of page tables, with which paths that the kernel gives are lost (readlink
# /proc/self/exe), and says that copying byte by byte is fast. What is told to the kernel: this processor's counter is
# the machine's own, the same on all CPUs; nobody has to be guarded against; and copying by string instructions, whose
# feature has the number 112, costs an emulated CPU twice as much as copying by others. Translated code may take half of
# what a guest has as memory, instead of as much again. One processor: where a few guests share two, one that waits for
# another's is slower than one that does it all (DRBD, 4k writes at depth 1: 341 IOPS, not 270; p99 3.9 ms, not 15).
_TCG = Accelerator(
    ("-smp", "1", "-accel", "tcg,tb-size=512", "-cpu", "Nehalem"), "tsc=reliable mitigations=off clearcpuid=112"
)
# As many as the smallest of EC2's current instances have.
_KVM = Accelerator(("-smp", "2", "-accel", "kvm", "-cpu", "host"))


@dataclass(frozen=True)
class Image:
    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def root(self) -> Path:
        return self.folder / "root.img"

    def accelerator(self) -> Accelerator:
        """KVM only where a guest was seen to start on it: not every /dev/kvm takes every kernel."""
        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return _TCG
        seen = self.folder / f"kvm-on-{platform.node()}-{platform.release()}"
        with _locked(self.folder.with_suffix(".lock")):
            if not seen.exists():
                seen.write_text("yes\n" if self._starts_on_kvm() else "no\n")
        return _KVM if seen.read_text() == "yes\n" else _TCG

    def _starts_on_kvm(self) -> bool:
        argv = [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", "pc", "-m", "512", *_KVM.options, "-serial", "stdio", "-kernel", str(self.kernel)),
            *("-append", "console=ttyS0 quiet panic=-1 root=/dev/nvme0n1 ro init=/bin/true"),
            *(
                "-drive",
                f"if=none,id=root,format=raw,snapshot=on,file={self.root}",
                "-device",
                "nvme,drive=root,serial=0",
            ),
        ]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False)
        except subprocess.TimeoutExpired:
            return False
        # The first process has run, and has ended, as no first process should.
        return b"Attempted to kill init" in done.stdout


def ensure_image() -> Image:
    """The image, built if need be. HostsUnavailableError says what this machine lacks."""
    require()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "volumetry"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"guest-{_recipe()}"
    with _locked(folder.with_suffix(".lock")):
        if not folder.exists():
            print("Building the image of guest hosts: a few minutes, once.", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as work:
                _build(Path(work))
                (Path(work) / "image").rename(folder)
        _verify(folder)
    return Image(folder)


def require() -> None:
    """HostsUnavailableError says what this machine lacks."""
    if platform.machine() != "x86_64" or _release().get("ID") != "debian":
        raise HostsUnavailableError("guest hosts are made of Debian's packages for amd64: this machine is not that")
    missing = [package for tool, package in _TOOLS.items() if not _found(tool)]
    if missing:
        raise HostsUnavailableError(f"guest hosts need packages that are not installed: {', '.join(missing)}")


def _found(tool: str) -> bool:
    return shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None


def _release() -> dict[str, str]:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release()
    return {}


def _recipe() -> str:
    digest = hashlib.sha256()
    for part in (_release().get("VERSION_CODENAME", ""), *_PACKAGES, *_LEFT_OUT, *_STEPS[2:], str(_FREE_MIB)):
        digest.update(part.encode() + b"\0")
    for name in _BAKED:
        digest.update((_FILES / name).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(work: Path) -> None:
    image, root, archive = work / "image", work / "root", work / "root.tar"
    image.mkdir()
    root.mkdir()
    _run(_mmdebstrap(archive), work, "\n".join(_sources()))
    # Owners and devices are root's; what pretends to be root is told so by fakeroot.
    pretend = [] if os.getuid() == 0 else ["fakeroot"]
    _run([*pretend, "sh", "-c", _UNPACK_AND_PACK, "sh", str(archive), str(root), str(image / "root.img")], work)
    shutil.copy(next((root / "boot").glob(_DEFAULT_KERNEL)), image / "vmlinuz")
    shutil.copy(root / _INSIDE[1:] / "packages.txt", image / "packages.txt")
    sums = "".join(f"{_sha256(one)}  {one.name}\n" for one in sorted(image.iterdir()))
    (image / "SHA256SUMS").write_text(sums)


_UNPACK_AND_PACK = f"""
set -eu
export PATH="$PATH:/usr/sbin:/sbin"
tar --extract --file "$1" --directory "$2" --exclude './dev/*'
rm "$1"
truncate --size="$(($(du --summarize --block-size=1M "$2" | cut -f1) * 21 / 20 + {_FREE_MIB}))M" "$3"
mke2fs -q -t ext4 -m 0 -E lazy_itable_init=0,lazy_journal_init=0 -d "$2" "$3"
"""


def _mmdebstrap(archive: Path) -> list[str]:
    argv = ["mmdebstrap", "--variant=minbase", "--format=tar", f"--include={','.join(_PACKAGES)}"]
    argv += ["--aptopt=APT::Install-Recommends false"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    argv += [f"--customize-hook={step}" for step in _STEPS]
    return [*argv, _release()["VERSION_CODENAME"], str(archive), "-"]


def _sources() -> list[str]:
    """The distribution's part of this machine's own package sources."""
    keys = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)"
    argv = ["apt-get", "indextargets", "--format", keys, "Created-By: Packages", "Target-Of: deb"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    codename = re.escape(_release()["VERSION_CODENAME"])
    pattern = re.compile(rf"(\S+) ({codename}(?:-updates|-security)?) (main) Debian")
    return sorted(
        {f"deb {' '.join(found.groups())}" for found in map(pattern.fullmatch, done.stdout.splitlines()) if found}
    )


def _run(argv: list[str], work: Path, text: str = "") -> None:
    done = subprocess.run(
        argv, cwd=work, input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        said = " / ".join(done.stdout.splitlines()[-5:])
        raise HostsUnavailableError(f"the image of guest hosts cannot be built: {argv[0]}: {said}")


def _verify(folder: Path) -> None:
    """Against SHA256SUMS; again only when a file was touched since: it takes seconds."""
    lines = (line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines())
    names = {name: expected for expected, name in lines}
    as_now = {name: [(folder / name).stat().st_size, (folder / name).stat().st_mtime_ns] for name in names}
    stamp = folder / "verified.json"
    with contextlib.suppress(OSError, ValueError):
        if json.loads(stamp.read_text()) == as_now:
            return
    wrong = [name for name, expected in names.items() if _sha256(folder / name) != expected]
    if wrong:
        raise HostsUnavailableError(f"{folder}: {', '.join(wrong)} is damaged; remove the folder to build it anew")
    stamp.write_text(json.dumps(as_now))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
