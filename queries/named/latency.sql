-- How long does an operation take? p50, p99 and p99.9 of completion latency, microseconds, of the added histograms of
-- valid trials; n: operations that they rest on.
SELECT
    topology,
    tuning,
    workload,
    direction,
    n,
    p50_us,
    p99_us,
    p999_us
FROM latency
WHERE dt = '${dt}' AND execution = '${execution}'
ORDER BY workload, tuning, topology, direction
