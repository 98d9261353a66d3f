-- What does each tuning bring, on the same topology and workload? One row a pair of tunings: iops of the tuning for each
-- unit of its base, block by block (1.2: a fifth more), with its 95 % interval (NULL: fewer than six blocks).
SELECT
    workload,
    topology,
    base_tuning,
    tuning,
    blocks,
    ratio,
    ratio_low,
    ratio_high
FROM comparisons
WHERE
    dt = '${dt}'
    AND execution = '${execution}'
    AND metric = 'iops'
    AND topology = base_topology
ORDER BY workload, topology, base_tuning, tuning
