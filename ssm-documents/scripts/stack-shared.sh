use_target "$SSM_Target"
name=$(me)
volume=$(value_of "$SSM_Volumes" "$name")
device=$(device_of "$volume")

# reserve DEVICE: every host registers a key of its own, and those that are registered may write, nobody else.
reserve() {
  local found key
  command -v nvme >/dev/null || fail "nvme is missing: run the prepare document for this stack"
  found=$(nvme id-ns "$1" 2>&1) || fail "volume $volume does not answer as an NVMe namespace: ${found##*$'\n'}"
  # "rescap  : 0": which kinds the volume knows, one bit each
  if [[ ! $found =~ rescap[[:space:]]*:[[:space:]]*(0x)?[0-9a-f]*[1-9a-f] ]]; then
    fail "volume $volume knows no NVMe reservations: EBS has them on io2 with Multi-Attach"
  fi
  key=$((0x766f6c00 + 10#${name#host}))
  # A key that this host registered before stays; 5: write exclusive, all registrants.
  found=$(nvme resv-register "$1" --nrkey="$key" --rrega=0 --iekey 2>&1 &&
    nvme resv-acquire "$1" --crkey="$key" --rtype=5 --racqa=0 2>&1) ||
    fail "volume $volume cannot be reserved: ${found//$'\n'/ }"
}

[ "$SSM_Reservations" = no ] || [ -b "$device" ] || fail "NVMe reservations need a block device, and volume $volume is none"
own_volume "$device" "$volume"
reservation=none
if [ "$SSM_Reservations" = yes ]; then
  reserve "$device"
  reservation="write exclusive, all registrants"
fi
echo "$device" >"$target/leg"
write_target "$device"
IFS=, read -ra attachments <<<"$SSM_Volumes"
write_stack "EBS Multi-Attach" "{\"attachments\": ${#attachments[@]}, \"reservation\": \"$reservation\"}" false
