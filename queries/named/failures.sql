-- What did each failure under load do? One row a trial under a failure, its last attempt. stall_s: the longest time without
-- a completed write, seconds; before_iops, degraded_iops, resync_iops: operations a second before it, without the peer and
-- while the mirror was made whole; resync_s: how long that took, seconds; writes_acknowledged: writes that were read back
-- from every leg; writes_lost: of those, lost or altered; legs_identical: the legs byte by byte. NULL: not measured, or
-- not checked.
SELECT
    topology,
    tuning,
    workload,
    repetition,
    trial,
    attempt,
    failure,
    verdict,
    reason,
    started_at,
    stall_s,
    before_iops,
    degraded_iops,
    100 * degraded_iops / nullif(before_iops, 0e0) AS degraded_pct,
    resync_s,
    resync_iops,
    100 * resync_iops / nullif(before_iops, 0e0) AS resync_pct,
    writes_acknowledged,
    writes_lost,
    legs_identical,
    evidence
FROM attempts
WHERE dt = '${dt}' AND execution = '${execution}' AND is_last AND failure IS NOT NULL
ORDER BY workload, tuning, topology, repetition
