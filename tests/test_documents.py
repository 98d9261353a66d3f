"""SSM documents: rules that no public checker knows, and shellcheck over the scripts as a host gets them."""

import json
import re
import subprocess
from typing import Any

import pytest

from infra import documents

NAMES = documents.names()
ACTIONS = {"aws:runShellScript"}
STEP_KEYS = {"action", "name", "precondition", "inputs"}
INPUT_KEYS = {"runCommand", "timeoutSeconds", "workingDirectory", "onFailure", "finallyStep"}
PARAMETER_KEYS = {"type", "description", "default", "allowedPattern", "allowedValues", "interpolationType"}


@pytest.fixture(params=NAMES)
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    return documents.content(request.param)


def test_a_document_is_small_enough(document: dict[str, Any]) -> None:
    # 64 KB hold the document and its parameters.
    assert len(json.dumps(document)) < documents.MAX_DOCUMENT_BYTES // 2


def test_a_document_is_of_the_schema_that_hands_parameters_over_as_environment(document: dict[str, Any]) -> None:
    assert document["schemaVersion"] == "2.2"
    assert document["description"].endswith(".")


def test_every_parameter_is_described_and_anchored(document: dict[str, Any]) -> None:
    for name, parameter in document["parameters"].items():
        assert set(parameter) <= PARAMETER_KEYS, name
        assert re.fullmatch(r"[A-Z][A-Za-z]+", name)
        assert parameter["description"]
        pattern = parameter.get("allowedPattern")
        assert bool(pattern) != bool(parameter.get("allowedValues")), name
        if pattern:
            assert pattern.startswith("^"), name
            assert pattern.endswith("$"), name
            re.compile(pattern)
        if "default" in parameter:
            assert re.search(pattern or ".*", parameter["default"]), name


def test_a_document_of_a_topology_says_first_which(document: dict[str, Any]) -> None:
    if "Target" in document["parameters"]:
        assert next(iter(document["parameters"])) == "Target"


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("stack-", "filesystem", "tune-"))])
def test_what_changes_a_host_can_be_asked_twice_or_undone(name: str) -> None:
    parameters = documents.content(name)["parameters"]
    if name.startswith("stack-"):
        assert parameters["Overwrite"]["default"] == "no"
    elif name.startswith("tune-"):
        assert parameters["Action"]["allowedValues"] == ["apply", "undo"]
        # What is not given is left as it is.
        fixed = {"Target", "Action", "Client", "TimeoutSeconds"}
        assert all(each["default"] == "" for key, each in parameters.items() if key not in fixed)


def test_nothing_is_put_into_a_script_as_text(document: dict[str, Any]) -> None:
    for step in document["mainSteps"]:
        assert "{{" not in "\n".join(step["inputs"]["runCommand"])
    placed = set(re.findall(r"{{ *(\w+) *}}", json.dumps(document["mainSteps"])))
    assert placed == {"TimeoutSeconds"}
    for name in set(document["parameters"]) - placed:
        assert document["parameters"][name]["interpolationType"] == "ENV_VAR", name


def test_every_parameter_is_used(document: dict[str, Any]) -> None:
    text = json.dumps(document["mainSteps"])
    for name in document["parameters"]:
        assert f"SSM_{name}" in text or f"{{{{ {name} }}}}" in text


def test_every_script_reads_only_parameters_that_are_there(document: dict[str, Any]) -> None:
    read = set(re.findall(r"\bSSM_(\w+)", json.dumps(document["mainSteps"])))
    assert read <= set(document["parameters"])


def test_steps_are_well_formed(document: dict[str, Any]) -> None:
    names = [step["name"] for step in document["mainSteps"]]
    assert len(set(names)) == len(names)
    for step in document["mainSteps"]:
        assert set(step) <= STEP_KEYS
        assert set(step["inputs"]) <= INPUT_KEYS
        assert step["action"] in ACTIONS
        assert step["precondition"] == {"StringEquals": ["platformType", "Linux"]}
        assert step["inputs"]["runCommand"][0] == "#!/bin/bash"


@pytest.mark.parametrize("name", NAMES)
def test_scripts_pass_shellcheck(name: str) -> None:
    content = documents.content(name)
    given = "".join(f"export SSM_{parameter}=\n" for parameter in content["parameters"])
    for step in content["mainSteps"]:
        lines = step["inputs"]["runCommand"]
        script = "\n".join([lines[0], given, *lines[1:], ""])
        found = subprocess.run(
            ["shellcheck", "--shell=bash", "--severity=style", "-"],
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stdout
