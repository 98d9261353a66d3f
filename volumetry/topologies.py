"""One CloudFormation template per launch: hosts, volumes, links, and the switch that deletes them at a deadline.

A launch is a topology, or several that share host1. What differs between accounts (subnets, roles, the deadline) is
a parameter, so that equal campaigns give equal templates. To EC2 the volume under test of a launch's first topology
is ``/dev/sdf``, that of the second ``/dev/sdg``, and so on, on each host that has one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from volumetry.naming import TAG_APPLICATION, TAG_DEADLINE, TAG_HOST
from volumetry.spec import Topology

DEVICES = [f"/dev/sd{letter}" for letter in "fghijklmno"]
# AWS's own public parameters: always the newest image of the line; the id used is recorded with each result.
IMAGES = {
    "ubuntu-24.04": "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
    "al2023": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
}

Json = dict[str, Any]


def host_names(topologies: Mapping[str, Topology], members: Sequence[str]) -> dict[str, list[str]]:
    """Topology -> its hosts, of topologies launched as one: all share host1, which makes the load; peers are their own.

    Alone, a topology has host1, host2, ...
    """
    names, taken = {}, 1
    for member in members:
        peers = len(topologies[member].host_azs) - 1
        names[member] = ["host1", *(f"host{number}" for number in range(taken + 1, taken + 1 + peers))]
        taken += peers
    return names


def host_azs(launched: Mapping[str, Topology]) -> list[str]:
    """The AZ letter of each host of a launch, in the order host1, host2, ..."""
    (first, *_), azs = launched.values(), [topology.host_azs for topology in launched.values()]
    return [first.host_azs[0], *(az for each in azs for az in each[1:])]


def parameter_names(launched: Mapping[str, Topology]) -> list[str]:
    """The template's parameters: what the deployment must fill in."""
    subnets = [f"Subnet{az.upper()}" for az in sorted(set(host_azs(launched)))]
    return [*subnets, "SecurityGroup", "InstanceProfile", "SchedulerRole", "Deadline", "LifetimeMinutes"]


def template(launched: Mapping[str, Topology]) -> Json:
    """The CloudFormation template of the topologies launched as one, as JSON data; equal topologies give equal ones."""
    topology = next(iter(launched.values()))
    resources: Json = {"DeadMansSwitch": _dead_mans_switch()}
    outputs: Json = {}
    azs = host_azs(launched)
    for number, (az, volumes) in enumerate(zip(azs, _volumes(launched), strict=True), start=1):
        name = _template_name(volumes, launched)
        resources[name] = _launch_template(topology, volumes)
        resources[f"Host{number}"] = _host(number, az, name)
        if topology.links > 1:
            resources |= _second_link(number, az)
    if topology.stack == "shared":
        resources |= _shared_volume(topology)
    numbers = range(1, len(azs) + 1)
    outputs["InstanceIds"] = _listing(numbers, "${Host%d}")
    outputs["Addresses"] = _listing(numbers, "${Host%d.PrivateIp}")
    if topology.links > 1:
        outputs["SecondAddresses"] = _listing(numbers, "${Host%dLink2.PrimaryPrivateIpAddress}")
    stacks = ", ".join(each.stack for each in launched.values())
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Volumetry topology: stack {stacks}, {len(azs)} host(s)",
        "Parameters": {name: _parameter(name) for name in parameter_names(launched)}
        | {
            "Image": {
                "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
                "Default": IMAGES[topology.image],
                "Description": "Public parameter that names the hosts' image",
            }
        },
        "Resources": resources,
        "Outputs": outputs,
    }


def _volumes(launched: Mapping[str, Topology]) -> list[dict[str, Topology]]:
    """The volumes of each host, host by host: device name -> the topology whose volume it is."""
    names = host_names(launched, list(launched))
    hosts = [f"host{number}" for number in range(1, len(host_azs(launched)) + 1)]
    devices = list(zip(DEVICES, launched.items(), strict=False))
    return [{device: each for device, (name, each) in devices if host in names[name]} for host in hosts]


def _template_name(volumes: Mapping[str, Topology], launched: Mapping[str, Topology]) -> str:
    """Hosts with the same volumes are launched alike; alone, all have."""
    return "HostTemplate" if len(launched) == 1 else "HostTemplate" + "".join(device[-1].upper() for device in volumes)


def _parameter(name: str) -> Json:
    if name.startswith("Subnet"):
        return {"Type": "AWS::EC2::Subnet::Id", "Description": f"Subnet in AZ {name[-1].lower()}"}
    kinds: dict[str, Json] = {
        "SecurityGroup": {"Type": "AWS::EC2::SecurityGroup::Id", "Description": "Lets the hosts reach one another"},
        "InstanceProfile": {"Type": "String", "Description": "ARN of the hosts' instance profile"},
        "SchedulerRole": {"Type": "String", "Description": "ARN of the role that deletes this stack at the deadline"},
        "Deadline": {
            "Type": "String",
            "Description": "UTC time at which this stack deletes itself: yyyy-mm-ddThh:mm:ss",
        },
        "LifetimeMinutes": {"Type": "Number", "Description": "Minutes after boot at which a host ends itself"},
    }
    return kinds[name]


def _listing(numbers: range, item: str) -> Json:
    return {"Value": {"Fn::Sub": ",".join(item % number for number in numbers)}}


def _dead_mans_switch() -> Json:
    """A schedule that deletes this stack at the deadline, even if nothing else of Volumetry still runs."""
    return {
        "Type": "AWS::Scheduler::Schedule",
        "Properties": {
            "Description": "Deletes this stack at its deadline, whatever became of the campaign",
            "ScheduleExpression": {"Fn::Sub": "at(${Deadline})"},
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {
                "Arn": {"Fn::Sub": "arn:${AWS::Partition}:scheduler:::aws-sdk:cloudformation:deleteStack"},
                "RoleArn": {"Ref": "SchedulerRole"},
                "Input": {"Fn::Sub": '{"StackName": "${AWS::StackId}"}'},
            },
        },
    }


def _launch_template(topology: Topology, volumes: Mapping[str, Topology]) -> Json:
    """``volumes``: device name -> the topology whose volume it is."""
    data: Json = {
        "ImageId": {"Ref": "Image"},
        "InstanceType": topology.instance_type,
        "IamInstanceProfile": {"Arn": {"Ref": "InstanceProfile"}},
        # With the timer below: a second dead man's switch, on the host itself.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required"},
        "UserData": {"Fn::Base64": {"Fn::Sub": "#!/bin/sh\nshutdown -h +${LifetimeMinutes}\n"}},
    }
    if topology.stack != "shared":
        # Attached at launch, a volume goes with its instance; a later attachment would have to be detached first.
        data["BlockDeviceMappings"] = [
            {
                "DeviceName": device,
                "Ebs": _volume_properties(each) | {"DeleteOnTermination": True, "Encrypted": True},
            }
            for device, each in volumes.items()
        ]
    return {
        "Type": "AWS::EC2::LaunchTemplate",
        "DependsOn": "DeadMansSwitch",
        "Properties": {
            "LaunchTemplateData": data,
            # Who deletes it may delete what carries this tag alone.
            "TagSpecifications": [
                {"ResourceType": "launch-template", "Tags": [{"Key": "application", "Value": TAG_APPLICATION}]}
            ],
        },
    }


def _volume_properties(topology: Topology) -> Json:
    volume = topology.volume
    asked = {"VolumeType": volume.type, "VolumeSize": volume.size_gib, "Iops": volume.iops}
    asked["Throughput"] = volume.throughput_mibps
    return {name: value for name, value in asked.items() if value is not None}


def _host(number: int, az: str, launch_template: str) -> Json:
    return {
        "Type": "AWS::EC2::Instance",
        "Properties": {
            "LaunchTemplate": {
                "LaunchTemplateId": {"Ref": launch_template},
                "Version": {"Fn::GetAtt": f"{launch_template}.LatestVersionNumber"},
            },
            "SubnetId": {"Ref": f"Subnet{az.upper()}"},
            "SecurityGroupIds": [{"Ref": "SecurityGroup"}],
            # The stack's tags too: by them the tear-down finds what is left.
            "PropagateTagsToVolumeOnCreation": True,
            "Tags": [
                {"Key": "Name", "Value": {"Fn::Sub": f"${{AWS::StackName}}/host{number}"}},
                {"Key": TAG_HOST, "Value": f"host{number}"},
                {"Key": TAG_DEADLINE, "Value": {"Ref": "Deadline"}},
            ],
        },
    }


def _second_link(number: int, az: str) -> Json:
    """Attached after launch: an instance launched with two interfaces gets no public address."""
    return {
        f"Host{number}Link2": {
            "Type": "AWS::EC2::NetworkInterface",
            "DependsOn": "DeadMansSwitch",
            "Properties": {"SubnetId": {"Ref": f"Subnet{az.upper()}"}, "GroupSet": [{"Ref": "SecurityGroup"}]},
        },
        f"Host{number}Link2Attachment": {
            "Type": "AWS::EC2::NetworkInterfaceAttachment",
            "Properties": {
                "InstanceId": {"Ref": f"Host{number}"},
                "NetworkInterfaceId": {"Ref": f"Host{number}Link2"},
                "DeviceIndex": "1",
                "DeleteOnTermination": True,
            },
        },
    }


def _shared_volume(topology: Topology) -> Json:
    names = _volume_properties(topology)
    names["Size"] = names.pop("VolumeSize")
    volume: Json = {
        "Type": "AWS::EC2::Volume",
        "DependsOn": "DeadMansSwitch",
        "DeletionPolicy": "Delete",
        "UpdateReplacePolicy": "Delete",
        "Properties": names
        | {
            "AvailabilityZone": {"Fn::GetAtt": "Host1.AvailabilityZone"},
            "MultiAttachEnabled": True,
            "Encrypted": True,
            "Tags": [{"Key": TAG_DEADLINE, "Value": {"Ref": "Deadline"}}],
        },
    }
    attachments = {
        f"Host{number}Volume": {
            "Type": "AWS::EC2::VolumeAttachment",
            "Properties": {
                "InstanceId": {"Ref": f"Host{number}"},
                "VolumeId": {"Ref": "SharedVolume"},
                "Device": DEVICES[0],
            },
        }
        for number in range(1, len(topology.host_azs) + 1)
    }
    return {"SharedVolume": volume} | attachments
