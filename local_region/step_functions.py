"""Step Functions: ministack keeps machines and executions, moto's interpreter runs them.

moto's interpreter is LocalStack's, whose tests compare it with AWS. It takes the place of ministack's own at
one function, `_run_execution`; listing, stopping, tagging, versions, persistence and status events stay
ministack's.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from local_region import identity, interpreter
from local_region.seams import mend

log = logging.getLogger("local_region.step_functions")

_MINISTACK = "ministack.services.stepfunctions"

# Executions


@dataclass
class Live:
    """An execution that the interpreter is running."""

    environment: Any
    record: dict[str, Any]
    lock: threading.Lock = field(default_factory=threading.Lock)


_live: dict[str, Live] = {}
_live_lock = threading.Lock()


def running() -> list[str]:
    """ARNs of the executions under way."""
    from ministack.services import stepfunctions as store  # noqa: PLC0415

    return [arn for arn, record in list(store._executions.items()) if record["status"] == "RUNNING"]


def stop_all(cause: str) -> None:
    """Stop every execution and wait, for a few seconds, until the interpreter let go of them."""
    from ministack.services import stepfunctions as store  # noqa: PLC0415

    for arn in running():
        # An execution that counts as synchronous publishes no event: nobody is left to hear it.
        store._executions[arn]["sync"] = True
        store._stop_execution({"executionArn": arn, "error": "States.RegionStopped", "cause": cause})
    deadline = time.monotonic() + 5
    while _live and time.monotonic() < deadline:
        time.sleep(0.02)


@mend(
    f"{_MINISTACK}:_run_execution",
    because="executions run on moto's interpreter",
    fingerprint="996dff84e0e0",
)
def _run_execution(_original: Callable[..., None], execution_arn: str) -> None:
    from ministack.services import stepfunctions as store  # noqa: PLC0415

    record = store._executions[execution_arn]
    machine = store._state_machines.get(record["stateMachineArn"])
    if machine is None:
        _finish(record, "FAILED", error="StateMachineDeleted", cause="State machine no longer exists")
        return
    try:
        interpreter.load()
        # A role that cannot be assumed would fail each task; AWS refuses the execution.
        interpreter.client_for("stepfunctions", machine["roleArn"])
        worker = _worker(record, machine)
    except Exception as error:
        log.warning("%s cannot run: %s", execution_arn, error)
        _finish(record, "FAILED", error="States.Runtime", cause=str(error))
        return
    _interpret(record, worker)


def _interpret(record: dict[str, Any], worker: Any) -> None:
    arn = record["executionArn"]
    program = worker._get_evaluation_entrypoint()
    environment = worker._get_evaluation_environment()
    # Running from here on, so that a stop that comes before the first state is not lost.
    environment.next_state_name = program.start_at.start_at_name
    environment.event_manager._history_event_list.extend(record["events"])
    environment.event_manager._event_id_gen.get()
    with _live_lock:
        _live[arn] = Live(environment, record)
    try:
        if record["status"] == "RUNNING":
            program.eval(environment)
    except Exception:
        # The setter of the next state refuses a program that was stopped in between.
        if record["status"] == "RUNNING":
            raise
    finally:
        with _live_lock:
            live = _live.pop(arn)
        _mirror(live)
        _conclude(record, environment)


def _worker(record: dict[str, Any], machine: dict[str, Any]) -> Any:
    from moto.stepfunctions.parser.asl.eval import evaluation_details as details  # noqa: PLC0415
    from moto.stepfunctions.parser.backend.execution_worker import ExecutionWorker  # noqa: PLC0415

    nobody: Any = None
    return ExecutionWorker(
        evaluation_details=details.EvaluationDetails(
            aws_execution_details=details.AWSExecutionDetails(
                account=identity.ACCOUNT, region=identity.REGION, role_arn=machine["roleArn"]
            ),
            execution_details=details.ExecutionDetails(
                arn=record["executionArn"],
                name=record["name"],
                role_arn=machine["roleArn"],
                inpt=json.loads(record["input"]),
                start_time=record["startDate"],
            ),
            state_machine_details=details.StateMachineDetails(
                arn=machine["stateMachineArn"],
                name=machine["name"],
                typ=machine["type"],
                definition=machine["definition"],
            ),
        ),
        exec_comm=nobody,
        cloud_watch_logging_session=None,
        activity_store={},
    )


def _conclude(record: dict[str, Any], environment: Any) -> None:
    from moto.stepfunctions.parser.asl.eval import program_state as states  # noqa: PLC0415
    from moto.stepfunctions.parser.asl.utils.encoding import to_json_str  # noqa: PLC0415

    state = environment.program_state()
    if isinstance(state, states.ProgramEnded):
        output = to_json_str(environment.states.get_input(), separators=(",", ":"))
        _finish(record, "SUCCEEDED", output=output)
    elif isinstance(state, states.ProgramTimedOut):
        _finish(record, "TIMED_OUT")
    elif isinstance(state, states.ProgramError):
        error = state.error or {}
        _finish(record, "FAILED", error=error.get("error"), cause=error.get("cause"))
    else:
        interpreter.an_execution_ended()


def _finish(
    record: dict[str, Any],
    status: str,
    *,
    output: str | None = None,
    error: str | None = None,
    cause: str | None = None,
) -> None:
    from ministack.core.responses import now_iso  # noqa: PLC0415
    from ministack.services import stepfunctions as store  # noqa: PLC0415

    with _live_lock:
        # StopExecution has the last word.
        if record["status"] != "RUNNING":
            return
        record.update(status=status, output=output, error=error, cause=cause, stopDate=now_iso())
    store._emit_execution_status_event(record)
    interpreter.an_execution_ended()


@mend(
    f"{_MINISTACK}:_stop_execution",
    because="the interpreter has to hear of it",
    fingerprint="44d2d84ccd5c",
)
def _stop_execution(original: Callable[..., Any], request: dict[str, Any]) -> Any:
    with _live_lock:
        live = _live.get(request.get("executionArn", ""))
        response = original(request)
    if live and live.record["status"] == "ABORTED":
        live.environment.set_stop(
            stop_date=live.record["stopDate"], error=request.get("error"), cause=request.get("cause")
        )
        interpreter.an_execution_ended()
    return response


@mend(
    f"{_MINISTACK}:_get_execution_history",
    because="the interpreter keeps the history",
    fingerprint="e865bdd85d5d",
)
def _get_execution_history(original: Callable[..., Any], request: dict[str, Any]) -> Any:
    _mirror_all()
    return original(request)


@mend(f"{_MINISTACK}:_list_map_runs", because="the interpreter keeps the map runs", fingerprint="a10eab45ff46")
def _list_map_runs(original: Callable[..., Any], request: dict[str, Any]) -> Any:
    _mirror_all()
    return original(request)


@mend(f"{_MINISTACK}:_describe_map_run", because="the interpreter keeps the map runs", fingerprint="c19fb4fd4d49")
def _describe_map_run(original: Callable[..., Any], request: dict[str, Any]) -> Any:
    _mirror_all()
    return original(request)


def _mirror_all() -> None:
    with _live_lock:
        alive = list(_live.values())
    for live in alive:
        _mirror(live)


def _mirror(live: Live) -> None:
    """Copy history and map runs of an execution to where ministack answers for them."""
    from ministack.services import stepfunctions as store  # noqa: PLC0415

    history = [_plain_event(event) for event in live.environment.event_manager.get_event_history()]
    known = {event["type"] for event in history}
    # An abort is in ministack's record at once; the interpreter may take a while to come to it.
    history += [
        event for event in live.record["events"] if event["type"] == "ExecutionAborted" and event["type"] not in known
    ]
    live.record["events"] = history
    for run in live.environment.map_run_record_pool_manager.get_all():
        store._map_runs[run.map_run_arn] = {
            **json.loads(json.dumps(run.describe(), default=str)),
            "_stateMachineArn": run.map_state_machine_arn,
        }


def _plain_event(event: dict[str, Any]) -> dict[str, Any]:
    return {"previousEventId": 0, **event, "type": str(getattr(event["type"], "value", event["type"]))}


# Callbacks by task token


@mend(f"{_MINISTACK}:_send_task_success", because="the interpreter holds the tokens", fingerprint="12eff48bce57")
def _send_task_success(_original: Callable[..., Any], request: dict[str, Any]) -> Any:
    from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackOutcomeSuccess  # noqa: PLC0415

    token = request["taskToken"]
    return _call_back(token, CallbackOutcomeSuccess(callback_id=token, output=request["output"]))


@mend(f"{_MINISTACK}:_send_task_failure", because="the interpreter holds the tokens", fingerprint="c2a489b4ed33")
def _send_task_failure(_original: Callable[..., Any], request: dict[str, Any]) -> Any:
    from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackOutcomeFailure  # noqa: PLC0415

    token = request["taskToken"]
    outcome = CallbackOutcomeFailure(callback_id=token, error=request.get("error", ""), cause=request.get("cause", ""))
    return _call_back(token, outcome)


@mend(f"{_MINISTACK}:_send_task_heartbeat", because="the interpreter holds the tokens", fingerprint="56879a4655d1")
def _send_task_heartbeat(_original: Callable[..., Any], request: dict[str, Any]) -> Any:
    return _call_back(request["taskToken"], None)


def _call_back(token: str, outcome: Any) -> Any:
    """Tell the execution that waits for a token; no outcome is a heartbeat."""
    from ministack.core.responses import error_response_json, json_response  # noqa: PLC0415
    from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackNotifyConsumerError  # noqa: PLC0415

    with _live_lock:
        pools = [live.environment.callback_pool_manager for live in _live.values()]
    for pool in pools:
        try:
            if pool.heartbeat(token) if outcome is None else pool.notify(token, outcome):
                return json_response({})
        except CallbackNotifyConsumerError as error:
            return error_response_json("TaskTimedOut", str(error), 400)
    return error_response_json("TaskDoesNotExist", "Task does not exist", 400)


# Definitions


@mend(
    f"{_MINISTACK}:_validate_definition_jsonata",
    because="a machine that the interpreter cannot read is refused when it is created, as on AWS",
    fingerprint="a5ec092b2c8d",
)
def _validate_definition(original: Callable[..., str | None], definition: str | None) -> str | None:
    return original(definition) or interpreter.problem(definition or "{}")


@mend(
    "ministack.services.cloudformation.provisioners:_sfn_definition",
    because="a machine that the interpreter cannot read is refused when it is created, as on AWS",
    fingerprint="e29ae22959e7",
)
def _template_definition(original: Callable[..., str], properties: dict[str, Any]) -> str:
    definition = original(properties)
    if problem := interpreter.problem(definition):
        raise ValueError(f"Invalid State Machine Definition: {problem}")
    return definition
