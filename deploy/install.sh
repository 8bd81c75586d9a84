#!/bin/sh
# Installs Penstock's files, or removes them again. The Debian package and the tarball both do it by this script, so that
# every file has one place.
#
# Usage: install.sh [--destdir DIR] [--binary FILE]     install below DIR (usual: /)
#        install.sh --uninstall                         remove what an installation from the tarball has put there
#
# Site directories (/var/lib/penstock), changed settings (/etc/default/penstock) and the account `penstock` are never removed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
binary=$here/../penstock
destination=
uninstall=no
pages=/usr/share/man/man1
while [ $# -gt 0 ]; do
  case $1 in
  --destdir) destination=$2 && shift 2 ;;
  --binary) binary=$2 && shift 2 ;;
  --uninstall) uninstall=yes && shift ;;
  *) echo "install.sh: unknown option '$1'; the head of this file lists them" >&2 && exit 2 ;;
  esac
done

# mode, file here, place
files() {
  cat <<END
755 $binary /usr/bin/penstock
755 $here/systemd/serve-notify /usr/lib/penstock/serve-notify
755 $here/hsm/directory-hsm /usr/lib/penstock/hsm/directory-hsm
755 $here/hsm/s3-hsm /usr/lib/penstock/hsm/s3-hsm
644 $here/systemd/penstock@.service /usr/lib/systemd/system/penstock@.service
644 $here/systemd/penstock.sysusers /usr/lib/sysusers.d/penstock.conf
644 $here/systemd/penstock.tmpfiles /usr/lib/tmpfiles.d/penstock.conf
END
}

# shell, place
completions() {
  cat <<END
bash /usr/share/bash-completion/completions/penstock
zsh /usr/share/zsh/vendor-completions/_penstock
fish /usr/share/fish/vendor_completions.d/penstock.fish
END
}

# The program itself writes its manual pages, one for each command, and what shells complete.
install_texts() {
  made=$(mktemp -d)
  "$binary" man "$made" >/dev/null
  gzip -9n "$made"/*.1
  mkdir -p "$destination$pages"
  # Of commands that an earlier version had.
  rm -f "$destination$pages"/penstock.1.gz "$destination$pages"/penstock-*.1.gz
  install -m 644 "$made"/*.1.gz "$destination$pages"
  completions | while read -r shell place; do
    "$binary" completion "$shell" >"$made/completion"
    mkdir -p "$destination${place%/*}"
    install -m 644 "$made/completion" "$destination$place"
  done
  rm -r "$made"
}

is_systemd_here() { [ -z "$destination" ] && [ -d /run/systemd/system ]; }

if [ "$(id -u)" != 0 ] && [ -z "$destination" ]; then
  echo "install.sh: root is needed" >&2
  exit 2
fi
if [ -z "$destination" ] && dpkg-query -W -f='${Status}\n' penstock 2>/dev/null | grep -q 'ok installed'; then
  echo "install.sh: the Debian package penstock is installed; use apt, or remove it first" >&2
  exit 2
fi

if [ $uninstall = yes ]; then
  if is_systemd_here; then
    systemctl stop 'penstock@*.service'
  fi
  files | while read -r _ _ place; do
    rm -f "$destination$place"
  done
  completions | while read -r _ place; do
    rm -f "$destination$place"
  done
  rm -f "$destination$pages"/penstock.1.gz "$destination$pages"/penstock-*.1.gz
  rmdir "$destination/usr/lib/penstock/hsm" "$destination/usr/lib/penstock" 2>/dev/null || true
  if is_systemd_here; then
    systemctl daemon-reload
  fi
  echo "removed; sites in /var/lib/penstock, /etc/default/penstock and the account penstock are still there"
  exit 0
fi

files | while read -r mode file place; do
  mkdir -p "$destination${place%/*}"
  # A program that runs is replaced, never written into.
  install -m "$mode" "$file" "$destination$place.new"
  mv "$destination$place.new" "$destination$place"
done
install_texts
settings=$destination/etc/default/penstock
if [ ! -e "$settings" ]; then
  mkdir -p "${settings%/*}"
  install -m 644 "$here/systemd/penstock.default" "$settings"
fi
if [ -z "$destination" ]; then
  systemd-sysusers penstock.conf
  systemd-tmpfiles --create penstock.conf
fi
if is_systemd_here; then
  systemctl daemon-reload
  systemctl try-restart 'penstock@*.service'
fi
