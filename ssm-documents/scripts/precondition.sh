use_target "$SSM_Target"
[ "$(me)" = "$SSM_Client" ] || exit 0
marker="$target/preconditioned.$SSM_Bytes"
if [ -e "$marker" ]; then
  echo "already written: $SSM_Bytes bytes"
  exit 0
fi
# 256 KiB is the largest I/O that EBS counts as one.
{
  echo "[global]"
  cat "$target/fio"
  printf '[precondition]\nrw=write\nbs=256k\niodepth=16\ndirect=1\nsize=%s\n' "$SSM_Bytes"
} >"$target/precondition.fio"
fio --minimal --output=/dev/null "$target/precondition.fio" || fail "the first write over $SSM_Bytes bytes failed"
touch "$marker"
