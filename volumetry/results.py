"""Results of executions, wherever they lie: in a bucket, or in the folder where the local region keeps one."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from volumetry.errors import BadRequest, nearest
from volumetry.naming import Keys, is_execution

_ENDED = ("SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED")
# What the local region keeps beside each object.
_FACTS = ".meta.json"


@dataclass(frozen=True)
class State:
    """An execution's state in the words of Step Functions, since when, and why when it ended badly."""

    status: str
    began: str = ""
    error: str = ""
    cause: str = ""

    @property
    def ended(self) -> bool:
        return self.status in _ENDED


class Results(ABC):
    """The results bucket, to read."""

    @abstractmethod
    def keys(self, prefix: str) -> list[str]:
        """Keys of all objects that begin so, sorted."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The object, or None when there is none of that key."""

    @abstractmethod
    def executions(self) -> list[str]:
        """Names of all executions that have results."""

    @abstractmethod
    def state(self, execution: str) -> State:
        """The state of an execution; raises BadRequest when it is not known."""

    def get_json(self, key: str) -> Any:
        content = self.get(key)
        return None if content is None else json.loads(content)

    def plan(self, execution: str) -> bytes:
        """The execution's plan, as JSON; raises BadRequest when there is no such execution."""
        content = self.get(Keys(execution).plan) if is_execution(execution) else None
        if content is None:
            known = self.executions()
            listed = ", ".join(known[-5:]) or "none yet"
            raise BadRequest(f"execution {execution!r} is not known; known: {listed}{nearest(execution, known)}")
        return content

    def summary(self, execution: str) -> dict[str, Any]:
        """The execution's summary; raises BadRequest when there is no such execution, or it has not ended."""
        self.plan(execution)
        summary: dict[str, Any] | None = self.get_json(Keys(execution).summary)
        if summary is None:
            raise BadRequest(f"execution {execution} has no summary: it is {self.state(execution).status}")
        return summary


class Folder(Results):
    """The results that the local region keeps, while no region runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def keys(self, prefix: str) -> list[str]:
        under = self.root / prefix.rpartition("/")[0]
        found = (path.relative_to(self.root).as_posix() for path in under.rglob("*") if path.is_file())
        return sorted(key for key in found if key.startswith(prefix) and not key.endswith(_FACTS))

    def get(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.is_file() else None

    def executions(self) -> list[str]:
        return sorted(path.name for path in (self.root / "executions").glob("*") if path.is_dir())

    def state(self, execution: str) -> State:
        # Its region ended before it did, and took its hosts along.
        return State("LOST")


def local_folder(home: Path, account: str, bucket: str) -> Path:
    """Where the local region keeps a bucket's objects, as plain files."""
    return home / "s3" / account / bucket
