-- Did the figures drift while the execution ran? For each valid trial of a cell that has three or more: hours since the
-- first, and how far its rate lies from the cell's median (per cent); drift_pct_per_hour: the slope of the regression line
-- through all of them.
WITH points AS (
    SELECT
        t.topology,
        t.tuning,
        t.workload,
        t.repetition,
        (to_unixtime(t.started_at) - min(to_unixtime(t.started_at)) OVER ()) / 3600e0 AS hours,
        100 * (t.rate / nullif(m.median, 0e0) - 1) AS deviation_pct
    FROM valid_trials AS t
    INNER JOIN medians AS m
        ON
            t.dt = m.dt
            AND t.execution = m.execution
            AND t.workload = m.workload
            AND t.topology = m.topology
            AND t.tuning = m.tuning
    WHERE
        t.dt = '${dt}'
        AND t.execution = '${execution}'
        AND m.metric = 'rate'
        AND m.base_topology IS NULL
        AND m.n >= 3
),

line AS (
    SELECT regr_slope(deviation_pct, hours) AS drift_pct_per_hour
    FROM points
)

SELECT
    p.topology,
    p.tuning,
    p.workload,
    p.repetition,
    p.hours,
    p.deviation_pct,
    l.drift_pct_per_hour
FROM points AS p
CROSS JOIN line AS l
ORDER BY p.hours, p.workload, p.tuning, p.topology, p.repetition
