"""The tables that evidence becomes: the one home of their columns, types and units.

Commit writes Parquet by these schemas, the stacks declare them to Glue, the queries read them and ``docs/data.md`` is
written from them (``make docs``).

pyarrow is imported only where a schema is asked for: the command line and the stacks import this module too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Type = Literal["string", "int", "bigint", "double", "boolean", "timestamp"]


@dataclass(frozen=True)
class Column:
    """A column: ``type`` in the words of Glue, the unit in the name or in the description."""

    name: str
    type: Type
    description: str


@dataclass(frozen=True)
class Table:
    """A table of Parquet objects under ``<name>/dt=YYYY-MM-DD/``."""

    name: str
    description: str
    columns: tuple[Column, ...]

    def arrow_schema(self) -> pa.Schema:
        """The schema of a Parquet object of this table; ``dt`` is in the object's key, not in the object."""
        import pyarrow as pa  # noqa: PLC0415

        # Athena keeps milliseconds of a Hive timestamp; what is finer would differ between engines.
        types = {
            "string": pa.string(),
            "int": pa.int32(),
            "bigint": pa.int64(),
            "double": pa.float64(),
            "boolean": pa.bool_(),
            "timestamp": pa.timestamp("ms"),
        }
        return pa.schema([pa.field(column.name, types[column.type]) for column in self.columns])

    def glue_columns(self) -> list[dict[str, str]]:
        """The columns as ``StorageDescriptor.Columns`` of a Glue table."""
        return [_glue_column(column) for column in self.columns]


def _glue_column(column: Column) -> dict[str, str]:
    return {"Name": column.name, "Type": column.type, "Comment": column.description}


PARTITION = Column(
    "dt",
    "string",
    "UTC date on which the execution began, YYYY-MM-DD: all rows of an execution lie in one partition",
)


def partition(execution_began: datetime) -> str:
    """The value of ``dt`` for an execution that began at this moment (time zone required)."""
    if execution_began.tzinfo is None:
        raise ValueError("A moment without a time zone has no UTC date.")
    return execution_began.astimezone(UTC).date().isoformat()


def glue_partition_keys() -> list[dict[str, str]]:
    """``PartitionKeys`` of every Glue table."""
    return [_glue_column(PARTITION)]


_IDENTITY = (
    Column("execution", "string", "Id of the execution"),
    Column("campaign", "string", "Name of the campaign"),
    Column("topology", "string", "Name of the topology"),
    Column("stack", "string", "Storage stack of the topology: local, shared, drbd, nbd-mirror, ..."),
    Column("tuning", "string", "Name of the tuning"),
    Column("workload", "string", "Name of the workload"),
    Column("repetition", "int", "Repetition of this topology, tuning and workload, from 1"),
    Column("trial", "string", "Id of the trial, unique within the execution"),
    Column("attempt", "int", "Attempt at the trial, from 1; the last one stands for the trial"),
)

TRIALS = Table(
    "trials",
    "What each attempt at a trial came to: one row a direction, summed or merged over the hosts of the trial. "
    "An attempt without data has one row, whose direction is NULL.",
    (
        *_IDENTITY,
        Column("sequence", "int", "Place of the trial in the order of the execution, from 1"),
        Column("block", "int", "Block of the randomised order that the trial belongs to, from 1"),
        Column("direction", "string", "read, write or trim; transaction where the tool counts whole transactions"),
        Column("verdict", "string", "valid, capped, unsteady, degraded, failed or indeterminate"),
        Column("reason", "string", "Why this verdict, in a sentence"),
        Column("started_at", "timestamp", "UTC, start of the workload"),
        Column("ended_at", "timestamp", "UTC, end of the workload"),
        Column("run_s", "double", "Length of the measured part, seconds"),
        Column("ios", "bigint", "Operations completed in the measured part"),
        Column("io_bytes", "bigint", "Bytes moved in the measured part"),
        Column("iops", "double", "Operations per second: I/Os, or transactions where the tool counts those"),
        Column("bw_bytes_per_s", "double", "Throughput, bytes per second"),
        Column("clat_mean_us", "double", "Mean completion latency, microseconds"),
        Column("clat_p50_us", "double", "Median completion latency of this attempt alone, microseconds"),
        Column("clat_p99_us", "double", "99th percentile of completion latency of this attempt alone, microseconds"),
        Column("clat_p999_us", "double", "99.9th percentile of completion latency of this attempt alone, microseconds"),
        Column("clat_max_us", "double", "Largest completion latency, microseconds"),
        Column(
            "tps_with_connections", "double", "Transactions per second, the time of connecting counted in (pgbench)"
        ),
        Column("transactions_failed", "bigint", "Transactions that failed (pgbench)"),
        Column("tool", "string", "What made the load: fio, pgbench, sysbench, dbench, wrk"),
        Column("rw", "string", "fio's rw: read, write, randread, randwrite, rw, randrw"),
        Column("bs", "string", "fio's bs, the block size"),
        Column("iodepth", "int", "fio's iodepth, I/Os in flight per job"),
        Column("numjobs", "int", "fio's numjobs, jobs per host"),
        Column("rwmixread", "int", "fio's rwmixread, per cent of reads in a mixed load"),
        Column("clients", "int", "Clients or guests that made the load at once, over all hosts"),
        Column("failure", "string", "What befell the mirror under this load; NULL: nothing, the trial may be compared"),
        Column("stall_s", "double", "Longest time without a completion in or after the failure, seconds"),
        Column("before_iops", "double", "Operations per second until the failure"),
        Column(
            "degraded_iops", "double", "Operations per second while the failure lasts, its longest standstill left out"
        ),
        Column("resync_s", "double", "How long the mirror copied after the failure, seconds; NULL: not seen to"),
        Column("resync_iops", "double", "Operations per second while it copied"),
        Column("writes_acknowledged", "bigint", "Writes that the load was told are done, each of another block"),
        Column("writes_lost", "bigint", "Of these, blocks that are lost or altered on either leg, each read back"),
        Column("legs_identical", "boolean", "Both legs are the same byte for byte after the failure"),
        Column("alone_clat_p50_us", "double", "Median completion latency with the peer disconnected, microseconds"),
        Column("cpu_pct", "double", "CPU of the hosts that made the load, mean of the measured part, 0 to 100"),
        Column("peer_cpu_pct", "double", "CPU of the hosts that only hold a copy, mean of the measured part, 0 to 100"),
        Column("ceiling_iops", "double", "IOPS foretold as the most that volume, instance and network allow"),
        Column("ceiling_cause", "string", "Which limit that is"),
        Column("steady", "boolean", "Steady state by SNIA PTS over the last five rounds"),
        Column("steady_range_pct", "double", "Largest minus smallest round, per cent of the rounds' mean"),
        Column(
            "steady_slope_pct", "double", "Rise of the rounds' regression line over the window, per cent of their mean"
        ),
        Column("rtt_us", "double", "Round trip between the hosts measured in this attempt, median, microseconds"),
        Column("az_ids", "string", "AZ ids of the hosts, comma-separated, in the order of the hosts"),
        Column("instance_ids", "string", "Instance ids, comma-separated, in the order of the hosts"),
        Column("instance_types", "string", "Instance types, comma-separated, in the order of the hosts"),
        Column("volume_ids", "string", "Volume ids, comma-separated"),
        Column("volume_type", "string", "EBS volume type"),
        Column("volume_size_gib", "bigint", "Size of one volume, GiB"),
        Column("volume_iops", "bigint", "Provisioned IOPS of one volume"),
        Column("volume_throughput_mibps", "double", "Provisioned throughput of one volume, MiB per second"),
        Column("ami", "string", "AMI id"),
        Column("os", "string", "Operating system of the hosts, as it names itself"),
        Column("kernel", "string", "Kernel release of the hosts"),
        Column("tool_version", "string", "Version of what made the load, as it prints it"),
        Column("fio_version", "string", "Version that fio prints"),
        Column("ioengine", "string", "fio's ioengine"),
        Column("stack_driver", "string", "Driver of the storage stack and its version"),
        Column("stack_parameters", "string", "Parameters of the storage stack, a JSON object"),
        Column("stack_module", "string", "Kernel module of the storage stack, as modinfo tells it, and its tools"),
        Column("stack_status", "string", "State of the storage stack at the start of the trial, in its own words"),
        Column("filesystem", "string", "File system on the volume under test; NULL: the load ran on the volume itself"),
        Column("mount_options", "string", "Its mount options, as the kernel has them"),
        Column("tuning_values", "string", "Values that the tuning set, a JSON object"),
        Column("first_sync_skipped", "boolean", "The mirror was declared in sync without copying"),
        Column("host_kind", "string", "ec2; process or guest on the local region"),
        Column("region", "string", "AWS region, or local"),
        Column("evidence", "string", "Key prefix of the raw evidence in the results bucket"),
    ),
)

INTERVALS = Table(
    "intervals",
    "The load second by second, summed over the hosts: one row a second and direction.",
    (
        *_IDENTITY,
        Column("direction", "string", "As in trials"),
        Column("second", "int", "Second of the measured part, from 0"),
        Column("at", "timestamp", "UTC, start of the second"),
        Column("iops", "double", "Operations completed in the second"),
        Column("bw_bytes_per_s", "double", "Throughput, bytes per second"),
        Column("clat_mean_us", "double", "Mean completion latency of the second, microseconds"),
    ),
)

HISTOGRAMS = Table(
    "histograms",
    "Completion latencies in fio's buckets, summed over jobs and hosts: one row a bucket that is not empty. "
    "Percentiles of several hosts or repetitions come from adding these counts.",
    (
        *_IDENTITY,
        Column("direction", "string", "As in trials"),
        Column("lower_ns", "bigint", "Least latency of the bucket, nanoseconds, inclusive"),
        Column(
            "upper_ns", "bigint", "Where the next bucket begins, nanoseconds; NULL in the last bucket, which is open"
        ),
        Column("n", "bigint", "Operations in the bucket"),
    ),
)

HOSTS = Table(
    "hosts",
    "Telemetry of each host while a workload runs: one row a second and host.",
    (
        *_IDENTITY,
        Column("host", "string", "Name of the host within its topology"),
        Column("second", "int", "Second of the measured part, from 0"),
        Column("at", "timestamp", "UTC, start of the second"),
        Column("cpu_pct", "double", "CPU in use, 0 to 100 of all processors of the host"),
        Column("user_pct", "double", "CPU in user space, 0 to 100"),
        Column("system_pct", "double", "CPU in the kernel, 0 to 100"),
        Column("iowait_pct", "double", "CPU idle while I/O was outstanding, 0 to 100"),
        Column("steal_pct", "double", "CPU that others on the same machine took, 0 to 100"),
        Column("rx_bytes_per_s", "double", "Network bytes received per second"),
        Column("tx_bytes_per_s", "double", "Network bytes sent per second"),
        Column("memory_used_bytes", "bigint", "Memory in use, bytes"),
    ),
)

EVENTS = Table(
    "events",
    "What befell the hosts of a trial under a failure, and every change of the mirror's state: one row an event.",
    (
        *_IDENTITY,
        Column("host", "string", "Name of the host that noted it, by its own clock"),
        Column("at", "timestamp", "UTC"),
        Column("second", "double", "Seconds from the start of the measured part; before it negative"),
        Column(
            "event",
            "string",
            "fault-begin, fault-end, peer-back, verify-begin, verify-end, alone-begin, alone-end, state",
        ),
        Column("detail", "string", "What exactly: addresses, processes, bytes; of state, the state from then on"),
    ),
)

TABLES = {table.name: table for table in (TRIALS, INTERVALS, HISTOGRAMS, HOSTS, EVENTS)}


def markdown() -> str:
    """The page ``docs/data.md``."""
    head = f"""# The tables

Written by `make docs` from `volumetry/tables.py`; do not edit.

Parquet objects (zstd) in the results bucket under `tables/<table>/dt=YYYY-MM-DD/`, one object a trial attempt.
The partition column of every table is `{PARTITION.name}` ({PARTITION.type}): {PARTITION.description}.
What was not measured is NULL, never 0. Times are UTC.
"""
    return "\n".join([head, *(_section(table) for table in TABLES.values())])


def _section(table: Table) -> str:
    rows = "\n".join(f"| `{c.name}` | {c.type} | {c.description} |" for c in table.columns)
    return f"## {table.name}\n\n{table.description}\n\n| column | type | what it holds |\n|---|---|---|\n{rows}\n"
