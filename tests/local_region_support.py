"""A running region for tests of the control plane, over hosts that are plain processes and volumes that are names.

Run as a program it serves such a region: python local_region_support.py STATE
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from botocore.exceptions import ClientError

from local_region import identity
from local_region.hosts.base import Completed, Host, HostSpec, VolumeSpec
from local_region.region import Region

Json = dict[str, Any]
ROOT = Path(__file__).parent.parent


# Hosts


@dataclass
class FakeHost(Host):
    spec: HostSpec
    directory: Path
    driver: FakeHosts
    on_death: Callable[[str], None]
    stopped: bool = False

    @property
    def instance_id(self) -> str:
        return self.spec.instance_id

    def alive(self) -> bool:
        return not self.stopped

    def run(
        self,
        script: str,
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        cancel: threading.Event | None = None,
    ) -> Completed:
        path = self.directory / f"script-{uuid.uuid4()}"
        path.write_text(script)
        process = subprocess.Popen(
            ["/bin/bash", str(path)],
            cwd=self.directory,
            env={"PATH": os.environ["PATH"], "HOST_ID": self.instance_id, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout_s
        reason = ""
        while process.poll() is None and not reason:
            if self.stopped:
                reason = "host-lost"
            elif cancel and cancel.is_set():
                reason = "cancelled"
            elif time.monotonic() > deadline:
                reason = "timed-out"
            time.sleep(0.005)
        if reason:
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        return Completed(None if reason else process.returncode, stdout, stderr, reason)  # type: ignore[arg-type]

    def attach(self, volume_id: str) -> None:
        self.driver.attached.setdefault(volume_id, set()).add(self.instance_id)

    def detach(self, volume_id: str) -> None:
        self.driver.attached[volume_id].discard(self.instance_id)

    def stop(self) -> None:
        self.stopped = True
        self.driver.hosts.pop(self.instance_id, None)
        for users in self.driver.attached.values():
            users.discard(self.instance_id)


@dataclass
class FakeHosts:
    directory: Path
    kind: str = "fake"
    hosts: dict[str, FakeHost] = field(default_factory=dict)
    volumes: dict[str, VolumeSpec] = field(default_factory=dict)
    attached: dict[str, set[str]] = field(default_factory=dict)

    def create_volume(self, spec: VolumeSpec) -> None:
        self.volumes[spec.volume_id] = spec

    def delete_volume(self, volume_id: str) -> None:
        if self.attached.get(volume_id):
            raise ValueError(f"{volume_id} is still attached to {self.attached[volume_id]}")
        del self.volumes[volume_id]

    def launch(self, spec: HostSpec, *, on_death: Callable[[str], None]) -> Host:
        directory = self.directory / spec.instance_id
        directory.mkdir(parents=True, exist_ok=True)
        # Long enough that launches one after another would show.
        time.sleep(0.3)
        links = "".join(f"{one.name} {one.address}/{one.prefix_length} {one.mtu}\n" for one in spec.interfaces)
        (directory / "interfaces").write_text(links)
        self.hosts[spec.instance_id] = FakeHost(spec, directory, self, on_death)
        return self.hosts[spec.instance_id]

    def leftovers(self) -> list[str]:
        return [f"host {name}" for name in self.hosts] + [f"its volume {name}" for name in self.volumes]

    def close(self) -> None:
        for host in list(self.hosts.values()):
            host.stop()
        self.volumes.clear()


# The region


@dataclass
class Served:
    """A region in a process of its own, and what tests do with one."""

    state: Path
    process: subprocess.Popen[str]
    ready: Json

    @classmethod
    def start(cls, state: Path) -> Served:
        process = subprocess.Popen(
            [sys.executable, __file__, str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout
        served = cls(state, process, json.loads(process.stdout.readline()))
        served.clients = identity.Clients(served.ready["endpoint"], served.credentials)
        return served

    clients: identity.Clients = field(init=False)

    @property
    def credentials(self) -> identity.Credentials:
        return identity.Credentials(self.ready["access_key_id"], self.ready["secret_access_key"])

    def client(self, service: str) -> Any:
        return self.clients.client(service)

    def stop(self) -> str:
        """End it as a program that forgot it would; the last line of its log."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        return (self.state / "region.log").read_text().splitlines()[-1]

    def admin(self, operation: str, **request: Any) -> Any:
        url = f"{self.ready['endpoint']}/_local_region/{operation}"
        with urlopen(Request(url, json.dumps(request).encode(), method="POST")) as answer:
            return json.load(answer)

    def leftovers(self) -> list[str]:
        return list(self.admin("leftovers"))

    # Identities

    def role(self, service: str, *statements: Json, name: str = "") -> str:
        """ARN of a new role that a service may take, allowed what the statements say."""
        iam, name = self.client("iam"), name or f"role-{uuid.uuid4().hex[:8]}"
        trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
        arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_policy(trust))["Role"]["Arn"]
        if statements:
            iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=_policy(*statements))
        return str(arn)

    def allow(self, role_arn: str, *statements: Json) -> None:
        name = role_arn.rpartition("/")[2]
        self.client("iam").put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=_policy(*statements))

    def profile(self) -> str:
        """Name of an instance profile whose instances SSM manages."""
        iam, name = self.client("iam"), f"node-{uuid.uuid4().hex[:8]}"
        self.role("ec2.amazonaws.com", name=name)
        iam.attach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore")
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        return name

    # Network

    def network(self, zones: str = "ab") -> tuple[str, list[str]]:
        """A VPC, and a subnet in each of its zones."""
        ec2 = self.client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        subnets = [
            ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{n}.0/24", AvailabilityZone=f"us-east-1{zone}")
            for n, zone in enumerate(zones)
        ]
        return vpc, [subnet["Subnet"]["SubnetId"] for subnet in subnets]

    # State machines

    def machine(self, states: Json, *statements: Json, role: str = "", **more: Any) -> str:
        """ARN of a new state machine, whose role may do what the statements say."""
        definition = {"QueryLanguage": "JSONata", "StartAt": next(iter(states)), "States": states, **more}
        made = self.client("stepfunctions").create_state_machine(
            name=f"machine-{uuid.uuid4().hex[:8]}",
            definition=json.dumps(definition),
            roleArn=role or self.role("states.amazonaws.com", *statements),
        )
        return str(made["stateMachineArn"])

    def start_execution(self, machine: str, given: Any = None) -> str:
        made = self.client("stepfunctions").start_execution(stateMachineArn=machine, input=json.dumps(given or {}))
        return str(made["executionArn"])

    def execution(self, arn: str, timeout_s: float = 30) -> Json:
        """The execution when it has ended, with its output parsed."""
        described: Json = self.until(
            lambda: self.client("stepfunctions").describe_execution(executionArn=arn),
            lambda one: one["status"] != "RUNNING",
            timeout_s,
        )
        return {**described, "output": json.loads(described["output"]) if described.get("output") else None}

    def run(self, machine: str, given: Any = None) -> Json:
        return self.execution(self.start_execution(machine, given))

    # Stacks

    def stack(self, name: str, template: Json, **more: Any) -> Json:
        """The stack when its creation has ended."""
        self.client("cloudformation").create_stack(StackName=name, TemplateBody=json.dumps(template), **more)
        return self.settled(name)

    def settled(self, name: str, timeout_s: float = 120) -> Json:
        described: Json = self.until(
            lambda: self.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0],
            lambda one: not one["StackStatus"].endswith("IN_PROGRESS"),
            timeout_s,
        )
        return described

    def events(self, stack: str) -> list[Json]:
        events = self.client("cloudformation").describe_stack_events(StackName=stack)["StackEvents"]
        return list(reversed(events))

    def delete(self, stack: str) -> None:
        """Delete a stack, and see that it is gone."""
        stack_id = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]["StackId"]
        self.client("cloudformation").delete_stack(StackName=stack)
        assert self.settled(stack_id)["StackStatus"] == "DELETE_COMPLETE"

    def until(self, look: Callable[[], Any], enough: Callable[[Any], object] = bool, timeout_s: float = 20) -> Any:
        """What `look` finds, as soon as it is enough."""
        deadline = time.monotonic() + timeout_s
        while not enough(found := look()):
            assert time.monotonic() < deadline, f"waited {timeout_s} s, last: {found}"
            time.sleep(0.02)
        return found


def _policy(*statements: Json) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(*actions: str, on: str = "*") -> Json:
    return {"Effect": "Allow", "Action": list(actions), "Resource": on}


def refusal(call: Callable[[], object]) -> str:
    """The code of the error that a call is refused with."""
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    raise AssertionError("the call was not refused")


@functools.cache
def shared() -> Served:
    """One region for all tests; it ends with them, since it ends with its parent."""
    return Served.start(Path(tempfile.mkdtemp(prefix="local-region-")) / "state")


if __name__ == "__main__":
    Region(Path(sys.argv[1]), lambda folder, _port: FakeHosts(folder)).run()
