"""State machines by rules that no interpreter enforces: targets, time-outs, retries, real calls, no green error."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import jsonata
import pytest
from botocore import xform_name

MACHINES = {path.name.split(".")[0]: json.loads(path.read_text()) for path in
            sorted((Path(__file__).parent.parent / "statemachines").glob("*.asl.json"))}  # fmt: skip
# Services as Step Functions spells them, where botocore spells them differently.
SERVICES = {"sfn": "stepfunctions"}

Scope = dict[str, Any]


def scopes(machine: Scope) -> Iterator[Scope]:
    """The machine and every sub-machine in it."""
    yield machine
    for state in machine["States"].values():
        for inner in [state.get("ItemProcessor"), *state.get("Branches", [])]:
            if inner is not None:
                yield from scopes(inner)


def states(machine: Scope) -> Iterator[tuple[str, dict[str, Any]]]:
    for scope in scopes(machine):
        yield from scope["States"].items()


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def targets(state: dict[str, Any]) -> set[str]:
    found = {state.get("Next"), state.get("Default")}
    found |= {rule["Next"] for rule in [*state.get("Choices", []), *state.get("Catch", [])]}
    return {name for name in found if name}


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Scope:
    return MACHINES[request.param]


def test_every_state_is_reached_and_every_target_exists(machine: Scope) -> None:
    for scope in scopes(machine):
        reached, frontier = set(), {scope["StartAt"]}
        while frontier:
            name = frontier.pop()
            assert name in scope["States"], name
            reached.add(name)
            frontier |= targets(scope["States"][name]) - reached
        assert reached == set(scope["States"])


def test_every_choice_has_a_default(machine: Scope) -> None:
    assert all("Default" in state for _, state in states(machine) if state["Type"] == "Choice")


def test_machine_and_tasks_have_time_outs(machine: Scope) -> None:
    assert machine["TimeoutSeconds"] > 0
    for name, state in states(machine):
        if state["Type"] == "Task":
            assert "TimeoutSeconds" in state, name


def test_retries_back_off_with_jitter(machine: Scope) -> None:
    for name, state in states(machine):
        for retry in state.get("Retry", []):
            assert retry["JitterStrategy"] == "FULL", name
            assert retry["BackoffRate"] > 1, name


def test_fails_have_a_name_of_ours_and_a_cause(machine: Scope) -> None:
    for name, state in states(machine):
        if state["Type"] == "Fail":
            assert state["Error"].startswith(("Volumetry.", "{%")), name
            assert state["Cause"], name


def test_expressions_are_jsonata(machine: Scope) -> None:
    assert machine["QueryLanguage"] == "JSONata"
    found = [text for text in texts(machine) if text.startswith("{%")]
    assert found
    for text in found:
        assert text.endswith("%}"), text
        jsonata.Jsonata(text[2:-2].strip())


def test_variables_are_assigned_somewhere(machine: Scope) -> None:
    assigned = {
        name
        for _, state in states(machine)
        for block in (state, *state.get("Catch", []), *state.get("Choices", []))
        for name in block.get("Assign", {})
    }
    for text in texts(machine):
        if text.startswith("{%"):
            bare = re.sub(r"'[^']*'", "", text)
            local = set(re.findall(r"\$(\w+) *:=", bare))
            used = set(re.findall(r"\$(\w+)(?![\w(])", bare))
            assert used - local - {"states"} <= assigned, text


@pytest.fixture(scope="module")
def session() -> boto3.Session:
    return boto3.Session("x", "x", region_name="us-east-1")


def test_calls_are_ones_that_aws_has(machine: Scope, session: boto3.Session) -> None:
    for name, state in states(machine):
        match = re.fullmatch(r"arn:\$\{partition\}:states:::aws-sdk:(\w+):(\w+)", state.get("Resource", ""))
        if match is None:
            continue
        client = session.client(SERVICES.get(match[1], match[1]))
        operations = {xform_name(operation): operation for operation in client.meta.service_model.operation_names}
        operation = operations.get(xform_name(match[2]))
        assert operation, f"{name}: {match[2]}"
        shape = client.meta.service_model.operation_model(operation).input_shape
        assert set(state["Arguments"]) <= set(shape.members), name
        assert set(shape.required_members) <= set(state["Arguments"]), name


def test_only_known_integrations_are_used(machine: Scope) -> None:
    known = r"arn:\$\{partition\}:states:::(aws-sdk:\w+:\w+|lambda:invoke|states:startExecution\.sync:2|s3:getObject)"
    for name, state in states(machine):
        if state["Type"] == "Task":
            assert re.fullmatch(known, state["Resource"]), name


def test_a_campaign_that_met_an_error_ends_in_fail_after_its_tear_down() -> None:
    top = MACHINES["campaign"]["States"]
    caught = {name: [catch["Next"] for catch in state.get("Catch", [])] for name, state in top.items()}
    assert caught["Plan"] == ["Not done"]
    assert caught["Lanes"] == ["Tear down"]
    assert top["Done?"]["Choices"][0]["Next"] == "Not done"
    assert top["Not done"]["Type"] == "Fail"
