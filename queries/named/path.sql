-- Of what is a mirrored write made? For each cell whose load ran without the peer first: medians over its valid trials,
-- microseconds. rtt_us: round trip; local_us: median latency of a write without the peer; mirrored_us: with it;
-- foretold_us: rtt_us and local_us of a trial together; beyond_us: what a mirrored write takes beyond that; _low, _high:
-- its 95 % interval (NULL: fewer than six). trials: those that ran without the peer first; trials_valid: of those, valid.
WITH counted AS (
    SELECT
        dt,
        execution,
        topology,
        tuning,
        workload,
        count(*) AS trials,
        count(*) FILTER (WHERE verdict = 'valid') AS trials_valid
    FROM attempts
    WHERE
        dt = '${dt}'
        AND execution = '${execution}'
        AND is_last
        AND failure IS NULL
        AND alone_clat_p50_us IS NOT NULL
    GROUP BY dt, execution, topology, tuning, workload
)

SELECT
    c.topology,
    c.tuning,
    c.workload,
    c.trials,
    c.trials_valid,
    max(m.median) FILTER (WHERE m.metric = 'rtt_us') AS rtt_us,
    max(m.median) FILTER (WHERE m.metric = 'local_us') AS local_us,
    max(m.median) FILTER (WHERE m.metric = 'mirrored_us') AS mirrored_us,
    max(m.median) FILTER (WHERE m.metric = 'foretold_us') AS foretold_us,
    max(m.median) FILTER (WHERE m.metric = 'beyond_us') AS beyond_us,
    max(m.low) FILTER (WHERE m.metric = 'beyond_us') AS beyond_us_low,
    max(m.high) FILTER (WHERE m.metric = 'beyond_us') AS beyond_us_high
FROM counted AS c
LEFT JOIN medians AS m
    ON
        c.dt = m.dt
        AND c.execution = m.execution
        AND c.topology = m.topology
        AND c.tuning = m.tuning
        AND c.workload = m.workload
        AND m.base_topology IS NULL
GROUP BY c.topology, c.tuning, c.workload, c.trials, c.trials_valid
ORDER BY c.workload, c.tuning, c.topology
