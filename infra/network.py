"""The network that hosts are launched into: one public subnet in each of three AZs, closed to the world.

Hosts need the package repositories and Systems Manager; a public address costs less than a NAT gateway in each AZ, and
a security group without ingress from outside lets nobody in. S3 is reached through a gateway endpoint.
"""

from aws_cdk import Fn, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.permissions import acknowledge

AZS = ("a", "b", "c")
CIDR = "10.42.0.0/16"


class NetworkStack(Stack):
    """VPC, subnets, security group and the hosts' role."""

    def __init__(self, scope: Construct, identifier: str) -> None:
        super().__init__(scope, identifier, description="Volumetry: the network and role of the hosts")
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(CIDR),
            availability_zones=self.availability_zones,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="Hosts", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=20)
            ],
            nat_gateways=0,
            restrict_default_security_group=False,
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
            },
        )
        self._flow_logs()
        self.security_group = ec2.SecurityGroup(
            self, "Hosts", vpc=self.vpc, description="Hosts of one VPC reach one another; nobody else reaches them"
        )
        self.security_group.add_ingress_rule(
            self.security_group, ec2.Port.all_traffic(), "replication, round-trip measurement, workload traffic"
        )
        self.host_role = iam.Role(
            self,
            "HostRole",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Hosts speak to Systems Manager and to nothing else: evidence goes through presigned URLs",
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("AmazonSSMManagedInstanceCore")],
        )
        acknowledge(
            self.host_role,
            "AWS's own policy for Systems Manager's agent, kept up to date by AWS; it gives no access to buckets",
            "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/AmazonSSMManagedInstanceCore]",
        )
        self.instance_profile = iam.InstanceProfile(self, "HostProfile", role=self.host_role)

    @property
    def availability_zones(self) -> list[str]:
        """The region's first three AZs, chosen when the stack is deployed."""
        return [Fn.select(index, Fn.get_azs()) for index in range(len(AZS))]

    @property
    def subnets(self) -> dict[str, str]:
        """AZ letter -> subnet id."""
        return dict(zip(AZS, (subnet.subnet_id for subnet in self.vpc.public_subnets), strict=True))

    def _flow_logs(self) -> None:
        group = logs.LogGroup(
            self, "FlowLogs", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY
        )
        self.vpc.add_flow_log("FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(group))
