# Whose a volume is. A volume of ours is blank when its topology begins; any other content is somebody's.

# refuse_used DEVICE VOLUME [HOLDER]: nothing but HOLDER, and this topology's own file system, may have it open.
refuse_used() {
  local real disk holder source where
  [ -b "$1" ] || return 0
  real=$(readlink -f "$1")
  disk=/sys/class/block/${real##*/}
  for holder in "$disk"/holders/* "$disk"/"${real##*/}"*/holders/*; do
    if [ -e "$holder" ] && [ "${holder##*/}" != "${3:-}" ]; then
      fail "volume $2 is in use: ${holder##*/} holds it"
    fi
  done
  while read -r source where _; do
    if [[ $source == "$real" || $source == "$real"p[0-9]* || $source == "$1" ]]; then
      [ "$where" = "/mnt/volumetry/${target##*/}" ] || fail "volume $2 is in use: it is mounted at $where"
    fi
  done </proc/self/mounts
}

# own_volume DEVICE VOLUME [HOLDER]: refuses what is not ours to write, and writes down what is. $signatures is what was
# found on it: blkid would print nothing where it finds two.
own_volume() {
  local note="$keep/volumes/$2" owner=
  signatures=
  [ -b "$1" ] || return 0
  refuse_used "$@"
  signatures=$(wipefs --noheadings --output TYPE "$1") || fail "volume $2 cannot be read"
  signatures=${signatures//$'\n'/ }
  if [ -e "$note" ]; then read -r owner <"$note"; fi
  if [ "$owner" != "${target##*/}" ]; then
    if [ -n "$signatures" ]; then
      [ "$SSM_Overwrite" = yes ] ||
        fail "volume $2 holds a $signatures signature: it is not ours to write (overwrite: true would)"
      wipefs --all --quiet "$1" || fail "volume $2 holds a $signatures signature, which cannot be wiped"
      signatures=
    fi
    mkdir -p "${note%/*}"
    echo "${target##*/}" >"$note"
  fi
}
