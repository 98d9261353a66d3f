"""State machines on moto's interpreter with our seams: language, calls, children, maps, time-outs, events."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest
from local_region_support import Json, Served, allow, refusal, shared

from local_region import jsonata_expressions

EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:absent:absent"


@pytest.fixture(scope="module")
def region() -> Served:
    return shared()


def task(resource: str, arguments: Any = None, **more: Any) -> Json:
    target = {"End": True} if "Next" not in more else {}
    given = {} if arguments is None else {"Arguments": arguments}
    return {"Type": "Task", "Resource": f"arn:aws:states:::{resource}", **given, **target, **more}


# Expressions


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$x & '!'", 'say "hi"\n!'),
        ("$nothing", None),
        ("$states.input.list[n > 1].n", 2),
        ("$parse('{\"a\": [1]}').a[0]", 1),
        ("$hash('a', 'SHA-256')", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
        ("$random(7) = $random(7)", True),
        ("$range(0, 10, 5)", [0, 5, 10]),
        ("$partition([1, 2, 3], 2)", [[1, 2], [3]]),
        ("3 / 2 * 2", 3),
    ],
)
def test_expressions_are_those_of_step_functions(expression: str, expected: Any) -> None:
    variables = {"x": 'say "hi"\n', "nothing": None, "states": {"input": {"list": [{"n": 1}, {"n": 2}]}}}
    assert jsonata_expressions.evaluate(expression, variables) == expected


@pytest.mark.parametrize("expression", ["$states.input.absent", "function($x) { $x }", "'open", "$error('mine')"])
def test_what_json_cannot_hold_is_an_evaluation_error(expression: str) -> None:
    with pytest.raises(jsonata_expressions.EvaluationError):
        jsonata_expressions.evaluate(expression, {"states": {"input": {}}})


def test_variables_choices_and_outputs(region: Served) -> None:
    machine = region.machine(
        {
            "Set": {
                "Type": "Pass",
                "Assign": {"quoted": "{% $states.input.text %}", "count": "{% $states.input.n + 1 %}"},
                "Next": "Choose",
            },
            "Choose": {
                "Type": "Choice",
                "Choices": [{"Condition": "{% $count > 5 %}", "Next": "Done", "Assign": {"big": True}}],
                "Default": "Small",
            },
            "Small": {"Type": "Fail", "Error": "TooSmall", "Cause": "{% 'count is ' & $string($count) %}"},
            "Done": {"Type": "Succeed", "Output": {"big": "{% $big %}", "quoted": "{% $quoted %}"}},
        }
    )
    big = region.run(machine, {"n": 5, "text": 'say "hi"\nand more'})
    assert big["output"] == {"big": True, "quoted": 'say "hi"\nand more'}
    small = region.run(machine, {"n": 1, "text": ""})
    assert (small["status"], small["error"], small["cause"]) == ("FAILED", "TooSmall", "count is 2")
    assert small["output"] is None


def test_an_undefined_result_is_a_query_evaluation_error(region: Served) -> None:
    failing = task("aws-sdk:ssm:getParameter", {"Name": "{% $states.input.absent %}"})
    caught = {
        "ErrorEquals": ["States.QueryEvaluationError"],
        "Next": "Caught",
        "Assign": {"e": "{% $states.errorOutput.Error %}"},
    }
    machine = region.machine(
        {"Fail": {**failing, "Catch": [caught]}, "Caught": {"Type": "Succeed", "Output": "{% $e %}"}}
    )
    assert region.run(machine)["output"] == "States.QueryEvaluationError"


# Calls


def test_calls_are_in_pascal_case_and_plain_json(region: Served) -> None:
    bucket = f"calls-{uuid.uuid4().hex[:8]}"
    region.client("s3").create_bucket(Bucket=bucket)
    where = {"Bucket": bucket, "Key": "k"}
    event = {"Source": "t", "DetailType": "t", "Detail": "{}"}
    body = {"body": "{% $parse($states.result.Body) %}"}
    head = {"length": "{% $states.result.ContentLength %}", "at": "{% $states.result.LastModified %}"}
    found = {"arn": "{% $states.result.StateMachines[0].StateMachineArn %}"}
    everything = {name: f"{{% ${name} %}}" for name in ("body", "length", "at", "arn")}
    machine = region.machine(
        {
            "Put": task("aws-sdk:s3:putObject", {**where, "Body": {"a": 1}}, Next="Get"),
            "Get": task("aws-sdk:s3:getObject", where, Next="Head", Assign=body),
            "Head": task("aws-sdk:s3:headObject", where, Next="Machines", Assign=head),
            "Machines": task("aws-sdk:sfn:listStateMachines", {"MaxResults": 1}, Next="Events", Assign=found),
            "Events": task("aws-sdk:eventbridge:putEvents", {"Entries": [event]}, Output=everything),
        },
        allow("s3:*", "states:ListStateMachines", "events:PutEvents"),
    )
    output = region.run(machine)["output"]
    assert output["body"] == {"a": 1}
    assert output["length"] == len('{"a":1}')
    assert output["at"].endswith("Z")
    assert output["arn"].startswith("arn:aws:states:")


@pytest.mark.parametrize(
    ("resource", "arguments", "error"),
    [
        ("ssm:getParameter", {"Name": "/absent"}, "Ssm.ParameterNotFoundException"),
        (
            "ssm:getCommandInvocation",
            {"CommandId": "a" * 36, "InstanceId": "i-0123456789abcdef0"},
            "Ssm.InvocationDoesNotExistException",
        ),
        ("cloudformation:describeStacks", {"StackName": "absent"}, "CloudFormation.CloudFormationException"),
        ("ec2:describeInstances", {"InstanceIds": ["i-0123456789abcdef0"]}, "Ec2.Ec2Exception"),
        ("s3:getObject", {"Bucket": "absent-bucket", "Key": "k"}, "S3.NoSuchBucketException"),
        ("sfn:describeExecution", {"ExecutionArn": EXECUTION}, "Sfn.ExecutionDoesNotExistException"),
    ],
)
def test_errors_of_services_have_the_names_of_the_sdk(
    region: Served, resource: str, arguments: Json, error: str
) -> None:
    everything = allow("ssm:*", "cloudformation:*", "ec2:*", "s3:*", "states:*")
    execution = region.run(region.machine({"Call": task(f"aws-sdk:{resource}", arguments)}, everything))
    assert execution["error"] == error


def test_calls_are_made_as_the_role_of_the_machine(region: Served) -> None:
    states = {"Call": task("aws-sdk:ssm:describeInstanceInformation", {})}
    denied = region.run(region.machine(states, allow("ssm:GetParameter")))
    assert "is not authorized to perform: ssm:DescribeInstanceInformation" in denied["cause"]
    assert region.run(region.machine(states, allow("ssm:DescribeInstanceInformation")))["status"] == "SUCCEEDED"


def test_a_role_that_does_not_trust_step_functions_runs_nothing(region: Served) -> None:
    made = region.client("stepfunctions").create_state_machine(
        name=f"machine-{uuid.uuid4().hex[:8]}",
        definition=json.dumps({"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}),
        roleArn=region.role("lambda.amazonaws.com"),
    )
    assert "does not trust states.amazonaws.com" in region.run(made["stateMachineArn"])["cause"]


@pytest.mark.parametrize(
    "state",
    [
        {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:ssm:sendComand", "End": True},
        {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:smm:sendCommand", "End": True},
        {"Type": "Nonsense", "End": True},
        {"Type": "Pass", "Output": "{% 'open %}", "End": True},
    ],
)
def test_a_machine_that_cannot_run_is_refused(region: Served, state: Json) -> None:
    assert refusal(lambda: region.machine({"A": state})) == "InvalidDefinition"


# Errors


def test_retries_wait_with_jitter_then_catch(region: Served) -> None:
    call = task("aws-sdk:ssm:getParameter", {"Name": "/absent"})
    pace = {"IntervalSeconds": 1, "MaxAttempts": 2, "BackoffRate": 1, "JitterStrategy": "FULL"}
    retry = {"ErrorEquals": ["Ssm.ParameterNotFoundException"], **pace}
    catch = {"ErrorEquals": ["States.ALL"], "Output": {"e": "{% $states.errorOutput.Error %}"}, "Next": "Caught"}
    machine = region.machine(
        {"Call": {**call, "Retry": [retry], "Catch": [catch]}, "Caught": {"Type": "Succeed"}}, allow("ssm:*")
    )
    arn = region.start_execution(machine)
    assert region.execution(arn)["output"] == {"e": "Ssm.ParameterNotFoundException"}
    history = region.client("stepfunctions").get_execution_history(executionArn=arn, maxResults=1000)["events"]
    assert sum(event["type"] == "TaskFailed" for event in history) == 3
    assert history[0]["type"] == "ExecutionStarted"
    assert [event["id"] for event in history] == list(range(1, len(history) + 1))


def test_an_execution_times_out(region: Served) -> None:
    machine = region.machine({"Wait": {"Type": "Wait", "Seconds": 30, "End": True}}, TimeoutSeconds=1)
    started = time.monotonic()
    assert region.run(machine)["status"] == "TIMED_OUT"
    assert time.monotonic() - started < 3


# Child executions


def child_of(machine: str, pattern: str = "sync:2", **more: Any) -> Json:
    arguments = {"StateMachineArn": machine, "Input": "{% $states.input %}"}
    return task(f"states:startExecution.{pattern}", arguments, **more)


CHILDREN = allow("states:StartExecution", "states:DescribeExecution", "states:StopExecution")


def test_a_child_execution_gives_its_output(region: Served) -> None:
    child = region.machine({"Double": {"Type": "Succeed", "Output": {"n": "{% $states.input.n * 2 %}"}}})
    parsed = region.machine({"Run": child_of(child, Output="{% $states.result.Output.n %}")}, CHILDREN)
    assert region.run(parsed, {"n": 21})["output"] == 42
    text = region.machine({"Run": child_of(child, "sync", Output="{% $states.result.Output %}")}, CHILDREN)
    assert region.run(text, {"n": 21})["output"] == '{"n":42}'


def test_a_failing_child_is_a_failed_task_with_its_cause(region: Served) -> None:
    child = region.machine({"Fail": {"Type": "Fail", "Error": "Mine", "Cause": "because"}})
    execution = region.run(region.machine({"Run": child_of(child)}, CHILDREN))
    assert execution["error"] == "States.TaskFailed"
    cause = json.loads(execution["cause"])
    assert (cause["Status"], cause["Error"], cause["Cause"]) == ("FAILED", "Mine", "because")


def test_stopping_a_parent_stops_what_it_started(region: Served) -> None:
    states = region.client("stepfunctions")
    grandchild = region.machine({"Wait": {"Type": "Wait", "Seconds": 60, "End": True}})
    child = region.machine({"Run": child_of(grandchild)}, CHILDREN)
    inner = {"ProcessorConfig": {"Mode": "INLINE"}, "StartAt": "Run", "States": {"Run": child_of(child)}}
    parent = region.machine({"Each": {"Type": "Map", "Items": [1, 2], "ItemProcessor": inner, "End": True}}, CHILDREN)
    arn = region.start_execution(parent)

    def running(machine: str) -> list[Json]:
        return list(states.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"])

    region.until(lambda: len(running(grandchild)) == 2)
    states.stop_execution(executionArn=arn, error="Mine", cause="enough")
    stopped = region.execution(arn)
    assert (stopped["status"], stopped["error"], stopped["cause"]) == ("ABORTED", "Mine", "enough")
    region.until(lambda: not running(child) and not running(grandchild), timeout_s=5)
    ended = states.list_executions(stateMachineArn=grandchild)["executions"]
    assert {one["status"] for one in ended} == {"ABORTED"}


def test_a_task_that_times_out_stops_its_child(region: Served) -> None:
    states = region.client("stepfunctions")
    child = region.machine({"Wait": {"Type": "Wait", "Seconds": 60, "End": True}})
    execution = region.run(region.machine({"Run": child_of(child, TimeoutSeconds=1)}, CHILDREN))
    assert execution["error"] == "States.Timeout"
    region.until(lambda: states.list_executions(stateMachineArn=child)["executions"][0]["status"] == "ABORTED")


# Maps


def items_in(region: Served, items: list[Any]) -> Json:
    bucket = f"items-{uuid.uuid4().hex[:8]}"
    region.client("s3").create_bucket(Bucket=bucket)
    region.client("s3").put_object(Bucket=bucket, Key="items.json", Body=json.dumps(items).encode())
    return {"bucket": bucket, "key": "items.json"}


def distributed(states: Json, **more: Any) -> Json:
    return {
        "Type": "Map",
        "ItemReader": {
            "Resource": "arn:aws:states:::s3:getObject",
            "ReaderConfig": {"InputType": "JSON"},
            "Arguments": {"Bucket": "{% $states.input.bucket %}", "Key": "{% $states.input.key %}"},
        },
        "ItemSelector": {"item": "{% $states.context.Map.Item.Value %}", "bucket": "{% $states.input.bucket %}"},
        "MaxConcurrency": 1,
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
            "StartAt": next(iter(states)),
            "States": states,
        },
        "End": True,
        **more,
    }


def test_a_distributed_map_reads_its_items_inside_a_child_inside_a_map(region: Served) -> None:
    where = items_in(region, [{"n": 1}, {"n": 2}])
    double = {"Double": {"Type": "Succeed", "Output": "{% $states.input.item.n * 2 %}"}}
    child = region.machine({"Each": distributed(double)}, allow("s3:GetObject"))
    run = child_of(child, Output="{% $states.result.Output %}")
    inner = {"ProcessorConfig": {"Mode": "INLINE"}, "StartAt": "Run", "States": {"Run": run}}
    each = {"Type": "Map", "Items": "{% [$states.input, $states.input] %}", "ItemProcessor": inner, "End": True}
    parent = region.machine({"Each": each}, CHILDREN)
    assert region.run(parent, where)["output"] == [[2, 4], [2, 4]]


def test_a_distributed_map_of_a_thousand_items_one_at_a_time(region: Served) -> None:
    where = items_in(region, list(range(1100)))
    nothing = {"Pass": {"Type": "Pass", "Output": 0, "End": True}}
    counted = distributed(nothing, Output="{% $count($states.result) %}")
    machine = region.machine({"Each": counted}, allow("s3:GetObject"))
    assert region.run(machine, where)["output"] == 1100


@pytest.mark.parametrize(
    ("tolerance", "status"),
    [
        ({}, "FAILED"),
        ({"ToleratedFailurePercentage": 20}, "FAILED"),
        ({"ToleratedFailurePercentage": "{% 25 %}"}, "SUCCEEDED"),
        ({"ToleratedFailureCount": 1}, "SUCCEEDED"),
        ({"ToleratedFailurePercentage": 100}, "SUCCEEDED"),
    ],
)
def test_a_map_run_fails_beyond_its_tolerance(region: Served, tolerance: Json, status: str) -> None:
    where = items_in(region, [0, 1, 2, 3])
    states = {
        "Odd": {
            "Type": "Choice",
            "Choices": [{"Condition": "{% $states.input.item = 1 %}", "Next": "No"}],
            "Default": "Yes",
        },
        "No": {"Type": "Fail", "Error": "Mine"},
        "Yes": {"Type": "Succeed"},
    }
    arn = region.start_execution(
        region.machine({"Each": distributed(states, **tolerance)}, allow("s3:GetObject")), where
    )
    execution = region.execution(arn)
    assert execution["status"] == status
    if status == "FAILED":
        assert execution["error"] == "States.ExceedToleratedFailureThreshold"
    run = region.client("stepfunctions").list_map_runs(executionArn=arn)["mapRuns"][0]
    described = region.client("stepfunctions").describe_map_run(mapRunArn=run["mapRunArn"])
    assert described["itemCounts"]["failed"] == 1
    assert described["status"] == status


def test_children_of_a_distributed_map_do_not_see_variables(region: Served) -> None:
    where = items_in(region, [1])
    set_it = {"Type": "Pass", "Assign": {"secret": 1}, "Next": "Each"}
    each = distributed({"Use": {"Type": "Succeed", "Output": "{% $secret %}"}})
    machine = region.machine({"Set": set_it, "Each": each}, allow("s3:GetObject"))
    assert region.run(machine, where)["error"] == "States.ExceedToleratedFailureThreshold"


def test_stopping_an_execution_stops_its_map_run(region: Served) -> None:
    where = items_in(region, [1, 2])
    wait = {"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}
    arn = region.start_execution(region.machine({"Each": distributed(wait)}, allow("s3:GetObject")), where)
    states = region.client("stepfunctions")
    region.until(lambda: states.list_map_runs(executionArn=arn)["mapRuns"])
    states.stop_execution(executionArn=arn)
    region.until(lambda: not any("execution " in one for one in region.leftovers()), timeout_s=5)


# Tokens


def test_a_task_token_answers(region: Served) -> None:
    queue = region.client("sqs").create_queue(QueueName=f"q-{uuid.uuid4().hex[:8]}")["QueueUrl"]
    send = {"QueueUrl": queue, "MessageBody": "{% $states.context.Task.Token %}"}
    machine = region.machine({"Ask": task("sqs:sendMessage.waitForTaskToken", send)}, allow("sqs:*"))
    arn = region.start_execution(machine)
    message = region.until(lambda: region.client("sqs").receive_message(QueueUrl=queue).get("Messages"))
    region.client("stepfunctions").send_task_success(taskToken=message[0]["Body"], output='{"ok": true}')
    assert region.execution(arn)["output"] == {"ok": True}
