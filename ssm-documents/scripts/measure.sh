# What is written down of a host around a load, whatever makes the load: facts, telemetry, the replication's state.

# Without a process: on a small host each would be a load of its own, once a second.
sample() {
  local file line
  printf 'time %s\n' "$EPOCHREALTIME"
  for file in /proc/stat /proc/meminfo /proc/net/dev; do
    while read -r line; do
      case $line in
        'cpu '* | MemAvailable:*) echo "$line" && break ;;
        MemTotal:* | ens[0-9]* | eth[0-9]* | enp[0-9]*) echo "$line" ;;
      esac
    done <"$file"
  done
}

sampling() {
  local line
  while read -r -t 1 -u 8 line || true; do
    # A sample that cannot be written is missing: a full disk is one of the failures.
    sample || true
  done
}

# A line whenever the replication's state changes. The stack's own script is read in, not run: it is asked five times
# a second, and a process each time would be a load of its own.
watching() {
  local line last=''
  while read -r -t 0.2 -u 8 line || true; do
    # shellcheck disable=SC1091
    . "$target/state" >"$state/state.now" 2>/dev/null || true
    read -r line <"$state/state.now" || true
    [ "$line" = "$last" ] || echo "$EPOCHREALTIME $line"
    last=$line
  done
}

watchers=()

start_watching() {
  # A pipe that nobody writes into is a clock without a process.
  [ -p "$work.clock" ] || mkfifo "$work.clock"
  sample >>telemetry
  sampling >>telemetry 8<>"$work.clock" &
  watchers+=($!)
  if [ -e "$target/state" ]; then
    watching >>states 8<>"$work.clock" &
    watchers+=($!)
  fi
}

stop_watching() {
  kill "${watchers[@]}" 2>/dev/null || true
  wait "${watchers[@]}" 2>/dev/null || true
  sample >>telemetry || true
}

note_facts() {
  local file other address
  echo "host=$name"
  echo "os=$(sed -n 's/^PRETTY_NAME="\{0,1\}\([^"]*\).*/\1/p' /etc/os-release)"
  echo "kernel=$(uname -r)"
  echo "processors=$(nproc)"
  cat "$target/stack"
  grep '^ioengine=' "$target/fio"
  note_mount
  # Later lines replace earlier ones: what the kernel says now, what tunings have set.
  if [ -e "$target/facts" ]; then
    bash "$target/facts"
  fi
  for file in "$state"/tuned/*; do
    [ ! -e "$file" ] || cat "$file"
  done
  echo "host_kind=$(host_kind)"
  while read -r other address; do
    [ "$other" = "$name" ] || [[ " ${order[members]} " != *" $other "* ]] || round_trip "$other" "$address"
  done <"$state/hosts"
}

note_mount() {
  local mount point type options
  [ -e "$target/mount" ] || return 0
  mount=$(cat "$target/mount")
  while read -r _ point type options _; do
    if [ "$point" = "$mount" ]; then
      echo "filesystem=$type"
      echo "mount_options=$options"
    fi
  done </proc/mounts
}

# Whole, for a person: the facts hold one line of it.
note_stack() {
  [ -e "$target/facts" ] || return 0
  local each
  for each in /proc/drbd /proc/mdstat; do
    [ ! -e "$each" ] || cat "$each"
  done
  if [ -e /proc/drbd ]; then
    drbdadm status || true
    modinfo drbd || true
  fi
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
  # The first packets of a way that was idle wait for more than the way.
  ping -q -c 3 -i 0.02 -W 1 "$2" >/dev/null || true
  line=$(ping -q -c 10 -i 0.02 -W 1 "$2" | tail -n 1) || true
  # "rtt min/avg/max/mdev = 0.1/0.2/0.3/0.0 ms"; a peer that does not answer has no round trip.
  if [[ $line =~ =\ [0-9.]+/([0-9.]+)/ ]]; then
    echo "rtt_ms.$1=${BASH_REMATCH[1]}"
  fi
}

# The client tells the others when its load begins and ends, where the order has an object for it.
tell() {
  [ -n "${order[$1.put]:-}" ] || return 0
  echo "$EPOCHREALTIME" >"$state/told"
  curl --silent --show-error --max-time 20 --output /dev/null --header 'If-None-Match: *' \
    --upload-file "$state/told" "${order[$1.put]}" || true
}

# heard WHAT: whether the client has said so, and when in the file `told`
heard() {
  curl --fail --silent --max-time 5 --output "$state/told" "${order[$1.get]}" && [ -s "$state/told" ]
}

# Seconds, whole or not, rounded up: bash counts in whole ones.
whole() {
  local digits=${1%.*}
  [ "$1" = "$digits" ] || digits=$((digits + 1))
  echo "$digits"
}

# A host that makes no load measures itself for as long as the load lasts.
accompany() {
  local seconds
  seconds=$(whole "${order[duration_s]}")
  if [ "${order[alone]}" = yes ]; then
    seconds=$((2 * seconds))
  fi
  if [ -n "${order[ended.get]:-}" ]; then
    seconds=$((SECONDS + 4 * seconds + 300))
    until heard ended || [ "$SECONDS" -ge "$seconds" ]; do sleep 0.5; done
  else
    sleep "$seconds"
  fi
}

# After a failure the mirror has a while to be whole again; a stack without a state to watch does not heal.
settle() {
  local tries=0
  [ -e "$target/state" ] && [ -e "$target/check" ] || return 0
  until [ -z "$(bash "$target/check" 2>/dev/null)" ] || [ "$tries" -ge 120 ]; do
    tries=$((tries + 1))
    sleep 1
  done
}

# measure TOOL VERSION: runs the tool's function `load` on clients, and samples every host. A tool's last words are in
# the file `reason`; a load that failed by itself has said why.
measure() {
  local status=0
  if [ -e "$work.status" ]; then
    exit "$(cat "$work.status")"
  fi
  : >reason
  note_facts >facts
  echo "$1_version=$2" >>facts
  note_stack >stack.status 2>&1
  start_watching
  if [[ " ${order[clients]} " == *" $name "* ]]; then
    # In the background, since a function that is asked for its status goes on after errors.
    load &
    wait "$!" || status=$?
    tell ended
  else
    accompany
  fi
  if [ -n "${order[failure.event]:-}" ]; then
    settle
  fi
  stop_watching
  if [ -e "$target/check" ]; then
    bash "$target/check" >>facts || true
  fi
  echo "$status" >"$work.status"
  if [ "$status" -ne 0 ] && [ -s reason ]; then
    fail "$1 ended with status $status: $(tail -n 1 reason)"
  fi
  return "$status"
}
