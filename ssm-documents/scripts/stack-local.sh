use_target "$SSM_Target"
volume=$(value_of "$SSM_Volumes" "$(me)")
device=$(device_of "$volume")
refuse_foreign "$device" "$volume"
write_target "$device"
write_stack "local volume" '{}' false
