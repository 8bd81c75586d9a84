"""A machine of a test: systemd as the first process of namespaces of its own, with this machine's root file system under a layer
in memory. What is installed, started or broken there is gone with its processes, and has never been on this machine.

Needs root, as the account that runs the tests or by `sudo`: it makes accounts, and files of several of them.
"""

import os
import shlex
import subprocess
import uuid
from pathlib import Path

from .waiting import eventually

AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
NAMESPACES = ["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup"]
# systemd makes control groups: below one of the test, so that it meets those of nobody else. $1: a directory, $2: the group's name.
IN_OWN_GROUP = """
mount -t tmpfs tmpfs "$1/groups" && mount -t cgroup2 cgroup2 "$1/groups"
mkdir "$1/groups/$2"
echo $$ > "$1/groups/$2/cgroup.procs"
echo $$ > "$1/parent"
"""
REMOVE_GROUP = """
mount -t tmpfs tmpfs "$1/groups" && mount -t cgroup2 cgroup2 "$1/groups"
find "$1/groups/$2" -depth -type d -exec rmdir {} +
"""
# What of this machine must neither run nor change anything: services, and what sets the kernel's parameters.
BOOT = """
ip link set lo up
mount -t tmpfs -o size=2g tmpfs "$1/layer"
mkdir "$1/layer/upper" "$1/layer/work"
mount -t overlay -o lowerdir=/,upperdir="$1/layer/upper",workdir="$1/layer/work" overlay "$1/root"
mkdir -p "$1/root/srv/packages"
mount --bind -o ro "$2" "$1/root/srv/packages"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device && mount --bind /dev/$device dev/$device
done
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
: > etc/fstab
# A container may forbid that packages start services.
rm -f usr/sbin/policy-rc.d
tr -d - < /proc/sys/kernel/random/uuid > etc/machine-id
rm -rf etc/systemd/system
mkdir etc/systemd/system
for wanted in usr/lib/systemd/system/sysinit.target.wants usr/lib/systemd/system/local-fs.target.wants \\
        usr/lib/systemd/system/sockets.target.wants usr/lib/systemd/system/timers.target.wants; do
    for unit in $wanted/*; do
        case ${unit##*/} in
        systemd-journald* | '*') ;;
        *) ln -s /dev/null etc/systemd/system/${unit##*/} ;;
        esac
    done
done
for unit in networking ifupdown-wait-online systemd-networkd-wait-online NetworkManager-wait-online systemd-networkd \\
        NetworkManager; do
    ln -sf /dev/null etc/systemd/system/$unit.service
done
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
if [ -e /usr/bin/penstock ]; then
    dpkg --purge penstock || true
    rm -f /usr/bin/penstock
fi
exec env -i container=test PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --unit=basic.target --show-status=no
"""
BOOT_SECONDS = 30
COMMAND_SECONDS = 60


class Machine:
    """`packages`: a directory of this machine that is /srv/packages there, to be read."""

    def __init__(self, directory, packages):
        self.directory = Path(directory)
        self.group = f"penstock-test-{uuid.uuid4().hex[:12]}"
        for name in ("groups", "layer", "root"):
            (self.directory / name).mkdir(parents=True)
        outer = self.script(IN_OWN_GROUP) + shlex.join(["exec", "unshare", *NAMESPACES, "--fork", "--kill-child"])
        inner = ["--propagation", "private", "sh", "-euc", BOOT, "sh", str(self.directory), str(packages)]
        # Whoever kills the tests ends it as well.
        line = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]
        line += ["sh", "-euc", f"{outer} {shlex.join(inner)}"]
        self.parent = self.directory / "parent"
        self.log = self.directory / "boot.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*AS_ROOT, *line], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            eventually("the machine has started", self.is_up, BOOT_SECONDS)
        except BaseException:
            self.close()
            raise

    def script(self, text):
        """With its two arguments in their places."""
        return f"set -- {shlex.join([str(self.directory), self.group])}\n{text}"

    def first_process(self):
        """The number here of the process that is the first there; None before it has begun."""
        if not self.parent.exists() or not (parent := self.parent.read_text().strip()):
            return None
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return int(children[0]) if children else None

    def is_up(self):
        code = self.process.poll()
        assert code is None, f"the machine ended with {code}: {self.log.read_text()}"
        self.init = self.first_process()
        if self.init is None or Path(f"/proc/{self.init}/comm").read_text() != "systemd\n":
            return False
        return self.ask("systemctl", "is-active", "basic.target").stdout.strip() == "active"

    def ask(self, *words, **options):
        """Runs a command there as root, and gives back how it ended."""
        line = [*AS_ROOT, "nsenter", "--target", str(self.init), *NAMESPACES, "--root", "env", "--chdir=/", "-i"]
        line += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", *map(str, words)]
        options = {"stdin": subprocess.DEVNULL, **options} if "input" not in options else options
        return subprocess.run(line, capture_output=True, text=True, timeout=COMMAND_SECONDS, **options)

    def run(self, *words, **options):
        """Runs a command there as root, which must succeed; gives back what it printed."""
        done = self.ask(*words, **options)
        assert done.returncode == 0, f"{shlex.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def shell(self, script, **options):
        """The same of a script of shell."""
        return self.run("sh", "-euc", script, **options)

    def journal(self, unit):
        return self.run("journalctl", "--no-pager", "--output=cat", "--unit", unit)

    def property(self, unit, name):
        return self.run("systemctl", "show", "--value", "--property", name, unit).strip()

    def close(self):
        """Ends all processes there at once; the layer in memory goes with them."""
        if self.process.poll() is None:
            # The parent's end is the end of the first process, and so of all.
            subprocess.run([*AS_ROOT, "kill", "-KILL", self.parent.read_text().strip() or str(self.process.pid)])
        self.process.wait(30)
        removal = self.script(REMOVE_GROUP)
        line = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", removal]

        def is_removed():
            return subprocess.run([*AS_ROOT, *line], capture_output=True).returncode == 0

        eventually("the control groups are removed", is_removed)
