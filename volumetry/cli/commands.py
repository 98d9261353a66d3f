"""The commands, thin: arguments in, one call, output in the form that was asked for."""

import csv
import io
import json
import secrets
import signal
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from volumetry import service as services
from volumetry.cli import local
from volumetry.cli.progress import COLOURS, Display, Watch
from volumetry.errors import BadRequest, CampaignRefused, RegionUnavailable, nearest
from volumetry.evidence import parse_facts
from volumetry.naming import Keys, TrialId
from volumetry.plan import AWS, Plan
from volumetry.plan import local as local_environment
from volumetry.plan import plan as make_plan
from volumetry.reading import read_campaign
from volumetry.report.model import Report
from volumetry.report.terminal import ladders
from volumetry.results import Results, State
from volumetry.service import STOPPED, Service
from volumetry.spec import Campaign, canonical, needs_kernel

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="What does each step of replication cost? Benchmarks of replicated block storage on AWS, and on this machine.",
)

LOOK_EVERY_S = 1.0
FAILED = ("failed", "indeterminate")


class Hosts(StrEnum):
    """What hosts of the local region are: auto takes guests where a kernel of their own is needed."""

    auto = "auto"
    process = "process"
    guest = "guest"


class On(StrEnum):
    """Where: the local region on this machine, or AWS."""

    local = "local"
    aws = "aws"


OnOption = Annotated[On, typer.Option("--on", help="where: this machine's local region, or AWS")]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document")]
ExecutionArgument = Annotated[
    str, typer.Argument(help="an execution, as `volumetry list` shows it; `last`: the newest")
]


def _console(*, errors: bool = False) -> Console:
    return Console(stderr=errors, highlight=False)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


@contextmanager
def _service(on: On) -> Iterator[Service]:
    if on is On.aws:
        yield services.aws()
        return
    with local.region(lambda _: None, deploy=False) as found:
        yield found.service


def _results(on: On) -> Results:
    return services.aws() if on is On.aws else local.results()


@app.command()
def plan(
    file: Annotated[Path, typer.Argument(help="a campaign, in YAML or JSON")],
    on: OnOption = On.local,
    as_json: JsonOption = False,
) -> None:
    """Show the trials of a campaign, their order and how long they should take; create nothing."""
    campaign = read_campaign(file)
    planned = make_plan(campaign, local_environment(campaign) if on is On.local else AWS)
    if as_json:
        sys.stdout.write(planned.to_json())
        return
    console = _console()
    table = Table("#", "block", "lane", "topology", "tuning", "workload", "expected s", "ceiling", box=None)
    for trial in planned.trials:
        ceiling = f"{trial.ceilings[0].iops:,.0f} IOPS: {trial.ceilings[0].cause}" if trial.ceilings else "not known"
        table.add_row(str(trial.sequence), str(trial.block), trial.lane, trial.topology, trial.tuning,
                      trial.workload, f"{trial.expected_s:.1f}", ceiling)  # fmt: skip
    console.print(table)
    hosts = len({(topology.launch, host) for topology in planned.topologies.values() for host in topology.hosts})
    console.print(
        f"\n{len(planned.trials)} trials on {len(planned.topologies)} topologies ({hosts} hosts), seed {planned.seed}; "
        f"about {planned.expected_s / 60:.1f} minutes. Nothing has been created."
    )


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="a campaign, in YAML or JSON")],
    on: OnOption = On.local,
    hosts: Annotated[Hosts, typer.Option("--hosts", help="local region: virtual machines, or processes")] = Hosts.auto,
    as_json: JsonOption = False,
) -> None:
    """Run a campaign from launch to report, and tear everything down. Ctrl-C tears down too."""
    campaign = read_campaign(file)
    kind = _kind(hosts, campaign)
    began = time.monotonic()
    execution = f"{campaign.campaign}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    console = _console(errors=as_json)
    say = lambda text: console.print(f"[dim]{text}[/dim]")  # noqa: E731
    if on is On.aws:
        found = services.aws()
        state, left = _follow(found, execution, canonical(campaign), console)
        outcome, figures = _outcome(found, execution, state, left, None), _figures(found, execution)
    else:
        with local.region(say, deploy=True, hosts=kind) as here:
            state, left = _follow(here.service, execution, canonical(campaign), console)
            outcome = _outcome(here.service, execution, state, left, here.results)
            figures = _figures(here.service, execution)
    outcome["seconds"]["wall"] = round(time.monotonic() - began, 1)
    if as_json:
        _print_json(outcome)
    else:
        _conclude(console, outcome, figures)
    raise typer.Exit(_exit_code(outcome))


def _kind(asked: Hosts, campaign: Campaign) -> str:
    """The kind of hosts on the local region; raises CampaignRefused where processes cannot carry the campaign."""
    needs = needs_kernel(campaign)
    if asked is Hosts.process and needs:
        raise CampaignRefused([f"{field}: needs hosts with a kernel of their own: --hosts guest" for field in needs])
    if asked is Hosts.auto:
        return "guest" if needs else "process"
    return asked.value


def _follow(found: Service, execution: str, campaign: str, console: Console) -> tuple[State, list[str]]:
    """Start the execution and watch it to its end; gives its state, and what is left behind of it."""
    # A shell's background jobs ignore Ctrl-C, and a service manager ends what it runs by SIGTERM: both mean stop.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    found.start(execution, campaign)
    with Display(console, Watch(execution, found)) as display:
        try:
            while not (state := found.state(execution)).ended:
                display.update()
                time.sleep(LOOK_EVERY_S)
            display.update()
        except KeyboardInterrupt:
            return _stop(found, execution, console)
    return state, found.tear_down(execution, list_only=True)


def _stop(found: Service, execution: str, console: Console) -> tuple[State, list[str]]:
    console.print("Stopping: tearing down what was launched. Please wait; nothing is to be left behind.")
    found.stop(execution, "stopped by the user")
    while True:
        try:
            left = found.tear_down(execution)
            if not left:
                break
            time.sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            console.print("Still tearing down.")
    console.print("Stopped. A fresh listing shows no stack, host, volume or interface of this execution.")
    state = found.state(execution)
    if found.get(Keys(execution).plan) is not None:
        found.analyse(execution, state.began, left)
    return state, left


def _outcome(found: Service, execution: str, state: State, left: list[str], results: Path | None) -> dict[str, Any]:
    """What a run came to, in the form that ``--json`` prints."""
    summary = found.get_json(Keys(execution).summary) or {}
    bucket = f"s3://{found.outputs.results_bucket}"
    where = str(results) if results else bucket
    return {
        "execution": execution,
        "status": state.status,
        "error": state.error or None,
        "cause": state.cause or None,
        "trials": summary.get("trials", {}),
        "report": f"{where}/{Keys(execution).report}" if summary.get("report") else None,
        "data": f"{where}/tables",
        "sql": str(local.ROOT / "queries"),
        "left_behind": left,
        "seconds": {"wall": None, "trials": summary.get("run_s")},
    }


def _figures(found: Results, execution: str) -> Report | None:
    content = found.get(Keys(execution).figures)
    return None if content is None else TypeAdapter(Report).validate_json(content)


def _exit_code(outcome: dict[str, Any]) -> int:
    if outcome["error"] == STOPPED or outcome["status"] == "ABORTED":
        return 130
    if outcome["status"] != "SUCCEEDED" or outcome["left_behind"]:
        return 2 if outcome["error"] == "Volumetry.CampaignRefused" else 1
    return 3 if any(outcome["trials"].get(verdict) for verdict in FAILED) else 0


def _conclude(console: Console, outcome: dict[str, Any], figures: Report | None) -> None:
    if figures is not None:
        console.print(ladders(figures, console.width))
    _print_verdicts(console, outcome["trials"])
    if outcome["cause"]:
        console.print(f"[red]{outcome['status']}[/red] {outcome['error']}: ", end="")
        console.print(outcome["cause"], markup=False)
    for left in outcome["left_behind"]:
        console.print(f"[red]left behind:[/red] {left}")
    if outcome["report"]:
        console.print(f"report  {outcome['report']}", soft_wrap=True)
    console.print(f"data    {outcome['data']}", soft_wrap=True)
    console.print(f"{outcome['execution']}: {outcome['status'].lower()} after {outcome['seconds']['wall']:.0f} s")


def _print_verdicts(console: Console, trials: dict[str, int]) -> None:
    shown = [f"[{COLOURS.get(verdict, '')}]{count} {verdict}[/]" for verdict, count in trials.items() if count]
    if shown:
        console.print("trials: " + ", ".join(shown))


@app.command("list")
def list_executions(on: OnOption = On.local, as_json: JsonOption = False) -> None:
    """List executions, the newest last."""
    found = _results(on)
    rows = [_summary_or_state(found, name) for name in found.executions()]
    rows.sort(key=lambda row: row["began"])
    if as_json:
        _print_json(rows)
        return
    table = Table("execution", "began", "status", "valid", box=None)
    table.columns[0].overflow = "fold"
    for row in rows:
        trials = row.get("trials", {})
        valid = f"{trials.get('valid', 0)} of {sum(trials.values())}" if trials else ""
        table.add_row(row["execution"], row["began"][:19], row["status"], valid)
    _console().print(table)


def _summary_or_state(found: Results, execution: str) -> dict[str, Any]:
    """The summary; of an execution that has none, what is still known of it."""
    summary: dict[str, Any] | None = found.get_json(Keys(execution).summary)
    if summary is not None:
        return summary
    try:
        state = found.state(execution)
    except BadRequest:
        state = State("LOST")
    return {"execution": execution, "began": state.began, "status": state.status}


def _resolve(found: Results, execution: str) -> str:
    if execution != "last":
        return execution
    began = {name: (found.get_json(Keys(name).summary) or {}).get("began", "") for name in found.executions()}
    if not began:
        raise BadRequest("there is no execution yet")
    return max(began, key=lambda name: began[name])


@app.command()
def show(
    execution: ExecutionArgument,
    on: OnOption = On.local,
    as_json: JsonOption = False,
    campaign: Annotated[bool, typer.Option("--campaign", help="print the campaign that it ran, as JSON")] = False,
) -> None:
    """Show an execution: its ladder, its verdicts and every trial."""
    found = _results(on)
    name = _resolve(found, execution)
    if campaign:
        typer.echo(found.get(Keys(found.summary(name)["execution"]).campaign) or b"")
        return
    summary = found.summary(name)
    figures = _figures(found, name)
    notes = [(TrialId.parse(key.split("/trials/")[1].split("/")[0]), found.get_json(key) or {})
             for key in found.keys(Keys(summary["execution"]).trials)]  # fmt: skip
    if as_json:
        _print_json(summary | {"attempts": [{"trial": str(trial), **note} for trial, note in notes]})
        return
    console = _console()
    console.print(f"{summary['execution']}: {summary['status']}, began {summary['began'][:19]}")
    if figures is not None:
        console.print(ladders(figures, console.width))
    _print_verdicts(console, summary["trials"])
    table = Table("trial", "verdict", "rate", "reason", box=None)
    for trial, note in sorted(notes, key=lambda item: item[0]):
        table.add_row(
            str(trial), note.get("verdict", note.get("state", "")), note.get("figure", ""), note.get("reason", "")
        )
    console.print(table)


@app.command()
def report(
    execution: ExecutionArgument,
    on: OnOption = On.local,
    output: Annotated[Path | None, typer.Option(help="write the page to this file")] = None,
) -> None:
    """Fetch an execution's report page, and say where it is."""
    found = _results(on)
    name = _resolve(found, execution)
    found.summary(name)
    page = found.get(Keys(name).report)
    if page is None:
        raise BadRequest(f"execution {name} has no report")
    path = output or Path(f"{name}.html")
    try:
        path.write_bytes(page)
    except OSError as error:
        raise BadRequest(f"--output: {str(path)!r} cannot be written: {error.strerror}") from None
    typer.echo(path)


@app.command()
def logs(
    execution: ExecutionArgument,
    trial: Annotated[str, typer.Argument(help="a trial's id: topology.tuning.workload.rN")],
    on: OnOption = On.local,
    extract: Annotated[Path | None, typer.Option(help="unpack all raw evidence into this folder")] = None,
) -> None:
    """Show a trial's raw evidence: what each host uploaded, its facts, and fio's own messages."""
    found = _results(on)
    name = _resolve(found, execution)
    planned = Plan.model_validate_json(found.plan(name))
    known = [each.id for each in planned.trials]
    if trial not in known:
        raise BadRequest(f"trial {trial!r} is not in {name}{nearest(trial, known) or '; see `volumetry show`'}")
    keys = found.keys(f"evidence/{name}/{trial}/")
    archives = {key: found.get(key) or b"" for key in keys if key.endswith(".tar.gz")}
    if not archives:
        raise BadRequest(f"trial {trial} of {name} left no evidence")
    console = _console()
    for key, content in archives.items():
        _show_archive(console, key, content, extract)


def _show_archive(console: Console, key: str, content: bytes, extract: Path | None) -> None:
    console.print(f"[bold]{key}[/bold]")
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        if extract is not None:
            tar.extractall(extract / Path(key).parent.name / Path(key).name.removesuffix(".tar.gz"), filter="data")
        files = {member.name: member.size for member in tar if member.isfile()}
        wanted = {name.removeprefix("./"): name for name in files}
        for name in ("facts", "fio.stderr"):
            if name in wanted and (handle := tar.extractfile(wanted[name])):
                text = handle.read().decode("utf-8", "replace")
                shown = parse_facts(text.encode()) if name == "facts" else {}
                for fact, value in shown.items():
                    console.print(f"  {fact} = {value}", markup=False)
                if name != "facts" and text.strip():
                    console.print(text.strip(), markup=False)
    console.print("  files: " + ", ".join(f"{name.removeprefix('./')} ({size} B)" for name, size in files.items()))


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="one statement of Athena SQL over the tables and views")],
    on: OnOption = On.local,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV")] = False,
) -> None:
    """Ask SQL of all results."""
    with _service(on) as found:
        answer = found.query(sql)
    if as_json:
        _print_json(answer.records())
    elif as_csv:
        csv.writer(sys.stdout).writerows([answer.columns, *answer.rows])
    else:
        table = Table(*answer.columns, box=None)
        for row in answer.rows:
            table.add_row(*("NULL" if value is None else _shown(value) for value in row))
        _console().print(table)


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@app.command()
def stop(execution: ExecutionArgument, on: OnOption = On.aws) -> None:
    """Stop an execution and tear down what it launched."""
    if on is On.local:
        raise RegionUnavailable("a run on the local region is stopped with Ctrl-C where it was started")
    found = services.aws()
    _stop(found, execution, _console())
