"""What a function's template gives it in its environment, as values with types."""

import os
from functools import cache
from typing import Self

from pydantic import BaseModel, Json


class Environment(BaseModel):
    """The environment variables of a function, by lower-case name; raises ValidationError when one is missing."""

    @classmethod
    def read(cls) -> Self:
        return cls.model_validate({name.lower(): value for name, value in os.environ.items()})


class Results(Environment):
    """Functions that read or write results."""

    results_bucket: str


class Deployment(Results):
    """Functions that plan and launch: what the network and the workflow stacks made."""

    documents: Json[dict[str, str]]  # our name -> the document's name in SSM
    subnets: Json[dict[str, str]]  # AZ letter -> subnet id
    security_group: str
    instance_profile: str
    scheduler_role: str
    hosts_share_hardware: bool
    poll_s: int


class Queries(Results):
    """Functions that ask SQL."""

    database: str
    workgroup: str
    aws_region: str


@cache
def deployment() -> Deployment:
    return Deployment.read()


@cache
def results() -> Results:
    return Results.read()


@cache
def queries() -> Queries:
    return Queries.read()
