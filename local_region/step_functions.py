"""Step Functions: ministack keeps machines and executions, moto's interpreter runs them.

moto's interpreter is LocalStack's, whose tests compare it with AWS. It takes the place of ministack's own at
one function, `_run_execution`; listing, stopping, tagging, versions, persistence and status events stay
ministack's. Its calls go to the region's endpoint with the credentials of the state machine's role.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from local_region import identity, jsonata_expressions
from local_region.seams import install, mend, setting

log = logging.getLogger("local_region.step_functions")

SERVICE_PRINCIPAL = "states.amazonaws.com"
_ASL = "moto.stepfunctions.parser.asl"
_TASK = f"{_ASL}.component.state.exec.state_task.service"
_MAP = f"{_ASL}.component.state.exec.state_map.iteration"
_MINISTACK = "ministack.services.stepfunctions"

_loaded = threading.Event()
_load_lock = threading.Lock()


def load_interpreter() -> None:
    """Import moto's interpreter, which takes seconds, and put our seams in. Idempotent, thread-safe."""
    with _load_lock:
        if _loaded.is_set():
            return
        # Task.Batch wants one enumeration of moto's Batch, which would import all of moto's EC2 with it.
        batch = ModuleType("moto.batch.utils")
        vars(batch)["JobStatus"] = Enum("JobStatus", ["SUCCEEDED", "FAILED"])
        sys.modules.setdefault("moto.batch", ModuleType("moto.batch"))
        sys.modules.setdefault("moto.batch.utils", batch)
        import moto.stepfunctions.parser.backend.execution_worker  # noqa: F401, PLC0415

        install("moto")
        _loaded.set()


# Executions


@dataclass
class Live:
    """An execution that the interpreter is running."""

    environment: Any
    record: dict[str, Any]
    lock: threading.Lock = field(default_factory=threading.Lock)


_live: dict[str, Live] = {}
_live_lock = threading.Lock()
# Notified when an execution ends or is stopped; what waits for a child execution waits on it.
_ended = threading.Condition()
_last_ending = 0


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
        load_interpreter()
        # A role that cannot be assumed would fail each task; AWS refuses the execution.
        _client_for("stepfunctions", machine["roleArn"])
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
        _wake()


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
    _wake()


def _wake() -> None:
    global _last_ending  # noqa: PLW0603 (guarded by the condition)
    with _ended:
        _last_ending += 1
        _ended.notify_all()


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
        _wake()
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
    return original(definition) or _problem(definition or "{}")


@mend(
    "ministack.services.cloudformation.provisioners:_sfn_definition",
    because="a machine that the interpreter cannot read is refused when it is created, as on AWS",
    fingerprint="e29ae22959e7",
)
def _template_definition(original: Callable[..., str], properties: dict[str, Any]) -> str:
    definition = original(properties)
    if problem := _problem(definition):
        raise ValueError(f"Invalid State Machine Definition: {problem}")
    return definition


def _problem(definition: str) -> str | None:
    load_interpreter()
    from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser  # noqa: PLC0415

    try:
        AmazonStateLanguageParser.parse(definition)
    except Exception as error:
        return str(error) or repr(error)
    for resource in re.findall(r"arn:aws:states:::aws-sdk:([A-Za-z0-9]+:[A-Za-z0-9]+)", definition):
        if unknown := _unknown_sdk_call(*resource.split(":")):
            return unknown
    return None


def _unknown_sdk_call(service: str, action: str) -> str | None:
    try:
        methods = identity.client(_BOTO_NAMES.get(service, service)).meta.method_to_api_mapping
    except Exception:
        return f"the service of aws-sdk:{service}:{action} is not known"
    return None if xform_name(action) in methods else f"aws-sdk:{service} has no operation {action}"


@mend(
    f"{_ASL}.parse.asl_parser:AmazonStateLanguageParser.parse",
    because="its grammar takes no whole number as ToleratedFailurePercentage",
    fingerprint="a59a7d18760f",
)
def _parse(original: Callable[..., Any], definition: str) -> Any:
    return original(re.sub(r'("ToleratedFailurePercentage"\s*:\s*\d+)(?=\s*[,}])', r"\1.0", definition))


# Failures


def _error_name(error_name: str | None) -> Any:
    """The name of an error in the interpreter's terms."""
    from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import (  # noqa: PLC0415
        CustomErrorName,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.error_name import ErrorName  # noqa: PLC0415

    # A custom name may not begin with "States."; the general one may.
    return ErrorName(error_name) if (error_name or "").startswith("States.") else CustomErrorName(error_name)


setting(
    f"{_MAP}.iteration_worker:CustomErrorName",
    _error_name,
    because="an error of the language's own, in an item of an inline Map, ended as States.Runtime",
    fingerprint="40a96f8ab369",
)


@mend(
    f"{_ASL}.component.eval_component:EvalComponent._log_failure_event_exception",
    because="each failure wrote the whole program to the log, once a level",
    fingerprint="7d7aa73b14ee",
)
@mend(
    f"{_ASL}.component.eval_component:EvalComponent._log_exception",
    because="each failure wrote the whole program to the log, once a level",
    fingerprint="2125c07bc2ee",
)
def _log_nothing(_original: Callable[..., None], _self: Any, **_details: Any) -> None:
    """The history of the execution holds its failures."""


# Expressions


@mend(
    f"{_ASL}.component.common.string.string_expression:StringJSONata._eval_body",
    because="JSONata runs on jsonata-python, with its variables handed over as values",
    fingerprint="277b6f413214",
)
def _evaluate_jsonata(_original: Callable[..., None], self: Any, environment: Any) -> None:
    variables = environment.variable_store
    bindings = {
        **variables._outer_scope,
        **variables._inner_scope,
        "states": environment.states._states_data,
    }
    try:
        environment.stack.append(jsonata_expressions.evaluate(self.expression, bindings))
    except jsonata_expressions.EvaluationError as error:
        raise _query_evaluation_failure(environment, str(error)) from error


def _query_evaluation_failure(environment: Any, cause: str) -> Exception:
    from moto.stepfunctions.parser.api import EvaluationFailedEventDetails  # noqa: PLC0415

    return _failure(
        environment,
        "States.QueryEvaluationError",
        "EvaluationFailed",
        {
            "evaluationFailedEventDetails": EvaluationFailedEventDetails(
                error="States.QueryEvaluationError", cause=cause
            )
        },
    )


def _failure(environment: Any, error: str, event: str, details: Any) -> Exception:
    from moto.stepfunctions.parser.api import HistoryEventType  # noqa: PLC0415
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (  # noqa: PLC0415
        FailureEvent,
        FailureEventException,
    )

    failure: Exception = FailureEventException(
        FailureEvent(
            env=environment, error_name=_error_name(error), event_type=HistoryEventType(event), event_details=details
        )
    )
    return failure


@mend(
    f"{_ASL}.jsonata.jsonata:eval_jsonata_expression",
    because="as shipped it calls None; a variable that JSONPath states sample comes this way",
    fingerprint="696d324549c4",
)
def _evaluate_sampler(_original: Callable[..., Any], expression: str) -> Any:
    return jsonata_expressions.evaluate(expression, {})


@mend(
    f"{_ASL}.jsonata.jsonata:encode_jsonata_variable_declarations",
    because="quotes and line ends in strings were not escaped",
    fingerprint="c33b311faa45",
)
def _encode_declarations(_original: Callable[..., str], bindings: dict[str, Any]) -> str:
    return "".join(f"{name}:={json.dumps(value, default=str)};" for name, value in bindings.items())


# Calls to services

# Names in aws-sdk resources that are not botocore's.
_BOTO_NAMES = {
    "cloudwatchlogs": "logs",
    "eventbridge": "events",
    "sfn": "stepfunctions",
    "states": "stepfunctions",
}
# The service's own name, where the words in it cannot be told by its capitals.
_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")

setting(
    f"{_TASK}.state_task_service:StateTaskService._SERVICE_NAME_SFN_TO_BOTO_OVERRIDES",
    _BOTO_NAMES,
    because="services whose SDK name is not botocore's",
    fingerprint="c0e56293e874",
)


@mend(
    f"{_ASL}.utils.boto_client:boto_client_for",
    because="calls go to our endpoint, as the role of the machine",
    fingerprint="1f44dc2ac8aa",
)
def _boto_client_for(_original: Callable[..., Any], region: str, service: str, state_credentials: Any = None) -> Any:
    del region
    return _client_for(service, state_credentials.role_arn)


def _client_for(service: str, role_arn: str) -> Any:
    return identity.client(service, identity.of_role(role_arn, service=SERVICE_PRINCIPAL, session="StepFunctions"))


@mend(
    f"{_TASK}.state_task_service:StateTaskService._normalise_parameters",
    because="empty as shipped: parameters are in Pascal case, botocore's often in camel case",
    fingerprint="dece59e76fd5",
)
def _normalise_parameters(
    _original: Callable[..., None],
    self: Any,
    parameters: dict[str, Any],
    boto_service_name: str | None = None,
    service_action_name: str | None = None,
) -> None:
    operation = _operation(self, boto_service_name, service_action_name)
    if operation.input_shape:
        self._to_boto_request(parameters, operation.input_shape)


@mend(
    f"{_TASK}.state_task_service:StateTaskService._normalise_response",
    because="empty as shipped: answers are in Pascal case, and plain JSON",
    fingerprint="00e0b0a50b1d",
)
def _normalise_response(
    _original: Callable[..., None],
    self: Any,
    response: Any,
    boto_service_name: str | None = None,
    service_action_name: str | None = None,
) -> None:
    operation = _operation(self, boto_service_name, service_action_name)
    if operation.output_shape:
        self._from_boto_response(response, operation.output_shape)
    if isinstance(response, dict):
        response.update(_plain(response))


def _operation(task: Any, service: str | None, action: str | None) -> Any:
    meta = identity.client(task._get_boto_service_name(service)).meta
    return meta.service_model.operation_model(meta.method_to_api_mapping[task._get_boto_service_action(action)])


def _plain(value: Any) -> Any:
    """JSON of a botocore answer; times as AWS's own SDK writes them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if hasattr(value, "read"):
        value = value.read()
    return value.decode() if isinstance(value, bytes) else value


@mend(
    f"{_TASK}.state_task_service_aws_sdk:StateTaskServiceAwsSdk._normalise_service_error_name",
    because="errors carry the service's name in Pascal case: Ssm, Ec2, CloudFormation",
    fingerprint="7fccfad3463f",
)
def _service_error_name(_original: Callable[..., str], service_name: str) -> str:
    model = identity.client(_BOTO_NAMES.get(service_name, service_name)).meta.service_model
    return "".join(word.capitalize() for word in _WORD.findall(str(model.service_id)))


@mend(
    f"{_TASK}.state_task_service_aws_sdk:StateTaskServiceAwsSdk._normalise_exception_name",
    because="the SDK that AWS uses names a Fault an Exception",
    fingerprint="5e93bf8cd8ab",
)
def _exception_name(original: Callable[..., str], service: str, error: Exception) -> str:
    return re.sub(r"FaultException$", "Exception", original(service, error))


@mend(
    f"{_TASK}.state_task_service_lambda:StateTaskServiceLambda._error_cause_from_client_error",
    because="an error that Lambda's SDK does not model is an AWSLambdaException",
    fingerprint="ebcbb8bd6a4f",
)
def _lambda_error(original: Callable[..., tuple[str, str]], error: ClientError) -> tuple[str, str]:
    name, cause = original(error)
    return name.replace("Lambda.AccessDeniedException", "Lambda.AWSLambdaException"), cause


# Child executions


@dataclass
class _Child:
    """Asks about a child execution, and stops it when the parent gave up."""

    resolve: Callable[[], Any]
    arn: str
    role_arn: str

    def __call__(self) -> Any:
        return self.resolve()

    def stop(self) -> None:
        with suppress(ClientError):
            _client_for("stepfunctions", self.role_arn).stop_execution(
                executionArn=self.arn, cause="The parent execution ended"
            )


@mend(
    f"{_TASK}.state_task_service_sfn:StateTaskServiceSfn._build_sync_resolver",
    because="the wait has to know its child",
    fingerprint="0a833c2f9a9c",
)
@mend(
    f"{_TASK}.state_task_service_sfn:StateTaskServiceSfn._build_sync2_resolver",
    because="the wait has to know its child",
    fingerprint="fbbf50b684b9",
)
def _child(
    original: Callable[..., Any],
    self: Any,
    env: Any,
    resource_runtime_part: Any,
    normalised_parameters: dict[str, Any],
    state_credentials: Any,
) -> _Child:
    arn = env.stack[-1]["ExecutionArn"]
    resolve = original(
        self,
        env=env,
        resource_runtime_part=resource_runtime_part,
        normalised_parameters=normalised_parameters,
        state_credentials=state_credentials,
    )
    return _Child(resolve, arn, state_credentials.role_arn)


@mend(
    f"{_TASK}.state_task_service_callback:StateTaskServiceCallback._eval_sync",
    because="a parent that is stopped, or times out, stops its child",
    fingerprint="b8f76de4d514",
)
def _eval_sync(original: Callable[..., Any], self: Any, **arguments: Any) -> Any:
    outcome = original(self, **arguments)
    child = arguments["sync_resolver"]
    if outcome is None and isinstance(child, _Child):
        child.stop()
    return outcome


_seen = threading.local()


class _UntilAnExecutionEnds:
    """Stands in for `time` where the end of a child execution is polled for."""

    @staticmethod
    def sleep(_seconds: float) -> None:
        with _ended:
            # Only what is not a child execution of this region ever needs the time-out.
            _ended.wait_for(lambda: _last_ending > getattr(_seen, "ending", 0), 1)
            _seen.ending = _last_ending


setting(
    f"{_TASK}.state_task_service_callback:time",
    _UntilAnExecutionEnds,
    because="a wait for a child execution ends with it, without polling",
    fingerprint="f1dc5ef1ab1d",
)

_retrying = threading.local()


class _WhileRunning:
    """Stands in for `time` where a retry waits for its next attempt."""

    @staticmethod
    def sleep(seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and _retrying.environment.is_running():
            with _ended:
                _ended.wait(min(left, 0.2))


setting(
    f"{_ASL}.component.common.retry.retrier_decl:time",
    _WhileRunning,
    because="a stopped execution does not wait for its next attempt",
    fingerprint="f1dc5ef1ab1d",
)


@mend(
    f"{_ASL}.component.common.retry.retrier_decl:RetrierDecl._eval_body",
    because="the wait for the next attempt has to know its execution",
    fingerprint="48463fff19ce",
)
def _retry(original: Callable[..., None], self: Any, environment: Any) -> None:
    _retrying.environment = environment
    original(self, environment)


# Distributed Map


@mend(
    f"{_MAP}.itemprocessor.distributed_item_processor_worker:DistributedItemProcessorWorker._eval_job",
    because="tolerated failures were not counted: a map run with failures succeeded",
    fingerprint="c97e0ed4aba1",
)
def _count_failures(original: Callable[..., None], self: Any, env: Any, job: Any) -> None:
    frames = vars(self._job_pool).setdefault("frames", set())
    frames.add(env)
    original(self, env, job)
    frames.discard(env)
    run, pool = self._map_run_record, self._job_pool
    failed = run.item_counter.failed.get() + run.item_counter.timed_out.get()
    if pool.get_worker_exception() is None and _too_many(failed, pool._jobs_number, run):
        job.job_output = _failure(
            self._env,
            "States.ExceedToleratedFailureThreshold",
            "MapRunFailed",
            {
                "mapRunFailedEventDetails": {
                    "error": "States.ExceedToleratedFailureThreshold",
                    "cause": "The specified tolerated failure threshold was exceeded",
                }
            },
        )
        for frame in list(frames):
            frame.set_stop(stop_date=None, cause=None, error=None)


def _too_many(failed: int, total: int, run: Any) -> bool:
    """A threshold of zero is one that was not given, unless neither was."""
    count, percentage = run.tolerated_failure_count, run.tolerated_failure_percentage
    if not count and not percentage:
        return failed > 0
    over_count = bool(count) and failed > count
    return over_count or (bool(percentage) and failed * 100 > percentage * total)


@mend(
    f"{_MAP}.itemprocessor.inline_item_processor_worker:InlineItemProcessorWorker._eval_input",
    because="a child of a Distributed Map does not see its parent's variables",
    fingerprint="c8a62d1f4864",
)
def _eval_input(original: Callable[..., None], self: Any, env_frame: Any) -> None:
    original(self, env_frame)
    if hasattr(self, "_map_run_record"):
        env_frame.variable_store = type(env_frame.variable_store)()


@mend(
    f"{_MAP}.iteration_worker:IterationWorker._eval_pool",
    because="it called itself for each item, and ended at Python's recursion limit",
    fingerprint="45ca0026e8cc",
)
@mend(
    f"{_MAP}.itemprocessor.distributed_item_processor_worker:DistributedItemProcessorWorker._eval_pool",
    because="it called itself for each item, and ended at Python's recursion limit",
    fingerprint="8797235af229",
)
def _iterate(original: Callable[..., None], self: Any, job: Any, worker_frame: Any) -> None:
    queued: list[tuple[Any, Any]] | None = vars(self).get("_queued")
    if queued is not None:
        queued.append((job, worker_frame))
        return
    self._queued = [(job, worker_frame)]
    while self._queued:
        original(self, *self._queued.pop())


setting(
    "moto.stepfunctions.parser.utils:TMP_THREADS",
    deque(maxlen=0),
    everywhere=True,
    because="a list that only grew, with every thread of every state",
    fingerprint="4f53cda18c2b",
)
