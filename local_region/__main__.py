"""python -m local_region serve | deploy | image"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from local_region.deploy import Deployment
    from local_region.region import MakeDriver


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    return {"serve": _serve, "deploy": _deploy, "image": _image}[options.command](options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="local_region", description="An embedded stand-in for AWS.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run a region until SIGTERM or the end of standard input")
    serve.add_argument("--state", type=Path, required=True, help="directory of everything that it keeps")
    serve.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 takes a free one")
    serve.add_argument("--hosts", default="process", help="kind of hosts that instances are made of: process or guest")
    serve.add_argument(
        "--distances",
        default="{}",
        help="JSON of round trips in seconds: ebs_round_trip_s, same_az_round_trip_s, cross_az_round_trip_s",
    )
    deploy = commands.add_parser("deploy", help="deploy a synthesised cloud assembly, print the stacks' outputs")
    deploy.add_argument("assembly", type=Path, help="directory that holds manifest.json")
    where = deploy.add_mutually_exclusive_group(required=True)
    where.add_argument("--endpoint", help="URL of the region; credentials are those of the environment")
    where.add_argument("--state", type=Path, help="directory of a running region, for URL and credentials")
    deploy.add_argument(
        "--parameter", action="append", default=[], metavar="STACK:KEY=VALUE", help="value of a stack's parameter"
    )
    commands.add_parser("image", help="build the image of guest hosts, unless it is there, and print its folder")
    return parser


def _serve(options: argparse.Namespace) -> int:
    from local_region.region import RefusedError, Region  # noqa: PLC0415

    try:
        driver = _driver(options.hosts, json.loads(options.distances))
        Region(options.state.resolve(), driver, options.port).run()
    except RefusedError as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


def _driver(kind: str, distances: dict[str, float]) -> MakeDriver:
    """Import the hosts' kind only when it is wanted: each has needs of its own."""
    from local_region.hosts.base import Distances  # noqa: PLC0415

    if kind == "process":
        from local_region.hosts.process import ProcessHosts  # noqa: PLC0415

        return lambda folder, port: ProcessHosts(folder, endpoint_port=port, distances=Distances(**distances))
    if kind == "guest":
        from local_region.hosts.guest import GuestHosts  # noqa: PLC0415

        return lambda folder, port: GuestHosts(folder, endpoint_port=port, distances=Distances(**distances))
    raise SystemExit(f"--hosts {kind} is not known")


def _image(_options: argparse.Namespace) -> int:
    from local_region.hosts.base import HostsUnavailableError  # noqa: PLC0415
    from local_region.hosts.guest_image import ensure_image  # noqa: PLC0415

    try:
        print(ensure_image().folder)
    except HostsUnavailableError as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


def _deploy(options: argparse.Namespace) -> int:
    from local_region.deploy import FailedError  # noqa: PLC0415

    try:
        print(json.dumps(_deployment(options).run(options.assembly), indent=2))
    except FailedError as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def _deployment(options: argparse.Namespace) -> Deployment:
    from local_region.deploy import Deployment  # noqa: PLC0415

    parameters: dict[str, dict[str, str]] = {}
    for parameter in options.parameter:
        stack, _, assignment = parameter.partition(":")
        key, _, value = assignment.partition("=")
        parameters.setdefault(stack, {})[key] = value
    if options.endpoint:
        keys = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        return Deployment(options.endpoint, *keys, parameters)
    ready = json.loads((options.state / "ready.json").read_text())
    return Deployment(ready["endpoint"], ready["access_key_id"], ready["secret_access_key"], parameters)


if __name__ == "__main__":
    sys.exit(main())
