#!/bin/bash
# Begins every script of every document.
set -euo pipefail
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
state=/run/volumetry
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

# The path of a volume: a block device, or on a process host a socket that speaks NBD.
device_of() {
  local path="/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${1/-/}" tries=0
  until [ -b "$path" ] || [ -S "$path" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 120 ] || fail "volume $1 is not attached to $(me): $path does not exist"
    sleep 0.25
  done
  echo "$path"
}

# A volume of ours is blank when a topology begins; any other content is somebody's.
refuse_foreign() {
  local found
  [ -b "$1" ] || return 0
  found=$(blkid -p -o value -s TYPE "$1" 2>/dev/null || true)
  [ -z "$found" ] || fail "volume $2 holds a $found signature: it is not ours to write"
}

# use_target NAME: $target is the folder of what this host holds of a topology; hosts may serve several.
use_target() {
  target="$state/targets/$1"
  mkdir -p "$target"
}

# write_target DEVICE: how fio reaches the volume under test.
write_target() {
  echo "$1" >"$target/device"
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
