#!/usr/bin/env bash
# Makes a container image of the Debian package, as an OCI archive in target/dist, which `podman load` and `skopeo copy`
# take. No daemon and no registry is needed, and no root: mmdebstrap makes the root file system from Debian's
# packages, and an OCI archive is some JSON around it.
#
# Usage: container.sh
#   PENSTOCK_PACKAGE     usual: the Debian package in target/dist (`make package`)
#   CONTAINER_SUITE      the release of Debian; usual: bookworm
#   CONTAINER_PACKAGES   further packages, such as "gfal2-plugin-xrootd gfal2-plugin-gridftp"
#   CONTAINER_ROOT       a directory with a root file system, in the place of one that mmdebstrap makes
#   PACKAGE_DIRECTORY    usual: target/dist
set -euo pipefail
cd "$(dirname "$0")/.."
output=$(realpath -m "${PACKAGE_DIRECTORY:-target/dist}")
suite=${CONTAINER_SUITE:-bookworm}
# The account in the image has a number that is the same in each, so that volumes can be given to it.
account=10001

package=${PENSTOCK_PACKAGE:-$(echo "$output"/penstock_*.deb)}
if [[ ! -f $package ]]; then
  echo "there is no package $package: run 'make package' first" >&2
  exit 2
fi
version=$(dpkg-deb --field "$package" Version)
architecture=$(dpkg-deb --field "$package" Architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
blobs=$work/image/blobs/sha256
mkdir -p "$blobs" "$output"

root_file_system() {
  if [[ -n ${CONTAINER_ROOT:-} ]]; then
    tar --sort=name --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --clamp-mtime -C "$CONTAINER_ROOT" -c .
    return
  fi
  command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2 && return 2; }
  cp "$package" "$work/penstock.deb"
  mmdebstrap --quiet --variant=minbase --format=tar \
    --include="ca-certificates systemd-standalone-sysusers systemd-standalone-tmpfiles ${CONTAINER_PACKAGES:-}" \
    --customize-hook="chroot \"\$1\" groupadd --gid $account penstock" \
    --customize-hook="chroot \"\$1\" useradd --no-log-init --no-create-home --uid $account --gid $account --home-dir /var/lib/penstock --shell /usr/sbin/nologin penstock" \
    --customize-hook="copy-in $work/penstock.deb /tmp" \
    --customize-hook='chroot "$1" apt-get install --yes -qq --no-install-recommends /tmp/penstock.deb' \
    --customize-hook='rm "$1/tmp/penstock.deb"' \
    "$suite" -
}

# Takes a file into the image; prints its description.
blob() {
  local digest
  digest=$(sha256sum "$1" | cut -d' ' -f1)
  printf '{"mediaType":"%s","digest":"sha256:%s","size":%d}' "$2" "$digest" "$(stat -c %s "$1")"
  mv "$1" "$blobs/$digest"
}

root_file_system >"$work/layer.tar"
layer_digest=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
gzip -n <"$work/layer.tar" >"$work/layer.tar.gz"
rm "$work/layer.tar"
layer=$(blob "$work/layer.tar.gz" application/vnd.oci.image.layer.v1.tar+gzip)

cat >"$work/config.json" <<END
{"created":"$created","architecture":"$architecture","os":"linux",
 "config":{"User":"$account:$account","Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
  "Entrypoint":["/usr/bin/penstock"],"Cmd":["serve","--dir","/var/lib/penstock/site"],
  "ExposedPorts":{"8443/tcp":{},"8446/tcp":{}},"Volumes":{"/var/lib/penstock":{}},"StopSignal":"SIGTERM",
  "Labels":{"org.opencontainers.image.title":"penstock","org.opencontainers.image.version":"$version",
   "org.opencontainers.image.licenses":"Apache-2.0"}},
 "rootfs":{"type":"layers","diff_ids":["sha256:$layer_digest"]},
 "history":[{"created":"$created","created_by":"scripts/container.sh"}]}
END
config=$(blob "$work/config.json" application/vnd.oci.image.config.v1+json)
manifest_type=application/vnd.oci.image.manifest.v1+json
printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' "$manifest_type" "$config" "$layer" >"$work/manifest.json"
manifest=$(blob "$work/manifest.json" "$manifest_type")
# A tag has no '~' and no '+'.
tag=${version//[~+]/-}
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}' \
  "${manifest%\}},\"annotations\":{\"org.opencontainers.image.ref.name\":\"$tag\",\"io.containerd.image.name\":\"localhost/penstock:$tag\"}}" \
  >"$work/image/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
image=$output/penstock-$version-$architecture.oci.tar
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work/image" -cf "$image" .
du -h --apparent-size "$image"
