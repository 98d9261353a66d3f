"""Everything one host uploaded for one attempt."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from volumetry.evidence import dbench, fio, pgbench
from volumetry.evidence.failure import Event, Verification, parse_events, parse_verification
from volumetry.evidence.latency import Load
from volumetry.evidence.telemetry import Sample, parse_telemetry

Files = Mapping[str, bytes]
TOOLS: dict[str, Callable[[Files, float], Load]] = {
    "fio": fio.read_load,
    "pgbench": pgbench.read_load,
    "dbench": dbench.read_load,
}


@dataclass(frozen=True)
class HostEvidence:
    """One host's files, read; times are Unix times in seconds. ``load`` is None on a host that made none."""

    facts: Mapping[str, str]
    load: Load | None
    samples: list[Sample]
    states: list[Event] = field(default_factory=list)  # each change of the replication's state, the line its detail
    events: list[Event] = field(default_factory=list)
    alone: Load | None = None  # the same load with the peer disconnected
    remembers: bool = False  # what was acknowledged is known, so that it can be read back
    verification: Verification | None = None

    @property
    def ended_s(self) -> float | None:
        return float(self.facts["ended"]) if "ended" in self.facts else None

    @property
    def rtt_us(self) -> list[float]:
        """Mean round trip to each other host that answered."""
        return [float(value) * 1000 for key, value in self.facts.items() if key.startswith("rtt_ms.")]


def parse_facts(text: bytes) -> dict[str, str]:
    """``KEY=VALUE`` lines; a key that comes again replaces the first."""
    return dict(line.split("=", 1) for line in text.decode("utf-8", "replace").splitlines() if "=" in line)


def read_host(files: Files, window_s: float, tool: str = "fio") -> HostEvidence:
    """One host's files, read; raises EvidenceMissing when a client's tool left no result."""
    facts = parse_facts(files.get("facts", b""))
    return HostEvidence(
        facts=facts,
        load=TOOLS[tool](files, window_s) if "started" in facts else None,
        samples=parse_telemetry(files.get("telemetry", b"")),
        states=[Event(state.at_s, "state", f"{state.name} {state.detail}".strip())
                for state in parse_events(files.get("states", b""))],
        events=parse_events(files.get("events", b"")),
        alone=fio.parse_fio(files["fio-alone.json"]) if "fio-alone.json" in files else None,
        remembers=any(name.endswith("-verify.state") for name in files),
        verification=parse_verification(files["verify.json"]) if "verify.json" in files else None,
    )  # fmt: skip
