"""SSM documents and commands: SSM's rules about them, and what really ran on the hosts."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from local_region_support import Json, Served, allow, refusal, shared

from local_region import ssm_documents
from local_region.ssm_documents import SsmError

AMI = "ami-0123456789abcdef0"


@pytest.fixture(scope="module")
def region() -> Served:
    return shared()


@pytest.fixture(scope="module")
def ssm(region: Served) -> Any:
    return region.client("ssm")


@pytest.fixture(scope="module")
def nodes(region: Served) -> Iterator[list[str]]:
    """Two instances that SSM manages."""
    ec2 = region.client("ec2")
    made = ec2.run_instances(
        ImageId=AMI,
        InstanceType="m5.large",
        SubnetId=region.network("a")[1][0],
        MinCount=2,
        MaxCount=2,
        IamInstanceProfile={"Name": region.profile()},
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "fleet", "Value": "commands"}]}],
    )
    ids = [one["InstanceId"] for one in made["Instances"]]
    region.until(lambda: set(ids) <= set(online(region)))
    yield ids
    ec2.terminate_instances(InstanceIds=ids)


def online(region: Served) -> list[str]:
    found = region.client("ssm").describe_instance_information(Filters=[{"Key": "PingStatus", "Values": ["Online"]}])
    return [one["InstanceId"] for one in found["InstanceInformationList"]]


def step(name: str, *lines: str, inputs: Json | None = None, **more: Any) -> Json:
    given = {"runCommand": list(lines), **(inputs or {})}
    return {"action": "aws:runShellScript", "name": name, "inputs": given, **more}


def document(region: Served, *steps: Json, **parameters: Json) -> str:
    name = f"document-{uuid.uuid4().hex[:8]}"
    content = {"schemaVersion": "2.2", "parameters": parameters, "mainSteps": list(steps)}
    region.client("ssm").create_document(Name=name, Content=json.dumps(content), DocumentType="Command")
    return name


def send(region: Served, name: str, nodes: list[str], **more: Any) -> str:
    command = region.client("ssm").send_command(DocumentName=name, InstanceIds=nodes, **more)["Command"]
    return str(command["CommandId"])


def outcome(region: Served, command: str, node: str, **more: Any) -> Json:
    """The invocation when it has ended."""
    described: Json = region.until(
        lambda: region.client("ssm").get_command_invocation(CommandId=command, InstanceId=node, **more),
        lambda one: one["Status"] not in ("Pending", "InProgress", "Cancelling"),
    )
    return described


def plugins(region: Served, command: str) -> dict[str, str]:
    found = region.client("ssm").list_command_invocations(CommandId=command, Details=True)["CommandInvocations"]
    return {one["Name"]: one["Status"] for one in found[0]["CommandPlugins"]}


# Documents


def content(*steps: Json, **parameters: Json) -> str:
    return json.dumps({"schemaVersion": "2.2", "parameters": parameters, "mainSteps": list(steps)})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "InvalidDocumentContent"),
        (content(), "InvalidDocumentContent"),
        (content(step("a", "x"), step("a", "y")), "InvalidDocumentContent"),
        (content({"action": "aws:nonsense", "name": "a", "inputs": {"runCommand": ["x"]}}), "InvalidDocumentContent"),
        (content(step("a", "{{ Undeclared }}")), "InvalidDocumentContent"),
        (content(step("a", "x"), P={"type": "Text"}), "InvalidDocumentContent"),
        (content(step("a", "x"), P={"type": "StringList", "interpolationType": "ENV_VAR"}), "InvalidDocumentContent"),
        (content(step("a", "x" * 70_000)), "MaxDocumentSizeExceeded"),
    ],
)
def test_a_document_that_ssm_would_refuse_is_refused(ssm: Any, text: str, code: str) -> None:
    assert refusal(lambda: ssm.create_document(Name="refused", Content=text, DocumentType="Command")) == code


def test_documents_have_versions(region: Served, ssm: Any) -> None:
    name = document(region, step("a", "echo 1"))
    again = content(step("a", "echo 1"))
    assert refusal(lambda: ssm.create_document(Name=name, Content=again)) == "DocumentAlreadyExists"
    assert refusal(lambda: ssm.update_document(Name=name, Content=again)) == "DuplicateDocumentContent"
    ssm.update_document(Name=name, Content=content(step("a", "echo 2")), DocumentVersion="$LATEST")
    described = ssm.describe_document(Name=name)["Document"]
    assert (described["DefaultVersion"], described["LatestVersion"]) == ("1", "2")
    ssm.update_document_default_version(Name=name, DocumentVersion="2")
    assert "echo 2" in ssm.get_document(Name=name)["Content"]
    ssm.delete_document(Name=name)
    assert refusal(lambda: ssm.describe_document(Name=name)) == "InvalidDocument"


def test_an_unanchored_pattern_lets_anything_through() -> None:
    loose = ssm_documents.parse("document", content(step("a", "x"), P={"type": "String", "allowedPattern": "[a-z]+"}))
    assert ssm_documents.arguments(loose, {"P": ["$(rm) a"]}) == {"P": "$(rm) a"}


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        ({"type": "String", "allowedPattern": "^[a-z]+$"}, ["A"]),
        ({"type": "String", "allowedValues": ["a"]}, ["b"]),
        ({"type": "String", "maxChars": 2}, ["abc"]),
        ({"type": "String", "minChars": 2}, ["a"]),
        ({"type": "String"}, ["a", "b"]),
        ({"type": "Boolean"}, ["yes"]),
        ({"type": "Integer"}, ["1.5"]),
        ({"type": "StringList", "maxItems": 1}, ["a", "b"]),
        ({"type": "String"}, None),
    ],
)
def test_a_parameter_that_breaks_its_rule_is_refused(parameter: Json, given: list[str] | None) -> None:
    parsed = ssm_documents.parse("document", content(step("a", "x"), P=parameter))
    with pytest.raises(SsmError) as refused:
        ssm_documents.arguments(parsed, {} if given is None else {"P": given})
    assert refused.value.code == "InvalidParameters"


# Commands


def test_a_parameter_is_handed_over_or_written_in(region: Served, nodes: list[str]) -> None:
    name = document(
        region,
        step(
            "say",
            "#!/bin/bash",
            'echo "$SSM_Safe" "{{ Safe }}" {{ Raw }} {{ Many }}',
            "pwd",
            inputs={"workingDirectory": "{{ Where }}"},
        ),
        Safe={"type": "String", "interpolationType": "ENV_VAR"},
        Raw={"type": "String", "default": "$((1 + 1))"},
        Many={"type": "StringList", "default": ["a", "b"]},
        Where={"type": "String", "default": "/usr"},
    )
    ended = outcome(region, send(region, name, nodes, Parameters={"Safe": ["$(whoami)"]}), nodes[0])
    assert ended["StandardOutputContent"] == "$(whoami) {{ Safe }} 2 [a, b]\n/usr\n"
    assert (ended["Status"], ended["ResponseCode"], ended["PluginName"]) == ("Success", 0, "say")


def test_a_command_runs_on_each_node_at_once(region: Served, ssm: Any, nodes: list[str]) -> None:
    name = document(region, step("say", "sleep 0.4; echo $AWS_SSM_INSTANCE_ID; exit 3"))
    started = time.monotonic()
    command = ssm.send_command(DocumentName=name, Targets=[{"Key": "tag:fleet", "Values": ["commands"]}])["Command"]
    for node in nodes:
        ended = outcome(region, command["CommandId"], node)
        assert (ended["Status"], ended["ResponseCode"]) == ("Failed", 3)
        assert ended["StandardOutputContent"] == f"{node}\n"
    assert time.monotonic() - started < 0.8
    (listed,) = ssm.list_commands(CommandId=command["CommandId"])["Commands"]
    assert (listed["Status"], listed["TargetCount"], listed["ErrorCount"]) == ("Failed", 2, 2)


def test_output_is_cut_where_ssm_cuts_it_and_whole_in_s3(region: Served, nodes: list[str]) -> None:
    bucket = f"output-{uuid.uuid4().hex[:8]}"
    region.client("s3").create_bucket(Bucket=bucket)
    record = region.client("ec2").describe_instances(InstanceIds=nodes)["Reservations"][0]["Instances"][0]
    role = record["IamInstanceProfile"]["Arn"].rpartition("/")[2]
    region.allow(role, allow("s3:PutObject", on=f"arn:aws:s3:::{bucket}/*"))
    name = document(
        region, step("say", "head -c 30000 /dev/zero | tr '\\0' x; head -c 9000 /dev/zero | tr '\\0' y >&2")
    )
    command = send(region, name, nodes[:1], OutputS3BucketName=bucket, OutputS3KeyPrefix="logs")
    ended = outcome(region, command, nodes[0])
    assert (len(ended["StandardOutputContent"]), len(ended["StandardErrorContent"])) == (24_000, 8_000)
    key = f"logs/{command}/{nodes[0]}/awsrunShellScript/say/stdout"
    assert len(region.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()) == 30_000


def test_steps_stop_where_the_document_says(region: Served, nodes: list[str]) -> None:
    exiting = document(
        region,
        step("first", "exit 1", onFailure="exit"),
        step("second", "true"),
        step("last", "true", finallyStep=True),
    )
    command = send(region, exiting, nodes[:1])
    assert outcome(region, command, nodes[0])["Status"] == "Failed"
    assert plugins(region, command) == {"first": "Failed", "second": "Pending", "last": "Success"}
    going_on = document(region, step("first", "exit 1"), step("second", "echo two"))
    command = send(region, going_on, nodes[:1])
    # Output of one of several steps is shown for its name alone.
    assert outcome(region, command, nodes[0])["StandardOutputContent"] == ""
    assert outcome(region, command, nodes[0], PluginName="second")["StandardOutputContent"] == "two\n"
    fine = document(region, step("first", "exit 1", onFailure="successAndExit"), step("second", "exit 1"))
    assert outcome(region, send(region, fine, nodes[:1]), nodes[0])["Status"] == "Success"


def test_a_step_for_another_platform_is_skipped(region: Served, nodes: list[str]) -> None:
    windows = {"action": "aws:runPowerShellScript", "name": "windows", "inputs": {"runCommand": ["exit 9"]}}
    other = {"StringEquals": ["platformType", "Windows"]}
    name = document(region, {**windows, "precondition": other}, step("linux", "true"))
    assert outcome(region, send(region, name, nodes[:1]), nodes[0])["Status"] == "Success"


def test_a_step_times_out(region: Served, nodes: list[str]) -> None:
    name = document(region, step("wait", "sleep 30", inputs={"timeoutSeconds": "1"}))
    ended = outcome(region, send(region, name, nodes[:1]), nodes[0])
    assert (ended["Status"], ended["StatusDetails"]) == ("TimedOut", "ExecutionTimedOut")


def test_a_command_is_cancelled(region: Served, ssm: Any, nodes: list[str]) -> None:
    command = send(region, document(region, step("wait", "echo begun; sleep 30")), nodes)
    region.until(lambda: all(
        one["Status"] == "InProgress"
        for one in ssm.list_command_invocations(CommandId=command)["CommandInvocations"]
    ))  # fmt: skip
    ssm.cancel_command(CommandId=command)
    assert outcome(region, command, nodes[0])["Status"] == "Cancelled"
    assert ssm.list_commands(CommandId=command)["Commands"][0]["Status"] == "Cancelled"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"InstanceIds": ["i-0123456789abcdef0"]}, "InvalidInstanceId"),
        ({"DocumentName": "absent"}, "InvalidDocument"),
        ({"DocumentVersion": "9"}, "InvalidDocumentVersion"),
        ({"Parameters": {"nonsense": ["x"]}}, "InvalidParameters"),
        ({"InstanceIds": [f"i-{n:017x}" for n in range(51)]}, "ValidationException"),
    ],
)
def test_a_wrong_command_is_refused(region: Served, ssm: Any, nodes: list[str], wrong: Json, code: str) -> None:
    call = {"DocumentName": document(region, step("a", "true")), "InstanceIds": nodes, **wrong}
    assert refusal(lambda: ssm.send_command(**call)) == code


def test_a_node_needs_a_role_that_may_register(region: Served) -> None:
    ec2 = region.client("ec2")
    subnet = region.network("a")[1][0]
    made = ec2.run_instances(ImageId=AMI, InstanceType="m5.large", SubnetId=subnet, MinCount=1, MaxCount=1)
    instance_id = made["Instances"][0]["InstanceId"]
    found = {"Name": "instance-state-name", "Values": ["running"]}
    region.until(lambda: ec2.describe_instances(InstanceIds=[instance_id], Filters=[found])["Reservations"])
    assert instance_id not in online(region)
    ec2.terminate_instances(InstanceIds=[instance_id])


def test_a_lost_node_leaves_its_command_in_progress(region: Served, ssm: Any) -> None:
    ec2 = region.client("ec2")
    made = ec2.run_instances(
        ImageId=AMI,
        InstanceType="m5.large",
        SubnetId=region.network("a")[1][0],
        MinCount=1,
        MaxCount=1,
        IamInstanceProfile={"Name": region.profile()},
    )
    node = made["Instances"][0]["InstanceId"]
    region.until(lambda: node in online(region))
    command = send(region, document(region, step("wait", "sleep 30")), [node])
    status = lambda: ssm.get_command_invocation(CommandId=command, InstanceId=node)["Status"]  # noqa: E731
    region.until(lambda: status() == "InProgress")
    region.admin("faults", lost_host=node)
    time.sleep(0.2)
    assert status() == "InProgress"
    (information,) = ssm.describe_instance_information(Filters=[{"Key": "InstanceIds", "Values": [node]}])[
        "InstanceInformationList"
    ]
    assert information["PingStatus"] == "ConnectionLost"


def test_iam_decides_on_the_document_and_on_each_node(region: Served, nodes: list[str]) -> None:
    name = document(region, step("a", "true"))
    on_document = allow("ssm:SendCommand", on=f"arn:aws:ssm:us-east-1:123456789012:document/{name}")
    on_nodes = {
        **allow("ssm:SendCommand", on="arn:aws:ec2:us-east-1:123456789012:instance/*"),
        "Condition": {"StringEquals": {"ssm:resourceTag/fleet": "commands"}},
    }
    call = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:ssm:sendCommand",
        "Arguments": {"DocumentName": name, "InstanceIds": nodes},
        "End": True,
    }
    assert region.run(region.machine({"Send": call}, on_document, on_nodes))["status"] == "SUCCEEDED"
    for part in (on_document, on_nodes):
        denied = region.run(region.machine({"Send": call}, part))
        assert "is not authorized to perform: ssm:SendCommand on resource" in denied["cause"]
