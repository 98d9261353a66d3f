saved="$state/tune-network.saved"
tuned="$state/tuned/tune-network"
interfaces=$(ip -o -4 addr show scope global | awk '{ print $2 }' | sort -u)

set_mtu() {
  ip link set dev "$1" mtu "$2"
  [ "$(cat "/sys/class/net/$1/mtu")" = "$2" ] || fail "$1 refused MTU $2"
}

set_sysctl() {
  sysctl -q -w "$1=$2"
  [ "$(sysctl -n "$1" | tr '\t' ' ')" = "$2" ] || fail "$1 did not take $2"
}

undo() {
  [ -e "$saved" ] || return 0
  while read -r kind name value; do
    case $kind in
      mtu) set_mtu "$name" "$value" ;;
      sysctl) set_sysctl "$name" "$value" ;;
    esac
  done <"$saved"
  rm -f "$saved" "$tuned"
}

undo
if [ "$SSM_Action" = apply ]; then
  # What was is written down before anything changes, so that an interrupted run can be undone.
  {
    for interface in $interfaces; do
      echo "mtu $interface $(cat "/sys/class/net/$interface/mtu")"
    done
    for name in net.ipv4.tcp_rmem net.ipv4.tcp_wmem; do
      echo "sysctl $name $(sysctl -n "$name" | tr '\t' ' ')"
    done
  } >"$saved"
  if [ -n "$SSM_Mtu" ]; then
    for interface in $interfaces; do
      set_mtu "$interface" "$SSM_Mtu"
    done
  fi
  if [ -n "$SSM_TcpRmem" ]; then
    set_sysctl net.ipv4.tcp_rmem "$SSM_TcpRmem"
  fi
  if [ -n "$SSM_TcpWmem" ]; then
    set_sysctl net.ipv4.tcp_wmem "$SSM_TcpWmem"
  fi
  mkdir -p "${tuned%/*}"
  {
    [ -z "$SSM_Mtu" ] || echo "tuned.mtu=$SSM_Mtu"
    [ -z "$SSM_TcpRmem" ] || echo "tuned.tcp-rmem=$SSM_TcpRmem"
    [ -z "$SSM_TcpWmem" ] || echo "tuned.tcp-wmem=$SSM_TcpWmem"
  } >"$tuned"
fi
