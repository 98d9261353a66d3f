"""Who calls: credentials of roles and callers, and clients of the region's own endpoint signed with them.

What the region does on behalf of a role (a state machine, a stack, a schedule) goes through its public
endpoint with that role's credentials, so that IAM decides about it as it decides about everybody.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

ACCOUNT = "123456789012"
REGION = "us-east-1"


class CannotAssumeRoleError(RuntimeError):
    """The role does not exist or does not trust the service that wants it."""


@dataclass(frozen=True)
class Credentials:
    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


def of_role(role_arn: str, *, service: str, session: str) -> Credentials:
    """Credentials of a role for a service such as "states.amazonaws.com", if its trust policy names it."""
    from ministack.services import iam, sts  # noqa: PLC0415 (reads its environment at import)

    name = role_arn.rpartition("/")[2]
    role = iam._roles.get(name)
    if role is None:
        raise CannotAssumeRoleError(f"the role {role_arn} does not exist")
    if not _trusts(role["AssumeRolePolicyDocument"], service):
        raise CannotAssumeRoleError(f"the role {role_arn} does not trust {service}")
    digest = hashlib.sha256(f"{role_arn}:{service}:{session}".encode()).hexdigest()
    # Derived, not drawn: one session for a role and purpose, so that its signed clients are reused.
    credentials = Credentials(f"ASIA{digest[:16].upper()}", digest, f"token-{digest}")
    sts.register_session(
        credentials.access_key_id,
        {
            "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/{name}/{session[:64]}",
            "UserId": f"{role['RoleId']}:{session[:64]}",
            "SecretAccessKey": credentials.secret_access_key,
            "SessionToken": credentials.session_token,
        },
    )
    return credentials


def _trusts(document: str | dict[str, Any], service: str) -> bool:
    policy = json.loads(document) if isinstance(document, str) else document
    statements = policy.get("Statement", [])
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal", {})
        services = principal.get("Service", []) if isinstance(principal, dict) else []
        if statement.get("Effect") == "Allow" and service in ([services] if isinstance(services, str) else services):
            return True
    return False


def of_key(access_key_id: str) -> Credentials:
    """Credentials behind an access key that signed a request."""
    from ministack.core import iam_evaluator  # noqa: PLC0415

    found = iam_evaluator.resolve_credential(access_key_id, ACCOUNT)
    return Credentials(found.access_key_id, found.secret_access_key, found.session_token)


class Clients:
    """Signed boto3 clients of the region's endpoint; one for each service and identity."""

    def __init__(self, endpoint: str, administrator: Credentials) -> None:
        self.endpoint = endpoint
        self.administrator = administrator
        # botocore's loaders are not safe to share between threads while they load.
        self._lock = threading.Lock()
        self._made: dict[tuple[str, str], Any] = {}
        self._session: Any = None

    def client(self, service: str, credentials: Credentials | None = None) -> Any:
        """A client for a service, as the administrator unless credentials are given."""
        who = credentials or self.administrator
        with self._lock:
            made = self._made.get((service, who.access_key_id))
            if made is None:
                made = self._made[service, who.access_key_id] = self._make(service, who)
            return made

    def _make(self, service: str, who: Credentials) -> Any:
        import boto3  # noqa: PLC0415 (half a second, which nobody has to wait for)
        from botocore.config import Config  # noqa: PLC0415

        self._session = self._session or boto3.Session(region_name=REGION)
        client = self._session.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=who.access_key_id,
            aws_secret_access_key=who.secret_access_key,
            aws_session_token=who.session_token,
            # One attempt: retries are the state machine's, or the stack's, to make.
            config=Config(
                retries={"total_max_attempts": 1},
                read_timeout=1000,
                max_pool_connections=64,
                s3={"addressing_style": "path"},
            ),
        )
        client.meta.events.register("after-call", _with_request_id)
        return client


def _with_request_id(parsed: dict[str, Any], **_event: Any) -> None:
    """Not all of ministack's refusals carry one, and moto's interpreter quotes it."""
    parsed.setdefault("ResponseMetadata", {}).setdefault("RequestId", str(uuid.uuid4()))


_clients: list[Clients] = []


def use(clients: Clients) -> None:
    """Make these the clients of this process; the emulators hold their state in modules likewise."""
    _clients[:] = [clients]


def client(service: str, credentials: Credentials | None = None) -> Any:
    return _clients[0].client(service, credentials)


_stack_identity: ContextVar[Credentials | None] = ContextVar("stack_identity", default=None)


@contextlib.contextmanager
def acting_as(credentials: Credentials) -> Iterator[None]:
    """Let a stack's resources be made with these credentials, in this context and what copies it."""
    token = _stack_identity.set(credentials)
    try:
        yield
    finally:
        _stack_identity.reset(token)


def stack_client(service: str) -> Any:
    """A client with the credentials of the stack operation that is under way."""
    return client(service, _stack_identity.get())
