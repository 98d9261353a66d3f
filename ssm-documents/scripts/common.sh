#!/bin/bash
# Begins every script of every document.
set -euo pipefail
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
state=/run/volumetry
# What must outlive a reboot: /run does not. (Exported, since not every document has use for it.)
export keep=/var/lib/volumetry
mkdir -p "$state"

fail() {
  echo "volumetry: $*" >&2
  exit 1
}

me() {
  cat "$state/host" 2>/dev/null || fail "this host has no name yet: run the prepare document first"
}

# value_of NAME=VALUE,... NAME
value_of() {
  local pair
  for pair in ${1//,/ }; do
    if [ "${pair%%=*}" = "$2" ]; then
      echo "${pair#*=}"
      return
    fi
  done
  fail "$2 is not among $1"
}

# address_of NAME: a host's address on the first link.
address_of() {
  local name address
  while read -r name address; do
    if [ "$name" = "$1" ]; then
      echo "$address"
      return
    fi
  done <"$state/hosts"
  fail "$1 is not among the hosts that the prepare document named"
}

path_of() {
  echo "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${1/-/}"
}

# The path of a volume: a block device, or on a process host a socket that speaks NBD.
device_of() {
  local path tries=0
  path=$(path_of "$1")
  until [ -b "$path" ] || [ -S "$path" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 120 ] || fail "volume $1 is not attached to $(me): $path does not exist"
    sleep 0.25
  done
  echo "$path"
}

# use_target NAME: $target is the folder of what this host holds of a topology, and $kept what of it outlives a reboot;
# hosts may serve several.
use_target() {
  target="$state/targets/$1"
  export kept="$keep/targets/$1"
  mkdir -p "$target"
}

# write_target DEVICE: how fio reaches the volume under test. A file system that is mounted on it stays the way.
write_target() {
  echo "$1" >"$target/device"
  [ ! -e "$target/mount" ] || return 0
  if [ -S "$1" ]; then
    printf 'ioengine=nbd\nuri=nbd+unix:///?socket=%s\n' "$1" >"$target/fio"
  else
    printf 'ioengine=libaio\nfilename=%s\n' "$1" >"$target/fio"
  fi
}

# write_stack DRIVER PARAMETERS-AS-JSON FIRST-SYNC-SKIPPED
write_stack() {
  printf 'stack_driver=%s\nstack_parameters=%s\nfirst_sync_skipped=%s\n' "$1" "$2" "$3" >"$target/stack"
}

# write_tool NAME VARIABLES FUNCTION...: what others run as `bash $target/NAME`: these functions with these variables as
# they are now; the last function is called.
write_tool() {
  local tool=$1 variable
  local -a variables
  read -ra variables <<<"$2"
  shift 2
  {
    for variable in "${variables[@]}"; do declare -p "$variable"; done
    declare -f "$@"
    echo "${!#}"
  } >"$target/$tool"
}
