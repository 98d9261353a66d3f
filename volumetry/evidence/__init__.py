"""What a trial's raw files say: manifests and archives checked, tools' output, logs and telemetry read.

Missing stays missing: a direction without I/O has no latency, a host without a reply has no round trip.
"""

from volumetry.evidence.host import HostEvidence, parse_facts, read_host
from volumetry.evidence.latency import Direction, Load, Operation, Window, bucket_bounds_ns, bucket_midpoint_ns
from volumetry.evidence.manifest import Manifest, read_archive
from volumetry.evidence.telemetry import Sample, Usage, parse_telemetry, usage

__all__ = [
    "Direction",
    "HostEvidence",
    "Load",
    "Manifest",
    "Operation",
    "Sample",
    "Usage",
    "Window",
    "bucket_bounds_ns",
    "bucket_midpoint_ns",
    "parse_facts",
    "parse_telemetry",
    "read_archive",
    "read_host",
    "usage",
]
