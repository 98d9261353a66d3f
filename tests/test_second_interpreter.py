"""State machines walked by two interpreters of different origin: the one that the region uses, and ministack's own.

Both ask the same script of answers. They must enter the same states, make the same calls and end alike.
"""

import copy
import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# The interpreter puts an empty module in this one's place, unless it is there already; other tests need the real one.
import moto.batch.utils  # noqa: F401
import pytest
from test_state_machines import MACHINES

from local_region import interpreter, seams, step_functions

NAMES = {
    "partition": "aws",
    "region": "us-east-1",
    "suffix": "amazonaws.com",
    "bucket": "results",
    "stack_role": "arn:aws:iam::123456789012:role/stack",
    "command_machine": "arn:aws:states:us-east-1:123456789012:stateMachine:command",
    "topology_machine": "arn:aws:states:us-east-1:123456789012:stateMachine:topology",
    "topology_function": "arn:aws:lambda:us-east-1:123456789012:function:topology_function",
    "open_trial_function": "arn:aws:lambda:us-east-1:123456789012:function:open_trial_function",
    "commit_function": "arn:aws:lambda:us-east-1:123456789012:function:commit_function",
}
MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:walked"
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:walked:e"
BEGAN = "2026-11-20T10:15:00.000Z"

Json = dict[str, Any]


class Refused(Exception):
    """A call's error as Step Functions names it."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(error, cause)
        self.error, self.cause = error, cause


@dataclass
class World:
    """Answers by action, in order; the last one stays. A call is noted with its arguments."""

    script: dict[str, list[Any]]
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.script = copy.deepcopy(self.script)

    def __call__(self, resource: str, arguments: Any) -> Any:
        action = resource.rpartition(":")[2] if "startExecution" not in resource else "startExecution"
        if action == "invoke":
            action = arguments["FunctionName"].rpartition(":")[2]
        self.calls.append((action, copy.deepcopy(arguments)))
        answers = self.script[action]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Refused):
            raise Refused(answer.error, answer.cause)
        return {"StatusCode": 200, "Payload": answer} if ":lambda:invoke" in resource else copy.deepcopy(answer)


@dataclass
class Walk:
    """The states entered, in order, those inside of maps apart; the calls; and the end."""

    path: list[str]
    calls: list[tuple[str, Any]]
    status: str
    output: Any
    error: str | None
    cause: str | None


def definition(name: str) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: NAMES[match[1]], json.dumps(MACHINES[name]))


def record(name: str, given: Json) -> tuple[Json, Json]:
    """(machine, execution) as ministack keeps them, and as the region hands them to its interpreter."""
    machine = {
        "stateMachineArn": MACHINE,
        "name": "walked",
        "type": "STANDARD",
        "roleArn": "arn:aws:iam::123456789012:role/machine",
        "definition": definition(name),
    }
    execution = {
        "executionArn": EXECUTION,
        "stateMachineArn": MACHINE,
        "name": "e",
        "status": "RUNNING",
        "startDate": BEGAN,
        "input": json.dumps(given),
        "output": None,
        "events": [],
        "sync": True,  # nobody is told of its end
    }
    return machine, execution


def entered(events: list[Json], name: str) -> list[str]:
    names = [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
    return [state for state in names if state in MACHINES[name]["States"]]


def by_moto(name: str, given: Json, script: dict[str, list[Any]]) -> Walk:
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service  # noqa: PLC0415

    world = World(script)

    def call(self: Any, env: Any) -> None:
        self.resource.eval(env=env)
        env.stack.pop()
        try:
            env.stack.append(world(self.resource.resource_arn, self._eval_parameters(env=env)))
        except Refused as refused:
            told = {"error": refused.error, "cause": refused.cause, "resource": "", "resourceType": ""}
            details: Any = {"taskFailedEventDetails": told}
            raise interpreter._failure(env, refused.error, "TaskFailed", details) from None

    machine, execution = record(name, given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_task_service.StateTaskService, "_eval_execution", call)
        patch.setattr(interpreter._WhileRunning, "sleep", staticmethod(lambda _seconds: None))
        worker = step_functions._worker(execution, machine)
        environment = worker._get_evaluation_environment()
        worker._get_evaluation_entrypoint().eval(environment)
    step_functions._conclude(execution, environment)
    events = [step_functions._plain_event(event) for event in environment.event_manager.get_event_history()]
    return ended(execution, entered(events, name), world)


def by_ministack(name: str, given: Json, script: dict[str, list[Any]]) -> Walk:
    from ministack.services import stepfunctions as ministack  # noqa: PLC0415 (reads its environment at import)

    world = World(script)

    def call(resource: str, arguments: Any, _timeout_s: Any = None) -> Any:
        try:
            return world(resource, arguments)
        except Refused as refused:
            raise ministack._ExecutionError(refused.error, refused.cause) from None

    machine, execution = record(name, given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ministack, "_invoke_resource", call)
        patch.setattr(ministack, "_invoke_resource_with_timeout", call)
        patch.setattr(ministack, "_SFN_WAIT_SCALE", 0)
        patch.setitem(ministack._state_machines, MACHINE, machine)
        patch.setitem(ministack._executions, EXECUTION, execution)
        ministack._run_execution(EXECUTION)
    return ended(execution, entered(execution["events"], name), world)


def ended(execution: Json, path: list[str], world: World) -> Walk:
    output = execution["output"] if execution["status"] == "SUCCEEDED" else None
    return Walk(
        path,
        world.calls,
        execution["status"],
        json.loads(output) if output else None,
        execution.get("error"),
        execution.get("cause"),
    )


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # ministack reads where its state is when it is imported.
    with pytest.MonkeyPatch.context() as patch:
        state = str(tmp_path_factory.mktemp("state"))
        patch.setenv("STATE_DIR", state)
        patch.setenv("S3_DATA_DIR", state)
        importlib.import_module("ministack.services.stepfunctions")
        interpreter.load()
    yield
    # Other tests read the emulators as they are shipped.
    for target in [target for target in seams.ORIGINALS if seams.SEAMS[target].package == "moto"]:
        owner, name = seams.SEAMS[target].locate()
        changed, original = getattr(owner, name), seams.ORIGINALS.pop(target)
        seams._put(owner, name, original)
        seams._put_in_copies(owner, name, changed, original)
    interpreter._loaded.clear()


def walk(name: str, given: Json, script: dict[str, list[Any]]) -> Walk:
    """The walk that both interpreters agree upon, but for its output: ministack's Succeed knows no Output."""
    first, second = by_moto(name, given, script), by_ministack(name, given, script)
    assert first.path == second.path
    assert first.calls == second.calls
    assert (first.status, first.error, first.cause) == (second.status, second.error, second.cause)
    return first


# The command machine

COMMAND = {
    "document": "deployed-run-fio",
    "instance_ids": ["i-1", "i-2"],
    "parameters": {"TimeoutSeconds": ["66"]},
    "expected_s": 0,
    "timeout_s": 66,
    "poll_s": 0,
}
SENT = {"Command": {"CommandId": "c-1"}}


def invocations(*statuses: str) -> Json:
    return {
        "CommandInvocations": [
            {"InstanceId": f"i-{number}", "Status": status} for number, status in enumerate(statuses, start=1)
        ]
    }


def hosts(*names: str) -> Json:
    return {
        "InstanceStatuses": [
            {"InstanceId": f"i-{number}", "InstanceState": {"Name": name}} for number, name in enumerate(names, start=1)
        ]
    }


LOOK_AGAIN = ["Ended?", "Do the hosts run?", "All of them?", "Again soon", "Look"]
BEGIN = ["Send", "At first, as long as it should take", "Look"]


def test_a_command_that_succeeds_on_all_hosts() -> None:
    found = walk(
        "command",
        COMMAND,
        {
            "sendCommand": [SENT],
            # The second host is not listed at once.
            "listCommandInvocations": [
                invocations("Pending"),
                invocations("Success", "InProgress"),
                invocations("Success", "Success"),
            ],
            "describeInstanceStatus": [hosts("running", "running")],
        },
    )
    assert found.path == [*BEGIN, *LOOK_AGAIN, *LOOK_AGAIN, "Ended?", "Done"]
    assert (found.status, found.output) == ("SUCCEEDED", {"command": "c-1"})
    assert found.calls[0][1]["InstanceIds"] == ["i-1", "i-2"]


def failing(stderr: Any) -> dict[str, list[Any]]:
    details = {
        "CommandInvocations": [
            {
                "CommandPlugins": [
                    {"Name": "run", "Status": "Failed"},
                    {"Name": "collect", "Status": "Success"},
                ]
            }
        ]
    }
    return {
        "sendCommand": [SENT],
        "listCommandInvocations": [invocations("Success", "Failed"), details],
        "getCommandInvocation": [stderr if isinstance(stderr, Refused) else {"StandardErrorContent": stderr}],
    }


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        ("+ fio\nvolumetry: fio ended with status 1: no space left\n", "i-2: fio ended with status 1: no space left"),
        ("volumetry: first\nvolumetry: last\n+ cleaning up\n", "i-2: last"),
        ("bash: fio: command not found\n", "i-2: deployed-run-fio ended as Failed: bash: fio: command not found"),
        ("", "i-2: deployed-run-fio ended as Failed: "),
        (Refused("Ssm.InvocationDoesNotExistException", "gone"), "i-2: deployed-run-fio ended as Failed"),
    ],
)
def test_a_command_that_fails_gives_the_script_s_own_reason(stderr: Any, cause: str) -> None:
    found = walk("command", COMMAND, failing(stderr))
    assert found.path == [*BEGIN, "Ended?", "Which step?", "Why?", "Failed"]
    assert (found.status, found.error, found.cause) == ("FAILED", "Volumetry.CommandFailed", cause)
    assert found.calls[-1][1] == {"CommandId": "c-1", "InstanceId": "i-2", "PluginName": "run"}


@pytest.mark.parametrize("cancelled", [{}, Refused("Ssm.InvalidCommandIdException", "too late")])
@pytest.mark.parametrize(
    ("given", "statuses"), [(COMMAND, ["TimedOut"]), (COMMAND | {"timeout_s": -130}, ["InProgress"])]
)
def test_a_command_that_times_out_is_stopped(given: Json, statuses: list[str], cancelled: Any) -> None:
    found = walk(
        "command",
        given,
        {
            "sendCommand": [SENT],
            "listCommandInvocations": [invocations(*statuses, "InProgress")],
            "cancelCommand": [cancelled],
        },
    )
    assert found.path == [*BEGIN, "Ended?", "Stop what still runs", "Timed out"]
    assert found.error == "Volumetry.CommandTimedOut"
    assert (found.cause or "").startswith("deployed-run-fio was still running")


def test_a_host_that_is_gone_is_seen_before_the_time_out() -> None:
    found = walk(
        "command",
        COMMAND,
        {
            "sendCommand": [SENT],
            "listCommandInvocations": [invocations("InProgress", "InProgress")],
            "describeInstanceStatus": [hosts("running", "running"), hosts("running", "terminated")],
        },
    )
    assert found.path == [*BEGIN, *LOOK_AGAIN, *LOOK_AGAIN[:3], "Host lost"]
    assert (found.error, found.cause) == ("Volumetry.HostLost", "a host was lost: i-2 is terminated")


def test_a_command_that_is_refused_is_tried_again_only_where_that_helps() -> None:
    unknown = Refused("Ssm.InvalidInstanceIdException", "not there yet")
    found = walk("command", COMMAND, {"sendCommand": [unknown, unknown, Refused("Ssm.InvalidDocumentException", "no")]})
    assert found.path == ["Send", "Refused"]
    assert len(found.calls) == 3
    assert (found.error, found.cause) == ("Volumetry.CommandFailed", "Run Command refused it: no")


# The topology machine

TOPOLOGY = {
    "execution": "run-1",
    "topology": "mirror",
    "stack": "volumetry-mirror-run-1",
    "template": "executions/run-1/templates/mirror.json",
    "tags": [{"Key": "application", "Value": "volumetry"}],
    "parameters": [{"ParameterKey": "SubnetA", "ParameterValue": "subnet-a"}],
    "poll_s": 0,
}
ABSENT = Refused("CloudFormation.CloudFormationException", "Stack with id volumetry-mirror-run-1 does not exist")
COMMANDS = [COMMAND | {"document": name} for name in ("prepare", "stack-nbd-mirror", "precondition")]
LAUNCHED = {"instance_ids": ["i-1", "i-2"], "commands": COMMANDS}
READY = {"status": "ready", "reason": ""}


def stack(status: str) -> Json:
    return {"Stacks": [{"StackStatus": status}]}


def online(*statuses: str) -> Json:
    return {"InstanceInformationList": [{"PingStatus": status} for status in statuses]}


def launching(**changes: list[Any]) -> dict[str, list[Any]]:
    script: dict[str, list[Any]] = {
        "describeStacks": [ABSENT, stack("CREATE_IN_PROGRESS"), stack("CREATE_COMPLETE")],
        "createStack": [{"StackId": "s-1"}],
        "deleteStack": [{}],
        "topology_function": [LAUNCHED, READY],
        "describeInstanceInformation": [online("Online", "Online")],
        "startExecution": [{"Output": {}}],
    }
    return script | changes


CREATE = ["Create", "Creating", "How far?", "Created?"]


def test_a_topology_becomes_ready() -> None:
    answers = [online(), online("Online", "ConnectionLost"), online("Online", "Online")]
    found = walk("topology", TOPOLOGY, launching(describeInstanceInformation=answers))
    wait = ["Who answers?", "All?", "Until they answer"]
    assert found.path == [
        "Look before acting",
        *CREATE,
        *CREATE[1:],
        "Launched",
        *wait,
        *wait,
        *wait[:2],
        "Configure",
        "Ready",
        "Done",
    ]
    assert found.status == "SUCCEEDED"
    children = [arguments["Input"] for action, arguments in found.calls if action == "startExecution"]
    assert [child["document"] for child in children] == ["prepare", "stack-nbd-mirror", "precondition"]
    assert {child["AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"] for child in children} == {EXECUTION}
    create = next(arguments for action, arguments in found.calls if action == "createStack")
    assert create["TemplateURL"] == f"https://s3.us-east-1.amazonaws.com/results/{TOPOLOGY['template']}"


def test_a_topology_that_is_not_created_is_marked_and_its_reason_told() -> None:
    marked = {"status": "failed", "reason": "Host1: insufficient capacity"}
    found = walk(
        "topology",
        TOPOLOGY,
        launching(describeStacks=[ABSENT, stack("ROLLBACK_COMPLETE")], topology_function=[marked]),
    )
    assert found.path == ["Look before acting", *CREATE, "Not created", "Failed", "Not launched"]
    assert (found.error, found.cause) == ("Volumetry.LaunchFailed", "topology mirror: Host1: insufficient capacity")
    assert found.calls[-1][1]["Payload"] == {
        "action": "failed",
        "execution": "run-1",
        "topology": "mirror",
        "reason": "the stack ended as ROLLBACK_COMPLETE",
    }


def test_a_stack_that_cannot_be_asked_for_is_a_failed_launch_even_if_it_cannot_be_marked() -> None:
    denied = Refused("CloudFormation.CloudFormationException", "access denied")
    broken = Refused("Lambda.TooManyRequestsException", "throttled")
    found = walk("topology", TOPOLOGY, launching(createStack=[denied], topology_function=[broken]))
    assert found.path == ["Look before acting", "Create", "Failed", "Not launched"]
    assert [action for action, _ in found.calls].count("topology_function") == 6
    assert found.cause == "topology mirror: access denied"


def test_what_stands_under_the_name_is_deleted_first() -> None:
    before = [stack("CREATE_COMPLETE"), stack("DELETE_IN_PROGRESS"), ABSENT]
    found = walk("topology", TOPOLOGY, launching(describeStacks=[*before, stack("CREATE_COMPLETE")]))
    gone = ["Until it is gone", "Is it gone?"]
    assert found.path[:9] == [
        "Look before acting",
        "Delete what is there",
        *gone,
        "Still going?",
        *gone,
        "Create",
        "Creating",
    ]
    assert found.path[-1] == "Done"


def test_a_stack_that_stands_already_is_waited_for() -> None:
    arrived = Refused("CloudFormation.AlreadyExistsException", "it exists")
    assert walk("topology", TOPOLOGY, launching(createStack=[arrived])).path[-1] == "Done"


def child_failed(error: str, cause: str) -> Refused:
    return Refused("States.TaskFailed", json.dumps({"Error": error, "Cause": cause, "Status": "FAILED"}))


# An error of the service itself: its cause is text, and States.TaskFailed would match it all the same.
OF_THE_SERVICE = Refused("StepFunctions.AWSStepFunctionsException", "not authorised")
# A child that somebody stopped has no error of its own.
STOPPED = Refused("States.TaskFailed", json.dumps({"Status": "ABORTED"}))


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (child_failed("Volumetry.CommandFailed", "i-2: no module nbd"), "i-2: no module nbd"),
        (OF_THE_SERVICE, "StepFunctions.AWSStepFunctionsException: not authorised"),
        (STOPPED, "ABORTED"),
    ],
)
def test_a_command_that_fails_fails_the_topology_with_its_reason(end: Refused, reason: str) -> None:
    found = walk(
        "topology",
        TOPOLOGY,
        launching(
            # The last of three: ministack goes on with a map of which an item failed.
            startExecution=[{}, {}, end],
            topology_function=[LAUNCHED, {"status": "failed", "reason": reason}],
        ),
    )
    assert found.path[-3:] == ["Configure", "Failed", "Not launched"]
    assert found.calls[-1][1]["Payload"]["reason"] == reason


# The trial machine

TRIAL = {
    "execution": "run-1",
    "began": BEGAN,
    "poll_s": 0,
    "trial": {"id": "mirror.stock.randrw-4k.r1", "topology": "mirror"},
    "topology": TOPOLOGY,
}
TUNE = [COMMAND | {"document": name} for name in ("tune-network", "stack-nbd-mirror")]
OPENED = {
    "attempt": 1,
    "go": True,
    "before": TUNE,
    "strikes": False,
    "stages": [{"tracks": [{"commands": [COMMAND]}]}],
    "after": TUNE,
}
OUTCOME = {"state": "committed", "verdict": "valid", "whole": True}


def trying(**changes: list[Any]) -> dict[str, list[Any]]:
    script: dict[str, list[Any]] = {
        "open_trial_function": [OPENED],
        "commit_function": [OUTCOME],
        "startExecution": [{"Output": {}}],
    }
    return script | changes


OPEN = ["Open", "Is there a topology?"]
COMMIT = ["Commit", "Is the topology whole?"]


def error_told(found: Walk) -> tuple[str, str]:
    (payload,) = (arguments["Payload"] for action, arguments in found.calls if action == "commit_function")
    return payload["error"], payload["cause"]


def ran(found: Walk) -> list[str]:
    """The documents that were run, in order."""
    given = [arguments["Input"] for action, arguments in found.calls if action == "startExecution"]
    return [each["document"] for each in given if "document" in each]


def test_a_trial_is_tuned_run_set_back_and_committed() -> None:
    found = walk("trial", TRIAL, trying())
    assert found.path == [*OPEN, "Tune", "Run", "Undo", *COMMIT, "Done"]
    assert (found.status, found.output) == ("SUCCEEDED", OUTCOME)
    assert ran(found) == ["tune-network", "stack-nbd-mirror", "deployed-run-fio", "tune-network", "stack-nbd-mirror"]
    assert error_told(found) == ("", "")


def test_a_trial_without_its_topology_is_committed_all_the_same() -> None:
    found = walk("trial", TRIAL, trying(open_trial_function=[{"attempt": 1, "go": False, "reason": "topology mirror"}]))
    assert found.path == [*OPEN, *COMMIT, "Done"]
    assert error_told(found) == ("Volumetry.LaunchFailed", "topology mirror")


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (child_failed("Volumetry.CommandFailed", "i-1: fio ended"), ("Volumetry.CommandFailed", "i-1: fio ended")),
        (OF_THE_SERVICE, ("StepFunctions.AWSStepFunctionsException", "not authorised")),
        (STOPPED, ("States.TaskFailed", "ABORTED")),
        (Refused("States.Timeout", ""), ("States.Timeout", "")),
    ],
)
@pytest.mark.parametrize("before", [1, 2], ids=["tuned", "run"])
def test_a_trial_whose_command_failed_is_committed_with_its_reason(
    before: int, end: Refused, told: tuple[str, str]
) -> None:
    found = walk("trial", TRIAL, trying(startExecution=[*[{}] * before, end, {}]))
    assert found.path == [*OPEN, *["Tune", "Run"][:before], "Why?", "Undo", *COMMIT, "Done"]
    assert error_told(found) == told


def test_a_trial_that_lost_a_host_is_committed_and_its_topology_launched_anew() -> None:
    children = [{}, {}, child_failed("Volumetry.HostLost", "a host was lost: i-2 is terminated"), {}]
    found = walk("trial", TRIAL, trying(startExecution=children))
    assert found.path == [*OPEN, "Tune", "Run", "Why?", "Undo", *COMMIT, "Launch anew", "Done"]
    assert [action for action, _ in found.calls].count("startExecution") == 4
    assert found.calls[-1][1]["StateMachineArn"] == NAMES["topology_machine"]
    assert found.calls[-1][1]["Input"]["stack"] == TOPOLOGY["stack"]


def track(*documents: str) -> Json:
    return {"commands": [COMMAND | {"document": document} for document in documents]}


STRUCK = OPENED | {
    "before": [],
    "strikes": True,
    "stages": [
        {"tracks": [track("run-fio"), track("strike", "rejoin")]},
        {"tracks": [track("writer"), track("peer")]},
        {"tracks": [track("collect")]},
    ],
    "after": [],
}


@pytest.mark.parametrize("interpreter_", [by_moto, by_ministack])
def test_stages_follow_one_another_and_tracks_run_side_by_side(interpreter_: Any) -> None:
    found = interpreter_("trial", TRIAL, trying(open_trial_function=[STRUCK]))
    assert found.path == [*OPEN, "Tune", "Run", "Undo", *COMMIT, "Done"]
    # Which track is first is nobody's business.
    documents = ran(found)
    assert set(documents[:3]) == {"run-fio", "strike", "rejoin"}
    assert documents.index("strike") < documents.index("rejoin")
    assert set(documents[3:5]) == {"writer", "peer"}
    assert documents[5:] == ["collect"]
    assert error_told(found) == ("", "")


def test_what_was_struck_and_not_seen_to_its_end_is_launched_anew() -> None:
    # The last command of all: ministack goes on with a map of which an item failed.
    one_by_one = STRUCK | {"stages": [{"tracks": [track(name)]} for name in ("run-fio", "strike", "collect")]}
    children = [{}, {}, child_failed("Volumetry.CommandFailed", "i-2: no such table"), {}]
    found = walk("trial", TRIAL, trying(open_trial_function=[one_by_one], startExecution=children))
    assert found.path == [*OPEN, "Tune", "Run", "Why?", "Undo", *COMMIT, "Launch anew", "Done"]
    assert error_told(found) == ("Volumetry.CommandFailed", "i-2: no such table")
    assert found.calls[-1][1]["StateMachineArn"] == NAMES["topology_machine"]


def test_a_track_that_fails_ends_the_stages() -> None:
    failing_track = STRUCK | {"stages": [{"tracks": [track("strike", "rejoin")]}, {"tracks": [track("collect")]}]}
    children = [child_failed("Volumetry.CommandFailed", "i-2: no such table"), {}]
    script = trying(open_trial_function=[failing_track], startExecution=children)
    found = by_moto("trial", TRIAL, script)
    assert ran(found) == ["strike"]
    assert error_told(found) == ("Volumetry.CommandFailed", "i-2: no such table")
    # ministack goes on with a map of which an item failed, and tells of it in the end.
    assert error_told(by_ministack("trial", TRIAL, script)) == error_told(found)


@pytest.mark.parametrize("news", [{"verdict": "degraded"}, {"whole": False}], ids=str)
def test_a_mirror_that_lost_a_leg_serves_no_further_trial(news: Json) -> None:
    found = walk("trial", TRIAL, trying(commit_function=[OUTCOME | news]))
    assert found.path == [*OPEN, "Tune", "Run", "Undo", *COMMIT, "Launch anew", "Done"]
    assert error_told(found) == ("", "")


def test_hosts_that_may_still_be_tuned_are_launched_anew() -> None:
    script = trying(startExecution=[{}, {}, {}, {}, child_failed("Volumetry.CommandFailed", "i-1: no such link"), {}])
    found = by_moto("trial", TRIAL, script)
    assert found.path == [*OPEN, "Tune", "Run", "Undo", *COMMIT, "Launch anew", "Done"]
    # Of a catcher's variables, ministack lets the second see the first: the cause that it commits is not AWS's.
    assert found.path == by_ministack("trial", TRIAL, script).path
    error, cause = error_told(found)
    assert error == "Volumetry.HostLost"
    assert cause.startswith("the tuning could not be undone")
