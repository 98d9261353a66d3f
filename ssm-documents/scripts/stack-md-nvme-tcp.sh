# The second host serves its volume by NVMe/TCP; the first joins it with its own in an md RAID 1. Reads come from the local
# leg (write-mostly). The superblock is at the end, so that each leg's data begins where the volume does.
use_target "$SSM_Target"
two_hosts "$SSM_Volumes"
volume=$(value_of "$SSM_Volumes" "$name")
device=$(device_of "$volume")
[ -b "$device" ] || fail "md needs a block device, and volume $volume is none: this host has no kernel of its own"
md_port=$((4420 + SSM_Number))
md_name=md$((100 + SSM_Number))
md_nqn=nqn.2014-08.org.nvmexpress:volumetry.$SSM_Target
md_peer=$(address_of "$peer")
md_own=$(address_of "$name")
md_leg=$(readlink -f "$device")

module() {
  local said
  [ -d "/sys/module/$1" ] || said=$(modprobe "$1" 2>&1) || fail "no module $1 for kernel $(uname -r): ${said##*$'\n'}"
}

# quietly COMMAND...: its complaint is the reason.
quietly() {
  local said
  said=$("$@" 2>&1) || fail "$1 $2: ${said//$'\n'/ }"
}

# The second host's part. configfs is the kernel's interface: what is there already stays.
md_serve() {
  local root=/sys/kernel/config served port link served_by=''
  module nvmet_tcp
  if [ ! -d "$root/nvmet" ]; then
    quietly mount -t configfs none "$root"
  fi
  served=$root/nvmet/subsystems/$md_nqn
  port=$root/nvmet/ports/$((md_port - 4419))
  mkdir -p "$served/namespaces/1"
  echo 1 >"$served/attr_allow_any_host"
  read -r served_by <"$served/namespaces/1/device_path" || true
  if [ "$served_by" != "$md_leg" ]; then
    echo 0 >"$served/namespaces/1/enable"
    echo "$md_leg" >"$served/namespaces/1/device_path"
  fi
  echo 1 >"$served/namespaces/1/enable" || fail "$md_leg cannot be served: something else has it open"
  mkdir -p "$port"
  link=$port/subsystems/$md_nqn
  if [ ! -e "$link" ]; then
    echo tcp >"$port/addr_trtype"
    echo ipv4 >"$port/addr_adrfam"
    echo "$md_own" >"$port/addr_traddr"
    echo "$md_port" >"$port/addr_trsvcid"
    ln -s "$served" "$link" || fail "port $md_port of $md_own cannot be listened at"
  fi
}

# md_remote: sets $remote to the device of the peer's volume on this host, empty without one.
md_remote() {
  local subsystem namespace nqn
  remote=
  for subsystem in /sys/class/nvme-subsystem/*; do
    [ -e "$subsystem/subsysnqn" ] || continue
    read -r nqn <"$subsystem/subsysnqn"
    [ "$nqn" = "$md_nqn" ] || continue
    for namespace in "$subsystem"/nvme*n*; do
      # With multipath nvme1c1n1 is a path to nvme1n1.
      if [[ ${namespace##*/} =~ ^nvme[0-9]+n[0-9]+$ && -b /dev/${namespace##*/} ]]; then
        remote=/dev/${namespace##*/}
      fi
    done
    for namespace in "$subsystem"/nvme*/nvme*n*; do
      if [ -z "$remote" ] && [[ ${namespace##*/} =~ ^nvme[0-9]+n[0-9]+$ && -b /dev/${namespace##*/} ]]; then
        remote=/dev/${namespace##*/}
      fi
    done
  done
}

# md_connect: $remote, after a connection if there is none. The peer may still be on its way.
md_connect() {
  local said='' tries=0
  module nvme_tcp
  md_remote
  while [ -z "$remote" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 60 ] || fail "$peer does not serve its volume at $md_peer:$md_port: ${said//$'\n'/ }"
    said=$(nvme connect --transport tcp --traddr "$md_peer" --trsvcid "$md_port" --nqn "$md_nqn" 2>&1) || true
    sleep 0.5
    md_remote
  done
}

# md_read: sets $md_legs ("UU" when both are there) and $md_progress. Sourced by others, several times a second: no fork.
md_read() {
  local key rest
  md_legs='' md_progress=''
  [ -e /proc/mdstat ] || return 0
  while read -r key rest; do
    if [ "$key" = "$md_name" ]; then
      read -r key rest || true
      if [[ $rest =~ \[([U_]+)\]$ ]]; then md_legs=${BASH_REMATCH[1]}; fi
      read -r key rest || true
      if [[ $rest =~ (recovery|resync)\ *=\ *([0-9.]+%) ]]; then md_progress=${BASH_REMATCH[2]}; fi
      break
    fi
  done </proc/mdstat
  return 0
}

md_state() {
  md_read
  case $md_legs$md_progress in
    UU) echo "Connected Primary/Secondary UpToDate/UpToDate" ;;
    '') echo "Unconfigured" ;;
    *%) echo "Resync Primary/Secondary UpToDate/Inconsistent done=$md_progress" ;;
    *) echo "Degraded Primary/Unknown legs=$md_legs" ;;
  esac
}

md_check() {
  md_read
  [ "$md_legs" = UU ] || echo "mirror_broken=legs of $md_name: ${md_legs:-none}"
}

md_facts() {
  local version line bitmap=''
  md_read
  version=$(mdadm --version 2>&1)
  read -r line <"/sys/block/$md_name/md/bitmap/location" 2>/dev/null && bitmap=$line
  echo "stack_status=$(md_state)"
  printf 'stack_parameters={"level": "%s", "metadata": "%s", "bitmap": "%s", "mdadm": "%s", "links": 1}\n' \
    "$(<"/sys/block/$md_name/md/level")" "$(<"/sys/block/$md_name/md/metadata_version")" "$bitmap" "${version#mdadm - }"
}

md_alone() {
  set -euo pipefail
  md_remote
  quietly mdadm "/dev/$md_name" --fail "$remote"
  # It stays busy until its last request is done.
  until mdadm --quiet "/dev/$md_name" --remove "$remote" 2>/dev/null; do sleep 0.1; done
}

# What was written meanwhile is in the bitmap, and nothing else is copied.
md_together() {
  local tries=0
  set -euo pipefail
  md_connect
  quietly mdadm "/dev/$md_name" --re-add --write-mostly "$remote"
  until md_read && [ "$md_legs$md_progress" = UU ]; do
    tries=$((tries + 1))
    [ "$tries" -le 600 ] || fail "the mirror did not become whole: legs $md_legs, $md_progress"
    sleep 0.2
  done
}

md_rejoin() {
  set -euo pipefail
  device_of "$volume" >/dev/null
  md_leg=$(readlink -f "$(path_of "$volume")")
  md_serve
}

export MDADM_NO_UDEV=1
if [ "$name" != "$first" ]; then
  # What holds it is this very stack, made before.
  own_volume "$device" "$volume"
  md_serve
  # shellcheck disable=SC2034 # a tool is a file of its own
  serving="md_port md_nqn md_own volume"
  write_tool rejoin "state $serving" fail me path_of device_of module quietly md_serve md_rejoin
  write_target "$device"
else
  own_volume "$device" "$volume" "$md_name"
  md_connect
  md_read
  if [ -z "$md_legs" ]; then
    if [[ $signatures == *linux_raid_member* ]] && [ -e "$keep/targets/$SSM_Target/made" ]; then
      quietly mdadm --assemble "/dev/$md_name" "$md_leg" "$remote"
    else
      # Both legs are blank when a topology begins, so there is nothing to copy.
      quietly mdadm --create "/dev/$md_name" --run --level=1 --raid-devices=2 --metadata=1.0 --bitmap=internal \
        --assume-clean --homehost=any --name="$SSM_Target" "$md_leg" --write-mostly "$remote"
      mkdir -p "$kept"
      touch "$kept/made"
    fi
  elif [ "$md_legs" != UU ]; then
    md_together
  fi
  md_read
  [ "$md_legs" = UU ] || fail "the mirror is not whole: legs ${md_legs:-none}"
  acting="state peer md_name md_nqn md_peer md_port"
  write_tool state md_name md_read md_state
  write_tool check md_name md_read md_check
  write_tool facts md_name md_read md_state md_facts
  write_tool alone "$acting" fail quietly md_remote md_alone
  write_tool together "$acting" fail quietly module md_remote md_connect md_read md_together
  write_target "/dev/$md_name"
fi
echo "$device" >"$target/leg"
write_stack "md RAID 1 over NVMe/TCP, $(uname -r)" '{"level": "raid1", "bitmap": "internal", "write_mostly": "peer", "links": 1}' true
