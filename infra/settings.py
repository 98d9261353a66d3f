"""What the deployer may choose, from CDK context (``-c name=value``); no AWS call is needed to synthesise."""

from dataclasses import dataclass

from constructs import Node


@dataclass(frozen=True)
class Settings:
    """``prefix`` begins the stacks' names; ``alarm_email`` is told when something was left behind."""

    prefix: str = "Volumetry"
    alarm_email: str | None = None

    @classmethod
    def from_context(cls, node: Node) -> "Settings":
        return cls(
            prefix=node.try_get_context("prefix") or cls.prefix,
            alarm_email=node.try_get_context("alarm_email"),
        )
