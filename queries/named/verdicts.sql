-- How many trials came to which verdict? reason: that of one of them. Trials that are not valid enter no comparison.
SELECT
    topology,
    tuning,
    workload,
    verdict,
    count(*) AS trials,
    min(reason) AS reason
FROM attempts
WHERE dt = '${dt}' AND execution = '${execution}' AND is_last
GROUP BY topology, tuning, workload, verdict
ORDER BY topology, tuning, workload, verdict
