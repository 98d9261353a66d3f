"""Turns a campaign into a plan, and writes plan, trial lists and templates to the results bucket."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from pydantic import BaseModel

from functions.environment import Deployment, deployment
from functions.logging import logger
from functions.store import Store
from volumetry import naming, plan, reading, spec, topologies
from volumetry.ceilings import InstanceFacts
from volumetry.errors import CampaignRefused

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeInfoTypeDef

# The dead man's switch: what the lane is expected to take, twice, and room for a slow launch and tear-down.
DEADLINE_FACTOR = 2
DEADLINE_MARGIN_S = 3600
MEGABIT = 1e6 / 8
MEGABYTE = 1e6


class Event(BaseModel):
    """``campaign`` is the execution's input, as the user gave it."""

    execution: str
    campaign: Any


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    request = Event.model_validate(event)
    logger.append_keys(execution=request.execution)
    return make(request, deployment(), Store(deployment().results_bucket))


def make(request: Event, environment: Deployment, store: Store) -> dict[str, Any]:
    """Plan the campaign; raises CampaignRefused before anything is written or launched."""
    if not naming.is_execution(request.execution):
        allowed = "at most 64 letters, digits and hyphens"
        raise CampaignRefused([f"execution name: {request.execution!r} is not allowed; allowed: {allowed}"])
    campaign = reading.check_campaign(request.campaign)
    where = _where(campaign, environment)
    planned = plan.plan(campaign, where)
    keys = naming.Keys(request.execution)
    store.put(keys.campaign, spec.canonical(campaign).encode())
    for launch, launched in _launches(campaign).items():
        store.put_json(keys.template(launch), topologies.template(launched))
    for lane in planned.lanes:
        trials = [trial.model_dump(mode="json") for trial in planned.trials if trial.lane == lane]
        store.put_json(keys.lane(lane), trials)
    store.put(keys.plan, planned.to_json().encode())
    return {
        "bucket": store.bucket,
        "poll_s": environment.poll_s,
        "lanes": [_lane(lane, planned, campaign, request.execution, environment) for lane in planned.lanes],
    }


def _launches(campaign: spec.Campaign) -> dict[str, dict[str, spec.Topology]]:
    return {
        launch: {name: campaign.topologies[name] for name in names} for launch, names in spec.groups(campaign).items()
    }


def _lane(
    lane: str, planned: plan.Plan, campaign: spec.Campaign, execution: str, environment: Deployment
) -> dict[str, Any]:
    keys = naming.Keys(execution)
    lifetime = timedelta(seconds=DEADLINE_FACTOR * planned.lane_expected_s[lane] + DEADLINE_MARGIN_S)
    return {
        "name": lane,
        "trials": keys.lane(lane),
        "topologies": [
            {
                "execution": execution,
                "topology": launch,
                "members": list(launched),
                "stack": naming.stack_name(execution, launch),
                "template": keys.template(launch),
                "tags": _pairs(
                    naming.tags(execution, launch) | {naming.TAG_DEADLINE: _stamp(lifetime)}, "Key", "Value"
                ),
                "parameters": _pairs(_parameters(launched, environment, lifetime), "ParameterKey", "ParameterValue"),
            }
            for launch, launched in _launches(campaign).items()
            if launch in planned.lanes[lane]
        ],
    }


def _pairs(values: dict[str, str], key: str, value: str) -> list[dict[str, str]]:
    return [{key: name, value: text} for name, text in values.items()]


def _stamp(lifetime: timedelta) -> str:
    """EventBridge Scheduler's at() takes UTC without a zone."""
    return (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%S")


def _parameters(launched: dict[str, spec.Topology], environment: Deployment, lifetime: timedelta) -> dict[str, str]:
    known = {f"Subnet{az.upper()}": subnet for az, subnet in environment.subnets.items()} | {
        "SecurityGroup": environment.security_group,
        "InstanceProfile": environment.instance_profile,
        "SchedulerRole": environment.scheduler_role,
        "Deadline": _stamp(lifetime),
        "LifetimeMinutes": str(int(lifetime.total_seconds() // 60)),
    }
    return {name: known[name] for name in topologies.parameter_names(launched)}


def _where(campaign: spec.Campaign, environment: Deployment) -> plan.Environment:
    if environment.hosts_share_hardware:
        # These hosts are not the instances that their type names: its limits do not bind them.
        return plan.local(campaign)
    wanted = sorted({topology.instance_type for topology in campaign.topologies.values()})
    known = {name: facts for name in wanted if (facts := _instance(name)) is not None}
    return plan.Environment(**(vars(plan.AWS) | {"instances": known}))


@cache
def _ec2() -> "EC2Client":
    return boto3.client("ec2")


@cache
def _instance(name: str) -> InstanceFacts | None:
    found = _ec2().describe_instance_types(Filters=[{"Name": "instance-type", "Values": [name]}])["InstanceTypes"]
    return _facts(found[0]) if found else None


def _facts(info: "InstanceTypeInfoTypeDef") -> InstanceFacts:
    ebs = info.get("EbsInfo", {}).get("EbsOptimizedInfo", {})
    cards = info.get("NetworkInfo", {}).get("NetworkCards", [])
    baseline = [card["BaselineBandwidthInGbps"] for card in cards if "BaselineBandwidthInGbps" in card]
    peak = [card["PeakBandwidthInGbps"] for card in cards if "PeakBandwidthInGbps" in card]

    def scaled(value: float | None, unit: float) -> float | None:
        return None if value is None else value * unit

    return InstanceFacts(
        ebs_baseline_iops=ebs.get("BaselineIops"),
        ebs_maximum_iops=ebs.get("MaximumIops"),
        ebs_baseline_bytes_per_s=scaled(ebs.get("BaselineThroughputInMBps"), MEGABYTE),
        ebs_maximum_bytes_per_s=scaled(ebs.get("MaximumThroughputInMBps"), MEGABYTE),
        network_baseline_bytes_per_s=scaled(sum(baseline) if baseline else None, 1000 * MEGABIT),
        network_peak_bytes_per_s=scaled(sum(peak) if peak else None, 1000 * MEGABIT),
    )
