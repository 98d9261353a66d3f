# Only the client has the file system. It is made once; what it was mounted with is kept, so that others can mount it again.
use_target "$SSM_Target"
[ "$(me)" = "$SSM_Client" ] || exit 0
use_filesystem
unmount

if [ "$SSM_Type" = none ]; then
  rm -f "$kept/filesystem"
  write_target "$device"
  exit 0
fi
[ -b "$device" ] || fail "$device is no block device: a file system needs a host with a kernel of its own"
command -v "mkfs.$SSM_Type" >/dev/null || fail "mkfs.$SSM_Type is missing: run the prepare document with this file system"
made=
if [ -e "$kept/filesystem" ]; then read -r made _ <"$kept/filesystem"; fi
if [ "$made" != "$SSM_Type" ]; then
  # Nothing is left to be written later, in the middle of a trial; and whether a volume can discard is not the question.
  case $SSM_Type in
    xfs) making=(mkfs.xfs -q -f -K) ;;
    ext4) making=(mkfs.ext4 -q -F -E "nodiscard,lazy_itable_init=0,lazy_journal_init=0") ;;
  esac
  said=$("${making[@]}" "$device" 2>&1) || fail "${making[0]} $device: ${said//$'\n'/ }"
fi
echo "$SSM_Type $SSM_MountOptions" >"$kept/filesystem"
mount_it "$SSM_MountOptions" || fail "$complaint"
mounted || fail "$where is not mounted, though mount said so"
echo "$SSM_Type at $where: $options"
