-- How did each failure show in the load? Operations a second in each second of the measured part, all directions together;
-- every trial under a failure, its last attempt, whatever its verdict.
SELECT
    a.topology,
    a.tuning,
    a.workload,
    a.repetition,
    i.second,
    sum(i.iops) AS iops
FROM intervals AS i
INNER JOIN attempts AS a
    ON i.dt = a.dt AND i.execution = a.execution AND i.trial = a.trial AND i.attempt = a.attempt
WHERE a.dt = '${dt}' AND a.execution = '${execution}' AND a.is_last AND a.failure IS NOT NULL
GROUP BY a.topology, a.tuning, a.workload, a.repetition, i.second
ORDER BY a.workload, a.tuning, a.topology, a.repetition, i.second
