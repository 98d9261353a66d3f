mine=$(ip -o -4 addr show scope global | awk '{ split($4, a, "/"); print a[1] }')
name=
: >"$state/hosts.new"
for pair in ${SSM_Hosts//,/ }; do
  echo "${pair%%=*} ${pair#*=}" >>"$state/hosts.new"
  if grep -qxF "${pair#*=}" <<<"$mine"; then
    name=${pair%%=*}
  fi
done
[ -n "$name" ] || fail "none of this host's addresses is in $SSM_Hosts"
mv "$state/hosts.new" "$state/hosts"
echo "$name" >"$state/host"

# command -> package, for apt and dnf alike
needed=(fio:fio curl:curl ping:iputils-ping)
if [ "$SSM_Stack" = nbd-mirror ]; then
  needed+=(qemu-storage-daemon:qemu-system-common nbdkit:nbdkit python3:python3)
fi
missing=()
for pair in "${needed[@]}"; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  if command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 update -qq
    apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}"
  elif command -v dnf >/dev/null; then
    dnf install -y -q "${missing[@]/iputils-ping/iputils}"
  else
    fail "${missing[*]} missing, and neither apt-get nor dnf is here to install it"
  fi
fi
for pair in "${needed[@]}"; do
  command -v "${pair%%:*}" >/dev/null || fail "${pair#*:} was installed, but ${pair%%:*} is still missing"
done
echo "$name: $(fio --version), $(uname -r)"
