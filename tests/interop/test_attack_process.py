"""The service's process, as another account of the same machine sees it, and what it leaves when it crashes."""

import os
import pwd
import re
import resource
import shlex
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from .clients import Door, Service, content
from .secret_scan import processes_below
from .site import Site
from .waiting import eventually

HOST = "127.0.3.81"
# What nobody but the service's account has any business with.
PRIVATE = ("environ", "fd", "maps", "mem", "io", "cwd", "root", "exe")
# Root without the rights of root, as services run that are somebody else.
POWERLESS = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] if os.geteuid() == 0 else []
# Bytes of a core file that would hold at least the stack of a thread.
CORE_BYTES_MAX = 8192


@pytest.fixture
def site(binary, tmp_path):
    """A site that is started by somebody whose umask lets everybody read."""
    before = os.umask(0)
    try:
        # Everybody may enter the directories above, so that only the site's own modes protect it.
        for directory in (tmp_path, *tmp_path.parents):
            if directory.owner() == pwd.getpwuid(os.geteuid()).pw_name and directory != Path("/"):
                directory.chmod(directory.stat().st_mode | 0o055)
        command = tmp_path / "penstock"
        command.write_text(f'#!/bin/sh\nexec {shlex.join([*POWERLESS, str(binary)])} "$@"\n')
        command.chmod(0o755)
        site = Site(command, tmp_path / "site", "open", HOST)
        site.start()
    finally:
        os.umask(before)
    try:
        door, service = Door(site), Service(site)
        door.put("/a", content("process", 10_000))
        service.wait_finished(service.submit((door.url("/a"), door.url("/b"))))
        yield site
    finally:
        site.kill()


def as_nobody(*words):
    """Runs a command as an account that has nothing to do with the site."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        line = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", *map(str, words)]
        return subprocess.run(line, cwd="/", capture_output=True, timeout=60)
    # Without the right to become somebody else, this account stands for others in a user namespace that maps nobody.
    line = ["unshare", "--user", *map(str, words)]
    return subprocess.run(line, cwd="/", capture_output=True, timeout=60)


def test_another_account_reads_nothing_of_a_process(site):
    assert as_nobody("cat", "/proc/self/environ").returncode == 0, "it may read its own"
    for pid in processes_below(site.process.pid):
        for name in PRIVATE:
            path = f"/proc/{pid}/{name}"
            command = ("ls", "-l", f"{path}/") if name in ("fd", "cwd", "root") else ("head", "-c", "1", path)
            if name == "exe":
                command = ("readlink", path)
            done = as_nobody(*command)
            assert done.returncode != 0 and not done.stdout, f"{path}: {done.stdout[:200]}"


def test_another_process_of_the_same_account_cannot_look_into_the_service(site):
    """A process that is dumpable gives its memory and environment to each process of its account."""
    for pid in processes_below(site.process.pid):
        for name in ("environ", "maps", "mem"):
            done = subprocess.run([*POWERLESS, "head", "-c", "1", f"/proc/{pid}/{name}"], capture_output=True, timeout=60)
            assert done.returncode != 0 and b"Permission denied" in done.stderr, f"/proc/{pid}/{name}: {done}"


def test_a_command_line_and_an_environment_hold_no_secret(site):
    secrets = [site.admin_token().encode(), *keys_of(site)]
    for pid in processes_below(site.process.pid):
        for name in ("cmdline", "environ"):
            text = Path(f"/proc/{pid}/{name}").read_bytes()
            assert not [secret for secret in secrets if secret in text], f"/proc/{pid}/{name}"


def keys_of(site):
    for path in (site.directory / "keys").iterdir():
        for line in path.read_bytes().splitlines():
            if len(line) >= 40 and not line.startswith((b"-----", b"#")):
                yield line


def test_what_a_site_keeps_is_for_its_account_alone_whatever_the_umask_was(site):
    site.command("backup", "--to", str(site.directory / "made.backup"))
    wrong = []
    for name in ("keys", "state", "pools", "host/key.pem", "ca/ca.key", "admin.token", "made.backup", "penstock.toml"):
        path = site.directory / name
        for one in [path, *(path.rglob("*") if path.is_dir() else ())]:
            mode = one.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                wrong.append(f"{one.relative_to(site.directory)}: {stat.S_IMODE(mode):o}")
    assert not wrong, wrong
    for name in ("keys/token-signing.pem", "keys/credential-encryption", "keys/macaroon-root", "admin.token", "host/key.pem"):
        done = as_nobody("cat", site.directory / name)
        assert done.returncode != 0 and not done.stdout, name


def test_a_crash_leaves_no_memory_behind(site, tmp_path):
    """Whatever limit the service was started with: a core file would hold every key and token."""
    limits = Path(f"/proc/{site.process.pid}/limits").read_text()
    soft, hard = re.search(r"Max core file size\s+(\S+)\s+(\S+)", limits).groups()
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    before = cores(site, tmp_path, pattern)
    # As generous as this account may be.
    try:
        resource.prlimit(site.process.pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (PermissionError, ValueError):
        # At a limit of 1 no core goes to a program either, which it does at 0 (core(5)).
        assert soft == hard == "1"
    process = site.process
    site.process.send_signal(signal.SIGABRT)
    eventually("it has crashed", lambda: process.poll() is not None, 60)
    assert process.returncode == -signal.SIGABRT
    site.process = None
    left = {path: path.stat().st_size for path in cores(site, tmp_path, pattern) - before}
    for path in left:
        path.unlink()
    assert not [path for path, size in left.items() if size > CORE_BYTES_MAX], left


def cores(site, tmp_path, pattern):
    """Core files where the kernel would put them."""
    places = [Path.cwd(), tmp_path, site.directory]
    if pattern.startswith("/"):
        places.append(Path(pattern).parent)
    found = {path for place in places if place.is_dir() for path in place.glob("*core*")}
    return {path for path in found if path.is_file()}
