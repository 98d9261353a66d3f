-- Percentiles of completion latency of a cell, microseconds: of the added histograms of its valid trials, over directions,
-- hosts and repetitions; one row a direction, and one for all of them ('all'). Each is the first bucket whose cumulative
-- count reaches p x N. n: operations that they rest on.
SELECT
    dt,
    execution,
    topology,
    tuning,
    workload,
    direction,
    max(total) AS n,
    min(value_ns) FILTER (WHERE 2 * below >= total) / 1000e0 AS p50_us,
    min(value_ns) FILTER (WHERE 100 * below >= 99 * total) / 1000e0 AS p99_us,
    min(value_ns) FILTER (WHERE 1000 * below >= 999 * total) / 1000e0 AS p999_us
FROM latency_buckets
GROUP BY dt, execution, topology, tuning, workload, direction
