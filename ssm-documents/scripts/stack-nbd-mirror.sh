# host2 exports its volume over NBD; host1 joins it with its own volume in a quorum of one vote.
# host2's server knows no structured replies: with them, host1's asks the peer for the block status before each read.
use_target "$SSM_Target"
port=$((10809 + SSM_Number))
name=$(me)
volume=$(value_of "$SSM_Volumes" "$name")
device=$(device_of "$volume")
address=$(awk -v name="$name" '$1 == name { print $2 }' "$state/hosts")
peer=$(awk -v name="$name" '$1 != name { print $2 }' "$state/hosts")

# end_daemon NAME: a stack is made anew whenever this runs again, so what ran last time ends first.
end_daemon() {
  local pid tries=0
  pid=$(cat "$target/$1.pid" 2>/dev/null) || return 0
  kill "$pid" 2>/dev/null || true
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

# A second interface that EC2 attached to a running host has a carrier, but no address: not every image sets it up.
set_up_link() {
  local own=$1 interface gateway
  [ -z "$(ip -o -4 addr show to "$own")" ] || return 0
  interface=$(ip -o link show | awk -F ': ' '$2 ~ /^(ens|eth|enp)/ { print $2 }' |
    while read -r each; do [ -n "$(ip -o -4 addr show dev "$each")" ] || echo "$each"; done | head -n 1)
  [ -n "$interface" ] || fail "no interface for $own: the second link is not attached"
  # Both interfaces are in one subnet, so its router is that of the first.
  gateway=$(ip -4 route show default | awk '$2 == "via" { print $3; exit }')
  ip addr add "$own/32" dev "$interface"
  ip link set "$interface" up
  ip route replace default via "$gateway" dev "$interface" onlink src "$own" table 102
  ip rule add from "$own" table 102
}

# start_lanes ARGUMENTS...: the relay that spreads one stream over both links, in the background
start_lanes() {
  setsid python3 "$state/lanes.py" "$@" </dev/null >"$target/lanes.log" 2>&1 &
  echo $! >"$target/lanes.pid"
}

if [ ! -e "$target/mirror.pid" ]; then
  refuse_foreign "$device" "$volume"
fi
end_daemon lanes
end_daemon mirror
end_daemon leg

if [ "$SSM_Links" = 2 ]; then
  own2=$(value_of "$SSM_SecondAddresses" "$name")
  peer2=$(value_of "$SSM_SecondAddresses" "$([ "$name" = host1 ] && echo host2 || echo host1)")
  set_up_link "$own2"
fi

if [ -S "$device" ]; then
  leg="driver=nbd,node-name=local,server.type=unix,server.path=$device"
else
  leg="driver=host_device,node-name=local,filename=$device,cache.direct=on,aio=native"
fi

if [ "$name" = host2 ]; then
  served=$device
  if [ -b "$device" ]; then
    served=$target/leg.sock
    qemu-storage-daemon --daemonize --pidfile "$target/leg.pid" --blockdev "$leg" \
      --nbd-server "addr.type=unix,addr.path=$served" --export type=nbd,id=leg,node-name=local,name=,writable=on
  fi
  if [ "$SSM_Links" = 2 ]; then
    nbdkit --no-sr --pidfile "$target/mirror.pid" --unix "$target/mirror.sock" nbd socket="$served"
    start_lanes join "$target/mirror.sock" "$port" "$address" "$own2"
  else
    nbdkit --no-sr --pidfile "$target/mirror.pid" --ipaddr "$address" --port "$port" nbd socket="$served"
  fi
  write_target "$device"
else
  wait_until "host2 does not answer at $peer:$port" answers "$peer" "$port"
  if [ "$SSM_Links" = 2 ]; then
    wait_until "host2 does not answer at $peer2:$port" answers "$peer2" "$port"
    start_lanes split "$target/lanes.sock" "$port" "$address,$peer" "$own2,$peer2"
    wait_until "the relay of two links did not start: $(tail -n 1 "$target/lanes.log")" test -S "$target/lanes.sock"
    server="server.type=unix,server.path=$target/lanes.sock"
  else
    server="server.type=inet,server.host=$peer,server.port=$port"
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
  echo "! grep -q QUORUM_REPORT_BAD $target/mirror.events || echo 'mirror_broken=a leg of the mirror was lost'" \
    >"$target/check"
  write_target "$target/mirror.sock"
fi
version=$(qemu-storage-daemon --version | awk 'NR == 1 { print $3 }')
# Both legs are blank when a topology begins, so there is nothing to copy.
write_stack "qemu-storage-daemon $version quorum" \
  "{\"vote_threshold\": 1, \"read_pattern\": \"fifo\", \"links\": $SSM_Links}" true
