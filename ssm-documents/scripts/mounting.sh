# The file system of a topology on its client. $kept/filesystem holds its type and the mount options that it came with.

use_filesystem() {
  [ -e "$target/device" ] || fail "$SSM_Target has no volume on this host: run its stack's document first"
  read -r device <"$target/device"
  where="/mnt/volumetry/$SSM_Target"
  mkdir -p "$kept"
}

# mounted: whether it is, and then $options is what the kernel says it uses.
mounted() {
  local at
  while read -r _ at _ options _; do
    [ "$at" != "$where" ] || return 0
  done </proc/self/mounts
  options=
  return 1
}

# Another process may be about to close its last file.
unmount() {
  local said tries=0
  while mounted; do
    if ! said=$(umount "$where" 2>&1); then
      tries=$((tries + 1))
      [ "$tries" -le 20 ] || fail "$where cannot be unmounted: ${said//$'\n'/ }"
      sleep 0.25
    fi
  done
  rm -f "$target/mount"
}

# mount_it OPTIONS: mounts it, and from then on fio works in its folder.
mount_it() {
  local type said
  read -r type _ <"$kept/filesystem"
  mkdir -p "$where"
  if ! said=$(mount -t "$type" ${1:+-o "$1"} "$device" "$where" 2>&1); then
    complaint="$type does not mount with options '${1:-defaults}': ${said//$'\n'/ }"
    return 1
  fi
  echo "$where" >"$target/mount"
  printf 'ioengine=libaio\ndirectory=%s\n' "$where" >"$target/fio"
}
