# Reads every acknowledged write back from this host's own leg, and sums the leg up. The writer's fio remembers what
# was acknowledged; its memory is handed over to the peer, which reads while it has the right to the volume.

read_back() {
  local target_lines=$1
  compgen -G '*-verify.state' >/dev/null || return 0
  fetch "${order[job]}" job.given "the fio job file"
  # The seed of the writes; their pace and their logs are not wanted.
  job_for "$target_lines" job.given |
    sed -e '/^\(write_.*\|log_.*\|disable_.*\|per_job_logs\|runtime\|startdelay\|rate.*\|thinktime.*\|latency_.*\)=/d' \
      -e 's/^verify_state_save=1/verify_state_save=0/' \
      -e 's/^do_verify=0/verify_only=1\nverify_state_load=1\nverify_fatal=0\ncontinue_on_error=verify/' >verify.fio
  rm job.given
  note verify-begin "$SSM_Role"
  fio --output-format=json --output=verify.json --eta=never verify.fio >verify.out 2>&1 ||
    fail "what was written cannot be read back: $(tail -n 1 verify.out)"
  note verify-end "$SSM_Role"
}

# Both legs are summed up by what their hosts see as the volume under test.
sum_up() {
  local device sum bytes=${order[extent_bytes]}
  [ "$bytes" -gt 0 ] || return 0
  device=$(cat "$target/device")
  if [ -S "$device" ]; then
    sum=$(python3 "$state/nbd_read.py" "$device" "$bytes" | sha256sum)
  else
    sum=$(dd if="$device" iflag=direct,count_bytes,fullblock bs=1M count="$bytes" status=none | sha256sum)
  fi
  echo "leg_sha256=${sum%% *}" >>facts
}

# mount_at POINT: device, point, type and options of what is mounted there
mount_at() {
  awk -v point="$1" '$2 == point { print $1, $2, $3, $4 }' /proc/mounts
}

verify_writer() {
  local point=''
  read_back "$target/fio"
  : >mounted
  if [ -e "$target/mount" ]; then
    point=$(cat "$target/mount")
    mount_at "$point" >mounted
    umount "$point"
  fi
  sum_up
  cp "$target/fio" writer.fio
  shopt -s nullglob
  tar --create --file "$work.memory" mounted writer.fio ./*-verify.state
  create "$work.memory" "${order[verify.put]}"
  if [ -e "$target/secondary" ]; then
    cp mounted "$work.gave-up"
    bash "$target/secondary" 9>&-
  fi
  rm mounted writer.fio
}

# Whatever happens, the right goes back to the writer.
give_back() {
  if [ -n "$point" ]; then
    umount "$point" 2>/dev/null || true
  fi
  if [ -e "$target/secondary" ]; then
    bash "$target/secondary" 9>&-
  fi
}

verify_peer() {
  local device type options
  fetch "${order[verify.get]}" "$work.memory" "the writer's memory of what it wrote"
  tar --extract --file "$work.memory"
  trap give_back EXIT
  if [ -e "$target/primary" ]; then
    bash "$target/primary" 9>&-
  fi
  # Before a mount writes to it.
  sum_up
  if [ -s mounted ]; then
    read -r device point type options <mounted
    mkdir -p "$point"
    mount -t "$type" -o "$options" "$device" "$point"
    read_back writer.fio
  else
    read_back "$target/fio"
  fi
  rm mounted writer.fio
}

point=''
if [ ! -e "$work.verified" ]; then
  case $SSM_Role in
    writer) verify_writer ;;
    peer) verify_peer ;;
  esac
  touch "$work.verified"
fi
