#!/usr/bin/env bash
# Makes what a site installs, in target/dist: a Debian package, one with the debug symbols, and a tarball.
#
# Usage: package.sh
#   PENSTOCK_BINARY        a binary that was built already, with its debug symbols. Usual: one is built by the profile `packaged`
#   PACKAGE_VERSION        usual: the version of the workspace, with time and commit unless the commit has the tag vVERSION
#   PACKAGE_DIRECTORY      usual: target/dist
#   PACKAGE_COMPRESSION    xz (usual), gzip, or none
#
# The same commit and binary give the same bytes: times are the commit's, owners are root, names are sorted.
set -euo pipefail
cd "$(dirname "$0")/.."
output=$(realpath -m "${PACKAGE_DIRECTORY:-target/dist}")
compression=${PACKAGE_COMPRESSION:-xz}
maintainer='Penstock maintainers <maintainers@penstock.invalid>'
size_max=40000000

missing=()
for tool in dpkg-deb dpkg-shlibdeps objcopy readelf python3; do
  command -v "$tool" >/dev/null || missing+=("$tool")
done
if ((${#missing[@]})); then
  echo "missing: ${missing[*]}; install dpkg-dev, binutils and python3 ('make setup' does)" >&2
  exit 2
fi

workspace_version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
# A version before the release, so that the release is an upgrade.
snapshot_version() {
  local commit
  commit=$(git rev-parse --short=8 HEAD 2>/dev/null) || { echo "$workspace_version" && return; }
  if git tag --points-at HEAD | grep -qxF "v$workspace_version"; then
    echo "$workspace_version"
  else
    echo "$workspace_version~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$commit"
  fi
}
version=${PACKAGE_VERSION:-$(snapshot_version)}

binary=${PENSTOCK_BINARY:-}
if [[ -z $binary ]]; then
  # Equal functions are kept once.
  cargo rustc --profile packaged -p penstock-cli --bin penstock -- -C link-arg=-Wl,--icf=all
  binary=${CARGO_TARGET_DIR:-target}/packaged/penstock
fi
said=$("$binary" --version)
if [[ $said != "penstock $workspace_version"* ]]; then
  echo "$binary says '$said', and the workspace has version $workspace_version" >&2
  exit 2
fi

architecture=$(dpkg --print-architecture)
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

echo "penstock $version for $architecture, from $binary"
stripped=$work/penstock
debug=$work/penstock.debug
compress_debug=(--compress-debug-sections)
[[ $compression != none ]] || compress_debug=()
objcopy --only-keep-debug "${compress_debug[@]}" "$binary" "$debug"
objcopy --strip-all --add-gnu-debuglink="$debug" "$binary" "$stripped"
chmod 755 "$stripped"
# What is downloaded and installed stays small.
if [[ -z ${PENSTOCK_BINARY:-} ]] && (($(stat -c %s "$stripped") > size_max)); then
  echo "the program has $(stat -c %s "$stripped") bytes, and $size_max are allowed; see [profile.packaged] in Cargo.toml" >&2
  exit 1
fi
build_id=$(readelf --notes "$stripped" | sed -n 's/.*Build ID: //p')
python3 scripts/third_party_licences.py >"$work/third-party-licences"

# Every file has the time of the commit, and is root's.
settle() {
  chmod -R u=rwX,go=rX "$1"
  find "$1" -print0 | xargs -0 touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
}

fill() {
  sed -e "s|@VERSION@|$version-1|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@MAINTAINER@|$maintainer|" \
    -e "s|@LIBRARIES@|${libraries:-}|" -e "s|@BUILD_ID@|$build_id|" -e "s|@SIZE@|$(du -sk --apparent-size "$2" | cut -f1)|" "$1"
}

# What `dpkg-shlibdeps` finds, which wants to be called in a source package.
mkdir -p "$work/source/debian"
echo 'Source: penstock' >"$work/source/debian/control"
libraries=$(cd "$work/source" && dpkg-shlibdeps -O "$stripped" 2>"$work/shlibdeps.log" | sed 's/^shlibs:Depends=//') || {
  cat "$work/shlibdeps.log" >&2
  exit 1
}

# Documents that an administrator reads, with the places that their links mean.
documents() {
  mkdir -p "$1"
  cp README.md CHANGELOG.md "$1"
  cp -r docs "$1/docs"
}

debian_package() {
  local root=$work/deb documentation=$work/deb/usr/share/doc/penstock
  deploy/install.sh --destdir "$root" --binary "$stripped"
  documents "$documentation"
  # What else sites take from there as it is, such as boards and rules for their monitoring.
  for directory in deploy/*/; do
    case $directory in
    deploy/debian/ | deploy/hsm/ | deploy/systemd/) ;;
    *) mkdir -p "$documentation/examples" && cp -r "$directory" "$documentation/examples" ;;
    esac
  done
  install -m 644 deploy/debian/copyright "$documentation/copyright"
  gzip -9n <"$work/third-party-licences" >"$documentation/third-party-licences.gz"
  {
    printf 'penstock (%s-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n' "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(date -uR -d "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$documentation/changelog.Debian.gz"
  mkdir -p "$root/usr/share/lintian/overrides" "$root/DEBIAN"
  install -m 644 deploy/debian/lintian-overrides "$root/usr/share/lintian/overrides/penstock"
  echo /etc/default/penstock >"$root/DEBIAN/conffiles"
  settle "$root"
  (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  fill deploy/debian/control "$root" >"$root/DEBIAN/control"
  install -m 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN"
  touch --date="@$SOURCE_DATE_EPOCH" "$root"/DEBIAN/* "$root/DEBIAN"
  build "$root" "penstock_${version}-1_$architecture.deb"
}

debug_package() {
  local root=$work/dbgsym place
  place=$root/usr/lib/debug/.build-id/${build_id:0:2}
  mkdir -p "$place" "$root/DEBIAN" "$root/usr/share/doc"
  install -m 644 "$debug" "$place/${build_id:2}.debug"
  ln -s penstock "$root/usr/share/doc/penstock-dbgsym"
  settle "$root"
  (cd "$root" && find usr -type f -printf '%p\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  fill deploy/debian/control-dbgsym "$root" >"$root/DEBIAN/control"
  touch --date="@$SOURCE_DATE_EPOCH" "$root"/DEBIAN/* "$root/DEBIAN"
  build "$root" "penstock-dbgsym_${version}-1_$architecture.deb"
}

build() {
  dpkg-deb --root-owner-group -Z"$compression" --build "$1" "$output/$2" >/dev/null
}

# Libraries and versions that the program needs, for the tarball's reader.
needs() {
  readelf --version-info "$stripped" | grep -o 'Name: \(GLIBC\|OPENSSL\)_[0-9.]*' | sort -Vu |
    awk '{ split($2, part, "_"); newest[part[1]] = part[2] } END { print "glibc " newest["GLIBC"] " or later, OpenSSL " newest["OPENSSL"] " or a later 3.x" }'
}

tarball() {
  local name=penstock-$version-linux-$machine root=$work/tar/penstock-$version-linux-$machine compress
  documents "$root"
  cp LICENSE "$work/third-party-licences" "$root"
  cp "$stripped" "$root/penstock"
  cp -r deploy "$root/deploy"
  rm -r "$root/deploy/debian" "$root/deploy/tarball.md"
  sed -e "s|@VERSION@|$version|" -e "s|@NEEDS@|$(needs)|" deploy/tarball.md >"$root/INSTALL.md"
  settle "$root"
  case $compression in
  xz) compress='xz -T1' name+=.tar.xz ;;
  gzip) compress='gzip -n' name+=.tar.gz ;;
  none) compress=cat name+=.tar ;;
  esac
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu -C "$work/tar" \
    -c "${root##*/}" | $compress >"$output/$name"
}

mkdir -p "$output"
rm -f "$output"/penstock{,-dbgsym}_*.deb "$output"/penstock-*.tar* "$output/SHA256SUMS"
debian_package
debug_package
tarball
(cd "$output" && sha256sum penstock*.deb penstock*.tar* >SHA256SUMS)
(cd "$output" && du -h --apparent-size penstock*.deb penstock*.tar*)
