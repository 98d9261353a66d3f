"""State machines: the files of ``statemachines/`` with the names of what was deployed filled in."""

from pathlib import Path

from aws_cdk import ArnFormat, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.permissions import acknowledge, allow

FOLDER = Path(__file__).parent.parent / "statemachines"


class Machine(Construct):
    """A Standard state machine with a role of its own: a definition read from a file grants nothing by itself."""

    def __init__(self, scope: Construct, identifier: str, *, name: str, substitutions: dict[str, str]) -> None:
        super().__init__(scope, identifier)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            comment=f"Volumetry: {name}",
            definition_body=sfn.DefinitionBody.from_file(str(FOLDER / f"{name}.asl.json")),
            definition_substitutions=substitutions,
            role=self.role,
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "Logs",
                    retention=logs.RetentionDays.THREE_MONTHS,
                    removal_policy=RemovalPolicy.DESTROY,
                ),
                level=sfn.LogLevel.ALL,
            ),
        )
        reason = "X-Ray and the delivery of logs know no resources"
        acknowledge(self.role, reason, "AwsSolutions-IAM5[Resource::*]")

    def starts(self, *children: "Machine") -> None:
        """Let the machine run others and wait for them (``startExecution.sync``: by an event rule that AWS owns)."""
        arns = [child.machine.state_machine_arn for child in children]
        allow(self.role, "states:StartExecution", on=arns)
        allow(
            self.role,
            "states:DescribeExecution",
            "states:StopExecution",
            on=[child.executions_arn for child in children],
            because="an execution gets its id when it starts",
        )
        rule = "StepFunctionsGetEventsForStepFunctionsExecutionRule"
        allow(
            self.role,
            "events:PutTargets",
            "events:PutRule",
            "events:DescribeRule",
            on=[Stack.of(self).format_arn(service="events", resource="rule", resource_name=rule)],
        )

    @property
    def executions_arn(self) -> str:
        """Pattern of the ARNs of this machine's executions."""
        return Stack.of(self).format_arn(
            service="states",
            resource="execution",
            resource_name=f"{self.machine.state_machine_name}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
