-- What medians are taken of, one row a value. Without a base: a figure of a valid trial. With a base: the same figure
-- divided by that of another cell's trial in the same block, where the two cells differ in their topology or in their
-- tuning, not in both. Trials of a block ran close to each other, so drift falls out of their quotient.
-- metric: iops, bw_bytes_per_s, rate, cpu_pct, peer_cpu_pct, cpu_pct_per_kiops or rtt_us, as in attempts; of a trial that
-- ran without its peer first: local_us (a write without the peer), mirrored_us (a write with it), foretold_us (local_us
-- and rtt_us together) and beyond_us (mirrored_us less foretold_us). value: the metric's unit, or a ratio.
WITH figures AS (
    SELECT
        t.dt,
        t.execution,
        t.workload,
        t.topology,
        t.tuning,
        t.block,
        m.metric,
        CASE m.metric
            WHEN 'iops' THEN t.iops
            WHEN 'bw_bytes_per_s' THEN t.bw_bytes_per_s
            WHEN 'rate' THEN t.rate
            WHEN 'cpu_pct' THEN t.cpu_pct
            WHEN 'peer_cpu_pct' THEN t.peer_cpu_pct
            WHEN 'cpu_pct_per_kiops' THEN t.cpu_pct_per_kiops
            WHEN 'rtt_us' THEN t.rtt_us
            WHEN 'local_us' THEN t.alone_clat_p50_us
            WHEN 'mirrored_us' THEN if(t.alone_clat_p50_us IS NOT NULL, t.write_clat_p50_us)
            WHEN 'foretold_us' THEN t.alone_clat_p50_us + t.rtt_us
            WHEN 'beyond_us' THEN t.write_clat_p50_us - t.alone_clat_p50_us - t.rtt_us
        END AS value
    FROM valid_trials AS t
    CROSS JOIN (
        VALUES 'iops', 'bw_bytes_per_s', 'rate', 'cpu_pct', 'peer_cpu_pct', 'cpu_pct_per_kiops', 'rtt_us',
            'local_us', 'mirrored_us', 'foretold_us', 'beyond_us'
    ) AS m (metric)
),

ratios AS (
    SELECT
        a.dt,
        a.execution,
        a.workload,
        a.topology,
        a.tuning,
        b.topology AS base_topology,
        b.tuning AS base_tuning,
        a.metric,
        a.value / nullif(b.value, 0e0) AS value
    FROM figures AS a
    INNER JOIN figures AS b
        ON
            a.dt = b.dt
            AND a.execution = b.execution
            AND a.workload = b.workload
            AND a.block = b.block
            AND a.metric = b.metric
            AND (a.topology = b.topology OR a.tuning = b.tuning)
            AND (a.topology <> b.topology OR a.tuning <> b.tuning)
)

SELECT
    dt,
    execution,
    workload,
    topology,
    tuning,
    CAST(NULL AS varchar) AS base_topology,
    CAST(NULL AS varchar) AS base_tuning,
    metric,
    value
FROM figures
WHERE value IS NOT NULL
UNION ALL
SELECT
    dt,
    execution,
    workload,
    topology,
    tuning,
    base_topology,
    base_tuning,
    metric,
    value
FROM ratios
WHERE value IS NOT NULL
