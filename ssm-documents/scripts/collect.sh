# Runs whether or not the load succeeded: what there is of evidence is kept.
# A writer that gave up its right for the peer's verification takes it back.
if [ -e "$work.gave-up" ]; then
  bash "$target/primary" 9>&-
  if [ -s "$work.gave-up" ]; then
    read -r device point type options <"$work.gave-up"
    mount -t "$type" -o "$options" "$device" "$point"
  fi
  rm "$work.gave-up"
fi
[ ! -e "$work.collected" ] || exit 0
archive="$work.tar.gz"
tar --create --gzip --file "$archive" --sort=name --owner=0 --group=0 .
{
  printf '{"version": 1, "trial": "%s", "attempt": %s, "host": "%s",\n' "${order[trial]}" "${order[attempt]}" "$name"
  printf ' "archive": {"bytes": %s, "sha256": "%s"},\n "files": {' "$(stat -c %s "$archive")" \
    "$(sha256sum "$archive" | cut -d' ' -f1)"
  separator=
  for file in *; do
    [ -e "$file" ] || continue
    printf '%s\n  "%s": {"bytes": %s, "sha256": "%s"}' "$separator" "$file" "$(stat -c %s "$file")" \
      "$(sha256sum "$file" | cut -d' ' -f1)"
    separator=,
  done
  printf '}}\n'
} >"$work.manifest.json"
create "$archive" "${order[$name.archive]}"
# Last: a trial is committed only when its manifest is there.
create "$work.manifest.json" "${order[$name.manifest]}"
touch "$work.collected"
rm -rf "$work" "$archive"
