-- Which attempts enter no comparison, and why? An attempt that was followed by another is superseded, whatever it was.
-- Trials under a failure are not among them: see failures. started_at: UTC; iops: operations a second; rate: as in
-- attempts; ceiling_iops: what the limits allow.
SELECT
    topology,
    tuning,
    workload,
    repetition,
    attempt,
    CASE WHEN is_last THEN verdict ELSE concat('superseded, ', verdict) END AS verdict,
    reason,
    started_at,
    iops,
    rate,
    ceiling_iops,
    ceiling_cause,
    evidence
FROM attempts
WHERE dt = '${dt}' AND execution = '${execution}' AND failure IS NULL AND (NOT is_last OR verdict <> 'valid')
ORDER BY topology, tuning, workload, repetition, attempt
