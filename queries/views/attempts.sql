-- One row an attempt at a trial: its directions summed, its verdict, its load.
-- is_last: the last attempt stands for its trial. run_s: seconds; iops: operations a second; bw_bytes_per_s: bytes a
-- second; rate: what a load is compared by, iops, or bw_bytes_per_s where its tool counts no operations; cpu_pct,
-- peer_cpu_pct: 0 to 100; cpu_pct_per_kiops: per cent of CPU for each 1,000 operations a second; rtt_us: microseconds.
-- A sum of which a part is missing is NULL. write_clat_p50_us, alone_clat_p50_us: median completion latency of a write,
-- microseconds, of this attempt and of the same load before it without the peer. failure: what befell the mirror under
-- the load, and columns of what came of it: seconds, operations a second, writes; NULL: not measured, or not checked.
SELECT
    dt,
    execution,
    campaign,
    topology,
    stack,
    tuning,
    workload,
    repetition,
    trial,
    attempt,
    attempt = max(attempt) OVER (PARTITION BY dt, execution, trial) AS is_last,
    max(sequence) AS sequence,
    max(block) AS block,
    max(verdict) AS verdict,
    max(reason) AS reason,
    min(started_at) AS started_at,
    max(ended_at) AS ended_at,
    max(run_s) AS run_s,
    CASE WHEN count(*) = count(ios) THEN CAST(sum(ios) AS bigint) END AS ios,
    CASE WHEN count(*) = count(iops) THEN sum(iops) END AS iops,
    CASE WHEN count(*) = count(bw_bytes_per_s) THEN sum(bw_bytes_per_s) END AS bw_bytes_per_s,
    CASE
        WHEN count(*) = count(iops) THEN sum(iops)
        WHEN count(iops) = 0 AND count(*) = count(bw_bytes_per_s) THEN sum(bw_bytes_per_s)
    END AS rate,
    max(cpu_pct) AS cpu_pct,
    max(peer_cpu_pct) AS peer_cpu_pct,
    CASE WHEN count(*) = count(iops) THEN max(cpu_pct) / nullif(sum(iops) / 1000e0, 0e0) END AS cpu_pct_per_kiops,
    max(rtt_us) AS rtt_us,
    max(clat_p50_us) FILTER (WHERE direction = 'write') AS write_clat_p50_us,
    max(alone_clat_p50_us) FILTER (WHERE direction = 'write') AS alone_clat_p50_us,
    max(failure) AS failure,
    max(stall_s) AS stall_s,
    max(before_iops) AS before_iops,
    max(degraded_iops) AS degraded_iops,
    max(resync_s) AS resync_s,
    max(resync_iops) AS resync_iops,
    max(writes_acknowledged) AS writes_acknowledged,
    max(writes_lost) AS writes_lost,
    bool_and(legs_identical) AS legs_identical,
    max(ceiling_iops) AS ceiling_iops,
    max(ceiling_cause) AS ceiling_cause,
    bool_and(steady) AS steady,
    max(tool) AS tool,
    max(rw) AS rw,
    max(bs) AS bs,
    max(iodepth) AS iodepth,
    max(numjobs) AS numjobs,
    max(rwmixread) AS rwmixread,
    max(clients) AS clients,
    max(host_kind) AS host_kind,
    max(region) AS region,
    max(evidence) AS evidence
FROM trials
GROUP BY dt, execution, campaign, topology, stack, tuning, workload, repetition, trial, attempt
