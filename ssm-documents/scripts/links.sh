# The two hosts of a mirror, and the links between them.

# two_hosts NAME=VALUE,NAME=VALUE: sets $name (this host), $first (the primary) and $peer (the other one).
two_hosts() {
  local second=${1#*,}
  name=$(me)
  first=${1%%=*}
  second=${second%%=*}
  [ "$first" != "$second" ] || fail "a mirror has two hosts, not $first twice"
  case $name in
    "$first") peer=$second ;;
    "$second") peer=$first ;;
    *) fail "$name is neither $first nor $second" ;;
  esac
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

# second_link NAME=ADDRESS,NAME=ADDRESS: sets $own2 and $peer2, and tells others who is where on that link.
second_link() {
  own2=$(value_of "$1" "$name")
  peer2=$(value_of "$1" "$peer")
  set_up_link "$own2"
  printf '%s %s\n' "$name" "$own2" "$peer" "$peer2" >"$target/second"
}
