"""One CloudFormation template per topology: hosts, volumes, links, and the switch that deletes them at a deadline.

What differs between accounts (subnets, roles, the deadline) is a parameter, so that equal campaigns give equal
templates. The volume under test is always ``/dev/sdf`` to EC2.
"""

from typing import Any

from volumetry.naming import TAG_APPLICATION, TAG_DEADLINE, TAG_HOST
from volumetry.spec import Topology

DEVICE = "/dev/sdf"
# AWS's own public parameters: always the newest image of the line; the id used is recorded with each result.
IMAGES = {
    "ubuntu-24.04": "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
    "al2023": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
}

Json = dict[str, Any]


def host_names(topology: Topology) -> list[str]:
    """host1, host2, ...: host1 runs the load of every stack that has one client."""
    return [f"host{number}" for number in range(1, len(topology.host_azs) + 1)]


def parameter_names(topology: Topology) -> list[str]:
    """The template's parameters: what the deployment must fill in."""
    subnets = [f"Subnet{az.upper()}" for az in sorted(set(topology.host_azs))]
    return [*subnets, "SecurityGroup", "InstanceProfile", "SchedulerRole", "Deadline", "LifetimeMinutes"]


def template(topology: Topology) -> Json:
    """The CloudFormation template, as JSON data; equal topologies give equal templates."""
    resources: Json = {"DeadMansSwitch": _dead_mans_switch(), "HostTemplate": _launch_template(topology)}
    outputs: Json = {}
    for number, az in enumerate(topology.host_azs, start=1):
        resources[f"Host{number}"] = _host(number, az)
        if topology.links > 1:
            resources |= _second_link(number, az)
    if topology.stack == "shared":
        resources |= _shared_volume(topology)
    numbers = range(1, len(topology.host_azs) + 1)
    outputs["InstanceIds"] = _listing(numbers, "${Host%d}")
    outputs["Addresses"] = _listing(numbers, "${Host%d.PrivateIp}")
    if topology.links > 1:
        outputs["SecondAddresses"] = _listing(numbers, "${Host%dLink2.PrimaryPrivateIpAddress}")
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Volumetry topology: stack {topology.stack}, {len(topology.host_azs)} host(s)",
        "Parameters": {name: _parameter(name) for name in parameter_names(topology)}
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


def _launch_template(topology: Topology) -> Json:
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
        ebs = _volume_properties(topology) | {"DeleteOnTermination": True, "Encrypted": True}
        data["BlockDeviceMappings"] = [{"DeviceName": DEVICE, "Ebs": ebs}]
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


def _host(number: int, az: str) -> Json:
    return {
        "Type": "AWS::EC2::Instance",
        "Properties": {
            "LaunchTemplate": {
                "LaunchTemplateId": {"Ref": "HostTemplate"},
                "Version": {"Fn::GetAtt": "HostTemplate.LatestVersionNumber"},
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
                "Device": DEVICE,
            },
        }
        for number in range(1, len(topology.host_azs) + 1)
    }
    return {"SharedVolume": volume} | attachments
