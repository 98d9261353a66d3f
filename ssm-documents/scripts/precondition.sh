[ "$(me)" = "$SSM_Client" ] || exit 0
marker="$state/preconditioned.$SSM_Bytes"
if [ -e "$marker" ]; then
  echo "already written: $SSM_Bytes bytes"
  exit 0
fi
# 256 KiB is the largest I/O that EBS counts as one.
{
  echo "[global]"
  cat "$state/target"
  printf '[precondition]\nrw=write\nbs=256k\niodepth=16\ndirect=1\nsize=%s\n' "$SSM_Bytes"
} >"$state/precondition.fio"
fio --minimal --output=/dev/null "$state/precondition.fio" || fail "the first write over $SSM_Bytes bytes failed"
touch "$marker"
