"""The command line over real hosts: an instance of a stack has its volume, its neighbour and the endpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from local_region_support import ROOT, Served

from local_region import identity
from local_region.hosts.base import HostsUnavailableError, device_path
from local_region.hosts.guest_image import require as require_guests
from local_region.hosts.process import require as require_processes

pytestmark = pytest.mark.hosts


@pytest.mark.parametrize("kind", ["process", "guest"])
def test_documents_run_on_real_hosts(tmp_path: Path, kind: str) -> None:
    try:
        {"process": require_processes, "guest": require_guests}[kind]()
    except HostsUnavailableError as missing:
        pytest.skip(str(missing))
    distances = json.dumps({"cross_az_round_trip_s": 0.02})
    serve = [sys.executable, "-m", "local_region", "serve", "--state", str(tmp_path / "state")]
    process = subprocess.Popen(
        [*serve, "--hosts", kind, "--distances", distances],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    region = Served(tmp_path / "state", process, json.loads(process.stdout.readline()))
    region.clients = identity.Clients(region.ready["endpoint"], region.credentials)
    subnets = region.network("ab")[1]
    profile = region.profile()

    def host(subnet: str) -> dict[str, object]:
        image = {"ImageId": "ami-0123456789abcdef0", "InstanceType": "m5.large"}
        return {
            "Type": "AWS::EC2::Instance",
            "Properties": {**image, "SubnetId": subnet, "IamInstanceProfile": profile},
        }

    volume = {"AvailabilityZone": "us-east-1a", "Size": 4, "VolumeType": "gp3"}
    attachment = {"VolumeId": {"Ref": "Volume"}, "InstanceId": {"Ref": "Here"}, "Device": "/dev/sdf"}
    names = {name: {"Value": {"Ref": name}} for name in ("Here", "There", "Volume")}
    template = {
        "Resources": {
            "Here": host(subnets[0]),
            "There": host(subnets[1]),
            "Volume": {"Type": "AWS::EC2::Volume", "Properties": volume},
            "Attachment": {"Type": "AWS::EC2::VolumeAttachment", "Properties": attachment},
        },
        "Outputs": {**names, "Address": {"Value": {"Fn::GetAtt": ["There", "PrivateIp"]}}},
    }
    stack = region.stack("real", template)
    assert stack["StackStatus"] == "CREATE_COMPLETE", region.events("real")
    made = {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}
    script = [
        f"[ {'-b' if kind == 'guest' else '-S'} {device_path(made['Volume'])} ] && echo volume",
        f"curl --silent --output /dev/null --write-out '%{{http_code}}\\n' {region.ready['endpoint']}/",
        f"ping -c 3 -i 0.2 -q {made['Address']} | tail -1",
    ]
    call = {"InstanceIds": [made["Here"]], "Parameters": {"commands": script}}
    ssm = region.client("ssm")
    command = ssm.send_command(DocumentName="AWS-RunShellScript", **call)["Command"]["CommandId"]
    ended = region.until(
        lambda: ssm.get_command_invocation(CommandId=command, InstanceId=made["Here"]),
        lambda one: one["Status"] not in ("Pending", "InProgress"),
    )
    said = ended["StandardOutputContent"].splitlines()
    assert said[:2] == ["volume", "403"], ended
    if shutil.which("ping"):
        assert float(said[2].split("/")[4]) > 20
    region.delete("real")
    assert region.leftovers() == []
    assert region.stop().endswith("ended; leftovers: []")
