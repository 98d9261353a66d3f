# drbd_members: who the two are, as each version wants it. Only DRBD 9 knows paths, and wants numbers for its nodes.
drbd_members() {
  local id=0 peer_id=1
  printf '  device /dev/drbd%s minor %s;\n  meta-disk internal;\n' "$drbd_minor" "$drbd_minor"
  if [ "$drbd_major" = 8 ]; then
    printf '  on "%s" { disk "%s"; address ipv4 %s:%s; }\n' \
      "$node" "$device" "$own" "$port" "$peer_node" "$peer_device" "$other" "$port"
    return
  fi
  if [ "$drbd_side" != first ]; then
    id=1 peer_id=0
  fi
  printf '  on "%s" { node-id %s; disk "%s"; }\n' "$node" "$id" "$device" "$peer_node" "$peer_id" "$peer_device"
  echo "  connection {"
  drbd_path "$own" "$other"
  if [ -n "${own2:-}" ]; then drbd_path "$own2" "$peer2"; fi
  echo "  }"
}

drbd_path() {
  printf '    path { host "%s" address ipv4 %s:%s; host "%s" address ipv4 %s:%s; }\n' \
    "$node" "$1" "$port" "$peer_node" "$2" "$port"
}
