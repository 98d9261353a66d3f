-- How did each trial run? Operations a second over the seconds of the measured part, all directions together, as means over
-- ${step_s} seconds (default 1); every trial's last attempt, whatever its verdict. rate: bytes a second where the tool
-- counts no operations. Trials under a failure: see failure_timeline.
WITH chosen AS (
    SELECT
        *,
        coalesce(try_cast('${step_s}' AS integer), 1) AS step_s
    FROM attempts
    WHERE dt = '${dt}' AND execution = '${execution}' AND is_last AND failure IS NULL
),

seconds AS (
    SELECT
        c.topology,
        c.tuning,
        c.workload,
        c.repetition,
        c.verdict,
        i.second - i.second % c.step_s AS from_second,
        i.second,
        sum(i.iops) AS iops,
        sum(coalesce(i.iops, i.bw_bytes_per_s)) AS rate
    FROM intervals AS i
    INNER JOIN chosen AS c
        ON i.dt = c.dt AND i.execution = c.execution AND i.trial = c.trial AND i.attempt = c.attempt
    GROUP BY c.topology, c.tuning, c.workload, c.repetition, c.verdict, c.step_s, i.second
)

SELECT
    topology,
    tuning,
    workload,
    repetition,
    verdict,
    from_second,
    avg(iops) AS iops,
    avg(rate) AS rate
FROM seconds
GROUP BY topology, tuning, workload, repetition, verdict, from_second
ORDER BY workload, tuning, topology, repetition, from_second
