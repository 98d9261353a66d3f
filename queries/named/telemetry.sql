-- What did the load take on each host? Means over the seconds of valid trials: CPU per cents of the whole host, network
-- bytes a second. steal_pct: CPU that others on the same machine took.
SELECT
    h.topology,
    h.tuning,
    h.workload,
    h.host,
    avg(h.cpu_pct) AS cpu_pct,
    avg(h.iowait_pct) AS iowait_pct,
    avg(h.steal_pct) AS steal_pct,
    avg(h.rx_bytes_per_s) AS rx_bytes_per_s,
    avg(h.tx_bytes_per_s) AS tx_bytes_per_s
FROM hosts AS h
INNER JOIN valid_trials AS t
    ON h.dt = t.dt AND h.execution = t.execution AND h.trial = t.trial AND h.attempt = t.attempt
WHERE h.dt = '${dt}' AND h.execution = '${execution}'
GROUP BY h.topology, h.tuning, h.workload, h.host
ORDER BY h.workload, h.tuning, h.topology, h.host
