-- What does each tuning bring, on the same topology and workload? One row a pair of tunings: the rate (operations a second,
-- or bytes a second where the tool counts no operations) that the tuning reaches for each unit of its base, block by block
-- (1.2: a fifth more), with its 95 % interval (NULL: fewer than six blocks).
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
    AND metric = 'rate'
    AND topology = base_topology
ORDER BY workload, topology, base_tuning, tuning
