"""The one home of names: ids, object keys, tags and stack names are built here, and parsed here.

A name that holds several parts joins them with a dot, which no part may contain.
"""

import re
from dataclasses import dataclass

# Topologies, tunings, workloads and campaigns; short, since a trial's id joins three of them.
NAME = r"[a-z][a-z0-9-]{0,39}"
NAME_HELP = "a lower-case letter, then at most 39 lower-case letters, digits or hyphens"
# Step Functions allows more; a stack's name (128 characters, letters, digits, hyphens) allows no more.
EXECUTION = r"[A-Za-z0-9-]{1,64}"

TAG_APPLICATION = "volumetry"
TAG_EXECUTION = "volumetry:execution"
TAG_TOPOLOGY = "volumetry:topology"
TAG_HOST = "volumetry:host"
TAG_DEADLINE = "volumetry:deadline"


def is_name(text: str) -> bool:
    """Whether ``text`` may name a campaign, topology, tuning or workload."""
    return re.fullmatch(NAME, text) is not None


def is_execution(text: str) -> bool:
    """Whether ``text`` may name an execution."""
    return re.fullmatch(EXECUTION, text) is not None


@dataclass(frozen=True, order=True)
class TrialId:
    """``topology.tuning.workload.rN``: readable, unique in an execution, safe in keys and in shells."""

    topology: str
    tuning: str
    workload: str
    repetition: int

    def __str__(self) -> str:
        return f"{self.topology}.{self.tuning}.{self.workload}.r{self.repetition}"

    @classmethod
    def parse(cls, text: str) -> "TrialId":
        """The reverse of ``str``; raises ValueError on anything else."""
        match = re.fullmatch(rf"({NAME})\.({NAME})\.({NAME})\.r([1-9][0-9]*)", text)
        if match is None:
            raise ValueError(f"{text!r} is not a trial's id (topology.tuning.workload.rN)")
        topology, tuning, workload, repetition = match.groups()
        return cls(topology, tuning, workload, int(repetition))


@dataclass(frozen=True)
class Keys:
    """Object keys of one execution in the results bucket."""

    execution: str

    @property
    def root(self) -> str:
        return f"executions/{self.execution}/"

    @property
    def campaign(self) -> str:
        return f"{self.root}campaign.json"

    @property
    def plan(self) -> str:
        return f"{self.root}plan.json"

    @property
    def summary(self) -> str:
        return f"{self.root}summary.json"

    @property
    def report(self) -> str:
        return f"{self.root}report.html"

    @property
    def figures(self) -> str:
        """The report's data."""
        return f"{self.root}report.json"

    def lane(self, lane: str) -> str:
        return f"{self.root}lanes/{lane}.json"

    def template(self, topology: str) -> str:
        return f"{self.root}templates/{topology}.json"

    def topology(self, topology: str) -> str:
        """What became of a topology: ``ready`` with its hosts, or ``failed`` with the reason."""
        return f"{self.root}topologies/{topology}.json"

    @property
    def trials(self) -> str:
        return f"{self.root}trials/"

    def trial(self, trial: str, attempt: int) -> str:
        """What became of a trial's attempt: its state, verdict, reason and headline figures."""
        return f"{self.trials}{trial}/{attempt}.json"

    def parse_trial(self, key: str) -> tuple[str, int]:
        """(trial, attempt) of a key that ``trial`` built."""
        trial, attempt = key.removeprefix(self.trials).removesuffix(".json").split("/")
        return trial, int(attempt)

    def attempt(self, trial: str, attempt: int) -> "AttemptKeys":
        return AttemptKeys(self.execution, trial, attempt)


@dataclass(frozen=True)
class AttemptKeys:
    """Object keys of one attempt at a trial."""

    execution: str
    trial: str
    attempt: int

    @property
    def evidence(self) -> str:
        return f"evidence/{self.execution}/{self.trial}/{self.attempt}/"

    def archive(self, host: str) -> str:
        return f"{self.evidence}{host}.tar.gz"

    def manifest(self, host: str) -> str:
        return f"{self.evidence}{host}.manifest.json"

    @property
    def orders(self) -> str:
        return f"orders/{self.execution}/{self.trial}/{self.attempt}/"

    @property
    def order(self) -> str:
        return f"{self.orders}order"

    @property
    def job(self) -> str:
        return f"{self.orders}job.fio"

    def passed_on(self, what: str) -> str:
        """What one host leaves for another during a trial: ``begun``, ``ended``, ``verify``."""
        return f"{self.orders}{what}"

    @property
    def live(self) -> str:
        return f"live/{self.execution}/{self.trial}/{self.attempt}/"

    def live_sample(self, number: int) -> str:
        return f"{self.live}{number:04d}"

    def rows(self, table: str, date: str) -> str:
        """The Parquet object of one table; ``date`` is ``YYYY-MM-DD``, UTC."""
        return f"tables/{table}/dt={date}/{self.execution}.{self.trial}.{self.attempt}.parquet"

    @classmethod
    def parse_rows(cls, key: str) -> tuple[str, str, "AttemptKeys"]:
        """(table, date, attempt) of a key that ``rows`` built; raises ValueError on anything else."""
        match = re.fullmatch(
            rf"tables/([a-z]+)/dt=(\d{{4}}-\d\d-\d\d)/({EXECUTION})\.(.+)\.([1-9][0-9]*)\.parquet", key
        )
        if match is None:
            raise ValueError(f"{key!r} is not the key of a table's object")
        table, date, execution, trial, attempt = match.groups()
        return table, date, cls(execution, str(TrialId.parse(trial)), int(attempt))


def stack_name(execution: str, topology: str) -> str:
    """The CloudFormation stack of one topology: at most 64 + 40 of the 128 characters allowed."""
    return f"volumetry-{topology}-{execution}"


def tags(execution: str, topology: str) -> dict[str, str]:
    """Tags of a topology's stack; CloudFormation hands them on to hosts and volumes."""
    return {"application": TAG_APPLICATION, TAG_EXECUTION: execution, TAG_TOPOLOGY: topology}
