-- One row a pair of cells of one workload that differ in their topology or in their tuning: the median over the blocks of
-- what the one reached for each unit of its base (ratio: 0.5 is half), with its exact 95 % interval, NULL for fewer than
-- six blocks. metric: as in samples.
SELECT
    dt,
    execution,
    workload,
    base_topology,
    base_tuning,
    topology,
    tuning,
    metric,
    n AS blocks,
    median AS ratio,
    low AS ratio_low,
    high AS ratio_high
FROM medians
WHERE base_topology IS NOT NULL
