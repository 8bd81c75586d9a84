#!/usr/bin/env bash
# Installs what the tests need on Debian 12: real clients from Debian and PyPI. Safe to run again.
# Usage: setup.sh VENV PACKAGE… -- PACKAGE-OF-RUCIO…
set -euo pipefail
venv=$1
shift
python_packages=()
while [[ ${1---} != -- ]]; do
  python_packages+=("$1")
  shift
done
shift

packages=(build-essential pkg-config libssl-dev python3 python3-venv python3-dev swig curl rclone davix nodejs npm
  chromium sqlite3 openssl voms-clients xrootd-server xrootd-server-plugins xrootd-scitokens-plugins xrootd-client
  gfal2-util-scripts gfal2-plugin-file gfal2-plugin-http gfal2-plugin-gridftp gfal2-plugin-xrootd gfal2-plugin-srm
  gfal2-plugin-sftp gfal2-plugin-mock globus-gridftp-server-progs openssh-server
  davix-tests nginx-light litmus davfs2 rabbitmq-server nats-server postgresql prometheus
  libfuse3-dev fuse3 libfaketime iproute2 dpkg-dev binutils systemd lintian mmdebstrap skopeo sudo)
missing=()
for package in "${packages[@]}"; do
  # Node.js and npm may have come from elsewhere than Debian.
  case $package in
  nodejs) command -v node >/dev/null && continue ;;
  npm) command -v npm >/dev/null && continue ;;
  python3 | python3-venv | python3-dev) python3 -c 'import venv, ensurepip' 2>/dev/null && continue ;;
  esac
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "installing: ${missing[*]}"
  root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || {
      echo "root is needed to install: ${missing[*]}; run 'apt-get install ${missing[*]}' as root" >&2
      exit 2
    }
    root=(sudo)
  fi
  "${root[@]}" apt-get update -qq
  # In this run level the servers among them are not started.
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

install_python() {
  [[ -x $1/bin/python ]] || python3 -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
}
# Python's packages are mostly waited for, cargo's mostly compiled: both at once. One environment lies in the other, so neither makes a directory
# that the other has just found missing.
mkdir -p "$venv/rucio"
install_python "$venv" "${python_packages[@]}" &
python_install=$!
install_python "$venv/rucio" "$@" &
rucio_install=$!
# A cloud storage that looks at signatures: built once, a minute or two.
s3s_fs=0.12.0
[[ "$("$venv/bin/s3s-fs" --version 2>/dev/null)" == *" $s3s_fs" ]] ||
  cargo install --quiet --debug --locked --root "$venv" --features binary --version "$s3s_fs" s3s-fs
# The sources of all dependencies, also of other systems: `make deny` looks at each without a network.
cargo fetch --quiet --locked
# What `make deny` runs, built once: two and a half minutes of a processor.
cargo_deny=0.20.2
[[ "$("$venv/bin/cargo-deny" --version 2>/dev/null)" == *" $cargo_deny" ]] ||
  cargo install --quiet --debug --locked --root "$venv" --no-default-features --version "$cargo_deny" cargo-deny
wait "$python_install"
wait "$rucio_install"
echo "ready: 'make test' has what it needs"
