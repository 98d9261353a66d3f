"""The service itself: documents, functions, state machines, and the roles that let each do its part and no more."""

from aws_cdk import Aws, CfnOutput, CfnParameter, CfnTag, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra import documents, package
from infra.functions import ARCHITECTURE, RUNTIME, Function
from infra.machines import Machine
from infra.network import NetworkStack
from infra.permissions import allow
from infra.results import DATABASE, ResultsStack
from volumetry.naming import TAG_APPLICATION

TOPOLOGIES = "topologies come and go; their stacks' names begin alike"
EXECUTIONS = "executions come and go; each has its own keys"
DESCRIBES = "these operations know no resources"


class WorkflowStack(Stack):
    """Everything that runs."""

    def __init__(self, scope: Construct, identifier: str, *, network: NetworkStack, results: ResultsStack) -> None:
        super().__init__(scope, identifier, description="Volumetry: functions, state machines and documents")
        self.network, self.results = network, results
        self.shared_hardware = CfnParameter(
            self,
            "HostsShareHardware",
            allowed_values=["true", "false"],
            default="false",
            description="true: run one trial at a time over all topologies, since their hosts share processors",
        )
        self.poll_s = CfnParameter(
            self, "PollSeconds", type="Number", default=5, min_value=1, description="Seconds between two looks"
        )
        self.documents = {name: self._document(name) for name in documents.names()}
        self.stack_role = self._stack_role()
        self.scheduler_role = self._scheduler_role()
        self._functions()
        self._machines()
        self._grants()
        self._tear_down_rules()
        CfnOutput(self, "CampaignMachineArn", value=self.campaign.machine.state_machine_arn)
        CfnOutput(self, "TearDownFunctionName", value=self.tear_down.function.function_name)
        CfnOutput(self, "AnalyseFunctionName", value=self.analyse.function.function_name)

    def _document(self, name: str) -> ssm.CfnDocument:
        return ssm.CfnDocument(
            self,
            "Document" + name.title().replace("-", ""),
            content=documents.content(name),
            document_format="JSON",
            document_type="Command",
            target_type="/AWS::EC2::Instance",
            update_method="NewVersion",
            tags=[CfnTag(key="application", value=TAG_APPLICATION)],
        )

    # -- functions -----------------------------------------------------------------------------------------------

    def _functions(self) -> None:
        code = lambda_.Code.from_asset(str(package.functions_folder()))
        layer = lambda_.LayerVersion(
            self,
            "Dependencies",
            code=lambda_.Code.from_asset(str(package.layer_folder())),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[ARCHITECTURE],
            description="Dependencies of Volumetry's functions, from its lock file",
        )
        bucket = {"RESULTS_BUCKET": self.results.bucket.bucket_name}
        deployment = bucket | {
            "DOCUMENTS": self.to_json_string({name: document.ref for name, document in self.documents.items()}),
            "SUBNETS": self.to_json_string(self.network.subnets),
            "SECURITY_GROUP": self.network.security_group.security_group_id,
            "INSTANCE_PROFILE": self.network.instance_profile.instance_profile_arn,
            "SCHEDULER_ROLE": self.scheduler_role.role_arn,
            "HOSTS_SHARE_HARDWARE": self.shared_hardware.value_as_string,
            "POLL_S": self.poll_s.value_as_string,
        }
        queries = bucket | {"DATABASE": DATABASE, "WORKGROUP": self.results.workgroup.name}

        def function(identifier: str, name: str, environment: dict[str, str], seconds: int, mib: int = 512) -> Function:
            return Function(
                self,
                identifier,
                name=name,
                code=code,
                layer=layer,
                environment=environment,
                timeout=Duration.seconds(seconds),
                memory_mib=mib,
            )

        self.plan = function("Plan", "plan", deployment, 120)
        self.topology_function = function("Topology", "topology", deployment, 60)
        self.open_trial = function("OpenTrial", "open_trial", deployment, 60)
        # A long trial's evidence is tens of megabytes, and its rows are held in memory once.
        self.commit = function("Commit", "commit", queries, 300, 2048)
        self.analyse = function("Analyse", "analyse", queries, 600, 1024)
        self.tear_down = function("TearDown", "tear_down", {}, 120)

    # -- machines ------------------------------------------------------------------------------------------------

    def _machines(self) -> None:
        common = {
            "partition": Aws.PARTITION,
            "region": Aws.REGION,
            "suffix": Aws.URL_SUFFIX,
            "bucket": self.results.bucket.bucket_name,
        }

        def machine(identifier: str, name: str, **substitutions: str) -> Machine:
            return Machine(self, identifier, name=name, substitutions=common | substitutions)

        self.command = machine("CommandMachine", "command")
        self.topology = machine(
            "TopologyMachine",
            "topology",
            command_machine=self.command.machine.state_machine_arn,
            topology_function=self.topology_function.function.function_arn,
            stack_role=self.stack_role.role_arn,
        )
        self.trial = machine(
            "TrialMachine",
            "trial",
            command_machine=self.command.machine.state_machine_arn,
            topology_machine=self.topology.machine.state_machine_arn,
            open_trial_function=self.open_trial.function.function_arn,
            commit_function=self.commit.function.function_arn,
        )
        self.campaign = machine(
            "CampaignMachine",
            "campaign",
            topology_machine=self.topology.machine.state_machine_arn,
            trial_machine=self.trial.machine.state_machine_arn,
            plan_function=self.plan.function.function_arn,
            tear_down_function=self.tear_down.function.function_arn,
            analyse_function=self.analyse.function.function_arn,
        )

    # -- roles ---------------------------------------------------------------------------------------------------

    def _stack_role(self) -> iam.Role:
        """What CloudFormation uses to make and delete a topology, whoever asks for it."""
        role = iam.Role(
            self,
            "StackRole",
            assumed_by=iam.ServicePrincipal("cloudformation.amazonaws.com"),
            description="Makes and deletes the stacks of topologies",
        )

        tagged = {"StringEquals": {"aws:ResourceTag/application": TAG_APPLICATION}}
        allow(
            role,
            "ec2:RunInstances",
            "ec2:CreateVolume",
            "ec2:CreateNetworkInterface",
            "ec2:CreateLaunchTemplate",
            "ec2:CreateTags",
            "ec2:Describe*",
            "ec2:GetLaunchTemplateData",
            on=["*"],
            because="EC2 knows the id of what it makes only afterwards, and its descriptions know no resources",
        )
        allow(
            role,
            "ec2:TerminateInstances",
            "ec2:AttachVolume",
            "ec2:DetachVolume",
            "ec2:DeleteVolume",
            "ec2:AttachNetworkInterface",
            "ec2:DetachNetworkInterface",
            "ec2:DeleteNetworkInterface",
            "ec2:ModifyNetworkInterfaceAttribute",
            "ec2:ModifyInstanceAttribute",
            "ec2:DeleteLaunchTemplate",
            on=["*"],
            because="bound to what carries the application's tag",
            conditions=tagged,
        )
        allow(role, "ssm:GetParameters", on=[self._public_parameters], because="AWS's public parameters: image ids")
        allow(
            role,
            "scheduler:CreateSchedule",
            "scheduler:DeleteSchedule",
            "scheduler:GetSchedule",
            "scheduler:UpdateSchedule",
            on=[self._arn("scheduler", "schedule", "default/volumetry-*")],
            because="CloudFormation names a stack's schedule after the stack",
        )
        return role

    def _scheduler_role(self) -> iam.Role:
        """What the dead man's switch in each stack uses to delete it."""
        role = iam.Role(
            self,
            "SchedulerRole",
            assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"),
            description="Deletes the stack of a topology at its deadline",
        )
        allow(role, "cloudformation:DeleteStack", on=[self._stacks], because=TOPOLOGIES)
        return role

    def _arn(self, service: str, resource: str, name: str, account: str | None = None) -> str:
        return self.format_arn(service=service, resource=resource, resource_name=name, account=account)

    @property
    def _stacks(self) -> str:
        """ARN pattern of topologies' stacks, as naming.stack_name builds their names."""
        return self._arn("cloudformation", "stack", "volumetry-*/*")

    @property
    def _public_parameters(self) -> str:
        return self._arn("ssm", "parameter", "aws/service/*", account="")

    def _grants(self) -> None:
        self._grant_functions()
        self._grant_analysis()
        self._grant_command()
        self._grant_topology()
        for machine, functions in (
            (self.topology, [self.topology_function]),
            (self.trial, [self.open_trial, self.commit]),
            (self.campaign, [self.plan, self.tear_down, self.analyse]),
        ):
            allow(machine.role, "lambda:InvokeFunction", on=[each.function.function_arn for each in functions])
        self.topology.starts(self.command)
        self.trial.starts(self.command, self.topology)
        self.campaign.starts(self.topology, self.trial)
        allow(self.campaign.role, "s3:GetObject", on=[self.results.objects("executions")], because=EXECUTIONS)
        allow(
            self.campaign.role,
            "states:StartExecution",
            on=[self._arn("states", "stateMachine", "*")],
            because="a Distributed Map runs its items as executions of the campaign's own machine, whose ARN is not "
            "known to its own role",
        )

    def _grant_functions(self) -> None:
        objects = self.results.objects
        for function in (self.plan, self.topology_function, self.open_trial, self.commit, self.analyse):
            allow(function.role, "s3:GetObject", "s3:PutObject", on=[objects("executions")], because=EXECUTIONS)
            # Without it, S3 answers 403 for a key that does not exist.
            allow(function.role, "s3:ListBucket", on=[self.results.bucket.bucket_arn])
        allow(self.plan.role, "ec2:DescribeInstanceTypes", on=["*"], because=DESCRIBES)
        role = self.topology_function.role
        allow(role, "cloudformation:DescribeStacks", "cloudformation:DescribeStackEvents",
              "cloudformation:DeleteStack", on=[self._stacks], because=TOPOLOGIES)  # fmt: skip
        allow(role, "ec2:DescribeInstances", "ec2:DescribeVolumes", "ec2:DescribeAvailabilityZones",
              on=["*"], because=DESCRIBES)  # fmt: skip
        # The URLs that hosts get carry this function's rights: to read orders, to create evidence and samples.
        role = self.open_trial.role
        allow(role, "s3:GetObject", "s3:PutObject", on=[objects("orders")], because=EXECUTIONS)
        allow(role, "s3:PutObject", on=[objects("evidence"), objects("live")], because=EXECUTIONS)
        allow(self.commit.role, "s3:GetObject", on=[objects("evidence")], because=EXECUTIONS)
        allow(self.commit.role, "s3:PutObject", on=[objects("tables")], because=EXECUTIONS)
        role = self.tear_down.role
        allow(role, "cloudformation:DescribeStacks", "ec2:DescribeInstances", "ec2:DescribeVolumes",
              "ec2:DescribeNetworkInterfaces", on=["*"], because=DESCRIBES)  # fmt: skip
        allow(role, "cloudformation:DeleteStack", on=[self._stacks], because=TOPOLOGIES)

    def _grant_analysis(self) -> None:
        role, objects = self.analyse.role, self.results.objects
        allow(role, "s3:GetObject", "s3:PutObject", on=[objects("athena")], because="results of queries")
        allow(role, "s3:GetObject", "s3:PutObject", on=[objects("tables")], because=EXECUTIONS)
        allow(role, "s3:GetBucketLocation", on=[self.results.bucket.bucket_arn])
        allow(role, "athena:StartQueryExecution", "athena:GetQueryExecution", "athena:GetQueryResults",
              on=[self._arn("athena", "workgroup", self.results.workgroup.name)])  # fmt: skip
        allow(
            role,
            "glue:GetDatabase",
            "glue:GetTable",
            "glue:GetTables",
            "glue:GetPartitions",
            on=[
                self.format_arn(service="glue", resource="catalog"),
                self._arn("glue", "database", DATABASE),
                self._arn("glue", "table", f"{DATABASE}/*"),
            ],
            because="every table and view of the database",
        )

    def _grant_command(self) -> None:
        role = self.command.role
        ours = [self._arn("ssm", "document", document.ref) for document in self.documents.values()]
        allow(role, "ssm:SendCommand", on=ours)
        allow(
            role,
            "ssm:SendCommand",
            on=[self._arn("ec2", "instance", "*")],
            because="bound to instances that carry the application's tag",
            conditions={"StringEquals": {"aws:ResourceTag/application": TAG_APPLICATION}},
        )
        allow(role, "ssm:ListCommandInvocations", "ssm:GetCommandInvocation", "ssm:CancelCommand",
              "ec2:DescribeInstanceStatus", on=["*"], because=DESCRIBES)  # fmt: skip

    def _grant_topology(self) -> None:
        role = self.topology.role
        allow(role, "cloudformation:CreateStack", "cloudformation:DescribeStacks", "cloudformation:DeleteStack",
              "cloudformation:TagResource", on=[self._stacks], because=TOPOLOGIES)  # fmt: skip
        allow(role, "s3:GetObject", on=[self.results.objects("executions")], because=EXECUTIONS)
        allow(role, "ssm:DescribeInstanceInformation", on=["*"], because=DESCRIBES)
        allow(role, "ssm:GetParameters", on=[self._public_parameters], because="AWS's public parameters: image ids")
        self.stack_role.grant_pass_role(role)
        self.scheduler_role.grant_pass_role(self.stack_role)
        self.network.host_role.grant_pass_role(self.stack_role)

    # -- tear-down -----------------------------------------------------------------------------------------------

    def _tear_down_rules(self) -> None:
        """The second and fourth layer of tear-down; the first is the machine itself, the third a stack's schedule."""
        target = targets.LambdaFunction(self.tear_down.function, retry_attempts=10)
        events.Rule(
            self,
            "BadEnds",
            description="Tears down the topologies of a campaign that failed, timed out or was stopped",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "stateMachineArn": [self.campaign.machine.state_machine_arn],
                    "status": ["FAILED", "TIMED_OUT", "ABORTED"],
                },
            ),
            targets=[target],
        )
        events.Rule(
            self,
            "Sweep",
            description="Tears down every topology that is past its deadline",
            schedule=events.Schedule.rate(Duration.hours(1)),
            targets=[targets.LambdaFunction(self.tear_down.function, event=events.RuleTargetInput.from_object({}))],
        )
