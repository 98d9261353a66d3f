-- One row an execution, topology, tuning and workload: medians over its valid trials, and how many trials were left out.
-- Trials under a failure have no cell: see the named query failures. rate: as in attempts; iops (operations a second)
-- with its exact 95 % interval, NULL for fewer than six valid trials; bw_bytes_per_s: bytes a second; cpu_pct,
-- peer_cpu_pct: 0 to 100; cpu_pct_per_kiops: per cent of CPU for each 1,000 operations a second; rtt_us: microseconds;
-- ceiling_iops: what the limits of volume, instance and network allow.
WITH counted AS (
    SELECT
        dt,
        execution,
        campaign,
        topology,
        stack,
        tuning,
        workload,
        count(*) AS trials,
        count(*) FILTER (WHERE verdict = 'valid') AS trials_valid,
        count(*) FILTER (WHERE verdict <> 'valid') AS trials_left_out,
        min(ceiling_iops) AS ceiling_iops,
        min_by(ceiling_cause, ceiling_iops) AS ceiling_cause
    FROM attempts
    WHERE is_last AND failure IS NULL
    GROUP BY dt, execution, campaign, topology, stack, tuning, workload
),

measured AS (
    SELECT
        dt,
        execution,
        topology,
        tuning,
        workload,
        max(median) FILTER (WHERE metric = 'iops') AS iops,
        max(low) FILTER (WHERE metric = 'iops') AS iops_low,
        max(high) FILTER (WHERE metric = 'iops') AS iops_high,
        max(smallest) FILTER (WHERE metric = 'iops') AS iops_smallest,
        max(largest) FILTER (WHERE metric = 'iops') AS iops_largest,
        max(median) FILTER (WHERE metric = 'bw_bytes_per_s') AS bw_bytes_per_s,
        max(median) FILTER (WHERE metric = 'rate') AS rate,
        max(median) FILTER (WHERE metric = 'cpu_pct') AS cpu_pct,
        max(median) FILTER (WHERE metric = 'peer_cpu_pct') AS peer_cpu_pct,
        max(median) FILTER (WHERE metric = 'cpu_pct_per_kiops') AS cpu_pct_per_kiops,
        max(median) FILTER (WHERE metric = 'rtt_us') AS rtt_us
    FROM medians
    WHERE base_topology IS NULL
    GROUP BY dt, execution, topology, tuning, workload
)

SELECT
    c.dt,
    c.execution,
    c.campaign,
    c.topology,
    c.stack,
    c.tuning,
    c.workload,
    c.trials,
    c.trials_valid,
    c.trials_left_out,
    m.iops,
    m.iops_low,
    m.iops_high,
    m.iops_smallest,
    m.iops_largest,
    m.bw_bytes_per_s,
    m.rate,
    m.cpu_pct,
    m.peer_cpu_pct,
    m.cpu_pct_per_kiops,
    m.rtt_us,
    c.ceiling_iops,
    c.ceiling_cause
FROM counted AS c
LEFT JOIN measured AS m
    ON
        c.dt = m.dt
        AND c.execution = m.execution
        AND c.topology = m.topology
        AND c.tuning = m.tuning
        AND c.workload = m.workload
