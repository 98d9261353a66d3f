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

# The distribution, and apt-get or dnf: the first that is here.
distribution=$(sed -n 's/^ID=//p' /etc/os-release | tr -d '"')
installer=$(command -v apt-get || command -v dnf || true)
installer=${installer##*/}
kernel=$(uname -r)
# Volumes behind sockets are a process host's, which has no kernel of its own.
sockets=$(find /dev/disk/by-id -type s 2>/dev/null | head -n 1)

install_packages() {
  case $installer in
    apt-get)
      export DEBIAN_FRONTEND=noninteractive
      [ -n "${updated:-}" ] || apt-get -o DPkg::Lock::Timeout=300 update -qq || fail "apt-get update failed"
      updated=yes
      apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >&2
      ;;
    dnf) dnf install -y -q "$@" >&2 ;;
    *) fail "$* missing, and neither apt-get nor dnf is here to install it" ;;
  esac
}

# need MODULE PACKAGE...: a module of the kernel that runs; the packages are where it may still be.
need() {
  local module=$1 package
  shift
  [ ! -d "/sys/module/$module" ] || return 0
  [ -z "$sockets" ] || fail "$SSM_Stack needs the module $module, and this host shares its machine's kernel: use guest hosts"
  for package in '' "$@"; do
    if [ -z "$package" ] || install_packages "$package"; then
      if modprobe "$module" 2>/dev/null; then return 0; fi
    fi
  done
  fail "the kernel $kernel has no module $module${*:+, not even with $*}"
}

# command:package with apt:package with dnf
needed=(fio:fio:fio curl:curl:curl ping:iputils-ping:iputils)
case $SSM_Stack in
  nbd-mirror) needed+=(
    qemu-storage-daemon:qemu-system-common:qemu-storage-daemon nbdkit:nbdkit:nbdkit python3:python3:python3
  ) ;;
  drbd)
    [ "$distribution" != amzn ] || fail "Amazon Linux has no DRBD: take Ubuntu, Debian or a rebuild of RHEL"
    if [ "$installer" = dnf ] && ! command -v drbdadm >/dev/null; then
      install_packages elrepo-release || fail "DRBD is in ELRepo, which this image does not know: elrepo-release is not to be had"
    fi
    needed+=(drbdadm:drbd-utils:drbd9x-utils)
    ;;
  md-nvme-tcp) needed+=(nvme:nvme-cli:nvme-cli mdadm:mdadm:mdadm) ;;
  # Reservations; a process host's volumes are sockets.
  shared) [ -n "$sockets" ] || needed+=(nvme:nvme-cli:nvme-cli) ;;
esac
case $SSM_Filesystem in
  xfs) needed+=(mkfs.xfs:xfsprogs:xfsprogs) ;;
  ext4) needed+=(mkfs.ext4:e2fsprogs:e2fsprogs) ;;
esac
if [[ ,$SSM_Tools, == *,pgbench,* ]]; then
  case $distribution in
    amzn) needed+=(pgbench::postgresql15-contrib initdb::postgresql15-server) ;;
    *) needed+=(pgbench:postgresql:postgresql-contrib initdb:postgresql:postgresql-server) ;;
  esac
  if [ "$installer" = apt-get ] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    # The package would make and start a cluster that nobody here uses.
    mkdir -p /etc/postgresql-common
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
  fi
fi
if [[ ,$SSM_Tools, == *,dbench,* ]]; then
  [ "$distribution" != amzn ] || fail "Amazon Linux has no dbench: take Ubuntu, Debian or a rebuild of RHEL"
  if [ "$installer" = dnf ] && ! command -v dbench >/dev/null; then
    install_packages epel-release || fail "dbench is in EPEL, which this image does not know: epel-release is not to be had"
  fi
  needed+=(dbench:dbench:dbench)
fi

# PostgreSQL's own programs are not on the PATH of Debian and Ubuntu.
here() {
  command -v "$1" >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null
}
missing=()
for entry in "${needed[@]}"; do
  IFS=: read -r command apt dnf <<<"$entry"
  if ! here "$command"; then
    if [ "$installer" = apt-get ]; then missing+=("$apt"); else missing+=("$dnf"); fi
  fi
done
if [ ${#missing[@]} -gt 0 ]; then
  install_packages "${missing[@]}" || fail "$installer cannot install ${missing[*]}"
fi
for entry in "${needed[@]}"; do
  here "${entry%%:*}" || fail "${missing[*]} was installed, but ${entry%%:*} is still missing"
done

# Ubuntu's and Amazon's kernels keep rarer modules in a package of their own, one for each kernel.
extra=()
case $distribution:$installer in
  ubuntu:*) extra=("linux-modules-extra-$kernel") ;;
  *:dnf) extra=("kernel-modules-extra-$kernel") ;;
esac
case $SSM_Stack in
  drbd)
    if [ "$installer" = dnf ]; then extra=(kmod-drbd9x); fi
    need drbd "${extra[@]}"
    ;;
  md-nvme-tcp)
    need raid1 "${extra[@]}"
    need nvme_tcp "${extra[@]}"
    need nvmet_tcp "${extra[@]}"
    ;;
esac
echo "$name: $(fio --version), $kernel"
