-- What did each topology, tuning and workload reach? Medians over valid trials; iops_low and iops_high bound the median
-- with 95 % confidence (NULL: fewer than six valid trials). Units as in the view cells.
SELECT *
FROM cells
WHERE dt = '${dt}' AND execution = '${execution}'
ORDER BY workload, tuning, topology
