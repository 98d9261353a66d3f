"""SSM Command documents: what SSM accepts of schema 2.2, and what a document's steps become with parameters."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

SHELL = "aws:runShellScript"
# Steps for other platforms are accepted, and skipped by their precondition.
_KNOWN_ACTIONS = (SHELL, "aws:runPowerShellScript")
_TYPES = ("String", "StringList", "Boolean", "Integer", "StringMap", "MapList")
_NAME = re.compile(r"[a-zA-Z0-9_\-.]{3,128}")
_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z0-9_]+)\s*\}\}")
_LARGEST_BYTES = 64 * 1024
_DEFAULT_TIMEOUT_S = 3600

# The document of AWS's own that everybody uses.
RUN_SHELL_SCRIPT = {
    "schemaVersion": "2.2",
    "description": "Run a shell script or specify the commands to run.",
    "parameters": {
        "commands": {"type": "StringList", "minItems": 1, "displayType": "textarea"},
        "workingDirectory": {"type": "String", "default": "", "maxChars": 4096},
        "executionTimeout": {
            "type": "String",
            "default": "3600",
            "allowedPattern": "([1-9][0-9]{0,4})|(1[0-6][0-9]{4})|(17[0-1][0-9]{3})|(172[0-7][0-9]{2})|(172800)",
        },
    },
    "mainSteps": [
        {
            "action": SHELL,
            "name": "runShellScript",
            "inputs": {
                "runCommand": "{{ commands }}",
                "workingDirectory": "{{ workingDirectory }}",
                "timeoutSeconds": "{{ executionTimeout }}",
            },
        }
    ],
}


class SsmError(ValueError):
    """SSM's refusal; `code` is the name of its exception."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Step:
    """A step of a document with its parameters filled in. `skipped` is why its precondition fails, or ""."""

    name: str
    action: str
    script: str
    environment: Mapping[str, str]
    timeout_s: int
    on_failure: str
    on_success: str
    is_finally: bool
    skipped: str


def parse(name: str, content: str) -> dict[str, Any]:
    """The content of a document, checked. SsmError as CreateDocument refuses it."""
    if not _NAME.fullmatch(name) or name.lower().startswith(("aws", "amazon", "amzn")):
        raise SsmError("ValidationException", f"Document name {name} is not valid")
    if len(content.encode()) > _LARGEST_BYTES:
        raise SsmError("MaxDocumentSizeExceeded", f"Document {name} is larger than {_LARGEST_BYTES} bytes")
    try:
        document = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise SsmError("InvalidDocumentContent", f"Content of {name} is neither JSON nor YAML: {error}") from None
    problem = next(_problems(document), None)
    if problem:
        raise SsmError("InvalidDocumentContent", f"{name}: {problem}")
    checked: dict[str, Any] = document
    return checked


def _problems(document: Any) -> Iterator[str]:
    if not isinstance(document, dict) or document.get("schemaVersion") != "2.2":
        yield "schemaVersion has to be 2.2"
        return
    if unknown := set(document) - {"schemaVersion", "description", "parameters", "mainSteps"}:
        yield f"unknown property {', '.join(sorted(unknown))}"
    parameters = document.get("parameters") or {}
    for name, parameter in parameters.items():
        if parameter.get("type") not in _TYPES:
            yield f"parameter {name} has no valid type"
        if parameter.get("interpolationType", "ENV_VAR") != "ENV_VAR":
            yield f"parameter {name}: interpolationType can only be ENV_VAR"
        if "interpolationType" in parameter and parameter.get("type") != "String":
            yield f"parameter {name}: ENV_VAR is for parameters of type String"
    yield from _step_problems(document.get("mainSteps") or [], parameters)


def _step_problems(steps: list[dict[str, Any]], parameters: Mapping[str, Any]) -> Iterator[str]:
    if not steps:
        yield "mainSteps is missing"
    names = [step.get("name") for step in steps]
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        yield "each of mainSteps needs a name of its own"
    for step in steps:
        if step.get("action") not in _KNOWN_ACTIONS:
            yield f"action {step.get('action')} of step {step.get('name')} is not supported"
        if not step.get("inputs", {}).get("runCommand"):
            yield f"step {step.get('name')} has no runCommand"
    for name in _PLACEHOLDER.findall(json.dumps(steps)):
        if name not in parameters:
            yield f"parameter {name} is not defined"


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def arguments(document: Mapping[str, Any], given: Mapping[str, list[str]]) -> dict[str, Any]:
    """Values of all parameters. SsmError (InvalidParameters) as SendCommand refuses them."""
    declared = document.get("parameters") or {}
    unknown = set(given) - set(declared)
    if unknown:
        raise SsmError("InvalidParameters", f"Parameters {sorted(unknown)} are not defined in the document")
    return {name: _argument(name, parameter, given.get(name)) for name, parameter in declared.items()}


def _argument(name: str, parameter: Mapping[str, Any], given: list[str] | None) -> Any:
    if given is None:
        if "default" not in parameter:
            raise SsmError("InvalidParameters", f"Parameter {name} requires a value")
        return parameter["default"]
    kind = parameter["type"]
    if kind == "StringList":
        _check_count(name, parameter, given)
        for value in given:
            _check(name, parameter, value)
        return given
    if len(given) != 1:
        raise SsmError("InvalidParameters", f"Parameter {name} takes one value")
    value = given[0]
    _check(name, parameter, value)
    if kind == "Boolean" and value.lower() not in ("true", "false"):
        raise SsmError("InvalidParameters", f"Parameter {name} is not a boolean")
    if kind == "Integer" and not re.fullmatch(r"-?\d+", value):
        raise SsmError("InvalidParameters", f"Parameter {name} is not an integer")
    return value


def _check_count(name: str, parameter: Mapping[str, Any], values: list[str]) -> None:
    least, most = parameter.get("minItems", 0), parameter.get("maxItems", len(values))
    if not int(least) <= len(values) <= int(most):
        raise SsmError("InvalidParameters", f"Parameter {name} takes {least} to {most} items")


def _check(name: str, parameter: Mapping[str, Any], value: str) -> None:
    allowed = parameter.get("allowedValues")
    if allowed is not None and value not in [str(one) for one in allowed]:
        raise SsmError("InvalidParameters", f"Parameter {name} is not one of {allowed}")
    # SSM looks for the pattern anywhere in the value: one that is not anchored lets anything through.
    pattern = parameter.get("allowedPattern")
    if pattern and not re.search(pattern, value):
        raise SsmError("InvalidParameters", f"Parameter {name} does not match its allowedPattern {pattern}")
    least, most = int(parameter.get("minChars", 0)), parameter.get("maxChars")
    if len(value) < least or (most is not None and len(value) > int(most)):
        raise SsmError("InvalidParameters", f"Parameter {name} takes {least} to {most} characters")


def steps(document: Mapping[str, Any], values: Mapping[str, Any]) -> list[Step]:
    """The steps as a node would run them."""
    declared = document.get("parameters") or {}
    by_environment = {name for name, one in declared.items() if one.get("interpolationType") == "ENV_VAR"}
    environment = {f"SSM_{name}": str(values[name]) for name in by_environment}
    substituted = {name: value for name, value in values.items() if name not in by_environment}
    return [_step(step, substituted, environment) for step in document["mainSteps"]]


def _step(step: Mapping[str, Any], values: Mapping[str, Any], environment: Mapping[str, str]) -> Step:
    inputs = step["inputs"]
    folder = str(_filled(inputs.get("workingDirectory", ""), values))
    timeout = _filled(inputs.get("timeoutSeconds", _DEFAULT_TIMEOUT_S), values)
    return Step(
        name=step["name"],
        action=step["action"],
        script=_in_folder(folder, "\n".join(_lines(inputs["runCommand"], values))),
        environment=environment,
        timeout_s=int(timeout),
        on_failure=step.get("onFailure", inputs.get("onFailure", "")),
        on_success=step.get("onSuccess", inputs.get("onSuccess", "")),
        is_finally=str(step.get("finallyStep", inputs.get("finallyStep", False))).lower() == "true",
        skipped=_unmet(step, values),
    )


def _lines(command: str | list[str], values: Mapping[str, Any]) -> Iterator[str]:
    for line in [command] if isinstance(command, str) else command:
        filled = _filled(line, values)
        yield from filled if isinstance(filled, list) else [str(filled)]


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A text with its placeholders replaced; one that is nothing but a placeholder becomes its value."""
    if not isinstance(value, str):
        return value
    whole = _PLACEHOLDER.fullmatch(value.strip())
    if whole and whole[1] in values:
        return values[whole[1]]
    return _PLACEHOLDER.sub(lambda match: _inserted(match, values), value)


def _inserted(match: re.Match[str], values: Mapping[str, Any]) -> str:
    if match[1] not in values:
        return match[0]
    value = values[match[1]]
    return value if isinstance(value, str) else json.dumps(value)


def _in_folder(folder: str, script: str) -> str:
    if not folder:
        return script
    first, line_end, rest = script.partition("\n")
    change = f"cd {shlex.quote(folder)} || exit 1\n"
    return f"{first}\n{change}{rest}" if first.startswith("#!") and line_end else change + script


def _unmet(step: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    if step["action"] != SHELL and "precondition" not in step:
        return "the action is not for this platform"
    for operator, operands in (step.get("precondition") or {}).items():
        known = {"platformType": "Linux", **values}
        found = [known.get(one, _filled(one, values)) for one in operands]
        if operator != "StringEquals" or found[0] != found[1]:
            return f"precondition {operator} {operands} is not met"
    return ""
