# Both hosts run this at about the same time: each makes its own leg, and waits until the mirror is whole. Again, it keeps
# metadata and data, and connects anew: sockets get the buffers of now.
use_target "$SSM_Target"
two_hosts "$SSM_Volumes"
use_drbd "$SSM_Target"
volume=$(value_of "$SSM_Volumes" "$name")
peer_volume=$(value_of "$SSM_Volumes" "$peer")
[ "$volume" != "$peer_volume" ] || fail "a mirror has two volumes, not $volume twice"
own=$(address_of "$name")
other=$(address_of "$peer")

# What this host's DRBD cannot do is said before anything changes.
detect_drbd
balance=no
if [ "$SSM_Links" = 2 ]; then
  [ "$drbd_major" != 8 ] || fail "two links need DRBD 9, and this host's is $drbd_version"
  said=$(modprobe drbd_transport_tcp 2>&1) ||
    fail "two links need DRBD's tcp transport, a module of DRBD 9: ${said##*$'\n'}"
  if at_least "$drbd_version" 9.2.6 && at_least "$drbd_utils" 9.26; then
    balance=yes
  fi
fi
device=$(device_of "$volume")
[ -b "$device" ] || fail "DRBD needs a block device, and volume $volume is none: this host has no kernel of its own"
drbd_minor=$SSM_Number
own_volume "$device" "$volume" "drbd$drbd_minor"

mkdir -p "$kept"
drbd_side=second
if [ "$name" = "$first" ]; then drbd_side=first; fi
echo "$drbd_minor $drbd_side" >"$kept/side"
port=$((7789 + SSM_Number))
if [ "$SSM_Links" = 2 ]; then
  second_link "$SSM_SecondAddresses"
fi

# This host is known by its kernel's name; what the peer is called is nobody's business but ours.
node=$(uname -n)
peer_node=$peer
[ "$node" != "$peer_node" ] || peer_node=$peer-peer
peer_device=$(path_of "$peer_volume")
drbd_members >"$kept/members"
{
  echo "net protocol $SSM_Protocol"
  if [ "$balance" = yes ]; then echo "net load-balance-paths yes"; fi
} >"$kept/options"
write_drbd_conf

drbd_read
known=$drbd_cs
if [ "$known" = Unconfigured ] && { [ ! -e "$kept/made" ] || [[ $signatures != *drbd* ]]; }; then
  drbd -- --force create-md "$drbd_resource"
  touch "$kept/made"
fi
drbd adjust "$drbd_resource"

skipped=
if [ -e "$kept/first_sync_skipped" ]; then read -r skipped <"$kept/first_sync_skipped"; fi
if [ "$drbd_side" = first ]; then
  if [ "$known" != Unconfigured ]; then
    # Both ends' sockets are new when one end's are.
    drbd_reconnect
  fi
  drbd_wait "$peer did not connect" drbd_connected
  if [ "$drbd_ds" = Inconsistent/Inconsistent ]; then
    if [ "$SSM_InitialSync" = full ]; then
      drbd primary --force "$drbd_resource"
    elif [ "$drbd_major" = 8 ]; then
      drbd -- --clear-bitmap new-current-uuid "$drbd_resource"
    else
      drbd new-current-uuid --clear-bitmap "$drbd_resource/0"
    fi
  elif [ "$SSM_InitialSync" = full ] && [ "$skipped" = true ]; then
    drbd_wait "the mirror did not become whole" drbd_whole
    drbd invalidate-remote "$drbd_resource"
  fi
fi
drbd_wait "the mirror did not become whole" drbd_whole
if [ "$SSM_InitialSync" = full ]; then
  skipped=false
fi
echo "${skipped:=true}" >"$kept/first_sync_skipped"
if [ "$drbd_side" = first ] && [[ $drbd_ro != Primary/* ]]; then
  drbd primary "$drbd_resource"
fi

# What other documents ask of the mirror.
drbd_facts() {
  local name line module='' json=''
  detect_drbd
  drbd_read
  drbd_options
  for name in version srcversion; do
    if read -r line <"/sys/module/drbd/$name"; then module+="${module:+, }$name $line"; fi
  done 2>/dev/null
  echo "drbd_version=$drbd_version"
  echo "stack_module=$module; drbd-utils $drbd_utils"
  echo "stack_status=$drbd_cs $drbd_ro $drbd_ds oos=$drbd_oos"
  now[write-ordering]=$drbd_wo now[links]=$drbd_links
  for name in "${!now[@]}"; do
    line=${now[$name]}
    [[ $line =~ ^[0-9]+$ ]] || line="\"$line\""
    json+="${json:+, }\"$name\": $line"
  done
  echo "stack_parameters={$json}"
}

drbd_check() {
  drbd_read
  drbd_whole || echo "mirror_broken=DRBD is at $drbd_cs $drbd_ro $drbd_ds oos=$drbd_oos"
}

drbd_alone() {
  set -euo pipefail
  drbd disconnect "$drbd_resource"
}

drbd_together() {
  set -euo pipefail
  drbd adjust "$drbd_resource"
  drbd_wait "the mirror did not become whole" drbd_whole
}

drbd_secondary() {
  set -euo pipefail
  drbd secondary "$drbd_resource"
}

drbd_primary() {
  set -euo pipefail
  drbd primary "$drbd_resource"
}

# After a boot: the module, the second link, this host's leg. Who may write stays open.
drbd_rejoin() {
  set -euo pipefail
  detect_drbd
  if [ -n "$drbd_own2" ]; then
    set_up_link "$drbd_own2"
  fi
  device_of "$drbd_volume" >/dev/null
  drbd adjust "$drbd_resource"
}

drbd_links=$SSM_Links
# The variables that tools need, one by one, because a tool is a file of its own.
# shellcheck disable=SC2034
drbd_own2=${own2:-}
# shellcheck disable=SC2034
drbd_volume=$volume
reading="drbd_major drbd_minor drbd_resource"
acting="state $reading drbd_conf drbd_side"
write_tool state "$reading" drbd_read_9 drbd_read drbd_state
write_tool check "$reading" drbd_read_9 drbd_read drbd_whole drbd_check
write_tool facts "$reading drbd_links" fail at_least detect_drbd drbd_read_9 drbd_read drbd_options drbd_facts
write_tool alone "$acting" fail drbd drbd_alone
write_tool together "$acting" \
  fail drbd drbd_read_9 drbd_read drbd_whole drbd_connected drbd_reconnect drbd_wait drbd_together
write_tool secondary "$acting" fail drbd drbd_secondary
write_tool primary "$acting" fail drbd drbd_primary
write_tool rejoin "$acting drbd_own2 drbd_volume" \
  fail me path_of device_of at_least detect_drbd drbd set_up_link drbd_rejoin

echo "$device" >"$target/leg"
write_target "/dev/drbd$drbd_minor"
write_stack "DRBD $drbd_version" "{\"protocol\": \"$SSM_Protocol\", \"links\": $SSM_Links}" "$skipped"
drbd_state
