use_target "$SSM_Target"
volume=$(value_of "$SSM_Volumes" "$(me)")
device=$(device_of "$volume")
refuse_foreign "$device" "$volume"
write_target "$device"
write_stack "EBS Multi-Attach" "{\"attachments\": $(wc -l <"$state/hosts")}" false
