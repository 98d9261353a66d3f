# Whether every block of the job is written once at most, by one job alone: only then is it known what must be there.
written_once() {
  [ "$(grep -c '^\[' "$1")" = 2 ] && grep -qE '^rw=(rand)?write$' "$1" &&
    ! grep -qE '^(numjobs=([2-9]|1[0-9])|(norandommap|time_based)=1|(random_distribution|io_size|bsrange|bssplit)=)' "$1"
}

# job_for TARGET-FILE JOB-FILE: the job with the volume under test in its [global].
job_for() {
  local engine mark
  local -a changes=(-e 1d)
  engine=$(sed -n 's/^ioengine=//p' "$1")
  echo "[global]"
  cat "$1"
  if [ "$engine" = nbd ]; then
    # A volume behind a socket has one engine that reaches it; which one ran is in the facts.
    changes+=(-e '/^ioengine=/d')
  fi
  if [ -n "${order[failure.event]:-}" ]; then
    # Every completion is logged by itself, with its time of day. One seed gives the same blocks when they are read back.
    mark=$(cksum <<<"${order[job]%%\?*}")
    mark=${mark%% *}
    printf 'randseed=%s\nlog_unix_epoch=1\ndisable_slat=1\ndisable_lat=1\n' "$mark"
    changes+=(-e '/^\(randrepeat\|randseed\|log_avg_msec\|write_iops_log\|write_bw_log\|ramp_time\)=/d')
    if written_once "$2"; then
      # What is written names its trial and its place: with a checksum alone fio 3.33 takes what an earlier trial left
      # at that place for what this one wrote.
      changes+=(-e "s/^verify=crc32c/verify=pattern\nverify_pattern=0x$(printf %08x "$mark")%o/")
    else
      changes+=(-e '/^\(verify\|do_verify\|verify_state_save\)=/d')
    fi
  fi
  sed "${changes[@]}" "$2"
}
