# The second host exports its volume over NBD; the first joins it with its own volume in a quorum of one vote.
# The second's server knows no structured replies: with them, the first's asks the peer for the block status before each read.
use_target "$SSM_Target"
two_hosts "$SSM_Volumes"
port=$((10809 + SSM_Number))
volume=$(value_of "$SSM_Volumes" "$name")
device=$(device_of "$volume")
address=$(address_of "$name")
peer_address=$(address_of "$peer")

# end_daemon NAME: a stack is made anew whenever this runs again, so what ran last time ends first. After a boot the number
# may be another's.
end_daemon() {
  local pid comm=none tries=0
  pid=$(cat "$target/$1.pid" 2>/dev/null) || return 0
  if [ -e "/proc/$pid/comm" ]; then read -r comm <"/proc/$pid/comm" || true; fi
  case $comm in
    qemu-storage-da* | nbdkit* | python3*) kill "$pid" 2>/dev/null || true ;;
    *) pid=none ;;
  esac
  while kill -0 "$pid" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || kill -9 "$pid" 2>/dev/null || true
    sleep 0.05
  done
  rm -f "$target/$1.pid" "$target/$1.sock"
}

# wait_until WHAT COMMAND...: at most 30 seconds
wait_until() {
  local what=$1 tries=0
  shift
  until "$@" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -le 300 ] || fail "$what"
    sleep 0.1
  done
}

answers() {
  (exec 3<>"/dev/tcp/$1/$2")
}

# start_lanes ARGUMENTS...: the relay that spreads one stream over both links, in the background
start_lanes() {
  setsid python3 "$state/lanes.py" "$@" </dev/null >"$target/lanes.log" 2>&1 &
  echo $! >"$target/lanes.pid"
}

own_volume "$device" "$volume"
end_daemon lanes
end_daemon mirror
end_daemon leg

own2=
if [ "$SSM_Links" = 2 ]; then
  second_link "$SSM_SecondAddresses"
fi

if [ -S "$device" ]; then
  leg="driver=nbd,node-name=local,server.type=unix,server.path=$device"
else
  leg="driver=host_device,node-name=local,filename=$device,cache.direct=on,aio=native"
fi

# serve: the second host's part, also after a boot.
serve() {
  local served=$device
  if [ -b "$device" ]; then
    served=$target/leg.sock
    qemu-storage-daemon --daemonize --pidfile "$target/leg.pid" --blockdev "$leg" \
      --nbd-server "addr.type=unix,addr.path=$served" --export type=nbd,id=leg,node-name=local,name=,writable=on
  fi
  if [ -n "$own2" ]; then
    nbdkit --no-sr --pidfile "$target/mirror.pid" --unix "$target/mirror.sock" nbd socket="$served"
    start_lanes join "$target/mirror.sock" "$port" "$address" "$own2"
  else
    nbdkit --no-sr --pidfile "$target/mirror.pid" --ipaddr "$address" --port "$port" nbd socket="$served"
  fi
}

mirror_rejoin() {
  set -euo pipefail
  [ -z "$own2" ] || set_up_link "$own2"
  device_of "$volume" >/dev/null
  end_daemon lanes
  end_daemon mirror
  end_daemon leg
  serve
}

mirror_pids() {
  local file pid
  for file in "$target"/*.pid; do
    if [ -e "$file" ]; then
      read -r pid <"$file"
      echo "$pid"
    fi
  done
}

# Sourced several times a second: no fork.
mirror_state() {
  local line
  while read -r line; do
    if [[ $line == *QUORUM_REPORT_BAD* ]]; then
      echo "Degraded: a leg was lost"
      return 0
    fi
  done <"$target/mirror.events"
  echo Connected
}

mirror_check() {
  if [ "$(mirror_state)" != Connected ]; then
    echo "mirror_broken=a leg of the mirror was lost"
  fi
}

write_tool pids target mirror_pids
if [ "$name" != "$first" ]; then
  serve
  write_tool rejoin "state target device volume leg port address own2" \
    fail me path_of device_of set_up_link end_daemon start_lanes serve mirror_rejoin
  write_target "$device"
else
  wait_until "$peer does not answer at $peer_address:$port" answers "$peer_address" "$port"
  if [ "$SSM_Links" = 2 ]; then
    wait_until "$peer does not answer at $peer2:$port" answers "$peer2" "$port"
    start_lanes split "$target/lanes.sock" "$port" "$address,$peer_address" "$own2,$peer2"
    wait_until "the relay of two links did not start: $(tail -n 1 "$target/lanes.log")" test -S "$target/lanes.sock"
    server="server.type=unix,server.path=$target/lanes.sock"
  else
    server="server.type=inet,server.host=$peer_address,server.port=$port"
  fi
  # Its monitor writes down when a leg is lost. A pipe opened for both ways never ends, and neither does the monitor.
  rm -f "$target/mirror.commands"
  mkfifo "$target/mirror.commands"
  setsid qemu-storage-daemon --pidfile "$target/mirror.pid" --chardev stdio,id=events --monitor chardev=events \
    --blockdev "$leg" --blockdev "driver=nbd,node-name=remote,$server" \
    --blockdev driver=quorum,node-name=mirror,vote-threshold=1,read-pattern=fifo,children.0=local,children.1=remote \
    --nbd-server "addr.type=unix,addr.path=$target/mirror.sock" \
    --export type=nbd,id=mirror,node-name=mirror,name=,writable=on \
    <>"$target/mirror.commands" >"$target/mirror.events" 2>"$target/mirror.log" &
  daemon=$!
  until [ -e "$target/mirror.pid" ]; do
    kill -0 "$daemon" 2>/dev/null || fail "the mirror did not start: $(tail -n 1 "$target/mirror.log")"
    sleep 0.05
  done
  echo '{"execute": "qmp_capabilities"}' >"$target/mirror.commands"
  write_tool state target mirror_state
  write_tool check target mirror_state mirror_check
  write_target "$target/mirror.sock"
fi
echo "$device" >"$target/leg"
version=$(qemu-storage-daemon --version | awk 'NR == 1 { print $3 }')
# Both legs are blank when a topology begins, so there is nothing to copy.
write_stack "qemu-storage-daemon $version quorum" \
  "{\"vote_threshold\": 1, \"read_pattern\": \"fifo\", \"links\": $SSM_Links}" true
