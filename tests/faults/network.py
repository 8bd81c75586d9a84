"""Machines of a test: network namespaces, each at the end of a cable that can be pulled so that packets vanish without a word."""

import os
import subprocess
from pathlib import Path

# Addresses of a test's own network: the first is this machine, the second the namespace, the others this machine's as well.
NETWORKS = "10.213.0.0/16"
THIS, THERE, OTHERS = 1, 2, (3, 4)
BASE_PORT = 21_000
# The preference of rules for connections that were lost with the power of a machine.
LOST = "10"


class Machine:
    """A namespace with one address. Processes there are started with `prefix` before their words."""

    def __init__(self):
        number = os.getpid() % 250
        self.name = f"penstock-{os.getpid()}"
        self.outer, self.inner = f"ps-{number}-a", f"ps-{number}-b"
        self.addresses = {last: f"10.213.{number}.{last}" for last in (THIS, THERE, *OTHERS)}
        self.host = self.addresses[THERE]
        ip("netns", "add", self.name)
        try:
            self.connect()
        except BaseException:
            self.close()
            raise

    def connect(self):
        ip("link", "add", self.outer, "type", "veth", "peer", "name", self.inner, "netns", self.name)
        for last in (THIS, *OTHERS):
            ip("addr", "add", f"{self.addresses[last]}/24", "dev", self.outer)
        self.inside("addr", "add", f"{self.host}/24", "dev", self.inner)
        self.inside("link", "set", "lo", "up")
        self.inside("link", "set", self.inner, "up")
        ip("link", "set", self.outer, "up")
        # Known for good: a machine that does not answer is not reported as unreachable.
        there = self.inside("-brief", "link", "show", self.inner).split()[2]
        ip("neighbour", "replace", self.host, "lladdr", there, "dev", self.outer, "nud", "permanent")
        # Rules of a test come before the one for addresses of the machine's own.
        self.inside("rule", "add", "pref", "100", "lookup", "local")
        self.inside("rule", "del", "pref", "0")

    @property
    def prefix(self):
        return ["ip", "netns", "exec", self.name]

    def inside(self, *words):
        return ip("-n", self.name, *words)

    def go_dark(self):
        """From now on nothing comes through, in either direction, and nobody is told."""
        self.inside("link", "set", self.inner, "down")

    def come_back(self):
        self.inside("link", "set", self.inner, "up")

    def forget_connections(self):
        """Ports of connections that were lost with the power may be used again."""
        while self.inside("rule", "show", "pref", LOST).strip():
            self.inside("rule", "del", "pref", LOST)

    def lose_power(self, site):
        """A process there is gone, and nothing of its connections is ever said again, though the machine comes back."""
        self.go_dark()
        for port in local_ports(site.process.pid):
            for side in ("sport", "dport"):
                self.inside("rule", "add", "pref", LOST, "ipproto", "tcp", side, str(port), "blackhole")
        site.kill()
        self.come_back()

    def close(self):
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)
        subprocess.run(["ip", "link", "delete", self.outer], capture_output=True)


def local_ports(pid):
    """Ports of connections that a process has made itself."""
    own = set()
    for opened in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(opened))
        except OSError:
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    listening = {row[1].split(":")[1] for row in rows if row[3] == "0A"}
    ports = {row[1].split(":")[1] for row in rows if f"socket:[{row[9]}]" in own}
    return sorted(int(port, 16) for port in ports - listening)


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout
