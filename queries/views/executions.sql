-- One row an execution: when it ran (UTC), where, and how many of its trials may be compared. trials_under_failure: trials
-- that are told by themselves.
SELECT
    dt,
    execution,
    max(campaign) AS campaign,
    max(region) AS region,
    max(host_kind) AS host_kind,
    min(started_at) AS started_at,
    max(ended_at) AS ended_at,
    count(*) FILTER (WHERE is_last) AS trials,
    count(*) FILTER (WHERE is_last AND verdict = 'valid' AND failure IS NULL) AS trials_valid,
    count(*) FILTER (WHERE is_last AND failure IS NOT NULL) AS trials_under_failure,
    count(*) AS attempts
FROM attempts
GROUP BY dt, execution
