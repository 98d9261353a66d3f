"""What the service adds: bare fio against fio through the service, by turns, on one volume of one host.

A bare run enters the host's namespaces and starts fio there, with the trial's own job file. A run through the service
is an execution of the deployed trial machine: work order, SSM command, evidence, commit. Printed are the ratio of IOPS,
block by block, and the seconds that a trial takes beyond the load's own runtime; then the same seconds in a whole
campaign, where trials follow one another.

    .venv/bin/python benchmarks/overhead.py [--blocks 6] [--json]
"""

import argparse
import io
import json
import statistics
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from volumetry.cli import local
from volumetry.naming import Keys
from volumetry.service import Service

RUN_S = 5.0
CAMPAIGN = {
    "campaign": "overhead",
    "topologies": {"single": {"stack": "local", "volume": {"type": "io2", "size_gib": 4, "iops": 3000}}},
    "workloads": {
        "randrw-4k": {
            "fio": {"rw": "randrw", "rwmixread": 50, "bs": "4k", "iodepth": 1, "size": "256m", "runtime": f"{RUN_S:g}s"}
        }
    },
}


@dataclass(frozen=True)
class Machines:
    """The deployed parts by what they do, and what starts them."""

    service: Service
    names: dict[str, str]

    @classmethod
    def of(cls, service: Service) -> "Machines":
        found = service.client("stepfunctions").list_state_machines()["stateMachines"]
        arns = [machine["stateMachineArn"] for machine in found]
        functions = service.client("lambda").list_functions()["Functions"]
        names = {kind: next(arn for arn in arns if f"{kind}Machine" in arn) for kind in ("Topology", "Trial")}
        names["Plan"] = next(one["FunctionName"] for one in functions if "PlanFunction" in one["FunctionName"])
        return cls(service, names)

    def plan(self, execution: str, campaign: dict[str, Any]) -> dict[str, Any]:
        payload = json.dumps({"execution": execution, "campaign": campaign})
        answer = self.service.client("lambda").invoke(FunctionName=self.names["Plan"], Payload=payload)
        planned: dict[str, Any] = json.load(answer["Payload"])
        return planned

    def run(self, kind: str, name: str, given: dict[str, Any], first_look_s: float = 0.0) -> float:
        """Run an execution to its end; gives its wall seconds. Looking costs the machine, so not before it is due."""
        client, began = self.service.client("stepfunctions"), time.monotonic()
        arn = client.start_execution(stateMachineArn=self.names[kind], name=name, input=json.dumps(given))[
            "executionArn"
        ]
        time.sleep(first_look_s)
        while (found := client.describe_execution(executionArn=arn))["status"] == "RUNNING":
            time.sleep(0.02)
        if found["status"] != "SUCCEEDED":
            raise RuntimeError(f"{kind}: {found.get('error')}: {found.get('cause')}")
        return time.monotonic() - began


def through_the_service(machines: Machines, keys: Keys, planned: dict[str, Any], trial: dict[str, Any]) -> float:
    """Run the trial; gives its wall seconds."""
    given = {
        "execution": keys.execution,
        "began": datetime.now(UTC).isoformat(),
        "poll_s": planned["poll_s"],
        "trial": trial,
        "topology": planned["lanes"][0]["topologies"][0],
    }
    return machines.run("Trial", f"{keys.execution}-{trial['sequence']}", given, RUN_S + 0.5)


def evidence(service: Service, keys: Keys, trial: str) -> dict[str, bytes]:
    """The files that the trial's host uploaded."""
    content = service.get(keys.attempt(trial, 1).archive("host1")) or b""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        members = [(member.name.removeprefix("./"), tar.extractfile(member)) for member in tar if member.isfile()]
        return {name: handle.read() for name, handle in members if handle is not None}


def bare(instance: str, job: bytes) -> float:
    """Run fio in the host, without anything of the service; gives its IOPS."""
    process_1 = subprocess.run(["pgrep", "-f", f"init.py {instance}"], capture_output=True, text=True, check=True)
    inside = ["nsenter", "--all", "--target", process_1.stdout.split()[-1]]
    work = [
        "bash",
        "-c",
        "mkdir -p /var/tmp/bare && cd /var/tmp/bare && cat >job.fio && fio --output-format=json job.fio",
    ]
    done = subprocess.run([*inside, *work], input=job, capture_output=True, check=True)
    return iops_of(done.stdout)


def iops_of(output: bytes) -> float:
    # The nbd engine writes a line of its own before the JSON.
    jobs = json.loads(output[output.index(b"{") :])["jobs"]
    return float(sum(job[way]["iops"] for job in jobs for way in ("read", "write")))


def measure(service: Service, blocks: int) -> dict[str, Any]:
    machines, keys = Machines.of(service), Keys(f"overhead-{int(time.time())}")
    planned = machines.plan(keys.execution, CAMPAIGN | {"repetitions": blocks})
    try:
        topology = planned["lanes"][0]["topologies"][0] | {"poll_s": planned["poll_s"]}
        machines.run("Topology", f"{keys.execution}-launch", topology)
        instance = service.get_json(keys.topology("single"))["hosts"][0]["instance_id"]
        ratios, beyond_s, rows = [], [], []
        job = b""
        for number, trial in enumerate(service.get_json(planned["lanes"][0]["trials"])):
            # Every other block begins with the bare run; the job is the same each time, and known from the first.
            alone = bare(instance, job) if number % 2 else None
            wall_s = through_the_service(machines, keys, planned, trial)
            files = evidence(service, keys, trial["id"])
            served, job = iops_of(files["fio.json"]), files["job.fio"]
            alone = alone or bare(instance, job)
            ratios.append(served / alone)
            beyond_s.append(wall_s - RUN_S)
            rows.append({"service_iops": served, "bare_iops": alone, "wall_s": wall_s})
    finally:
        while service.tear_down(keys.execution):
            time.sleep(0.5)
    return {
        "ratio_of_iops": summary(ratios),
        "beyond_run_s_alone": summary(beyond_s),
        "beyond_run_s_in_a_campaign": summary(in_a_campaign(service, blocks)),
        "blocks": rows,
    }


def in_a_campaign(service: Service, blocks: int) -> list[float]:
    """Seconds from one trial's opening to the next, beyond the load's own."""
    name = f"overhead-campaign-{int(time.time())}"
    service.start(name, json.dumps(CAMPAIGN | {"repetitions": blocks}))
    while not (state := service.state(name)).ended:
        time.sleep(0.5)
    if state.status != "SUCCEEDED":
        raise RuntimeError(f"{state.error}: {state.cause}")
    notes = [service.get_json(key) for key in service.keys(Keys(name).trials)]
    opened = sorted(datetime.fromisoformat(note["opened_at"]) for note in notes)
    return [(later - sooner).total_seconds() - RUN_S for sooner, later in pairwise(opened)]


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "smallest": min(values), "largest": max(values), "n": len(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with local.region(lambda text: print(text, file=sys.stderr), deploy=True) as here:
        found = measure(here.service, asked.blocks)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for name in ("ratio_of_iops", "beyond_run_s_alone", "beyond_run_s_in_a_campaign"):
        figures = found[name]
        print(f"{name:28} median {figures['median']:.3f}  {figures['smallest']:.3f} to {figures['largest']:.3f}")


if __name__ == "__main__":
    Path(local.home()).mkdir(parents=True, exist_ok=True)
    main()
