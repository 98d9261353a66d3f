-- What happened on the hosts in each trial under a failure, in the order in which it did? second: seconds since the measured
-- part began, negative before it; event: fault-begin, fault-end, peer-back, resync-begin, ..., or state: the state of the
-- mirror as the host sees it from then on, in detail.
SELECT
    a.topology,
    a.tuning,
    a.workload,
    a.repetition,
    e.host,
    e.at,
    e.second,
    e.event,
    e.detail
FROM events AS e
INNER JOIN attempts AS a
    ON e.dt = a.dt AND e.execution = a.execution AND e.trial = a.trial AND e.attempt = a.attempt
WHERE a.dt = '${dt}' AND a.execution = '${execution}' AND a.is_last AND a.failure IS NOT NULL
ORDER BY a.workload, a.tuning, a.topology, a.repetition, e.at, e.host, e.event
