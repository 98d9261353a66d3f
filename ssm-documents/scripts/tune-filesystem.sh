# The scheduler is that of this host's own volume, on every host; the file system is the client's alone.
use_target "$SSM_Target"
saved="$kept/tune-filesystem.saved"
tuned="$state/tuned/tune-filesystem"
name=$(me)
complaint=

# use_leg: sets $schedulers, the file in which the kernel offers those of this host's volume.
use_leg() {
  local leg
  [ -e "$target/leg" ] || fail "$SSM_Target has no volume on this host: run its stack's document first"
  leg=$(readlink -f "$(<"$target/leg")")
  [ -b "$leg" ] || fail "a scheduler is a block device's, and this host's volume is none"
  schedulers=/sys/class/block/${leg##*/}/queue/scheduler
}

# "[none] mq-deadline": the one in brackets is used.
scheduler_now() {
  local offered
  read -r offered <"$schedulers"
  offered=${offered#*[}
  echo "${offered%%]*}"
}

set_scheduler() {
  # Loads the scheduler's module, if it is one; a write of what the kernel does not have fails.
  if ! echo "$1" 2>/dev/null >"$schedulers" || [ "$(scheduler_now)" != "$1" ]; then
    complaint="the kernel $(uname -r) has no scheduler $1 for this volume: it offers $(<"$schedulers")"
    return 1
  fi
}

# wanted_options: $1 are the mount options that the file system came with, and those of this tuning follow.
wanted_options() {
  local all=$1
  case $SSM_Barrier:$type in
    yes:ext4) all+=,barrier=1 ;;
    no:ext4) all+=,barrier=0 ;;
    no:xfs) all+=,nobarrier ;;
  esac
  case $SSM_Discard in
    yes) all+=,discard ;;
    no) all+=,nodiscard ;;
  esac
  all+=${SSM_Journal:+,data=$SSM_Journal}
  echo "${all#,}"
}

# What each option is, as /proc/mounts has it: ext4 tells what differs from its defaults.
barrier_now() {
  if [[ ,$options, == *,nobarrier,* || ,$options, == *,barrier=0,* ]]; then echo no; else echo yes; fi
}
discard_now() {
  if [[ ,$options, == *,discard,* ]]; then echo yes; else echo no; fi
}
journal_now() {
  if [[ ,$options, =~ ,data=([a-z]+), ]]; then echo "${BASH_REMATCH[1]}"; else echo ordered; fi
}

undo() {
  local kind value
  [ -e "$saved" ] || return 0
  while read -r kind value; do
    case $kind in
      scheduler)
        use_leg
        set_scheduler "$value" || fail "not undone: $complaint"
        ;;
      options)
        use_filesystem
        read -r _ value <"$kept/filesystem"
        unmount
        mount_it "$value" || fail "not undone: $complaint"
        ;;
    esac
  done <"$saved"
  rm -f "$saved" "$tuned"
}

# give_up REASON: nothing stays half done.
give_up() {
  undo
  fail "$1"
}

undo
[ "$SSM_Action" = apply ] || exit 0

# What cannot be is said before anything changes.
mounting=
if [ "$name" = "$SSM_Client" ] && [ -n "$SSM_Barrier$SSM_Discard$SSM_Journal" ]; then
  mounting=yes
  use_filesystem
  if [ ! -e "$kept/filesystem" ] || ! mounted; then
    fail "mount options need a file system: $SSM_Target has none here"
  fi
  read -r type base <"$kept/filesystem"
  [ "$type" = ext4 ] || [ -z "$SSM_Journal" ] || fail "journal is a mount option of ext4, not of $type"
  IFS=.- read -r major minor _ <<<"$(uname -r)"
  if [ "$type:$SSM_Barrier" = xfs:no ] && ((major * 1000 + minor >= 4019)); then
    fail "xfs has no barrier switch in kernel $(uname -r): it was taken out in 4.19, and barriers are always on"
  fi
fi
before=
if [ -n "$SSM_Scheduler" ]; then
  use_leg
  before=$(scheduler_now)
fi
mkdir -p "$kept" "${tuned%/*}"
{
  if [ -n "$SSM_Scheduler" ]; then echo "scheduler $before"; fi
  if [ -n "$mounting" ]; then echo options; fi
} >"$saved"
lines=
if [ -n "$SSM_Scheduler" ]; then
  set_scheduler "$SSM_Scheduler" || give_up "$complaint"
  lines+="tuned.scheduler=$(scheduler_now)"$'\n'
fi
if [ -n "$mounting" ]; then
  unmount
  mount_it "$(wanted_options "$base")" || give_up "$complaint"
  mounted || give_up "$where is not mounted, though mount said so"
  for each in barrier:"$SSM_Barrier" discard:"$SSM_Discard" journal:"$SSM_Journal"; do
    if [ -n "${each#*:}" ]; then
      found=$("${each%:*}_now")
      [ "$found" = "${each#*:}" ] || give_up "${each%:*} is $found in /proc/mounts, not ${each#*:}: $options"
      lines+="tuned.${each%:*}=$found"$'\n'
    fi
  done
  lines+="tuned.mount-options=$options"$'\n'
fi
printf '%s' "$lines" >"$tuned"
