"""What a running region is made of: the emulators with our seams, and our handlers before theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_region import (
    cloudformation,
    functions,  # noqa: F401 (declares its seams)
    interpreter,
    queries,
    schedules,
    seams,
    step_functions,
)
from local_region.compute import Compute
from local_region.ec2 import Ec2
from local_region.hosts.base import HostDriver
from local_region.run_command import RunCommand


@dataclass
class Parts:
    state: Path
    compute: Compute
    run_command: RunCommand
    deployed: set[str]
    on_the_loop: frozenset[str] = frozenset({"deployed"})

    @classmethod
    def assemble(cls, state: Path, make_driver: Callable[[Path, int], HostDriver], port: int) -> Parts:
        """Import the emulators, restore what was kept in `state`, and put our handlers in. Takes seconds."""
        from ministack import app  # noqa: PLC0415 (reads its environment at import)

        seams.install("ministack")
        cloudformation.register()
        app._load_persisted_state()
        cloudformation.settle_interrupted()
        compute = Compute(make_driver(state / "hosts", port))
        run_command = RunCommand(compute)
        run_command.documents.load(state / "documents.json")
        ours = {
            "athena": queries.handler,
            "cloudformation": cloudformation.handler,
            "ec2": Ec2(compute).handler,
            "scheduler": schedules.handler,
            "ssm": run_command.handler,
        }
        for service, handler in ours.items():
            app.SERVICE_HANDLERS[service] = handler(app.SERVICE_HANDLERS[service])
        return cls(state, compute, run_command, _deployed(state))

    def preload(self) -> None:
        """Import the interpreter of state machines, which nothing needs before the first machine."""
        interpreter.load()

    def admin(self) -> Mapping[str, Callable[[Any], Any]]:
        """Operations under /_local_region/; ValueError is the caller's mistake."""
        return {
            "leftovers": lambda _request: self.leftovers(),
            "faults": self.compute.set_faults,
            "deployed": self._add_deployed,
        }

    def _add_deployed(self, request: Mapping[str, str]) -> dict[str, str]:
        """Note a stack that is to stay: no leftover. Then keep the state, should the end not be a clean one."""
        self.deployed.add(request["stack_name"])
        (self.state / "deployed.json").write_text(json.dumps(sorted(self.deployed)))
        self.save()
        return {}

    def leftovers(self) -> list[str]:
        executions = [f"execution {arn}" for arn in step_functions.running()]
        stacks = cloudformation.unfinished(self.deployed)
        return executions + stacks + self.compute.leftovers() + self.compute.driver.leftovers()

    def close(self) -> None:
        """End everything, then keep the state."""
        from ministack.core import lambda_runtime  # noqa: PLC0415

        step_functions.stop_all("the local region is stopping")
        self.compute.close()
        lambda_runtime.reset()
        self.save()

    def save(self) -> None:
        from ministack import app  # noqa: PLC0415
        from ministack.core import persistence  # noqa: PLC0415

        self.run_command.documents.save(self.state / "documents.json")
        # What a template's types import beyond our services holds nothing.
        names = {app.SERVICE_REGISTRY[service]["module"] for service in app.SERVICE_HANDLERS}
        savers = app._build_persistence_save_dict().items()
        persistence.save_all({key: save for key, save in savers if app._state_map[key] in names})


def _deployed(state: Path) -> set[str]:
    path = state / "deployed.json"
    return set(json.loads(path.read_text())) if path.exists() else set()
