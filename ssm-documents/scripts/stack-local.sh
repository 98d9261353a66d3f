use_target "$SSM_Target"
volume=$(value_of "$SSM_Volumes" "$(me)")
device=$(device_of "$volume")
own_volume "$device" "$volume"
echo "$device" >"$target/leg"
write_target "$device"
write_stack "local volume" '{}' false
