"""The local region as the command line uses it: synthesise, serve, deploy - each only when it is needed."""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3

from volumetry.errors import RegionUnavailable
from volumetry.results import Folder, Results, local_folder
from volumetry.service import Service, outputs_of

ROOT = Path(__file__).parent.parent.parent
# What the templates and the functions are made of.
SOURCES = (
    "app.py",
    "functions",
    "infra",
    "queries",
    "ssm-documents",
    "statemachines",
    "volumetry",
    "requirements.lock",
)
PARAMETERS = ("Volumetry-Workflow:HostsShareHardware=true", "Volumetry-Workflow:PollSeconds=1")

NOTHING_YET = "nothing has been run on the local region yet; try `volumetry run campaigns/demo.yaml`"

# A region whose user was killed tears down what it runs, and ends.
ENDING_S = 15.0

Say = Callable[[str], None]


def home() -> Path:
    """Where the local region keeps everything: ``VOLUMETRY_HOME``, or ``.volumetry`` in the project."""
    return Path(os.environ.get("VOLUMETRY_HOME", ROOT / ".volumetry")).absolute()


@dataclass(frozen=True)
class LocalService:
    """The local region, up and deployed, and where its results lie on this machine."""

    service: Service
    results: Path


@contextlib.contextmanager
def region(say: Say, *, deploy: bool, hosts: str = "process") -> Iterator[LocalService]:
    """The local region: the one that another command of this user runs, else one of our own for as long as needed.

    ``hosts`` is the kind that instances are made of: process or guest.
    """
    running = _running()
    if running is not None:
        if deploy:
            raise RegionUnavailable("the local region is busy with another run; wait for it, or stop it")
        yield _connect(running, json.loads(_outputs_file().read_text()))
        return
    if not deploy and not _outputs_file().exists():
        raise RegionUnavailable(NOTHING_YET)
    assembly = _synthesise(say) if deploy else None
    if hosts == "guest":
        say("looking for the guests' image; the first time, and after changes, it is built in a minute or two")
        _build_image()
    say("starting the local region")
    with _serve(hosts) as ready:
        if assembly is not None:
            say("deploying the stacks")
            _deploy(assembly, ready)
        yield _connect(ready, json.loads(_outputs_file().read_text()))


def results() -> Results:
    """The results of the local region; they need no region that runs."""
    running = _running()
    if running is not None:
        return _connect(running, json.loads(_outputs_file().read_text())).service
    folders = [path for path in home().glob(f"{local_folder(Path(), '*', '*')}") if (path / "executions").is_dir()]
    if not folders:
        raise RegionUnavailable(NOTHING_YET)
    return Folder(max(folders, key=lambda path: (path / "executions").stat().st_mtime))


def _outputs_file() -> Path:
    return home() / "outputs.json"


def _ready_file() -> Path:
    return home() / "region.json"


def _running() -> dict[str, Any] | None:
    """The region that another process serves from our home, or None; one that is ending is waited for."""
    deadline = time.monotonic() + ENDING_S
    while time.monotonic() < deadline:
        try:
            ready: dict[str, Any] = json.loads(_ready_file().read_text())
            os.kill(ready["pid"], 0)
        except (OSError, ValueError, KeyError):
            return None
        if _answers(ready["endpoint"]):
            return ready
        time.sleep(0.1)
    return None


def _answers(endpoint: str) -> bool:
    place = urlsplit(endpoint)
    try:
        socket.create_connection((place.hostname or "", place.port or 0), timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _serve(hosts: str) -> Iterator[dict[str, Any]]:
    home().mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "local_region", "serve", "--state", str(home()), "--hosts", hosts]
    # Its standard input is a pipe that ends with us, whatever becomes of us. A session of its own keeps a Ctrl-C ours.
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait()
            raise RegionUnavailable(f"the local region did not start; see {home() / 'region.log'}")
        ready = json.loads(line) | {"pid": process.pid}
        _ready_file().write_text(json.dumps(ready))
        _ready_file().chmod(0o600)
        try:
            yield ready
        finally:
            _ready_file().unlink(missing_ok=True)
            process.terminate()
            process.wait()


def _build_image() -> None:
    command = [sys.executable, "-m", "local_region", "image"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RegionUnavailable(f"there is no image for guests: {done.stderr.strip()}")


def _session(ready: dict[str, Any]) -> boto3.Session:
    return boto3.Session(
        aws_access_key_id=ready["access_key_id"],
        aws_secret_access_key=ready["secret_access_key"],
        region_name=ready["region"],
    )


def _connect(ready: dict[str, Any], outputs: dict[str, str]) -> LocalService:
    found = outputs_of(outputs)
    service = Service(_session(ready), found, ready["endpoint"])
    return LocalService(service, local_folder(home(), ready["account"], found.results_bucket))


def _synthesise(say: Say) -> Path:
    """The cloud assembly of the sources as they are; made only when they changed."""
    assembly = home() / "assembly" / _digest()
    if (assembly / "manifest.json").exists():
        return assembly
    say("synthesising the stacks")
    environment = os.environ | {"CDK_OUTDIR": str(assembly)}
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RegionUnavailable(f"the stacks cannot be synthesised:\n{done.stdout}{done.stderr}")
    return assembly


def _digest() -> str:
    digest = hashlib.sha256()
    for source in SOURCES:
        path = ROOT / source
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        for file in files:
            if "__pycache__" not in file.parts:
                digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _deploy(assembly: Path, ready: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "local_region", "deploy", str(assembly), "--endpoint", ready["endpoint"]]
    command += [word for parameter in PARAMETERS for word in ("--parameter", parameter)]
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": ready["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": ready["secret_access_key"],
        "AWS_REGION": ready["region"],
        "AWS_DEFAULT_REGION": ready["region"],
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RegionUnavailable(f"the stacks cannot be deployed: {done.stderr.strip() or done.stdout.strip()}")
    outputs = json.loads(done.stdout)
    flat = {key: value for stack in outputs.values() for key, value in stack.items()}
    _outputs_file().write_text(json.dumps(flat))
