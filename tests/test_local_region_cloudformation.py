"""Stacks with instances, their ends, schedules and rules, and the deployment of a cloud assembly."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from local_region_support import ROOT, Json, Served, allow, refusal, shared

ACCOUNT = "123456789012"
AMI = {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"}  # fmt: skip # noqa: E501


@pytest.fixture(scope="module")
def region() -> Served:
    return shared()


@pytest.fixture(scope="module")
def topology(region: Served) -> Json:
    """Two hosts of a placement group, and a volume that both have."""
    vpc, (subnet,) = region.network("a")
    host = {
        "ImageId": {"Ref": "Ami"},
        "InstanceType": "m5.large",
        "SubnetId": subnet,
        "SecurityGroupIds": [{"Ref": "Group"}],
        "IamInstanceProfile": region.profile(),
        "PlacementGroupName": {"Ref": "Close"},
        "BlockDeviceMappings": [{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": "10", "VolumeType": "gp3"}}],
        "Tags": [{"Key": "kind", "Value": "host"}],
    }
    rule = {"GroupId": {"Ref": "Group"}, "IpProtocol": "-1", "SourceSecurityGroupId": {"Ref": "Group"}}
    shared_volume = {"AvailabilityZone": "us-east-1a", "Size": 10, "VolumeType": "io2", "Iops": "500"}
    return {
        "Parameters": {"Ami": AMI},
        "Resources": {
            "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "all", "VpcId": vpc}},
            "Rule": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule},
            "Close": {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "cluster"}},
            "Shared": {"Type": "AWS::EC2::Volume", "Properties": {**shared_volume, "MultiAttachEnabled": "true"}},
            "One": {"Type": "AWS::EC2::Instance", "Properties": host},
            "Two": {"Type": "AWS::EC2::Instance", "Properties": host},
            **{
                f"To{name}": {
                    "Type": "AWS::EC2::VolumeAttachment",
                    "Properties": {"VolumeId": {"Ref": "Shared"}, "InstanceId": {"Ref": name}, "Device": "/dev/sdg"},
                }
                for name in ("One", "Two")
            },
        },
        "Outputs": {"Address": {"Value": {"Fn::GetAtt": ["One", "PrivateIp"]}}},
    }


@pytest.fixture
def name() -> str:
    return f"stack-{uuid.uuid4().hex[:8]}"


def reasons(region: Served, stack: str) -> str:
    return " ".join(event.get("ResourceStatusReason", "") for event in region.events(stack))


def with_resource(topology: Json, **resources: Json) -> Json:
    return {**topology, "Resources": {**topology["Resources"], **resources}}


# Life


def test_a_stack_of_two_hosts_runs_a_document_and_leaves_nothing(region: Served, topology: Json, name: str) -> None:
    before = region.leftovers()
    stack = region.stack(name, topology, Tags=[{"Key": "campaign", "Value": "c"}])
    assert stack["StackStatus"] == "CREATE_COMPLETE", reasons(region, name)
    assert stack["Outputs"][0]["OutputValue"].startswith("10.9.0.")
    ec2, ssm = region.client("ec2"), region.client("ssm")
    found = ec2.describe_instances(Filters=[{"Name": "tag:campaign", "Values": ["c"]}])["Reservations"]
    hosts = [one["Instances"][0] for one in found]
    assert {host["State"]["Name"] for host in hosts} == {"running"}
    tags = [{tag["Key"]: tag["Value"] for tag in host["Tags"]} for host in hosts]
    assert {one["aws:cloudformation:logical-id"] for one in tags} == {"One", "Two"}
    assert all(one["aws:cloudformation:stack-name"] == name and one["kind"] == "host" for one in tags)
    volume = ec2.describe_volumes(Filters=[{"Name": "multi-attach-enabled", "Values": ["true"]}])["Volumes"][0]
    assert len(volume["Attachments"]) == 2
    assert {"Key": "campaign", "Value": "c"} in volume["Tags"]
    ids = [host["InstanceId"] for host in hosts]
    call = {"DocumentName": "AWS-RunShellScript", "Parameters": {"commands": ["echo $HOST_ID"]}, "InstanceIds": ids}
    command = ssm.send_command(**call)["Command"]["CommandId"]
    for instance_id in ids:
        ended = region.until(
            lambda i=instance_id: ssm.get_command_invocation(CommandId=command, InstanceId=i),
            lambda one: one["Status"] == "Success",
        )
        assert ended["StandardOutputContent"] == f"{instance_id}\n"
    assert f"stack {name} (CREATE_COMPLETE)" in region.leftovers()
    region.delete(name)
    assert region.leftovers() == before
    region.client("cloudformation").delete_stack(StackName=name)


def test_hosts_of_a_stack_start_side_by_side(region: Served, topology: Json, name: str) -> None:
    many = {f"More{n}": topology["Resources"]["One"] for n in range(6)}
    started = time.monotonic()
    assert region.stack(name, with_resource(topology, **many))["StackStatus"] == "CREATE_COMPLETE"
    # Eight hosts of the tests, at 0.3 s each.
    assert time.monotonic() - started < 2
    region.delete(name)


def test_a_refused_launch_rolls_back(region: Served, topology: Json, name: str) -> None:
    before = region.leftovers()
    region.admin("faults", insufficient_capacity={"count": 1})
    stack = region.stack(name, topology)
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "sufficient m5.large capacity" in reasons(region, name)
    region.delete(name)
    assert region.leftovers() == before


def test_a_type_that_is_not_known_is_refused(region: Served, topology: Json, name: str) -> None:
    strange = {"Type": "AWS::EC2::CapacityReservation", "Properties": {}}
    assert refusal(lambda: region.stack(name, with_resource(topology, Strange=strange))) == "ValidationError"


def test_a_property_that_is_not_known_is_refused(region: Served, topology: Json, name: str) -> None:
    wrong = json.loads(json.dumps(topology))
    wrong["Resources"]["One"]["Properties"]["Nonsense"] = 1
    assert region.stack(name, wrong)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "Nonsense" in reasons(region, name)
    region.delete(name)


def test_a_stack_deleted_while_it_is_made_is_gone(region: Served, topology: Json, name: str) -> None:
    before = region.leftovers()
    cloudformation = region.client("cloudformation")
    stack_id = cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(topology))["StackId"]
    for _ in range(2):
        cloudformation.delete_stack(StackName=name)
    gone = lambda: cloudformation.describe_stacks(StackName=stack_id)["Stacks"][0]["StackStatus"]  # noqa: E731
    region.until(lambda: gone() == "DELETE_COMPLETE")
    assert region.leftovers() == before


def test_a_template_is_read_as_the_caller(region: Served, name: str) -> None:
    s3 = region.client("s3")
    s3.create_bucket(Bucket=name)
    empty = {"Resources": {"Wait": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}}
    s3.put_object(Bucket=name, Key="orders/topology.json", Body=json.dumps(empty))
    create = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:cloudformation:createStack",
        "Arguments": {
            "StackName": name,
            "TemplateURL": f"https://s3.us-east-1.amazonaws.com/{name}/orders/topology.json",
        },
        "End": True,
    }
    may = allow("cloudformation:CreateStack"), allow("s3:GetObject", on=f"arn:aws:s3:::{name}/orders/*")
    refused = region.run(region.machine({"Create": create}, *may[:1]))
    assert (refused["status"], refused["cause"].partition(" (")[0]) == ("FAILED", "S3 error: Access Denied")
    assert region.run(region.machine({"Create": create}, *may))["status"] == "SUCCEEDED"
    assert region.settled(name)["StackStatus"] == "CREATE_COMPLETE"
    region.delete(name)


def test_a_stack_is_made_as_its_role(region: Served, topology: Json, name: str) -> None:
    profile = topology["Resources"]["One"]["Properties"]["IamInstanceProfile"]
    role = region.role("cloudformation.amazonaws.com", allow("ec2:*"))
    assert region.stack(name, topology, RoleARN=role)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert f"iam:PassRole on resource: arn:aws:iam::{ACCOUNT}:role/{profile}" in reasons(region, name)
    region.delete(name)
    region.allow(role, allow("ec2:*"), allow("iam:PassRole", on=f"arn:aws:iam::{ACCOUNT}:role/{profile}"))
    assert region.stack(name, topology, RoleARN=role)["StackStatus"] == "CREATE_COMPLETE"
    # Its deletion is the role's too, whoever asks for it.
    region.allow(role, allow("ec2:Describe*"))
    stack_id = region.settled(name)["StackId"]
    region.client("cloudformation").delete_stack(StackName=name)
    assert region.settled(stack_id)["StackStatus"] == "DELETE_FAILED"
    region.allow(role, allow("ec2:*"))
    region.delete(name)


# Updates


def test_a_changed_document_is_a_new_version_and_a_changed_host_a_new_one(region: Served, name: str) -> None:
    _, (subnet,) = region.network("a")

    def template(line: str, kind: str) -> Json:
        step = {"action": "aws:runShellScript", "name": "a", "inputs": {"runCommand": [line]}}
        content = {"schemaVersion": "2.2", "mainSteps": [step]}
        host = {"ImageId": {"Ref": "Ami"}, "InstanceType": kind, "SubnetId": subnet}
        return {
            "Parameters": {"Ami": AMI},
            "Resources": {
                "Say": {"Type": "AWS::SSM::Document", "Properties": {"Content": content, "UpdateMethod": "NewVersion"}},
                "Host": {"Type": "AWS::EC2::Instance", "Properties": host},
            },
            "Outputs": {"Say": {"Value": {"Ref": "Say"}}, "Host": {"Value": {"Ref": "Host"}}},
        }

    def outputs(stack: Json) -> dict[str, str]:
        return {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}

    before = outputs(region.stack(name, template("echo 1", "m5.large")))
    changed = json.dumps(template("echo 2", "m5.xlarge"))
    region.client("cloudformation").update_stack(StackName=name, TemplateBody=changed)
    stack = region.settled(name)
    assert stack["StackStatus"] == "UPDATE_COMPLETE", reasons(region, name)
    after = outputs(stack)
    assert (after["Say"] == before["Say"], after["Host"] == before["Host"]) == (True, False)
    assert "echo 2" in region.client("ssm").get_document(Name=after["Say"])["Content"]
    old = region.client("ec2").describe_instances(InstanceIds=[before["Host"]])["Reservations"][0]["Instances"][0]
    assert old["State"]["Name"] == "terminated"
    region.delete(name)


# Schedules and rules


def in_seconds(seconds: float) -> str:
    return f"at({datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S})"


def test_a_stack_holds_its_own_dead_mans_switch(region: Served, topology: Json, name: str) -> None:
    before = region.leftovers()
    role = region.role("scheduler.amazonaws.com", allow("cloudformation:DeleteStack"))
    switch = {
        "Type": "AWS::Scheduler::Schedule",
        "Properties": {
            "ScheduleExpression": in_seconds(3),
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {
                "Arn": "arn:aws:scheduler:::aws-sdk:cloudformation:deleteStack",
                "RoleArn": role,
                "Input": {"Fn::Sub": '{"StackName": "${AWS::StackName}"}'},
            },
        },
    }
    # The schedule may only ask; the stack's role deletes.
    maker = region.role("cloudformation.amazonaws.com", allow("ec2:*", "scheduler:*", "iam:PassRole"))
    stack = region.stack(name, with_resource(topology, Switch=switch), RoleARN=maker)
    assert stack["StackStatus"] == "CREATE_COMPLETE", reasons(region, name)
    look = region.client("cloudformation").describe_stacks
    region.until(lambda: look(StackName=stack["StackId"])["Stacks"][0]["StackStatus"] == "DELETE_COMPLETE")
    assert region.leftovers() == before
    assert region.client("scheduler").list_schedules()["Schedules"] == []


def test_a_schedule_starts_an_execution_and_goes(region: Served) -> None:
    machine = region.machine({"Done": {"Type": "Succeed"}})
    target = {"Arn": machine, "RoleArn": region.role("scheduler.amazonaws.com", allow("states:StartExecution"))}
    scheduler, name = region.client("scheduler"), f"schedule-{uuid.uuid4().hex[:8]}"
    scheduler.create_schedule(
        Name=name,
        ScheduleExpression=in_seconds(1),
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={**target, "Input": '{"n": 1}'},
        ActionAfterCompletion="DELETE",
    )
    found = region.client("stepfunctions").list_executions
    (execution,) = region.until(lambda: found(stateMachineArn=machine)["executions"])
    described = region.client("stepfunctions").describe_execution(executionArn=execution["executionArn"])
    assert json.loads(described["input"]) == {"n": 1}
    assert refusal(lambda: scheduler.get_schedule(Name=name)) == "ResourceNotFoundException"


def test_a_schedules_role_has_to_trust_scheduler(region: Served) -> None:
    target = {"Arn": region.machine({"Done": {"Type": "Succeed"}}), "RoleArn": region.role("states.amazonaws.com")}
    call = {"ScheduleExpression": in_seconds(60), "FlexibleTimeWindow": {"Mode": "OFF"}, "Target": target}
    assert (
        refusal(lambda: region.client("scheduler").create_schedule(Name="untrusted", **call)) == "ValidationException"
    )


# Functions

FUNCTION = textwrap.dedent(
    """
    import json, os, time, boto3

    def handler(event, context):
        if event.get("wait"):
            time.sleep(event["wait"])
        if event.get("exit"):
            os._exit(3)
        if event.get("fail"):
            raise KeyError("mine")
        boto3.client("s3").put_object(Bucket=os.environ["BUCKET"], Key=event.get("key", "event.json"),
                                      Body=json.dumps(event).encode())
        return {"memory": context.memory_limit_in_mb, "left": context.get_remaining_time_in_millis() > 0}
    """
)


def function_template(bucket: str) -> Json:
    """A function, a machine that calls it, and a rule that calls it when an execution fails."""
    trust = {
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
            {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"},
        ]
    }
    policy = {"Statement": [allow("lambda:InvokeFunction"), allow("s3:PutObject", on=f"arn:aws:s3:::{bucket}/*")]}
    states = {
        "Call": {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Arguments": {"FunctionName": "${Function}", "Payload": "{% $states.input %}"},
            "Output": "{% $states.result.Payload %}",
            "End": True,
        }
    }
    machine = {"QueryLanguage": "JSONata", "StartAt": "Call", "States": states}
    role = {"Fn::GetAtt": ["Role", "Arn"]}
    return {
        "Resources": {
            "Role": {
                "Type": "AWS::IAM::Role",
                "Properties": {
                    "AssumeRolePolicyDocument": trust,
                    "Policies": [{"PolicyName": "p", "PolicyDocument": policy}],
                },
            },
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "Runtime": "python3.13",
                    "Architectures": ["arm64"],
                    "Handler": "index.handler",
                    "Code": {"ZipFile": FUNCTION},
                    "Role": role,
                    "Timeout": 1,
                    "Environment": {"Variables": {"BUCKET": bucket}},
                    "Layers": ["arn:aws:lambda:us-east-1:017000801446:layer:AWSLambdaPowertoolsPythonV3:1"],
                },
            },
            "Machine": {
                "Type": "AWS::StepFunctions::StateMachine",
                "Properties": {
                    "DefinitionString": json.dumps(machine),
                    "DefinitionSubstitutions": {"Function": {"Ref": "Function"}},
                    "RoleArn": role,
                },
            },
            "OnFailure": {
                "Type": "AWS::Events::Rule",
                "Properties": {
                    "EventPattern": {
                        "source": ["aws.states"],
                        "detail": {"status": ["FAILED"], "stateMachineArn": [{"Ref": "Machine"}]},
                    },
                    "Targets": [{"Id": "0", "Arn": {"Fn::GetAtt": ["Function", "Arn"]}}],
                },
            },
        },
        "Outputs": {"Machine": {"Value": {"Ref": "Machine"}}, "Function": {"Value": {"Ref": "Function"}}},
    }


def test_machines_and_rules_call_functions(region: Served, name: str) -> None:
    bucket = f"functions-{uuid.uuid4().hex[:8]}"
    region.client("s3").create_bucket(Bucket=bucket)
    stack = region.stack(name, function_template(bucket), Capabilities=["CAPABILITY_IAM"])
    assert stack["StackStatus"] == "CREATE_COMPLETE", reasons(region, name)
    made = {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}
    assert region.run(made["Machine"], {"key": "a.json"})["output"] == {"memory": 128, "left": True}
    failed = region.run(made["Machine"], {"fail": True})
    assert (failed["error"], json.loads(failed["cause"])["errorMessage"]) == ("KeyError", "'mine'")
    objects = lambda: [one["Key"] for one in region.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]  # noqa: E731
    region.until(lambda: "event.json" in objects())
    event = json.loads(region.client("s3").get_object(Bucket=bucket, Key="event.json")["Body"].read())
    assert (event["detail-type"], event["detail"]["status"]) == ("Step Functions Execution Status Change", "FAILED")
    assert json.loads(event["detail"]["input"]) == {"fail": True}
    slow = region.run(made["Machine"], {"wait": 30})
    assert "timed out after 1" in slow["cause"]
    assert region.run(made["Machine"], {"exit": True})["status"] == "FAILED"
    region.client("iam").delete_role_policy(RoleName=_role(region, name), PolicyName="p")
    denied = region.run(made["Machine"])
    assert "is not authorized to perform: lambda:InvokeFunction" in denied["cause"]
    region.delete(name)


def _role(region: Served, stack: str) -> str:
    found = region.client("cloudformation").describe_stack_resource(StackName=stack, LogicalResourceId="Role")
    return str(found["StackResourceDetail"]["PhysicalResourceId"])


# Deployment


def assembly(folder: Path, *, broken: bool = False) -> Path:
    """Two stacks as CDK would synthesise them; the second needs the first and a zipped asset."""
    folder.mkdir()
    asset = "a" * 64
    (folder / f"asset.{asset}").mkdir()
    (folder / f"asset.{asset}" / "machine.asl.json").write_text("{}")
    machine = {"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": {"Type": "Succeed", "Output": "${Said}"}}}
    (folder / "asset.machine.json").write_text(json.dumps(machine))
    bucket = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"
    manifest = {
        "files": {
            "machine": _file("asset.machine.json", "file", bucket, "machine.json"),
            asset: _file(f"asset.{asset}", "zip", bucket, f"{asset}.zip"),
        }
    }
    trust = {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
    version = {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/cdk-bootstrap/hnb659fds/version"}
    base = {
        "Parameters": {"BootstrapVersion": version},
        "Resources": {
            "Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {"Statement": [trust]}}}
        },
        "Outputs": {"Role": {"Value": {"Fn::GetAtt": ["Role", "Arn"]}, "Export": {"Name": "toy-role"}}},
    }
    located = {"Bucket": {"Fn::Sub": bucket}, "Key": "absent.json" if broken else "machine.json"}
    top = {
        "Parameters": {"BootstrapVersion": version, "Word": {"Type": "String", "Default": "hello"}},
        "Resources": {
            "Machine": {
                "Type": "AWS::StepFunctions::StateMachine",
                "Properties": {
                    "DefinitionS3Location": located,
                    "DefinitionSubstitutions": {"Said": {"Ref": "Word"}},
                    "RoleArn": {"Fn::ImportValue": "toy-role"},
                },
            }
        },
        "Outputs": {"Machine": {"Value": {"Ref": "Machine"}}},
    }
    for stack, template in (("Toy-Base", base), ("Toy-Top", top)):
        (folder / f"{stack}.template.json").write_text(json.dumps(template))
        (folder / f"{stack}.assets.json").write_text(json.dumps(manifest if stack == "Toy-Top" else {"files": {}}))
    artifacts = {
        "Toy-Top": _stack("Toy-Top", ["Toy-Base", "Toy-Top.assets"]),
        "Toy-Top.assets": {"type": "cdk:asset-manifest", "properties": {"file": "Toy-Top.assets.json"}},
        "Toy-Base": _stack("Toy-Base", []),
        "Tree": {"type": "cdk:tree", "properties": {"file": "tree.json"}},
    }
    (folder / "manifest.json").write_text(json.dumps({"version": "48.0.0", "artifacts": artifacts}))
    return folder


def _file(path: str, packaging: str, bucket: str, key: str) -> Json:
    return {
        "source": {"path": path, "packaging": packaging},
        "destinations": {"d": {"bucketName": bucket, "objectKey": key}},
    }


def _stack(name: str, dependencies: list[str]) -> Json:
    properties = {"templateFile": f"{name}.template.json", "tags": {"application": "toy"}}
    return {"type": "aws:cloudformation:stack", "properties": properties, "dependencies": dependencies}


def deploy(region: Served, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "local_region", "deploy", str(folder), "--state", str(region.state), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def test_an_assembly_is_deployed_updated_and_left_alone(region: Served, tmp_path: Path) -> None:
    folder = assembly(tmp_path / "cdk.out")
    first = deploy(region, folder)
    assert first.returncode == 0, first.stderr
    machine = json.loads(first.stdout)["Toy-Top"]["Machine"]
    assert region.run(machine)["output"] == "hello"
    known = region.client("cloudformation").describe_stack_events(StackName="Toy-Top")["StackEvents"]
    assert deploy(region, folder).stdout == first.stdout
    assert region.client("cloudformation").describe_stack_events(StackName="Toy-Top")["StackEvents"] == known
    assert deploy(region, folder, "--parameter", "Toy-Top:Word=bye").returncode == 0
    assert region.run(machine)["output"] == "bye"
    # What is deployed is to stay: no leftover.
    assert not any("Toy" in one for one in region.leftovers())


def test_a_failing_deployment_says_why_in_one_line(region: Served, tmp_path: Path) -> None:
    for stack in ("Toy-Top", "Toy-Base"):
        region.client("cloudformation").delete_stack(StackName=stack)
    failed = deploy(region, assembly(tmp_path / "cdk.out", broken=True))
    assert failed.returncode == 1
    assert failed.stderr.startswith("Toy-Top: Machine (AWS::StepFunctions::StateMachine): ")
    assert failed.stderr.count("\n") == 1


def test_the_seams_of_templates_stay_in_place() -> None:
    """Types that we add are types that ministack lacks, or has in a form that does not do."""
    from local_region.cloudformation import TYPES  # noqa: PLC0415

    source = ROOT / ".venv/lib"
    known: Any = next(
        source.glob("python3*/site-packages/ministack/services/cloudformation/provisioners.py")
    ).read_text()
    replaced = {name for name in TYPES if f'"{name}": {{' in known}
    assert replaced == {"AWS::EC2::SecurityGroup", "AWS::IAM::InstanceProfile", "AWS::Scheduler::Schedule"}
