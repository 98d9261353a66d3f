"""Permissions, each with the reason for whatever wildcard it needs, told to cdk-nag in the very same place."""

import re
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct


def allow(
    role: iam.Role,
    *actions: str,
    on: list[str],
    because: str | None = None,
    conditions: dict[str, Any] | None = None,
) -> None:
    """Let the role do this; ``because`` says why a wildcard among actions or ARNs is as narrow as it can be."""
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=on, conditions=conditions))
    if because is not None:
        wide = [f"Action::{action}" for action in actions if "*" in action]
        wide += [f"Resource::{arn}" for resource in on if "*" in (arn := _flat(Stack.of(role).resolve(resource)))]
        acknowledge(role, because, *(f"AwsSolutions-IAM5[{finding}]" for finding in wide))


def acknowledge(construct: IConstruct, reason: str, *findings: str) -> None:
    """Acknowledge findings of cdk-nag on one construct."""
    for finding in findings:
        Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))


def _flat(value: Any) -> str:
    """A resolved ARN in the words in which cdk-nag names it."""
    if isinstance(value, str):
        return re.sub(r"\$\{([^}]*)\}", r"<\1>", value)
    (kind, argument), = value.items()  # fmt: skip
    match kind:
        case "Ref":
            return f"<{argument}>"
        case "Fn::Join":
            delimiter, items = argument
            return str(delimiter).join(map(_flat, items))
        case "Fn::GetAtt":
            return f"<{'.'.join(argument)}>"
        case _:
            return _flat(argument)
