# DRBD 8.4 and 9: what both storage documents of it share. drbd_major tells them apart, by the module that is loaded.

# use_drbd TARGET: the resource of a topology; its configuration is our own file, so that nobody else's takes part.
use_drbd() {
  drbd_resource=$1
  drbd_conf="$kept/drbd.conf"
  drbd_minor='' drbd_side=''
  if [ -e "$kept/side" ]; then read -r drbd_minor drbd_side <"$kept/side"; fi
}

# "version: 8.4.11 (api:1/proto:86-101)"
detect_drbd() {
  local line
  if [ ! -e /proc/drbd ]; then
    line=$(modprobe drbd 2>&1) || fail "no DRBD module for kernel $(uname -r): ${line##*$'\n'}"
  fi
  read -r _ drbd_version _ </proc/drbd
  drbd_major=${drbd_version%%.*}
  # drbdadm asks the module for its version first, and answers by KEY=VALUE lines.
  line=$(drbdadm --version 2>&1) || fail "drbdadm does not run: ${line##*$'\n'}"
  [[ $line =~ DRBDADM_VERSION=([0-9.]+) ]] || fail "drbdadm does not tell its version: ${line##*$'\n'}"
  drbd_utils=${BASH_REMATCH[1]}
  [ "$drbd_major" = 8 ] || [ "$drbd_major" = 9 ] || fail "DRBD $drbd_version is neither 8.4 nor 9"
  if [ "$drbd_major" = 8 ]; then
    at_least "$drbd_version" 8.4 || fail "DRBD $drbd_version is too old: 8.4 at least"
  else
    at_least "$drbd_utils" 9 || fail "drbd-utils $drbd_utils is too old for DRBD $drbd_version: 9 at least"
  fi
}

# at_least VERSION MINIMUM, of numbers between dots
at_least() {
  local -a have want
  local i
  IFS=. read -ra have <<<"$1"
  IFS=. read -ra want <<<"$2"
  for i in "${!want[@]}"; do
    if ((10#${have[i]:-0} != 10#${want[i]})); then
      ((10#${have[i]:-0} > 10#${want[i]}))
      return
    fi
  done
}

# drbd WORDS...: drbdadm, whose complaint is the reason. While the two shake hands it asks to be called again.
drbd() {
  local said tries=0
  until said=$(drbdadm --config-file "$drbd_conf" "$@" 2>&1); do
    tries=$((tries + 1))
    if [[ $said != *"(-18)"* ]] || [ "$tries" -ge 60 ]; then
      fail "drbdadm $*: ${said//$'\n'/ }"
    fi
    sleep 0.5
  done
}

# drbd_read: sets drbd_cs, drbd_ro, drbd_ds (own/peer), drbd_oos (KiB that differ) and drbd_wo (how writes are ordered).
# No fork with 8.4: it runs five times a second in a trial. It is sourced by others, hence no exit.
drbd_read() {
  local key rest
  drbd_cs=Unconfigured drbd_ro=Unknown/Unknown drbd_ds=DUnknown/DUnknown drbd_oos='' drbd_wo=''
  if [ "$drbd_major" != 8 ]; then
    drbd_read_9
    return 0
  fi
  [ -e /proc/drbd ] || return 0
  while read -r key rest; do
    if [ "$key" = "$drbd_minor:" ] && [[ $rest =~ ^cs:([A-Za-z]+)\ ro:([A-Za-z/]+)\ ds:([A-Za-z/]+) ]]; then
      drbd_cs=${BASH_REMATCH[1]} drbd_ro=${BASH_REMATCH[2]} drbd_ds=${BASH_REMATCH[3]}
      read -r key rest || true
      if [[ $rest =~ wo:([a-z])\ oos:([0-9]+) ]]; then
        case ${BASH_REMATCH[1]} in b) drbd_wo=barrier ;; f) drbd_wo=flush ;; d) drbd_wo=drain ;; *) drbd_wo=none ;; esac
        drbd_oos=${BASH_REMATCH[2]}
      fi
      break
    fi
  done </proc/drbd
  return 0
}

# "exists peer-device name:mirror peer-node-id:1 ... replication:Established peer-disk:UpToDate ... out-of-sync:0 ..."
drbd_read_9() {
  local kind word own_role=Unknown peer_role=Unknown own_disk=DUnknown peer_disk=DUnknown replication=
  local -a words
  while read -ra words; do
    kind=${words[1]:-}
    for word in "${words[@]:2}"; do
      case $kind:$word in
        resource:role:*) own_role=${word#*:} ;;
        resource:write-ordering:*) drbd_wo=${word#*:} ;;
        connection:connection:*) drbd_cs=${word#*:} ;;
        connection:role:*) peer_role=${word#*:} ;;
        device:disk:*) own_disk=${word#*:} ;;
        peer-device:replication:*) replication=${word#*:} ;;
        peer-device:peer-disk:*) peer_disk=${word#*:} ;;
        peer-device:out-of-sync:*) drbd_oos=${word#*:} ;;
      esac
    done
  done <<<"$(drbdsetup events2 --now --statistics "$drbd_resource" 2>/dev/null)"
  drbd_ro=$own_role/$peer_role drbd_ds=$own_disk/$peer_disk
  # 8.4 has one word for both, and tells of a resync in it.
  case $replication in '' | Off | Established) ;; *) drbd_cs=$replication ;; esac
}

drbd_state() {
  drbd_read
  echo "$drbd_cs $drbd_ro $drbd_ds oos=$drbd_oos"
}

drbd_whole() {
  [ "$drbd_cs $drbd_ds" = "Connected UpToDate/UpToDate" ]
}

drbd_connected() {
  case $drbd_cs in
    Unconfigured | StandAlone | Disconnecting | Unconnected | Timeout | BrokenPipe | NetworkFailure | ProtocolError) false ;;
    TearDown | WFConnection | WFReportParams | Connecting) false ;;
  esac
}

# drbd_wait WHAT CONDITION: until it holds; a minute in which nothing moves is the end. Two hosts that connect at the same
# moment may miss each other and then pause for connect-int (10 s): the first of them calls again sooner, less and less often.
drbd_wait() {
  local seen='' now since=$SECONDS called=$SECONDS pause=3 timer
  # A wait without a fork: nothing ever comes out of this pipe. (No <(...): not every guest has /dev/fd.)
  [ -p "$state/timer" ] || mkfifo "$state/timer"
  exec {timer}<>"$state/timer"
  until drbd_read && "$2"; do
    now=apart
    if drbd_connected; then
      now="$drbd_cs $drbd_ro $drbd_ds oos=$drbd_oos" called=$SECONDS
    fi
    if [ "$now" != "$seen" ]; then
      seen=$now since=$SECONDS
    fi
    [ $((SECONDS - since)) -lt 60 ] || fail "$1: DRBD is at $drbd_cs $drbd_ro $drbd_ds oos=$drbd_oos"
    if [ "$drbd_side" = first ] && [ $((SECONDS - called)) -ge "$pause" ]; then
      drbd_reconnect
      called=$SECONDS pause=$((pause * 2))
    elif [ "$drbd_cs" = StandAlone ]; then
      # The other one had other settings for a moment.
      drbd adjust "$drbd_resource"
    fi
    read -rt 0.1 -u "$timer" || true
  done
  exec {timer}>&-
}

# Sockets get their buffers when they are made.
drbd_reconnect() {
  drbd disconnect "$drbd_resource"
  drbd adjust "$drbd_resource"
}

# write_drbd_conf: the options of the stack, those that a tuning put in their place, and who the two are.
write_drbd_conf() {
  local section name value
  local -A options=()
  while read -r section name value; do
    [ -z "$section" ] || options[$section $name]=$value
  done <<<"$(cat "$kept/options" "$kept/tuned" 2>/dev/null)"
  {
    # Nothing of a benchmark is for DRBD's census.
    echo "global { usage-count no; }"
    echo "resource \"$drbd_resource\" {"
    for section in net disk; do
      echo "  $section {"
      for name in "${!options[@]}"; do
        [ "${name% *}" != "$section" ] || echo "    ${name#* } ${options[$name]};"
      done
      echo "  }"
    done
    cat "$kept/members"
    echo "}"
  } >"$drbd_conf.new"
  mv "$drbd_conf.new" "$drbd_conf"
}

# drbd_options: sets the array $now to what the kernel uses, defaults too. Sizes are plain numbers, in bytes; c-max-rate,
# as we are given it, in KiB/s.
drbd_options() {
  local name value
  local -gA now=()
  while read -r name value; do
    value=${value%%;*}
    value=${value//\"/}
    case $name in
      protocol | max-buffers | max-epoch-size | unplug-watermark | al-extents) ;;
      disk-barrier | disk-flushes | md-flushes | read-balancing) ;;
      timeout | connect-int | ping-int | ping-timeout | ko-count | on-congestion) ;;
      transport | load-balance-paths) ;;
      sndbuf-size | rcvbuf-size | c-max-rate)
        case $value in
          *k | *K) value=$((${value%?} * 1024)) ;;
          *M) value=$((${value%?} * 1048576)) ;;
          *G) value=$((${value%?} * 1073741824)) ;;
          *s) value=$((${value%?} * 512)) ;;
        esac
        [ "$name" != c-max-rate ] || value=$((value / 1024))
        ;;
      *) continue ;;
    esac
    now[$name]=$value
  done <<<"$(drbdsetup show --show-defaults "$drbd_resource")"
  [ -n "${now[protocol]:-}" ] || fail "the kernel does not tell what DRBD uses for $drbd_resource"
}
