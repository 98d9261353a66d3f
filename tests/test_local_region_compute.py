"""Instances, volumes and interfaces: EC2's rules, and the hosts behind them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from local_region_support import Json, Served, allow, refusal, shared

from local_region import instance_types
from local_region.ec2_protocol import decode, encode

AMI = "ami-0123456789abcdef0"


@pytest.fixture(scope="module")
def region() -> Served:
    return shared()


@pytest.fixture(scope="module")
def ec2(region: Served) -> Any:
    return region.client("ec2")


@pytest.fixture(scope="module")
def subnets(region: Served) -> list[str]:
    return region.network("ab")[1]


@pytest.fixture
def launch(region: Served, ec2: Any, subnets: list[str]) -> Iterator[Any]:
    """Launch instances that run; they are terminated after the test."""
    launched: list[str] = []

    def run(count: int = 1, **more: Any) -> list[str]:
        request = {"ImageId": AMI, "InstanceType": "m5.large", "SubnetId": subnets[0], **more}
        made = ec2.run_instances(**request, MinCount=count, MaxCount=count)["Instances"]
        ids = [one["InstanceId"] for one in made]
        launched.extend(ids)
        region.until(lambda: states(ec2, ids), lambda found: found == {"running"})
        return ids

    yield run
    if launched:
        ec2.terminate_instances(InstanceIds=launched)
        region.until(lambda: states(ec2, launched), lambda found: found == {"terminated"})


def states(ec2: Any, ids: list[str]) -> set[str]:
    found = ec2.describe_instances(InstanceIds=ids)["Reservations"]
    return {one["State"]["Name"] for reservation in found for one in reservation["Instances"]}


def instance(ec2: Any, instance_id: str) -> Json:
    described: Json = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
    return described


def test_requests_and_answers_have_the_shapes_of_the_model() -> None:
    form = {
        "BlockDeviceMapping.1.DeviceName": ["/dev/sdf"],
        "BlockDeviceMapping.1.Ebs.VolumeSize": ["20"],
        "BlockDeviceMapping.1.Ebs.DeleteOnTermination": ["false"],
        "TagSpecification.1.ResourceType": ["instance"],
        "TagSpecification.1.Tag.1.Key": ["a"],
        "TagSpecification.1.Tag.1.Value": ["<b>"],
        "ClientToken": ["t"],
    }
    assert decode("RunInstances", form) == {
        "BlockDeviceMappings": [{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 20, "DeleteOnTermination": False}}],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "<b>"}]}],
        "ClientToken": "t",
    }
    _, _, body = encode("DescribeVolumes", {"Volumes": [{"VolumeId": "vol-1", "Size": 3, "_ours": 1}]})
    assert b"<volumeSet><item><size>3</size>" in body.replace(b"<volumeId>vol-1</volumeId>", b"")
    assert b"_ours" not in body


def test_facts_of_instance_types_are_ec2s(ec2: Any) -> None:
    described = ec2.describe_instance_types(InstanceTypes=["m5.large"])["InstanceTypes"][0]
    assert described["EbsInfo"]["EbsOptimizedInfo"]["MaximumIops"] == 18_750
    assert described["NetworkInfo"]["NetworkCards"][0]["BaselineBandwidthInGbps"] == 0.75
    assert refusal(lambda: ec2.describe_instance_types(InstanceTypes=["m5.none"])) == "InvalidInstanceType"
    assert instance_types.rate_bits_per_s("t3.medium") == 5_000_000_000


def test_instances_start_side_by_side_and_carry_what_was_asked_for(
    region: Served, ec2: Any, subnets: list[str], launch: Any
) -> None:
    started = time.monotonic()
    tags = [{"Key": "Name", "Value": "one"}]
    ids = launch(
        3,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}, {"ResourceType": "volume", "Tags": tags}],
        BlockDeviceMappings=[{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3", "Iops": 4000}}],
    )
    # A host of the tests takes 0.3 s.
    assert time.monotonic() - started < 0.9
    one = instance(ec2, ids[0])
    assert one["Placement"]["AvailabilityZone"] == "us-east-1a"
    assert one["Tags"] == tags
    volumes = ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [ids[0]]}])["Volumes"]
    assert {volume["Attachments"][0]["Device"]: volume["Size"] for volume in volumes} == {
        "/dev/xvda": 8,
        "/dev/sdf": 20,
    }
    assert all(volume["Tags"] == tags for volume in volumes)
    found = ec2.describe_instances(
        Filters=[{"Name": "tag:Name", "Values": ["o*"]}, {"Name": "subnet-id", "Values": subnets}]
    )
    assert {each["InstanceId"] for one in found["Reservations"] for each in one["Instances"]} == set(ids)
    assert len({each["PrivateIpAddress"] for one in found["Reservations"] for each in one["Instances"]}) == 3
    assert (
        refusal(lambda: ec2.describe_instances(Filters=[{"Name": "nonsense", "Values": ["x"]}]))
        == "InvalidParameterValue"
    )
    statuses = ec2.describe_instance_status(InstanceIds=ids)["InstanceStatuses"]
    assert [one["InstanceStatus"]["Status"] for one in statuses] == ["ok"] * 3


def test_a_client_token_launches_once(ec2: Any, subnets: list[str], launch: Any) -> None:
    token = uuid.uuid4().hex
    (first,) = launch(ClientToken=token)
    again = {"ImageId": AMI, "InstanceType": "m5.large", "SubnetId": subnets[0], "MinCount": 1, "MaxCount": 1}
    assert ec2.run_instances(**again, ClientToken=token)["Instances"][0]["InstanceId"] == first
    other = {**again, "InstanceType": "m5.xlarge"}
    assert refusal(lambda: ec2.run_instances(**other, ClientToken=token)) == "IdempotentParameterMismatch"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"InstanceType": "m5.none"}, "InvalidInstanceType"),
        ({"ImageId": "ami-x"}, "InvalidAMIID.Malformed"),
        ({"SubnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-0"]}, "InvalidGroup.NotFound"),
        ({"PrivateIpAddress": "10.8.0.9"}, "InvalidParameterValue"),
        ({"IamInstanceProfile": {"Name": "absent"}}, "InvalidParameterValue"),
        ({"Placement": {"GroupName": "absent"}}, "InvalidPlacementGroup.Unknown"),
        ({"BlockDeviceMappings": [{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 0}}]}, "InvalidParameterValue"),
    ],
)
def test_a_wrong_launch_is_refused_and_leaves_nothing(
    region: Served, ec2: Any, subnets: list[str], wrong: Json, code: str
) -> None:
    before = region.leftovers()
    request = {"ImageId": AMI, "InstanceType": "m5.large", "SubnetId": subnets[0], "MinCount": 1, "MaxCount": 1}
    assert refusal(lambda: ec2.run_instances(**{**request, **wrong})) == code
    assert region.leftovers() == before


def test_capacity_can_be_made_to_lack(region: Served, ec2: Any, subnets: list[str], launch: Any) -> None:
    region.admin("faults", insufficient_capacity={"availability_zone": "us-east-1a", "instance_type": "m5.large"})
    request = {"ImageId": AMI, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    call = lambda: ec2.run_instances(**request, SubnetId=subnets[0])  # noqa: E731
    assert refusal(call) == "InsufficientInstanceCapacity"
    launch()


def test_multi_attach_is_for_provisioned_iops_in_one_zone(ec2: Any, subnets: list[str], launch: Any) -> None:
    here, also_here = launch(2)
    (elsewhere,) = launch(SubnetId=subnets[1])
    zone = {"AvailabilityZone": "us-east-1a", "Size": 10}
    assert (
        refusal(lambda: ec2.create_volume(**zone, VolumeType="gp3", MultiAttachEnabled=True)) == "UnsupportedOperation"
    )
    many = ec2.create_volume(**zone, VolumeType="io2", Iops=500, MultiAttachEnabled=True)["VolumeId"]
    one = ec2.create_volume(**zone, VolumeType="gp3")["VolumeId"]

    def attach(volume: str, to: str) -> Any:
        return ec2.attach_volume(VolumeId=volume, InstanceId=to, Device="/dev/sdg" if volume == many else "/dev/sdh")

    attach(many, here)
    attach(many, also_here)
    assert len(ec2.describe_volumes(VolumeIds=[many])["Volumes"][0]["Attachments"]) == 2
    assert refusal(lambda: attach(many, elsewhere)) == "InvalidVolume.ZoneMismatch"
    attach(one, here)
    assert refusal(lambda: attach(one, also_here)) == "VolumeInUse"
    assert refusal(lambda: ec2.delete_volume(VolumeId=one)) == "VolumeInUse"
    ec2.detach_volume(VolumeId=one)
    ec2.delete_volume(VolumeId=one)
    for user in (here, also_here):
        ec2.detach_volume(VolumeId=many, InstanceId=user)
    ec2.delete_volume(VolumeId=many)
    assert refusal(lambda: ec2.describe_volumes(VolumeIds=[many])) == "InvalidVolume.NotFound"


def test_what_was_attached_after_launch_survives_the_instance(region: Served, ec2: Any, subnets: list[str]) -> None:
    request = {"ImageId": AMI, "InstanceType": "m5.large", "SubnetId": subnets[0], "MinCount": 1, "MaxCount": 1}
    own = [{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 10, "VolumeType": "gp3"}}]
    instance_id = ec2.run_instances(**request, BlockDeviceMappings=own)["Instances"][0]["InstanceId"]
    region.until(lambda: states(ec2, [instance_id]) == {"running"})
    later = ec2.create_volume(AvailabilityZone="us-east-1a", Size=10, VolumeType="gp3")["VolumeId"]
    ec2.attach_volume(VolumeId=later, InstanceId=instance_id, Device="/dev/sdg")
    ec2.terminate_instances(InstanceIds=[instance_id])
    region.until(lambda: states(ec2, [instance_id]) == {"terminated"})
    left = [volume["VolumeId"] for volume in ec2.describe_volumes()["Volumes"]]
    assert left == [later]
    ec2.delete_volume(VolumeId=later)
    assert not any("volume" in one or "interface" in one for one in region.leftovers())


def test_a_host_has_a_link_for_each_interface(region: Served, ec2: Any, subnets: list[str]) -> None:
    second = ec2.create_network_interface(SubnetId=subnets[0], PrivateIpAddress="10.9.0.77")["NetworkInterface"]
    links = [
        {"DeviceIndex": 0, "SubnetId": subnets[0], "PrivateIpAddress": "10.9.0.50"},
        {"DeviceIndex": 1, "NetworkInterfaceId": second["NetworkInterfaceId"]},
    ]
    made = ec2.run_instances(ImageId=AMI, InstanceType="m5.large", MinCount=1, MaxCount=1, NetworkInterfaces=links)
    ids = [made["Instances"][0]["InstanceId"]]
    region.until(lambda: states(ec2, ids) == {"running"})
    written = (region.state / "hosts" / ids[0] / "interfaces").read_text()
    assert written == "ens5 10.9.0.50/24 9001\nens6 10.9.0.77/24 9001\n"
    ec2.terminate_instances(InstanceIds=ids)
    region.until(lambda: states(ec2, ids) == {"terminated"})
    # It was there before the instance.
    ec2.delete_network_interface(NetworkInterfaceId=second["NetworkInterfaceId"])


def test_instances_stop_and_start_with_their_volumes(region: Served, ec2: Any, launch: Any) -> None:
    (instance_id,) = launch()
    ec2.stop_instances(InstanceIds=[instance_id])
    region.until(lambda: states(ec2, [instance_id]) == {"stopped"})
    assert ec2.describe_instance_status(InstanceIds=[instance_id])["InstanceStatuses"] == []
    ec2.start_instances(InstanceIds=[instance_id])
    region.until(lambda: states(ec2, [instance_id]) == {"running"})


def test_a_lost_host_is_a_terminated_instance_with_its_reason(region: Served, ec2: Any, launch: Any) -> None:
    (instance_id,) = launch()
    region.admin("faults", lost_host=instance_id)
    assert states(ec2, [instance_id]) == {"terminated"}
    assert instance(ec2, instance_id)["StateReason"]["Code"] == "Server.InternalError"


def test_a_group_in_use_is_not_deleted(region: Served, ec2: Any, subnets: list[str], launch: Any) -> None:
    vpc = ec2.describe_subnets(SubnetIds=[subnets[0]])["Subnets"][0]["VpcId"]
    group = ec2.create_security_group(GroupName="used", Description="used", VpcId=vpc)["GroupId"]
    ec2.create_placement_group(GroupName="close", Strategy="cluster")
    launch(SecurityGroupIds=[group], Placement={"GroupName": "close"})
    assert refusal(lambda: ec2.delete_security_group(GroupId=group)) == "DependencyViolation"
    assert refusal(lambda: ec2.delete_subnet(SubnetId=subnets[0])) == "DependencyViolation"
    assert refusal(lambda: ec2.delete_placement_group(GroupName="close")) == "InvalidPlacementGroup.InUse"


def test_iam_decides_on_every_resource_of_a_launch(region: Served, subnets: list[str]) -> None:
    """The policy allows instances of one tag in one subnet; each missing part of it refuses the launch."""
    account = "arn:aws:ec2:us-east-1:123456789012"
    tagged = {"StringEquals": {"aws:RequestTag/app": "mine"}}
    parts = {
        "things": {**allow("ec2:RunInstances", on=f"{account}:instance/*"), "Condition": tagged},
        "rest": {
            "Effect": "Allow",
            "Action": "ec2:RunInstances",
            "Resource": [f"{account}:volume/*", f"{account}:network-interface/*", "arn:aws:ec2:us-east-1::image/*"],
        },
        "subnet": allow("ec2:RunInstances", on=f"{account}:subnet/{subnets[0]}"),
        "tags": {
            **allow("ec2:CreateTags", on=f"{account}:instance/*"),
            "Condition": {"StringEquals": {"ec2:CreateAction": "RunInstances"}},
        },
        "end": allow("ec2:TerminateInstances"),
    }
    trusted = region.role("states.amazonaws.com", *parts.values())

    def launch_as(role: str, value: str = "mine") -> Json:
        call = {
            "ImageId": AMI,
            "InstanceType": "m5.large",
            "SubnetId": subnets[0],
            "MinCount": 1,
            "MaxCount": 1,
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "app", "Value": value}]}],
        }
        end = {"InstanceIds": "{% $states.input.Instances.[InstanceId] %}"}
        sdk = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:ec2"}
        states = {
            "Run": {"Type": "Task", "Resource": f"{sdk['Resource']}:runInstances", "Arguments": call, "Next": "End"},
            "End": {**sdk, "Resource": f"{sdk['Resource']}:terminateInstances", "Arguments": end, "End": True},
        }
        return region.run(region.machine(states, role=role))

    assert launch_as(trusted)["status"] == "SUCCEEDED"
    assert (
        "ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/*"
        in launch_as(trusted, "x")["cause"]
    )
    for missing in ("things", "rest", "subnet", "tags"):
        kept = [part for name, part in parts.items() if name != missing]
        cause = launch_as(region.role("states.amazonaws.com", *kept))["cause"]
        assert "is not authorized to perform" in cause, missing
