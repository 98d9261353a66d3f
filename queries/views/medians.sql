-- The median of each set of samples, with its exact 95 % interval by order statistics: low and high, NULL for fewer than
-- six. n: how many samples; smallest, largest: of them. Units of samples.
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY dt, execution, workload, topology, tuning, base_topology, base_tuning, metric
            ORDER BY value
        ) AS place,
        count(*) OVER (
            PARTITION BY dt, execution, workload, topology, tuning, base_topology, base_tuning, metric
        ) AS n
    FROM samples
)

SELECT
    r.dt,
    r.execution,
    r.workload,
    r.topology,
    r.tuning,
    r.base_topology,
    r.base_tuning,
    r.metric,
    r.n,
    avg(r.value) FILTER (WHERE 2 * r.place BETWEEN r.n AND r.n + 2) AS median,
    max(r.value) FILTER (WHERE r.place = b.k) AS low,
    max(r.value) FILTER (WHERE r.place = r.n + 1 - b.k) AS high,
    min(r.value) AS smallest,
    max(r.value) AS largest
FROM ranked AS r
LEFT JOIN median_ranks AS b ON r.n BETWEEN b.n_from AND b.n_to
GROUP BY
    r.dt, r.execution, r.workload, r.topology, r.tuning, r.base_topology, r.base_tuning, r.metric, r.n
