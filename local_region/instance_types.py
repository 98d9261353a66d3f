"""Facts about instance types, as DescribeInstanceTypes gives them. moto carries EC2's own answers."""

from __future__ import annotations

import functools
import gzip
import json
from importlib.resources import files
from typing import Any


@functools.cache
def _all() -> dict[str, dict[str, Any]]:
    packed = files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()
    types: dict[str, dict[str, Any]] = json.loads(gzip.decompress(packed))
    return types


def names() -> list[str]:
    return sorted(_all())


def describe(name: str) -> dict[str, Any]:
    """The facts of a type. KeyError: EC2 has no such type, or it is newer than our data."""
    return _all()[name]


def rate_bits_per_s(name: str) -> int | None:
    """What the first network card can send at its peak; None where EC2 states no figure."""
    gbps = describe(name)["NetworkInfo"]["NetworkCards"][0].get("PeakBandwidthInGbps")
    return round(gbps * 1e9) if gbps else None
