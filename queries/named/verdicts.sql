-- How many trials came to which verdict? reason: that of one of them. Trials that are not valid enter no comparison, nor
-- do those under a failure.
SELECT
    topology,
    tuning,
    workload,
    failure,
    verdict,
    count(*) AS trials,
    min(reason) AS reason
FROM attempts
WHERE dt = '${dt}' AND execution = '${execution}' AND is_last
GROUP BY topology, tuning, workload, failure, verdict
ORDER BY topology, tuning, workload, verdict
