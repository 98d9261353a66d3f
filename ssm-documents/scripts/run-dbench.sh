load() {
  local status=0 directory given=() each
  [ -e "$target/mount" ] || fail "dbench needs a file system: the topology has none"
  directory=$(cat "$target/mount")/dbench
  rm -rf "$directory"
  mkdir "$directory"
  # Packages differ in where they put the load; some were built with another path.
  for each in /usr/share/dbench/client.txt /usr/lib/dbench/client.txt /usr/local/share/client.txt; do
    [ ! -e "$each" ] || given=(-c "$each")
  done
  tell begun
  echo "started=$EPOCHREALTIME" >>facts
  dbench -D "$directory" -t "${order[dbench.timelimit]}" "${given[@]}" "${order[dbench.clients]}" \
    >dbench.out 2>reason || status=$?
  echo "ended=$EPOCHREALTIME" >>facts
  rm -rf "$directory"
  # What it could not do stands among its figures.
  if [ "$status" -ne 0 ] && [ ! -s reason ]; then
    tail -n 1 dbench.out >reason
  fi
  return "$status"
}

measure dbench "$(dbench --help 2>&1 | sed -n 's/^dbench version \([^ ]*\).*/\1/p')"
