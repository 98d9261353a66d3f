"""The templates as CDK makes them: synthesised once, without an account, and read as CloudFormation would."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_state_machines import MACHINES, states

from functions import environment
from infra import documents
from volumetry.spec import Topology
from volumetry.tables import TABLES
from volumetry.topologies import template

ROOT = Path(__file__).parent.parent
NO_ACCOUNT = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
# Set by Lambda itself.
OF_LAMBDA = {"AWS_REGION"}

Json = dict[str, Any]


@dataclass
class Assembly:
    folder: Path

    def template(self, stack: str) -> Json:
        found: Json = json.loads((self.folder / f"Volumetry-{stack}.template.json").read_text())
        return found

    def resources(self, stack: str, kind: str) -> dict[str, Json]:
        """Logical id -> properties of each resource of that type."""
        found = self.template(stack)["Resources"].items()
        return {name: each["Properties"] for name, each in found if each["Type"] == kind}

    def functions(self) -> dict[str, Json]:
        """Our name -> properties."""
        found = self.resources("Workflow", "AWS::Lambda::Function").values()
        return {each["Handler"].split(".")[1]: each for each in found}

    def machines(self) -> dict[str, Json]:
        """Our name -> properties; a machine is known by its definition."""
        names = {json.dumps(definition): name for name, definition in MACHINES.items()}
        found = self.resources("Workflow", "AWS::StepFunctions::StateMachine").values()
        return {names[json.dumps(self.definition(each))]: each for each in found}

    def definition(self, machine: Json) -> Json:
        found: Json = json.loads((self.folder / f"asset.{machine['DefinitionS3Location']['Key']}").read_text())
        return found

    def statements(self, role: str) -> list[Json]:
        """What the role of this logical id may do."""
        return [
            statement
            for policy in self.resources("Workflow", "AWS::IAM::Policy").values()
            if {"Ref": role} in policy["Roles"]
            for statement in policy["PolicyDocument"]["Statement"]
        ]


def synthesise(folder: Path, *program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *program],
        cwd=ROOT,
        env=NO_ACCOUNT | {"CDK_OUTDIR": str(folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    folder = tmp_path_factory.mktemp("cdk") / "out"
    done = synthesise(folder, "app.py")
    assert done.returncode == 0, done.stderr
    return Assembly(folder)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def logical(value: Any) -> str:
    """The logical id that a Ref or an Fn::GetAtt names."""
    (kind, argument), = value.items()  # fmt: skip
    return str(argument if kind == "Ref" else argument[0])


def actions(statements: list[Json]) -> set[str]:
    return {action for statement in statements for action in listed(statement["Action"])}


# Synthesis


def test_templates_know_no_account_and_no_region(assembly: Assembly) -> None:
    manifest = json.loads((assembly.folder / "manifest.json").read_text())
    assert "missing" not in manifest
    stacks = [each for each in manifest["artifacts"].values() if each["type"] == "aws:cloudformation:stack"]
    assert {stack["environment"] for stack in stacks} == {"aws://unknown-account/unknown-region"}
    for path in assembly.folder.glob("*.template.json"):
        assert not re.search(r":\d{12}:|\b(us|eu|ap)-[a-z]+-\d\b", path.read_text()), path.name


def test_nothing_that_cdk_nag_finds_is_left_open(assembly: Assembly) -> None:
    assert json.loads((assembly.folder / "validation-report.json").read_text())["pluginReports"] == []


def test_cdk_nag_would_have_found_something(tmp_path: Path) -> None:
    """The empty report above says something only if the checks run."""
    program = """
import app
from aws_cdk import App, Stack, aws_s3
whole = app.build(App(context=app.FLAGS, outdir=app.os.environ["CDK_OUTDIR"]))
aws_s3.Bucket(Stack(whole, "Open"), "Bucket")
whole.synth()
"""
    assert synthesise(tmp_path / "out", "-c", program).returncode != 0
    (report,) = json.loads((tmp_path / "out" / "validation-report.json").read_text())["pluginReports"]
    assert {place["constructPath"] for found in report["violations"] for place in found["violatingConstructs"]} == {
        "Open/Bucket/Resource"
    }


def test_cfn_lint_finds_nothing(assembly: Assembly) -> None:
    templates = sorted(map(str, assembly.folder.glob("*.template.json")))
    assert len(templates) == 3
    linter = Path(sys.executable).parent / "cfn-lint"
    done = subprocess.run(
        [linter, "--regions", "us-east-1", "--", *templates], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


# Functions


def test_every_handler_is_a_function(assembly: Assembly) -> None:
    assert set(assembly.functions()) == {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}


def test_every_function_has_a_role_and_a_log_group_of_its_own(assembly: Assembly) -> None:
    functions = assembly.functions()
    groups = assembly.resources("Workflow", "AWS::Logs::LogGroup")
    roles = {logical(function["Role"]) for function in functions.values()}
    logged = {logical(function["LoggingConfig"]["LogGroup"]) for function in functions.values()}
    assert len(roles) == len(logged) == len(functions)
    assert all(groups[group]["RetentionInDays"] for group in logged)


def test_a_role_of_a_function_writes_to_no_log_but_its_own(assembly: Assembly) -> None:
    for function in assembly.functions().values():
        for statement in assembly.statements(logical(function["Role"])):
            if any(action.startswith("logs:") for action in listed(statement["Action"])):
                assert [logical(each) for each in listed(statement["Resource"])] == [
                    logical(function["LoggingConfig"]["LogGroup"])
                ]


def test_a_task_waits_longer_than_its_function_runs(assembly: Assembly) -> None:
    functions = assembly.functions()
    for name, machine in assembly.machines().items():
        for state_name, state in states(MACHINES[name]):
            if state.get("Resource", "").endswith("lambda:invoke"):
                function = functions[_function(assembly, machine, state)]
                assert 0 < function["Timeout"] <= min(900, state["TimeoutSeconds"]), state_name


def _function(assembly: Assembly, machine: Json, state: Json) -> str:
    """Our name of the function that a state calls."""
    substitution = machine["DefinitionSubstitutions"][state["Arguments"]["FunctionName"][2:-1]]
    resource = assembly.template("Workflow")["Resources"][logical(substitution)]
    return str(resource["Properties"]["Handler"].split(".")[1])


def demanded(function: str) -> type[environment.Environment] | None:
    """The environment that a handler reads, by the call in its text."""
    text = (ROOT / "functions" / function / "handler.py").read_text()
    kinds = {"deployment": environment.Deployment, "queries": environment.Queries, "results": environment.Results}
    found = [kind for name, kind in kinds.items() if re.search(rf"\b{name}\(\)", text)]
    assert len(found) <= 1
    return found[0] if found else None


def as_deployed(value: Any, parameters: Json) -> str:
    """A text of the template, with a letter for whatever is known only later."""
    if isinstance(value, str):
        return value
    (kind, argument), = value.items()  # fmt: skip
    if kind == "Fn::Join":
        return str(argument[0]).join(as_deployed(each, parameters) for each in argument[1])
    return str(parameters[argument]["Default"]) if kind == "Ref" and argument in parameters else "x"


def test_every_function_gets_the_environment_that_it_demands(assembly: Assembly) -> None:
    parameters = assembly.template("Workflow")["Parameters"]
    for name, function in assembly.functions().items():
        kind = demanded(name)
        given = {key: as_deployed(value, parameters) for key, value in function["Environment"]["Variables"].items()}
        assert given.pop("POWERTOOLS_SERVICE_NAME") == name
        if kind is None:
            assert given == {}
            continue
        assert {key.upper() for key in kind.model_fields} - OF_LAMBDA == set(given)
        read = kind.model_validate({key.lower(): value for key, value in given.items()} | {"aws_region": "x"})
        if isinstance(read, environment.Deployment):
            assert set(read.documents) == set(documents.names())
            assert set(read.subnets) == {"a", "b", "c"}


# Permissions


def all_statements(assembly: Assembly) -> Iterator[Json]:
    for stack in ("Network", "Results", "Workflow"):
        for resource in assembly.template(stack)["Resources"].values():
            if resource["Type"] == "AWS::IAM::Policy":
                yield from resource["Properties"]["PolicyDocument"]["Statement"]
            for policy in resource["Properties"].get("Policies", []) if resource["Type"] == "AWS::IAM::Role" else []:
                yield from policy["PolicyDocument"]["Statement"]


def test_no_policy_allows_everything_of_a_service(assembly: Assembly) -> None:
    statements = list(all_statements(assembly))
    assert statements
    for statement in statements:
        assert statement["Effect"] == "Allow"
        assert not {"NotAction", "NotResource"} & statement.keys()
        for action in listed(statement["Action"]):
            assert re.fullmatch(r"[a-z0-9]+:[A-Z][A-Za-z]+\*?", action), action
            # What can change something is named in full.
            assert not action.endswith("*") or action.endswith(":Describe*"), action


def test_roles_are_taken_by_one_service_each(assembly: Assembly) -> None:
    for stack in ("Network", "Workflow"):
        for name, role in assembly.resources(stack, "AWS::IAM::Role").items():
            (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
            assert statement["Principal"].keys() == {"Service"}, name
            assert isinstance(statement["Principal"]["Service"], str), name


def test_deletion_is_bound_to_stacks_of_topologies(assembly: Assembly) -> None:
    found = [each for each in all_statements(assembly) if "cloudformation:DeleteStack" in listed(each["Action"])]
    assert found
    for statement in found:
        (resource,) = listed(statement["Resource"])
        assert as_deployed(resource, {}).endswith(":stack/volumetry-*/*")


# State machines

# What a machine's role needs besides the calls that its states name, and why.
OBSERVATION = {"logs:CreateLogDelivery", "logs:DeleteLogDelivery", "logs:DescribeLogGroups",
               "logs:DescribeResourcePolicies", "logs:GetLogDelivery", "logs:ListLogDeliveries",
               "logs:PutResourcePolicy", "logs:UpdateLogDelivery", "xray:GetSamplingRules",
               "xray:GetSamplingTargets", "xray:PutTelemetryRecords", "xray:PutTraceSegments"}  # fmt: skip
OF_CHILDREN = {"states:DescribeExecution", "states:StopExecution",
               "events:PutTargets", "events:PutRule", "events:DescribeRule"}  # fmt: skip
ON_BEHALF = {
    # CreateStack reads template and image parameter, tags the stack and hands over the stack's role.
    "topology": {"s3:GetObject", "ssm:GetParameters", "cloudformation:TagResource", "iam:PassRole"},
}


def test_every_machine_logs_and_traces_and_has_a_role_of_its_own(assembly: Assembly) -> None:
    machines = assembly.machines()
    assert set(machines) == set(MACHINES)
    groups = assembly.resources("Workflow", "AWS::Logs::LogGroup")
    for machine in machines.values():
        assert machine["TracingConfiguration"] == {"Enabled": True}
        assert machine["LoggingConfiguration"]["Level"] == "ALL"
        (destination,) = machine["LoggingConfiguration"]["Destinations"]
        assert logical(destination["CloudWatchLogsLogGroup"]["LogGroupArn"]) in groups
    assert len({logical(machine["RoleArn"]) for machine in machines.values()}) == len(machines)


def test_every_name_in_a_definition_is_filled_in(assembly: Assembly) -> None:
    for name, machine in assembly.machines().items():
        wanted = set(re.findall(r"\$\{(\w+)\}", json.dumps(MACHINES[name])))
        assert wanted <= set(machine["DefinitionSubstitutions"]), name


def used(assembly: Assembly, machine: Json, name: str) -> tuple[set[str], set[str], set[str]]:
    """(actions, functions, machines) that a definition's states call; targets by their logical ids."""
    calls, functions, children = set(), set(), set()
    for _, state in states(MACHINES[name]):
        for resource in (state.get("Resource", ""), state.get("ItemReader", {}).get("Resource", "")):
            call = resource.partition(":states:::")[2]
            if call == "lambda:invoke":
                calls.add("lambda:InvokeFunction")
                functions.add(_target(machine, state["Arguments"]["FunctionName"]))
            elif call == "states:startExecution.sync:2":
                calls |= {"states:StartExecution", *OF_CHILDREN}
                children.add(_target(machine, state["Arguments"]["StateMachineArn"]))
            elif call:
                service, action = call.removeprefix("aws-sdk:").split(":")
                calls.add(f"{service}:{action[0].upper()}{action[1:]}")
    return calls, functions, children


def _target(machine: Json, text: str) -> str:
    return logical(machine["DefinitionSubstitutions"][text[2:-1]])


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_may_call_what_it_calls_and_no_more(assembly: Assembly, name: str) -> None:
    machine = assembly.machines()[name]
    statements = assembly.statements(logical(machine["RoleArn"]))
    calls, functions, children = used(assembly, machine, name)
    assert actions(statements) == calls | OBSERVATION | ON_BEHALF.get(name, set())
    assert targets(statements, "lambda:InvokeFunction") == functions
    # A Distributed Map runs its items as executions of the machine itself, whose ARN its role cannot name.
    own = {"any machine"} if name == "campaign" else set()
    assert targets(statements, "states:StartExecution") == children | own


def targets(statements: list[Json], action: str) -> set[str]:
    return {
        "any machine" if "Fn::Join" in resource else logical(resource)
        for statement in statements
        if action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
    }


def test_the_command_machine_commands_only_what_is_ours(assembly: Assembly) -> None:
    statements = assembly.statements(logical(assembly.machines()["command"]["RoleArn"]))
    sends = [statement for statement in statements if "ssm:SendCommand" in listed(statement["Action"])]
    for statement in sends:
        resources = [as_deployed(each, {}) for each in listed(statement["Resource"])]
        tagged = statement.get("Condition") == {"StringEquals": {"aws:ResourceTag/application": "volumetry"}}
        assert tagged or all(":document/" in each and "*" not in each for each in resources)


# Results


def test_results_outlive_the_stack_and_are_never_public(assembly: Assembly) -> None:
    found = assembly.template("Results")["Resources"].values()
    buckets = [each for each in found if each["Type"] == "AWS::S3::Bucket"]
    assert buckets
    for bucket in buckets:
        assert bucket["DeletionPolicy"] == bucket["UpdateReplacePolicy"] == "Retain"
        assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}


def bucket_statements(assembly: Assembly) -> list[Json]:
    (name,) = (name for name in assembly.resources("Results", "AWS::S3::Bucket") if name.startswith("Results"))
    policies = assembly.resources("Results", "AWS::S3::BucketPolicy").values()
    (policy,) = (policy for policy in policies if policy["Bucket"] == {"Ref": name})
    found: list[Json] = policy["PolicyDocument"]["Statement"]
    return found


def test_evidence_is_never_put_without_a_condition(assembly: Assembly) -> None:
    (denied,) = (each for each in bucket_statements(assembly) if each.get("Sid") == "EvidenceIsOnlyCreated")
    assert (denied["Effect"], denied["Action"], denied["Principal"]) == ("Deny", "s3:PutObject", {"AWS": "*"})
    assert denied["Condition"] == {"Null": {"s3:if-none-match": "true"}}
    assert as_deployed(denied["Resource"], {}) == "x/evidence/*"


def test_the_bucket_speaks_tls_and_allows_nobody_by_itself(assembly: Assembly) -> None:
    statements = bucket_statements(assembly)
    assert {each["Effect"] for each in statements} == {"Deny"}
    assert {"Bool": {"aws:SecureTransport": "false"}} in [each["Condition"] for each in statements]


def test_nothing_that_is_kept_expires(assembly: Assembly) -> None:
    (bucket,) = (each for name, each in assembly.resources("Results", "AWS::S3::Bucket").items()
                 if name.startswith("Results"))  # fmt: skip
    rules = bucket["LifecycleConfiguration"]["Rules"]
    assert {rule["Prefix"] for rule in rules} == {"orders/", "live/", "athena/"}


def test_glue_knows_every_table_with_its_columns(assembly: Assembly) -> None:
    found = {each["TableInput"]["Name"]: each["TableInput"] for each in
             assembly.resources("Results", "AWS::Glue::Table").values()}  # fmt: skip
    views = {path.stem for path in (ROOT / "queries" / "views").glob("*.sql")}
    assert set(found) == set(TABLES) | views
    for name, table in TABLES.items():
        assert found[name]["StorageDescriptor"]["Columns"] == table.glue_columns()


# Documents and topologies


def test_documents_are_those_of_the_repository(assembly: Assembly) -> None:
    deployed = [each["Content"] for each in assembly.resources("Workflow", "AWS::SSM::Document").values()]
    wanted = [documents.content(name) for name in documents.names()]
    assert sorted(deployed, key=json.dumps) == sorted(wanted, key=json.dumps)


# What CloudFormation calls as the stack's role to make and delete a resource of a type.
NEEDED = {
    "AWS::Scheduler::Schedule": {"scheduler:CreateSchedule", "scheduler:DeleteSchedule", "scheduler:GetSchedule"},
    "AWS::EC2::LaunchTemplate": {"ec2:CreateLaunchTemplate", "ec2:DeleteLaunchTemplate"},
    "AWS::EC2::Instance": {"ec2:RunInstances", "ec2:TerminateInstances"},
    "AWS::EC2::NetworkInterface": {"ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"},
    "AWS::EC2::NetworkInterfaceAttachment": {"ec2:AttachNetworkInterface", "ec2:DetachNetworkInterface"},
    "AWS::EC2::Volume": {"ec2:CreateVolume", "ec2:DeleteVolume"},
    "AWS::EC2::VolumeAttachment": {"ec2:AttachVolume", "ec2:DetachVolume"},
}
KINDS: dict[str, dict[str, Topology]] = {
    "local": {"one": Topology(stack="local")},
    "shared": {"one": Topology(stack="shared")},
    "nbd-mirror": {"one": Topology(stack="nbd-mirror", azs=["a", "b"])},
    "two-links": {"one": Topology(stack="nbd-mirror", links=2)},
    "drbd-two-links": {"one": Topology(stack="drbd", links=2)},
    "group": {
        "local": Topology(stack="local", together="trio"),
        "in-az": Topology(stack="drbd", together="trio"),
        "across-azs": Topology(stack="drbd", azs=["a", "b"], together="trio"),
    },
}


def made(launched: dict[str, Topology]) -> set[str]:
    """What making and deleting a launch's stack calls."""
    return {action for resource in template(launched)["Resources"].values() for action in NEEDED[resource["Type"]]}


@pytest.mark.parametrize("kind", KINDS)
def test_the_stack_role_may_make_and_delete_what_a_launch_holds(assembly: Assembly, kind: str) -> None:
    (role,) = (name for name in assembly.resources("Workflow", "AWS::IAM::Role") if name.startswith("StackRole"))
    allowed = actions(assembly.statements(role))
    # Hosts and the schedule get roles, which are handed to them.
    assert made(KINDS[kind]) | {"iam:PassRole", "ssm:GetParameters", "ec2:Describe*", "ec2:CreateTags"} <= allowed


def test_the_stack_role_makes_no_more_than_launches_hold(assembly: Assembly) -> None:
    (role,) = (name for name in assembly.resources("Workflow", "AWS::IAM::Role") if name.startswith("StackRole"))
    needed = set().union(*map(made, KINDS.values()))
    changing = re.compile(r"\w+:(Create|Run|Delete|Terminate|Attach|Detach)")
    allowed = {action for action in actions(assembly.statements(role)) if changing.match(action)}
    assert allowed - {"ec2:CreateTags"} == {action for action in needed if changing.match(action)}


def test_bad_ends_and_the_clock_tear_down(assembly: Assembly) -> None:
    rules = assembly.resources("Workflow", "AWS::Events::Rule")
    (function,) = (name for name in assembly.resources("Workflow", "AWS::Lambda::Function") if "TearDown" in name)
    assert {logical(target["Arn"]) for rule in rules.values() for target in rule["Targets"]} == {function}
    (pattern,) = (rule["EventPattern"] for rule in rules.values() if "EventPattern" in rule)
    assert pattern["detail"]["status"] == ["FAILED", "TIMED_OUT", "ABORTED"]
    campaign = assembly.machines()["campaign"]
    (machine,) = (logical(each) for each in pattern["detail"]["stateMachineArn"])
    assert assembly.resources("Workflow", "AWS::StepFunctions::StateMachine")[machine] == campaign
    (sweep,) = (rule for rule in rules.values() if "ScheduleExpression" in rule)
    assert (sweep["ScheduleExpression"], sweep["Targets"][0]["Input"]) == ("rate(1 hour)", "{}")
