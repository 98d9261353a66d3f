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

declare -A order
fetch "$SSM_WorkOrderUrl" "$state/order" "the work order"
while IFS='=' read -r key value; do
  order[$key]=$value
done <"$state/order"
work="/var/tmp/volumetry/${order[trial]}.${order[attempt]}"
mkdir -p "$work"
