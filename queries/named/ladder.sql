-- What does each step of the ladder cost? One row a step, workload, tuning and metric; steps in the order of ${ladder}, a
-- comma-separated list of topologies. median, low, high: the metric's unit; of_previous, of_first: what the step reached
-- for each unit of the step before it and of the first step, block by block (0.5: half, a cost of 50 %), each with its
-- 95 % interval (NULL: fewer than six blocks). Valid trials alone; trials_left_out says how many were not.
WITH steps AS (
    SELECT
        t.step,
        t.topology
    FROM UNNEST(split('${ladder}', ',')) WITH ORDINALITY AS t (topology, step)
),

panels AS (
    SELECT DISTINCT
        c.dt,
        c.execution,
        c.workload,
        c.tuning
    FROM cells AS c
    INNER JOIN steps AS s ON c.topology = s.topology
    WHERE c.dt = '${dt}' AND c.execution = '${execution}'
)

SELECT
    p.workload,
    p.tuning,
    m.metric,
    s.step,
    s.topology,
    c.trials,
    c.trials_valid,
    c.trials_left_out,
    v.median,
    v.low,
    v.high,
    v.smallest,
    v.largest,
    r.ratio AS of_previous,
    r.ratio_low AS of_previous_low,
    r.ratio_high AS of_previous_high,
    r.blocks AS of_previous_blocks,
    f.ratio AS of_first,
    f.ratio_low AS of_first_low,
    f.ratio_high AS of_first_high,
    f.blocks AS of_first_blocks
FROM panels AS p
CROSS JOIN steps AS s
CROSS JOIN (
    VALUES 'iops', 'bw_bytes_per_s', 'rate', 'cpu_pct', 'peer_cpu_pct', 'cpu_pct_per_kiops', 'rtt_us'
) AS m (metric)
LEFT JOIN steps AS previous ON s.step = previous.step + 1
LEFT JOIN steps AS first ON first.step = 1 AND s.step > 1
LEFT JOIN cells AS c
    ON
        p.dt = c.dt
        AND p.execution = c.execution
        AND p.workload = c.workload
        AND p.tuning = c.tuning
        AND s.topology = c.topology
LEFT JOIN medians AS v
    ON
        p.dt = v.dt
        AND p.execution = v.execution
        AND p.workload = v.workload
        AND p.tuning = v.tuning
        AND s.topology = v.topology
        AND m.metric = v.metric
        AND v.base_topology IS NULL
LEFT JOIN comparisons AS r
    ON
        p.dt = r.dt
        AND p.execution = r.execution
        AND p.workload = r.workload
        AND p.tuning = r.tuning
        AND p.tuning = r.base_tuning
        AND s.topology = r.topology
        AND previous.topology = r.base_topology
        AND m.metric = r.metric
LEFT JOIN comparisons AS f
    ON
        p.dt = f.dt
        AND p.execution = f.execution
        AND p.workload = f.workload
        AND p.tuning = f.tuning
        AND p.tuning = f.base_tuning
        AND s.topology = f.topology
        AND first.topology = f.base_topology
        AND m.metric = f.metric
ORDER BY p.workload, p.tuning, m.metric, s.step
