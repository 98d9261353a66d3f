-- Completion latencies of all valid trials of a cell, their histograms added: one row a bucket and direction, and one for
-- all directions together ('all'). lower_ns, upper_ns: nanoseconds (upper_ns NULL: the last, open bucket); value_ns: the
-- bucket's middle, as fio reports it; n: operations in it; below: operations in it and in all buckets before it;
-- total: operations of the cell and direction.
WITH summed AS (
    SELECT
        h.dt,
        h.execution,
        h.topology,
        h.tuning,
        h.workload,
        coalesce(h.direction, 'all') AS direction,
        h.lower_ns,
        h.upper_ns,
        CAST(sum(h.n) AS bigint) AS n
    FROM histograms AS h
    INNER JOIN valid_trials AS t
        ON h.dt = t.dt AND h.execution = t.execution AND h.trial = t.trial AND h.attempt = t.attempt
    GROUP BY GROUPING SETS (
        (h.dt, h.execution, h.topology, h.tuning, h.workload, h.lower_ns, h.upper_ns, h.direction),
        (h.dt, h.execution, h.topology, h.tuning, h.workload, h.lower_ns, h.upper_ns)
    )
)

SELECT
    dt,
    execution,
    topology,
    tuning,
    workload,
    direction,
    lower_ns,
    upper_ns,
    CAST(floor((lower_ns + coalesce(upper_ns, lower_ns)) / 2e0) AS bigint) AS value_ns,
    n,
    CAST(sum(n) OVER (
        PARTITION BY dt, execution, topology, tuning, workload, direction
        ORDER BY lower_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS bigint) AS below,
    CAST(sum(n) OVER (PARTITION BY dt, execution, topology, tuning, workload, direction) AS bigint) AS total
FROM summed
