# A failure of this host under the others' load. It ends by itself: what begins it also ends it, in a session of its
# own, which outlives this command, its agent and their time-outs.
event=${order[failure.event]}
lasts=${order[failure.lasts_s]}

# addresses_in FILE: the other members', on one line; a mirror of one link has no file of the second
addresses_in() {
  local other address
  [ -e "$1" ] || return 0
  while read -r other address; do
    [ "$other" = "$name" ] || [[ " ${order[members]} " != *" $other "* ]] || printf '%s ' "$address"
  done <"$1"
}

# sleep_until TIME SECONDS: until so many seconds after a time of day
sleep_until() {
  sleep "$(awk -v at="$1" -v more="$2" -v now="$EPOCHREALTIME" \
    'BEGIN { left = at + more - now; print (left > 0 ? left : 0) }')"
}

daemons() {
  [ ! -e "$target/pids" ] || bash "$target/pids" | tr '\n' ' '
}

# --- what is lost, and how it comes back: begin_* prints a detail; one that takes long to begin sets $at

# A rule before all routes but the local ones: nothing leaves for the others any more, replies included; and because
# there is no way back to them, with a look at it (rp_filter) nothing of theirs is taken in. A route would not do: hosts
# with a second interface have rules of their own before the main table. It needs no module and leaves others alone.
begin_cut() {
  cat /proc/sys/net/ipv4/conf/all/rp_filter >"$work.rp_filter"
  echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter
  local address
  for address in "$@"; do
    ip rule add priority 1 to "$address/32" blackhole
  done
  for address in "$@"; do
    if ping -q -c 1 -W 1 "$address" >/dev/null 2>&1; then
      fail "$event: $address still answers"
    fi
  done
  echo "$@"
}

end_cut() {
  local address
  for address in "$@"; do
    ip rule del priority 1 to "$address/32" blackhole || true
  done
  cat "$work.rp_filter" >/proc/sys/net/ipv4/conf/all/rp_filter
}

begin_stop() {
  kill -STOP "$@"
  echo "processes $*"
}

end_stop() {
  kill -CONT "$@"
}

# A kernel cannot be stopped from within, but it can be given nothing to run on: one process on every processor that
# nothing comes before, for so long by its own clock. They begin together, since none can be started after the first.
begin_spin() {
  local processor count end
  count=$(nproc)
  cat /proc/sys/kernel/sched_rt_runtime_us >"$work.rt_runtime"
  echo -1 >/proc/sys/kernel/sched_rt_runtime_us
  rm -f "$work.spin" "$work".spinner.*
  for ((processor = 0; processor < count; processor++)); do
    # shellcheck disable=SC2016
    chrt -f 99 taskset -c "$processor" bash -c ': >"$1.$2"; until [ -s "$3" ]; do sleep 0.02; done; end=$(cat "$3")
      while [ "${EPOCHREALTIME/./}" -lt "$end" ]; do :; done' spin "$work.spinner" "$processor" "$work.spin" >/dev/null &
  done
  until [ "$(find "$work".spinner.* 2>/dev/null | wc -l)" -eq "$count" ]; do sleep 0.05; done
  end=$(awk -v seconds="$lasts" 'BEGIN { printf "%d", seconds * 1000000 }')
  echo "$count processors taken"
  at=$EPOCHREALTIME
  echo $((${at/./} + end)) >"$work.spin.new"
  mv "$work.spin.new" "$work.spin"
}

end_spin() {
  cat "$work.rt_runtime" >/proc/sys/kernel/sched_rt_runtime_us
}

# To the last byte: what is reserved for root is taken too.
begin_fill() {
  local size
  mkdir -p "$keep"
  size=$(($(stat -f -c '%f * %S' "$keep")))
  until fallocate -l "$size" "$keep/fill" 2>/dev/null || [ "$size" -lt 4096 ]; do
    size=$((size - size / 64 - 4096))
  done
  dd if=/dev/zero of="$keep/fill" bs=64k oflag=append conv=notrunc status=none 2>/dev/null || true
  echo "$(stat -c %s "$keep/fill") bytes"
}

end_fill() {
  rm -f "$keep/fill"
}

# ordeal KIND ARGUMENTS...
ordeal() {
  kind=$1 at=$EPOCHREALTIME begun=
  shift
  given=("$@")
  trap heal EXIT
  "begin_$kind" "$@" >"$state/detail"
  begun=yes
  sleep_until "$at" "$lasts"
}

# Both ends are noted when it is over: a disk that is full takes no note of it.
heal() {
  "end_$kind" "${given[@]}"
  [ -n "$begun" ] || return 0
  echo "$at fault-begin $event $(cat "$state/detail")" >>"$work/events"
  note fault-end "$event"
}

# outlive FUNCTION ARGUMENTS...: in a session of its own, with what it needs of this script
outlive() {
  setsid bash -c "set -euo pipefail; $(declare -p name state work event lasts keep); $(declare -f); $(printf '%q ' "$@")" \
    </dev/null >>fail.log 2>&1 8>&- 9>&- &
}

# --- the strike

refuse() {
  case $event in
    cut-one-link)
      [ -e "$target/second" ] || fail "cut-one-link: this mirror has no second link"
      ;;
    fill-peer-disk)
      [ "$(host_kind)" != process ] || fail "fill-peer-disk: a process host's disk is the machine's own"
      ;;
    freeze-peer)
      [ -n "$(daemons)" ] || [ "$(host_kind)" != process ] || fail "freeze-peer: this stack names no daemon to stop"
      ;;
  esac
}

strike() {
  local stopped=()
  case $event in
    cut-all-links)
      read -ra stopped <<<"$(addresses_in "$state/hosts")$(addresses_in "$target/second")"
      outlive ordeal cut "${stopped[@]}"
      ;;
    cut-one-link)
      read -ra stopped <<<"$(addresses_in "$target/second")"
      outlive ordeal cut "${stopped[@]}"
      ;;
    freeze-peer)
      read -ra stopped <<<"$(daemons)"
      if [ ${#stopped[@]} -gt 0 ]; then
        outlive ordeal stop "${stopped[@]}"
      else
        outlive ordeal spin
      fi
      ;;
    fill-peer-disk) outlive ordeal fill ;;
    kill-peer) kill_peer ;;
  esac
}

kill_peer() {
  local stopped=()
  read -ra stopped <<<"$(daemons)"
  if [ ${#stopped[@]} -gt 0 ]; then
    note fault-begin "$event processes ${stopped[*]}"
    kill -9 "${stopped[@]}"
    return
  fi
  # What this host must know when it is back.
  mkdir -p "$keep"
  rm -rf "${keep:?}/state"
  cp -a "$state" "$keep/state"
  cat /proc/sys/kernel/random/boot_id >"$keep/boot"
  outlive reset
}

# Two seconds later, so that the agent has told that this command ended; nothing is shut down, nothing is flushed
# but this host's evidence.
reset() {
  sleep 2
  note fault-begin "$event the host is reset"
  sync
  echo 1 >/proc/sys/kernel/sysrq
  echo b >/proc/sysrq-trigger
}

# Measures itself on, until the load is over and the mirror has had its time to be whole.
see_out() {
  sleep_until "$(cat "$work.begun")" "${order[duration_s]}"
  settle
  stop_watching
  if [ -e "$target/check" ]; then
    bash "$target/check" >>facts || true
  fi
}

# --- the phases

phase_strike() {
  local begun=$EPOCHREALTIME
  refuse
  note_facts >facts
  note_stack >stack.status 2>&1
  start_watching
  if [ -n "${order[begun.get]:-}" ]; then
    until heard begun; do
      ! heard ended || fail "the load ended before it began"
      sleep 0.5
    done
    begun=$(cat "$state/told")
  fi
  echo "$begun" >"$work.begun"
  sleep_until "$begun" "${order[failure.at_s]}"
  strike
  if [ "$event" = kill-peer ]; then
    stop_watching
  else
    wait "$!" || fail "$event did not come about: $(tail -n 1 fail.log)"
    see_out
  fi
}

phase_rejoin() {
  local at
  if [ -e "$keep/boot" ]; then
    # This command was faster than the reset: it goes down with the host.
    if cmp -s "$keep/boot" /proc/sys/kernel/random/boot_id; then
      sleep 60
      fail "kill-peer: this host was to be reset, and was not"
    fi
    rm "$keep/boot"
  fi
  start_watching
  at=$(awk '$2 == "fault-begin" { print $1; exit }' events)
  sleep_until "$at" "$lasts"
  note peer-back
  bash "$target/rejoin" 9>&-
  note fault-end "$event"
  see_out
}

if [ ! -e "$work.$SSM_Phase" ]; then
  case $SSM_Phase in
    strike) phase_strike ;;
    rejoin) phase_rejoin ;;
  esac
  touch "$work.$SSM_Phase"
fi
