"""Reads a campaign and checks it, shape first and then the rules; what is wrong is said in one line a problem."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from volumetry.errors import CampaignRefused, nearest, not_allowed
from volumetry.naming import NAME_HELP
from volumetry.rules import rules
from volumetry.spec import Campaign

MAX_CAMPAIGN_BYTES = 200_000  # the execution input may hold 262,144 bytes in all


class _UniqueKeys(yaml.SafeLoader):
    """YAML that refuses a key written twice, where PyYAML keeps the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is written twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep=deep)


def read_campaign(path: Path) -> Campaign:
    """The campaign in a YAML or JSON file, its fio job files read in; raises CampaignRefused."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CampaignRefused([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise CampaignRefused([f"{path}: is not UTF-8 text"]) from None
    if len(text) > MAX_CAMPAIGN_BYTES:
        raise CampaignRefused([f"{path}: holds {len(text)} bytes; allowed: at most {MAX_CAMPAIGN_BYTES}"])
    try:
        data = yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise CampaignRefused([f"{path}: is neither YAML nor JSON: {_yaml_problem(error)}"]) from None
    if isinstance(data, dict):
        data = _with_job_files(data, path.parent)
    return check_campaign(data)


def _yaml_problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + " ".join(str(getattr(error, "problem", None) or error).split())


def _with_job_files(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    workloads = data.get("workloads")
    if not isinstance(workloads, dict):
        return data
    read = {}
    for name, workload in workloads.items():
        read[name] = workload
        if isinstance(workload, dict) and isinstance(workload.get("job_file"), str) and "job" not in workload:
            path = folder / workload["job_file"]
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError, ValueError):
                problem = f"workloads.{name}.job_file: {workload['job_file']!r} cannot be read"
                raise CampaignRefused([problem]) from None
            read[name] = {key: value for key, value in workload.items() if key != "job_file"} | {"job": text}
    return data | {"workloads": read}


def check_campaign(data: object) -> Campaign:
    """The campaign that ``data`` (parsed YAML or JSON) stands for; raises CampaignRefused, one line a problem."""
    if not isinstance(data, dict):
        raise CampaignRefused(["campaign: must be a mapping of fields, such as campaign:, topologies:, workloads:"])
    try:
        campaign = Campaign.model_validate(data)
    except ValidationError as error:
        raise CampaignRefused(_shape_problems(error)) from None
    problems = list(dict.fromkeys(rules(campaign)))
    if problems:
        raise CampaignRefused(problems)
    return campaign


def _shape_problems(error: ValidationError) -> list[str]:
    lines = [_shape_problem(item["type"], item["loc"], item["input"], item["msg"], item.get("ctx", {}))
             for item in error.errors(include_url=False)]  # fmt: skip
    return list(dict.fromkeys(lines))


def _shape_problem(
    kind: str, location: tuple[int | str, ...], value: Any, message: str, context: Mapping[str, Any]
) -> str:
    field = ".".join(str(part) for part in location if part != "[key]")
    shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    if kind == "extra_forbidden":
        allowed = _fields_at(location[:-1])
        return f"{field}: is not a field; allowed: {', '.join(allowed)}{nearest(location[-1], allowed)}"
    if kind == "missing":
        return f"{field}: is missing"
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        return not_allowed(field, value, allowed)
    if "[key]" in location or kind == "string_pattern_mismatch":
        allowed_text = _PATTERNS.get(str(location[-1]), NAME_HELP)
        return f"{field}: {shown} is not allowed; allowed: {allowed_text}"
    allowed_text = _ALLOWED.get(kind, message).format_map(context)
    return f"{field}: {shown} is not allowed; allowed: {allowed_text}"


# What fields with a pattern allow, in words; the others hold names.
_PATTERNS = {
    "instance_type": "an instance type such as m6i.large",
    "kernel": "a package's name such as linux-image-cloud-amd64",
}

# What pydantic's error types allow, in words.
_ALLOWED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
    "string_too_long": "at most {max_length} characters",
}


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of the model at ``location`` in a campaign."""
    model: type[BaseModel] = Campaign
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            found = _models_in(model.model_fields[part].annotation)
            model = found[0] if found else model
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
