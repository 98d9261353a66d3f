-- What was measured on, topology by topology? More than one row for a topology: it changed while the execution ran.
SELECT DISTINCT
    topology,
    stack,
    stack_driver,
    stack_parameters,
    first_sync_skipped,
    instance_types,
    instance_ids,
    az_ids,
    volume_type,
    volume_size_gib,
    volume_iops,
    volume_throughput_mibps,
    volume_ids,
    ami,
    kernel,
    fio_version,
    ioengine,
    host_kind,
    region
FROM trials
WHERE dt = '${dt}' AND execution = '${execution}'
ORDER BY topology, kernel
