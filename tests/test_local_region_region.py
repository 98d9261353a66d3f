"""The life of a region, what it keeps, and who may read it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.config import Config
from local_region_support import ROOT, Json, Served, allow, refusal, shared


@pytest.fixture(scope="module")
def region() -> Served:
    return shared()


@pytest.fixture
def bucket(region: Served) -> str:
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    region.client("s3").create_bucket(Bucket=name)
    return name


def presigned(region: Served, operation: str, seconds: int = 60, **parameters: str) -> str:
    """boto3 presigns by version 2 unless told otherwise, which S3 refuses for buckets of today."""
    keys = region.credentials
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    client = boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url=region.ready["endpoint"],
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        config=config,
    )
    return str(client.generate_presigned_url(operation, Params=parameters, ExpiresIn=seconds))


def status(url: str, body: bytes | None = None, **headers: str) -> int:
    request = Request(url, body, {name.replace("_", "-"): value for name, value in headers.items()})
    request.get_method = lambda: "GET" if body is None else "PUT"  # type: ignore[method-assign]
    try:
        with urlopen(request) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


# Life


def test_a_second_region_on_the_same_state_is_refused(region: Served) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "local_region", "serve", "--state", str(region.state)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr == f"another local region (process {region.process.pid}) uses {region.state}\n"


@pytest.mark.parametrize("how", ["signal", "parent"])
def test_a_region_ends_with_a_signal_or_its_parent(tmp_path: Path, how: str) -> None:
    """The parent is a shell, which a signal ends; the region takes that as its own end."""
    support = ROOT / "tests" / "local_region_support.py"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"{sys.executable} {support} {tmp_path / 'state'} < /dev/null & echo $!; wait"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert shell.stdout
    region_pid = int(shell.stdout.readline())
    assert json.loads(shell.stdout.readline())["account"] == "123456789012"
    os.kill(region_pid if how == "signal" else shell.pid, signal.SIGTERM)
    deadline = time.monotonic() + 15
    while Path(f"/proc/{region_pid}/cmdline").exists() and Path(f"/proc/{region_pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "ended; leftovers" in (tmp_path / "state" / "region.log").read_text()
    shell.kill()
    shell.wait()


def test_a_region_is_soon_ready_and_ends_with_its_input(tmp_path: Path) -> None:
    started = time.monotonic()
    served = Served.start(tmp_path / "state")
    assert time.monotonic() - started < 2
    volume = {"AvailabilityZone": "us-east-1a", "Size": 10, "VolumeType": "gp3"}
    template = {"Resources": {"Volume": {"Type": "AWS::EC2::Volume", "Properties": volume}}}
    assert served.stack("forgotten", template)["StackStatus"] == "CREATE_COMPLETE"
    execution = served.start_execution(served.machine({"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}))
    assert f"execution {execution}" in served.leftovers()
    # Executions are stopped, hosts and volumes are gone with it; a stack that nobody deleted is left over.
    assert served.stop().endswith('ended; leftovers: ["stack forgotten (CREATE_COMPLETE)"]')
    assert not list((tmp_path / "state" / "tmp").iterdir())


def test_a_later_region_answers_for_what_an_earlier_one_kept(tmp_path: Path) -> None:
    first = Served.start(tmp_path / "state")
    first.client("s3").create_bucket(Bucket="kept")
    table_of(first, "kept")
    machine = first.machine({"Done": {"Type": "Succeed", "Output": 1}})
    host = {"ImageId": "ami-0123456789abcdef0", "InstanceType": "m5.large"}
    template = {"Resources": {"Host": {"Type": "AWS::EC2::Instance", "Properties": host}}}
    first.client("cloudformation").create_stack(StackName="interrupted", TemplateBody=json.dumps(template))
    first.stop()
    second = Served.start(tmp_path / "state")
    assert [row["Data"][0] for row in query(second, "SELECT sum(n) AS total FROM numbers")] == [
        {"VarCharValue": "total"},
        {"VarCharValue": "6"},
    ]
    assert second.client("s3").get_object(Bucket="kept", Key="plain.txt")["Body"].read() == b"text"
    assert (tmp_path / "state/s3/123456789012/kept/plain.txt").read_bytes() == b"text"
    assert second.run(machine)["output"] == 1
    # Its host is gone; what was begun has failed, and can be deleted.
    assert second.settled("interrupted")["StackStatus"] == "CREATE_FAILED"
    second.delete("interrupted")
    second.stop()


# S3


def test_a_presigned_put_creates_an_object_once(region: Served, bucket: str) -> None:
    url = presigned(region, "put_object", Bucket=bucket, Key="evidence.tar.gz", IfNoneMatch="*")
    assert status(url, b"one", If_None_Match="*") == 200
    assert status(url, b"two", If_None_Match="*") == 412
    # The header is signed: a put without it is not the one that was allowed.
    assert status(url, b"three") == 403
    assert region.client("s3").get_object(Bucket=bucket, Key="evidence.tar.gz")["Body"].read() == b"one"


def test_a_presigned_get_is_its_roles(region: Served, bucket: str) -> None:
    region.client("s3").put_object(Bucket=bucket, Key="order.json", Body=b"{}")
    url = presigned(region, "get_object", Bucket=bucket, Key="order.json")
    assert status(url) == 200
    assert status(url.replace("order.json", "other.json")) == 403
    assert status(url.replace("X-Amz-Signature=", "X-Amz-Signature=0")) == 403
    assert status(url.partition("?")[0]) == 403
    old = region.client("s3").generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "order.json"})
    assert "Signature=" in old
    assert status(old) == 403


def test_a_presigned_url_expires(region: Served, bucket: str) -> None:
    region.client("s3").put_object(Bucket=bucket, Key="k", Body=b"")
    url = presigned(region, "get_object", seconds=1, Bucket=bucket, Key="k")
    time.sleep(2.1)
    assert status(url) == 403


def test_a_bucket_for_secure_transport_alone_is_reached(region: Served, bucket: str) -> None:
    """CDK's enforce_ssl; the loopback endpoint counts as secure. A role without rights stays out."""
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    policy = {"Version": "2012-10-17", "Statement": [deny]}
    region.client("s3").put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    put = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:s3:putObject",
        "Arguments": {"Bucket": bucket, "Key": "k", "Body": {}},
        "End": True,
    }
    assert region.run(region.machine({"Put": put}, allow("s3:PutObject")))["status"] == "SUCCEEDED"
    denied = region.run(region.machine({"Put": put}, allow("s3:GetObject")))
    assert "is not authorized to perform: s3:PutObject" in denied["cause"]


def test_a_policy_can_demand_conditional_writes(region: Served, bucket: str) -> None:
    deny = {
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": "s3:PutObject",
        "Resource": f"arn:aws:s3:::{bucket}/evidence/*",
        "Condition": {"Null": {"s3:if-none-match": "true"}},
    }
    region.client("s3").put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [deny]}))
    put = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:s3:putObject", "End": True}
    plain = {"Bucket": bucket, "Key": "evidence/a", "Body": {}}

    def run(**more: str) -> str:
        machine = region.machine({"Put": {**put, "Arguments": {**plain, **more}}}, allow("s3:PutObject"))
        return str(region.run(machine)["status"])

    assert run() == "FAILED"
    assert run(IfNoneMatch="*") == "SUCCEEDED"


@pytest.mark.parametrize("path", ["/_ministack/reset", "/_ministack/config", "/bucket/key", "/"])
def test_the_emulators_own_doors_are_shut(region: Served, path: str) -> None:
    assert status(region.ready["endpoint"] + path, b"{}") in (403, 404)


# Athena


def table_of(region: Served, bucket: str) -> None:
    """A Glue table of the numbers 1 to 3, and a work group, in a bucket."""
    folder = region.state / "numbers.parquet"
    pq.write_table(pa.table({"n": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, 'say "c"']}), folder)
    s3 = region.client("s3")
    s3.put_object(Bucket=bucket, Key="numbers/a.parquet", Body=folder.read_bytes())
    s3.put_object(Bucket=bucket, Key="plain.txt", Body=b"text")
    storage = {
        "Columns": [{"Name": "n", "Type": "bigint"}, {"Name": "s", "Type": "string"}],
        "Location": f"s3://{bucket}/numbers/",
        "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
    }
    glue = region.client("glue")
    glue.create_database(DatabaseInput={"Name": "kept"})
    table = {"Name": "numbers", "StorageDescriptor": storage, "TableType": "EXTERNAL_TABLE"}
    glue.create_table(DatabaseName="kept", TableInput=table)
    where = {"OutputLocation": f"s3://{bucket}/results"}
    group = {"ResultConfiguration": where, "EnforceWorkGroupConfiguration": True, "BytesScannedCutoffPerQuery": 10**8}
    region.client("athena").create_work_group(Name="kept", Configuration=group)


def started(region: Served, statement: str, **more: Any) -> Json:
    """The execution of a statement when it has ended."""
    athena = region.client("athena")
    context = {"Database": "kept"}
    made = athena.start_query_execution(QueryString=statement, QueryExecutionContext=context, WorkGroup="kept", **more)
    found: Json = region.until(
        lambda: athena.get_query_execution(QueryExecutionId=made["QueryExecutionId"])["QueryExecution"],
        lambda one: one["Status"]["State"] not in ("QUEUED", "RUNNING"),
    )
    return found


def query(region: Served, statement: str, **more: Any) -> list[Json]:
    execution = started(region, statement, **more)
    assert execution["Status"]["State"] == "SUCCEEDED", execution["Status"]
    results = region.client("athena").get_query_results(QueryExecutionId=execution["QueryExecutionId"])
    return list(results["ResultSet"]["Rows"])


def test_athena_answers_and_writes_its_result(region: Served, bucket: str) -> None:
    table_of(region, bucket)
    elsewhere = {"OutputLocation": "s3://elsewhere/"}
    token = uuid.uuid4().hex
    execution = started(
        region, "SELECT n, s FROM numbers ORDER BY n", ResultConfiguration=elsewhere, ClientRequestToken=token
    )
    again = started(
        region, "SELECT n, s FROM numbers ORDER BY n", ResultConfiguration=elsewhere, ClientRequestToken=token
    )
    assert again["QueryExecutionId"] == execution["QueryExecutionId"]
    location = execution["ResultConfiguration"]["OutputLocation"]
    # The work group's location is enforced.
    assert location == f"s3://{bucket}/results/{execution['QueryExecutionId']}.csv"
    key = location.removeprefix(f"s3://{bucket}/")
    written = region.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    assert written == '"n","s"\n"1","a"\n"2",\n"3","say ""c"""\n'
    assert execution["Statistics"]["DataScannedInBytes"] > 0
    rows = query(region, "SELECT n FROM numbers WHERE s = ?", ExecutionParameters=["'a'"])
    assert rows[1] == {"Data": [{"VarCharValue": "1"}]}
    failed = started(region, "SELECT absent FROM numbers")["Status"]
    assert failed["State"] == "FAILED"
    assert "COLUMN_NOT_FOUND" in failed["StateChangeReason"]
    assert (
        refusal(lambda: region.client("athena").start_query_execution(QueryString="SELECT 1", WorkGroup="absent"))
        == "InvalidRequestException"
    )
