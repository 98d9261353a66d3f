# A command that was sent twice waits for the first, and ends as it did: SendCommand has no client token.
exec 9>"$work.lock"
flock 9
if [ -e "$work.status" ]; then
  exit "$(cat "$work.status")"
fi
name=$(me)
use_target "${order[target]}"
cd "$work"

sample() {
  printf 'time %s\n' "$EPOCHREALTIME"
  grep -hE '^(cpu |MemTotal|MemAvailable)|^ *(ens|eth|enp)[0-9]' /proc/stat /proc/meminfo /proc/net/dev
}

sampling() {
  while sample && sleep 1; do :; done
}

note_facts() {
  echo "host=$name"
  echo "kernel=$(uname -r)"
  echo "processors=$(nproc)"
  echo "fio_version=$(fio --version)"
  cat "$target/stack"
  grep '^ioengine=' "$target/fio"
  echo "host_kind=$(host_kind)"
  while read -r other address; do
    [ "$other" = "$name" ] || round_trip "$other" "$address"
  done <"$state/hosts"
}

# Only a process host has volumes behind sockets; what EC2 runs says so in its firmware.
host_kind() {
  if [ -n "$(find /dev/disk/by-id -type s 2>/dev/null)" ]; then
    echo process
  elif grep -qs Amazon /sys/devices/virtual/dmi/id/sys_vendor; then
    echo ec2
  else
    echo guest
  fi
}

round_trip() {
  local line
  line=$(ping -q -c 5 -i 0.02 -W 1 "$2" | tail -n 1) || true
  # "rtt min/avg/max/mdev = 0.1/0.2/0.3/0.0 ms"; a peer that does not answer has no round trip.
  if [[ $line =~ =\ [0-9.]+/([0-9.]+)/ ]]; then
    echo "rtt_ms.$1=${BASH_REMATCH[1]}"
  fi
}

# One object a report interval, so that a person can watch; what fio prints for a terminal is all it needs.
watch_live() {
  local line number=0 next=$SECONDS
  while read -r line; do
    [[ $line =~ \[([rwt]=[^]]*)\ IOPS\] ]] || continue
    if [ "$SECONDS" -ge "$next" ] && [ -n "${order[$name.live.$number]:-}" ]; then
      echo "${BASH_REMATCH[1]}" >"$state/live"
      curl --silent --max-time 5 --output /dev/null --header 'If-None-Match: *' \
        --upload-file "$state/live" "${order[$name.live.$number]}" || true
      number=$((number + 1))
      next=$((SECONDS + order[live_interval_s]))
    fi
  done
}

run_fio() {
  fetch "${order[job]}" job.given "the fio job file"
  local engine
  engine=$(sed -n 's/^ioengine=//p' "$target/fio")
  {
    echo "[global]"
    cat "$target/fio"
    # A volume behind a socket has one engine that reaches it; which one ran is in the facts.
    if [ "$engine" = nbd ]; then sed -e 1d -e '/^ioengine=/d' job.given; else sed 1d job.given; fi
  } >job.fio
  rm job.given
  local status=0
  echo "started=$EPOCHREALTIME" >>facts
  # Into a pipe, fio would keep all of its lines to the end.
  stdbuf -o0 fio --output-format=json+ --output=fio.json --eta=always --eta-newline=500ms --eta-interval=500ms job.fio \
    2>fio.stderr | stdbuf -oL tr '\r' '\n' | watch_live || status=${PIPESTATUS[0]}
  echo "ended=$EPOCHREALTIME" >>facts
  return "$status"
}

status=0
note_facts >facts
sampling >telemetry &
sampler=$!
if [[ " ${order[clients]} " == *" $name "* ]]; then
  run_fio || status=$?
else
  sleep "${order[duration_s]}"
fi
kill "$sampler" 2>/dev/null || true
sample >>telemetry
if [ -e "$target/check" ]; then
  bash "$target/check" >>facts || true
fi
echo "$status" >"$work.status"
[ "$status" -eq 0 ] || fail "fio ended with status $status: $(tail -n 1 fio.stderr)"
