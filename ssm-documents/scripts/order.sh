# The work order: KEY=VALUE lines. It names the trial, its clients, and the only objects that this host may create.
# Read into the array `order`; the attempt's own folder is $work.
fetch() {
  curl --fail --silent --show-error --retry 3 --retry-connrefused --max-time 120 --output "$2" "$1" ||
    fail "$3 cannot be fetched"
}

create() {
  # If-None-Match is part of the signature: the object is created, or nothing happens.
  local status
  status=$(curl --silent --show-error --retry 3 --retry-connrefused --max-time 3600 --output /dev/null \
    --write-out '%{http_code}' --header 'If-None-Match: *' --upload-file "$1" "$2") || fail "$1 cannot be uploaded"
  # 412: an earlier try of ours had arrived after all; the manifest's checksum tells if it was another's.
  [ "$status" = 200 ] || [ "$status" = 412 ] || fail "$1 cannot be uploaded: HTTP status $status"
}

# note EVENT DETAIL...: into the evidence, with this host's time of day
note() {
  echo "$EPOCHREALTIME $*" >>"$work/events"
}

# A host that was killed lost /run; what it held was kept before.
if [ ! -e "$state/host" ] && [ -d "$keep/state" ]; then
  cp -a "$keep/state/." "$state/"
fi

declare -A order
fetch "$SSM_WorkOrderUrl" "$state/order" "the work order"
while IFS='=' read -r key value; do
  order[$key]=$value
done <"$state/order"
name=$(me)
use_target "${order[target]}"
work="/var/tmp/volumetry/${order[trial]}.${order[attempt]}"
mkdir -p "$work"
cd "$work"
# A command that was sent twice waits for the first, and ends as it did: SendCommand has no client token.
# What outlives its command must not hold the lock: it is started with 9>&-.
exec 9>"$work.lock"
flock 9
