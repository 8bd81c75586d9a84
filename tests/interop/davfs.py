"""A door mounted by davfs2 as a file system, in namespaces of its own: nothing of it is seen outside, and
nothing has to be unmounted, whatever becomes of the test.
"""

import os
import subprocess
from pathlib import Path

from .waiting import eventually

# Kernels since 6.13 ask for more names at once than davfs2's usual buffer holds.
CONFIGURATION = """
dav_user root
dav_group root
trust_ca_cert {authority}
cache_dir {directory}/cache
ask_auth 0
use_locks 1
delay_upload 0
dir_refresh 1
file_refresh 0
buf_size 256
{shown}
"""
IN_NAMESPACE = """
mount --bind "$1/etc" /etc/davfs2 && /usr/sbin/mount.davfs -o rw "$2" "$1/mounted" </dev/null || exit 1
echo mounted
read -r _
umount "$1/mounted"
"""


def unshared(*line):
    """A command line in namespaces of mounts and processes of its own. It all ends with its first process."""
    # Without root, a user namespace gives the right to mount inside it.
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *as_root, *line]


def why_not():
    """What keeps this machine from mounting by FUSE; nothing when it can."""
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse"
    probe = unshared("mount", "-t", "tmpfs", "tmpfs", "/mnt")
    done = subprocess.run(probe, capture_output=True, text=True, timeout=30)
    return done.stderr.strip() if done.returncode else None


class Mounted:
    """A mounted URL. `shown`: lines of the configuration that say how the user is shown."""

    def __init__(self, directory, url, authority, shown):
        for name in ("etc", "cache", "mounted"):
            (directory / name).mkdir(parents=True)
        self.directory = directory
        text = CONFIGURATION.format(authority=authority, directory=directory, shown=shown)
        for name, text in (("davfs2.conf", text), ("secrets", "")):
            path = directory / "etc" / name
            path.touch(mode=0o600)
            path.write_text(text)
        self.process = subprocess.Popen(
            unshared("sh", "-c", IN_NAMESPACE, "sh", directory, url),
            stdin=subprocess.PIPE,
            stdout=open(directory / "out", "w"),
            stderr=subprocess.STDOUT,
        )
        try:
            eventually(f"{url} is mounted", self.is_mounted)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def is_mounted(self):
        said = (self.directory / "out").read_text()
        assert self.process.poll() is None, f"davfs2 ended with {self.process.returncode}: {said}"
        return "mounted\n" in said

    @property
    def path(self):
        """The mounted directory, as the namespace sees it."""
        return Path(f"/proc/{self.process.pid}/root") / (self.directory / "mounted").relative_to("/")

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        """Unmounts: davfs2 writes what it still holds, and unlocks."""
        self.process.stdin.close()
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert code == 0, f"exit {code}: {(self.directory / 'out').read_text()}"
