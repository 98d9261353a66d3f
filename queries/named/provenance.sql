-- What was measured on, topology by topology and tuning by tuning? More than one row for both: it changed while the
-- execution ran. stack_status: what the storage stack said of itself in the first of these trials.
WITH told AS (
    SELECT
        topology,
        tuning,
        min_by(stack_status, started_at) AS stack_status
    FROM trials
    WHERE dt = '${dt}' AND execution = '${execution}' AND stack_status IS NOT NULL
    GROUP BY topology, tuning
)

SELECT DISTINCT
    t.topology,
    t.tuning,
    t.stack,
    t.stack_driver,
    t.stack_module,
    s.stack_status,
    t.stack_parameters,
    t.first_sync_skipped,
    t.filesystem,
    t.mount_options,
    t.tuning_values,
    t.instance_types,
    t.instance_ids,
    t.az_ids,
    t.volume_type,
    t.volume_size_gib,
    t.volume_iops,
    t.volume_throughput_mibps,
    t.volume_ids,
    t.ami,
    t.os,
    t.kernel,
    t.tool,
    t.tool_version,
    t.fio_version,
    t.ioengine,
    t.host_kind,
    t.region
FROM trials AS t
LEFT JOIN told AS s ON t.topology = s.topology AND t.tuning = s.tuning
WHERE t.dt = '${dt}' AND t.execution = '${execution}'
ORDER BY t.topology, t.tuning, t.kernel, t.tool
