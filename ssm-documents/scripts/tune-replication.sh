# Both hosts run this at about the same time. DRBD takes all of these while it is in use; only the sockets' buffers need a
# new connection. What was is written down, as the kernel tells it, before anything changes.
use_target "$SSM_Target"
use_drbd "$SSM_Target"
saved="$kept/tune-replication.saved"
tuned="$state/tuned/tune-replication"
if [ "$SSM_Action" = undo ] && [ ! -e "$saved" ]; then
  rm -f "$tuned"
  exit 0
fi
[ -n "$drbd_side" ] || fail "$SSM_Target has no DRBD mirror on this host: run stack-drbd first"
detect_drbd

# The kernel gets the configuration of now; then each value must be what the array says.
declare -A wanted=()
complaint=
adopt() {
  local name
  write_drbd_conf
  drbd adjust "$drbd_resource"
  if [ -n "${wanted[sndbuf-size]:-}${wanted[rcvbuf-size]:-}" ]; then
    drbd_reconnect
  fi
  drbd_wait "the mirror did not become whole after its options changed" drbd_whole
  drbd_options
  for name in "${!wanted[@]}"; do
    if [ "${now[$name]:-}" != "${wanted[$name]}" ]; then
      complaint="$name is ${now[$name]:-unknown} in the kernel, not ${wanted[$name]}"
      return 1
    fi
  done
}

undo() {
  local name value
  [ -e "$saved" ] || return 0
  wanted=()
  while read -r name value; do
    wanted[$name]=$value
  done <"$saved"
  rm -f "$kept/tuned" "$tuned"
  adopt || fail "not undone: $complaint"
  rm "$saved"
}

undo
[ "$SSM_Action" = apply ] || exit 0

wanted=()
lines=
while read -r section name value; do
  if [ -n "$value" ]; then
    wanted[$name]=$value
    # Bare, c-max-rate would be in KiB/s and the others in bytes; drbd.conf agrees with our parameters.
    lines+="$section $name $value"$'\n'
  fi
done <<END
net max-buffers $SSM_MaxBuffers
net max-epoch-size $SSM_MaxEpochSize
net sndbuf-size $SSM_SndbufSize
net rcvbuf-size $SSM_RcvbufSize
net unplug-watermark $SSM_UnplugWatermark
net protocol $SSM_Protocol
disk al-extents $SSM_AlExtents
disk c-max-rate $SSM_CMaxRate
disk disk-barrier $SSM_DiskBarrier
disk disk-flushes $SSM_DiskFlushes
disk md-flushes $SSM_MdFlushes
END
[ -n "$lines" ] || exit 0
if [ -n "$SSM_UnplugWatermark" ] && [ "$drbd_major" != 8 ]; then
  fail "unplug-watermark is an option of DRBD 8.4; this host's is $drbd_version"
fi
drbd_read
[ "$drbd_cs" != Unconfigured ] || fail "$SSM_Target is not up on this host: run stack-drbd again"
drbd_options
for name in "${!wanted[@]}"; do
  [ -n "${now[$name]:-}" ] || fail "DRBD $drbd_version has no $name"
done
for name in "${!wanted[@]}"; do
  echo "$name ${now[$name]}"
done >"$saved.new"
mv "$saved.new" "$saved"
printf '%s' "$lines" >"$kept/tuned"
if ! adopt; then
  reason=$complaint
  undo
  fail "$reason"
fi
# An option that is set and has no effect would be a result about nothing.
if [ "$SSM_DiskBarrier" = yes ] && [ "$drbd_wo" != barrier ]; then
  undo
  fail "disk-barrier has no effect: the kernel has no barriers any more, and DRBD orders writes by $drbd_wo"
fi
mkdir -p "${tuned%/*}"
for name in "${!wanted[@]}"; do
  echo "tuned.$name=${now[$name]}"
done >"$tuned"
