-- How are latencies distributed, far into the tail? For each cell, all directions: share of the operations (0 to 1) that
-- took at most latency_us, microseconds. Thinned to eight points for each halving of what lies above.
WITH points AS (
    SELECT
        *,
        floor(8 * ln(total / greatest(CAST(total - below AS double), 0.5e0)) / ln(2e0)) AS place
    FROM latency_buckets
    WHERE dt = '${dt}' AND execution = '${execution}' AND direction = 'all'
)

SELECT
    topology,
    tuning,
    workload,
    max(total) AS n,
    max(below) / CAST(max(total) AS double) AS share,
    max(value_ns) / 1000e0 AS latency_us
FROM points
GROUP BY topology, tuning, workload, place
ORDER BY workload, tuning, topology, place
