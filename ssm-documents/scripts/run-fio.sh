# One object a report interval, so that a person can watch; what fio prints for a terminal is all it needs.
watch_live() {
  local line number=0 next=$SECONDS
  while read -r line; do
    [[ $line =~ \[([rwt]=[^]]*)\ IOPS\] ]] || continue
    if [ "$SECONDS" -ge "$next" ] && [ -n "${order[$name.live.$number]:-}" ]; then
      echo "${BASH_REMATCH[1]}" >"$state/live"
      curl --silent --max-time 5 --output /dev/null --header 'If-None-Match: *' \
        --upload-file "$state/live" "${order[$name.live.$number]}" || true
      number=$((number + 1))
      next=$((SECONDS + order[live_interval_s]))
    fi
  done
}

# The same job with the peer disconnected: what is left of a write's path is the own leg's part. Without logs.
run_alone() {
  [ -e "$target/alone" ] || fail "this stack cannot write without its peer"
  bash "$target/alone" 9>&-
  note alone-begin
  sed '/^write_/d' job.fio >alone.fio
  fio --output-format=json+ --output=fio-alone.json --eta=never alone.fio >reason 2>&1 || joined=$?
  note alone-end
  bash "$target/together" 9>&-
  return "${joined:-0}"
}

load() {
  fetch "${order[job]}" job.given "the fio job file"
  job_for "$target/fio" job.given >job.fio
  if [ "${order[alone]}" = yes ]; then
    run_alone
  fi
  local status=0
  tell begun
  echo "started=$EPOCHREALTIME" >>facts
  # Into a pipe, fio would keep all of its lines to the end.
  stdbuf -o0 fio --output-format=json+ --output=fio.json --eta=always --eta-newline=500ms --eta-interval=500ms job.fio \
    2>reason | stdbuf -oL tr '\r' '\n' | watch_live || status=${PIPESTATUS[0]}
  echo "ended=$EPOCHREALTIME" >>facts
  return "$status"
}

measure fio "$(fio --version)"
