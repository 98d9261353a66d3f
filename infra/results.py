"""Where results live: the bucket, the tables and views over it, and the workgroup that asks SQL of them."""

from pathlib import Path

from aws_cdk import Aws, CfnOutput, CfnResource, Duration, Fn, RemovalPolicy, Stack
from aws_cdk import aws_athena as athena
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.views import view_inputs
from volumetry.tables import TABLES, Table, glue_partition_keys

QUERIES = Path(__file__).parent.parent / "queries"
DATABASE = "volumetry"
# A month of every trial of a busy team is far below this; a query that scans more is a mistake.
MOST_BYTES_PER_QUERY = 100 * 1000**3


class ResultsStack(Stack):
    """Results outlive the service: the bucket stays when the stack is deleted."""

    def __init__(self, scope: Construct, identifier: str) -> None:
        super().__init__(scope, identifier, description="Volumetry: results, tables and queries")
        self.access_logs = s3.Bucket(
            self,
            "AccessLogs",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(90))],
            removal_policy=RemovalPolicy.RETAIN,
        )
        self.bucket = s3.Bucket(
            self,
            "Results",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            versioned=True,
            server_access_logs_bucket=self.access_logs,
            lifecycle_rules=[
                # Work orders hold URLs, live samples serve while a trial runs, query results can be asked for again.
                *(s3.LifecycleRule(prefix=prefix, expiration=Duration.days(2)) for prefix in ("orders/", "live/")),
                s3.LifecycleRule(prefix="athena/", expiration=Duration.days(30)),
            ],
            removal_policy=RemovalPolicy.RETAIN,
        )
        self._evidence_is_only_created()
        self.database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=Aws.ACCOUNT_ID,
            database_input=glue.CfnDatabase.DatabaseInputProperty(name=DATABASE, description="Volumetry's results"),
        )
        self.tables = [self._table(table) for table in TABLES.values()]
        self.workgroup = self._workgroup()
        self._views()
        self._named_queries()
        CfnOutput(self, "ResultsBucketName", value=self.bucket.bucket_name)

    def objects(self, prefix: str) -> str:
        """ARN pattern of the objects under a prefix, for another stack's policies."""
        return f"{self.export_value(self.bucket.bucket_arn)}/{prefix}/*"

    def _evidence_is_only_created(self) -> None:
        """Whoever writes evidence creates it: an object that is there is never replaced."""
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="EvidenceIsOnlyCreated",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["s3:PutObject"],
                resources=[self.bucket.arn_for_objects("evidence/*")],
                conditions={"Null": {"s3:if-none-match": "true"}},
            )
        )

    def _table(self, table: Table) -> glue.CfnTable:
        location = Fn.join("", ["s3://", self.bucket.bucket_name, "/tables/", table.name, "/"])
        resource = glue.CfnTable(
            self,
            f"Table{table.name.capitalize()}",
            catalog_id=Aws.ACCOUNT_ID,
            database_name=DATABASE,
            table_input=glue.CfnTable.TableInputProperty(
                name=table.name,
                description=table.description,
                table_type="EXTERNAL_TABLE",
                partition_keys=[_column(column) for column in glue_partition_keys()],
                parameters={
                    "classification": "parquet",
                    "projection.enabled": "true",
                    "projection.dt.type": "date",
                    "projection.dt.format": "yyyy-MM-dd",
                    "projection.dt.range": "2026-01-01,NOW",
                    "storage.location.template": location + "dt=${dt}",
                },
                storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                    location=location,
                    columns=[_column(column) for column in table.glue_columns()],
                    input_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
                    output_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
                    serde_info=glue.CfnTable.SerdeInfoProperty(
                        serialization_library="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
                    ),
                ),
            ),
        )
        resource.add_resource_dependency(self.database)
        return resource

    def _views(self) -> None:
        """A view is a Glue table too; one that reads another comes after it."""
        before: list[CfnResource] = [*self.tables]
        for view in view_inputs(DATABASE, QUERIES):
            resource = CfnResource(
                self,
                "View" + view["Name"].title().replace("_", ""),
                type="AWS::Glue::Table",
                properties={"CatalogId": Aws.ACCOUNT_ID, "DatabaseName": DATABASE, "TableInput": view},
            )
            for earlier in before:
                resource.add_resource_dependency(earlier)
            before = [resource]

    def _workgroup(self) -> athena.CfnWorkGroup:
        return athena.CfnWorkGroup(
            self,
            "Workgroup",
            name="volumetry",
            description="SQL over Volumetry's results",
            recursive_delete_option=True,
            work_group_configuration=athena.CfnWorkGroup.WorkGroupConfigurationProperty(
                enforce_work_group_configuration=True,
                publish_cloud_watch_metrics_enabled=True,
                bytes_scanned_cutoff_per_query=MOST_BYTES_PER_QUERY,
                result_configuration=athena.CfnWorkGroup.ResultConfigurationProperty(
                    output_location=Fn.join("", ["s3://", self.bucket.bucket_name, "/athena/"]),
                    encryption_configuration=athena.CfnWorkGroup.EncryptionConfigurationProperty(
                        encryption_option="SSE_S3"
                    ),
                ),
            ),
        )

    def _named_queries(self) -> None:
        for path in sorted((QUERIES / "named").glob("*.sql")):
            text = path.read_text(encoding="utf-8")
            query = athena.CfnNamedQuery(
                self,
                "Query" + path.stem.title().replace("_", "").replace("-", ""),
                name=path.stem,
                database=DATABASE,
                description=text.splitlines()[0].removeprefix("--").strip(),
                query_string=text,
                work_group=self.workgroup.name,
            )
            query.add_resource_dependency(self.workgroup)


def _column(column: dict[str, str]) -> glue.CfnTable.ColumnProperty:
    return glue.CfnTable.ColumnProperty(name=column["Name"], type=column["Type"], comment=column["Comment"])
