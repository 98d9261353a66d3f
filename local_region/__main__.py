"""python -m local_region serve | deploy"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="local_region", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run a region until SIGTERM or the end of standard input")
    serve.add_argument("--state", type=Path, required=True, help="directory of everything that it keeps")
    serve.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 takes a free one")
    serve.add_argument("--hosts", default="process", help="kind of hosts that instances are made of")
    options = parser.parse_args(arguments)
    return _serve(options)


def _driver(kind: str) -> MakeDriver:
    """Import the hosts' kind only when it is wanted: each has needs of its own."""
    if kind == "process":
        from local_region.hosts.process import ProcessHosts  # noqa: PLC0415

        return lambda directory: ProcessHosts(directory)
    raise SystemExit(f"--hosts {kind} is not known")


def _serve(options: argparse.Namespace) -> int:
    from local_region.region import RefusedError, Region  # noqa: PLC0415

    try:
        Region(options.state.resolve(), _driver(options.hosts), options.port).run()
    except RefusedError as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
