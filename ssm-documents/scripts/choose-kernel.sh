# Runs again after the restart that it asks for: exit status 194 tells the agent so.
distribution=$(sed -n 's/^ID=//p' /etc/os-release | tr -d '"')
marker="$keep/chosen-kernel"
running=$(uname -r)
read -r boot </proc/sys/kernel/random/boot_id

package=$SSM_Kernel
case $distribution:$SSM_Kernel in
  debian:cloud) package=linux-image-cloud-$(dpkg --print-architecture) ;;
  debian:generic) package=linux-image-$(dpkg --print-architecture) ;;
  ubuntu:cloud) package=linux-aws ;;
  ubuntu:generic) package=linux-generic ;;
  amzn:cloud) package=kernel ;;
  *:cloud | *:generic) fail "nothing of $distribution is known to be its $SSM_Kernel kernel: name the package" ;;
esac

# release_of PACKAGE: the release of the kernel that a package is, or depends on: linux-aws, linux-image-aws, linux-image-6.8.0-1021-aws.
release_of() {
  local word
  if [[ $1 =~ ^linux-image-(unsigned-)?([0-9].*)$ ]]; then
    echo "${BASH_REMATCH[2]}"
    return
  fi
  for word in $(dpkg-query --show --showformat='${Depends}' "$1"); do
    if [[ $word == linux-image-* ]]; then
      release_of "$word"
      return
    fi
  done
}

installed() {
  [[ $(dpkg-query --show --showformat='${Status}' "$1" 2>/dev/null) == *" ok installed" ]]
}

if command -v apt-get >/dev/null; then
  if ! installed "$package"; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=300 update -qq || fail "apt-get update failed"
    said=$(apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$package" 2>&1) ||
      fail "apt-get cannot install $package: ${said##*$'\n'}"
  fi
  release=$(release_of "$package")
elif command -v dnf >/dev/null; then
  if ! rpm --quiet -q "$package"; then
    said=$(dnf install -y -q "$package" 2>&1) || fail "dnf cannot install $package: ${said##*$'\n'}"
  fi
  # Several may be installed; the latest comes first.
  release=$(rpm -q --last "$package" | sed -n "1s/^$package-\([^ ]*\).*/\1/p")
else
  fail "neither apt-get nor dnf is here to install $package"
fi
[ -n "$release" ] || fail "$package is no kernel, and depends on none"
[ -e "/boot/vmlinuz-$release" ] || fail "$package is installed, but /boot/vmlinuz-$release is missing"
make_default() {
  local entry menu
  if command -v grubby >/dev/null; then
    said=$(grubby --set-default "/boot/vmlinuz-$release" 2>&1) || fail "grubby: ${said##*$'\n'}"
  elif [ -e /boot/grub/grub.cfg ]; then
    # An entry of a submenu is named with it, and both by their ids: titles change with the distribution's version.
    entry=$(grep -o "gnulinux-$release-advanced-[^' ]*" /boot/grub/grub.cfg | head -n 1) || true
    [ -n "$entry" ] || fail "GRUB has no entry for kernel $release"
    menu=$(grep -o "gnulinux-advanced-[^' ]*" /boot/grub/grub.cfg | head -n 1) || true
    mkdir -p /etc/default/grub.d
    echo "GRUB_DEFAULT=\"${menu:+$menu>}$entry\"" >/etc/default/grub.d/99-volumetry.cfg
    said=$(update-grub 2>&1) || fail "update-grub: ${said##*$'\n'}"
  else
    # A guest host has no boot loader; its first process starts the kernel that is named here.
    echo "$release" >/boot/volumetry-kernel
  fi
}

if [ "$release" != "$running" ]; then
  if [ -e "$marker" ]; then
    read -r asked at <"$marker"
    if [ "$asked" = "$release" ] && [ "$at" != "$boot" ]; then
      rm "$marker"
      fail "the host was restarted for kernel $release, and runs $running again"
    fi
  fi
  make_default
  mkdir -p "$keep"
  echo "$release $boot" >"$marker"
  echo "restarting for kernel $release"
  exit 194
fi
rm -f "$marker"
echo "kernel $running"
