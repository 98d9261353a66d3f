"""moto's interpreter of the Amazon States Language, with our seams in it.

What it calls goes to the region's endpoint with the credentials of the state machine's role. What it lacked, or
had wrong against AWS, is mended here, each in one place.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from local_region import identity, jsonata_expressions
from local_region.seams import install, mend, setting

SERVICE_PRINCIPAL = "states.amazonaws.com"
_ASL = "moto.stepfunctions.parser.asl"
_TASK = f"{_ASL}.component.state.exec.state_task.service"
_MAP = f"{_ASL}.component.state.exec.state_map.iteration"

_loaded = threading.Event()
_load_lock = threading.Lock()


def load() -> None:
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


# Ends of executions

# Notified when an execution ends or is stopped; what waits for a child execution waits on it.
_ended = threading.Condition()
_last_ending = 0


def an_execution_ended() -> None:
    """Wake what waits for a child execution, or for its next attempt."""
    global _last_ending  # noqa: PLW0603 (guarded by the condition)
    with _ended:
        _last_ending += 1
        _ended.notify_all()


# Definitions


def problem(definition: str) -> str | None:
    """Why a definition is refused, or None: it cannot be read, or calls what no SDK knows."""
    load()
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
def _botoclient_for(_original: Callable[..., Any], region: str, service: str, state_credentials: Any = None) -> Any:
    del region
    return client_for(service, state_credentials.role_arn)


def client_for(service: str, role_arn: str) -> Any:
    """A client as the role of a machine; CannotAssumeRoleError if Step Functions may not take it."""
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
            client_for("stepfunctions", self.role_arn).stop_execution(
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
