"""IAM decisions about the operations that are ours, on every resource that AWS would ask about.

ministack asks about one resource an operation, which is wrong for those that touch several: RunInstances needs
the image, the instance, the interface, the groups, the subnet and the volume; SendCommand the document and
each instance. It authenticates these operations still, and leaves the decision to their handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from local_region.identity import ACCOUNT, REGION
from local_region.seams import mend

Headers = Mapping[str, str]

_deferred: set[str] = set()


class DeniedError(RuntimeError):
    """IAM does not allow it; the message is AWS's."""


@dataclass(frozen=True)
class Resource:
    """What an operation touches. `tags` are those that it has, `requested` those that it is to get."""

    arn: str
    tags: Mapping[str, str] = field(default_factory=dict)
    requested: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)


def decides(*actions: str) -> None:
    """Take the decision about these actions, such as "ec2:RunInstances", from ministack."""
    _deferred.update(actions)


@mend(
    "ministack.core.iam_actions:extract_iam_action",
    because="what touches several resources is decided by its handler",
    fingerprint="ec476b92d969",
)
def _extract_iam_action(original: Callable[..., str | None], *args: Any, **kwargs: Any) -> str | None:
    action = original(*args, **kwargs)
    return None if action in _deferred else action


@mend(
    "ministack.core.iam_actions:_s3_object_context",
    because="policies that demand a conditional write had no key to decide by",
    fingerprint="3a43e6ca9f51",
)
def _s3_object_context(
    original: Callable[..., dict[str, Any]], action: str, query: Any, path: str, headers: Headers
) -> dict[str, Any]:
    conditions = {
        f"s3:{name}": headers[name]
        for name in ("if-match", "if-none-match")
        if action == "s3:PutObject" and name in headers
    }
    return {**original(action, query, path, headers), **conditions}


def authorize(headers: Headers, action: str, resources: Iterable[Resource]) -> None:
    """DeniedError unless the caller may do this to all of them."""
    from ministack.core.router import extract_access_key_id  # noqa: PLC0415

    authorize_key(extract_access_key_id(headers, {}), action, resources)


def authorize_key(key: str, action: str, resources: Iterable[Resource]) -> None:
    """As `authorize`, for the holder of an access key."""
    from ministack.core.iam_evaluator import AuthError, enforce, resolve_principal  # noqa: PLC0415

    service = action.partition(":")[0]
    for resource in resources:
        denied = enforce(
            key, action, service, REGION, resource_arn=resource.arn, service_context=_context(service, resource)
        )
        if isinstance(denied, AuthError):
            raise DeniedError(denied.message)
        if denied:
            caller = resolve_principal(key, ACCOUNT).arn
            how = "with an explicit deny" if denied.decision == "Deny" else "because no identity-based policy allows"
            raise DeniedError(
                f"User: {caller} is not authorized to perform: {action} on resource: {resource.arn} {how} "
                f"{'in an identity-based policy' if denied.decision == 'Deny' else f'the {action} action'}"
            )


def _context(service: str, resource: Resource) -> dict[str, Any]:
    context: dict[str, Any] = dict(resource.keys)
    for name, value in resource.tags.items():
        context[f"aws:ResourceTag/{name}"] = value
        context[f"{service}:ResourceTag/{name}"] = value
    for name, value in resource.requested.items():
        context[f"aws:RequestTag/{name}"] = value
    if resource.requested:
        context["aws:TagKeys"] = list(resource.requested)
    return context


def authorize_pass_role(headers: Headers, role_arn: str, service: str) -> None:
    """DeniedError unless the caller may hand this role to a service such as "ec2.amazonaws.com"."""
    passed = {"iam:PassedToService": service}
    authorize(headers, "iam:PassRole", [Resource(role_arn, keys=passed)])


def arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"
