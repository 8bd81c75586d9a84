"""One Penstock site of a test: made by `penstock init`, served, asked, stopped, killed.

Each site has a loopback address of its own, because FTS clients know a storage element by scheme and host
without port. Ports are free ones. Only processes started here are ever signalled, by their process id.
"""

import atexit
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

from .waiting import eventually

EVERYTHING = "storage.read:/ storage.modify:/"
# For every service that trusts the issuer.
ANY_AUDIENCE = "https://wlcg.cern.ch/jwt/v1/any"
START_SECONDS = 30
STOP_SECONDS = 60
# Offsets from the base port: WebDAV door, plain-HTTP door, transfer service.
OFFSETS = (0, 1, 3)
# Below the range from which the kernel draws the ports of outgoing connections.
# Without those that lists without a port mean: a test that such a list lets nobody reach a server would go wrong now and then.
PORTS = [*range(10_000, 20_000), *range(25_001, 32_000)]
# Mounts a small file system for one process alone: nothing to be unmounted, whatever becomes of the test.
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


class Authorities:
    """Certificate authorities of sites of earlier tests, by the sites' names: making one takes a second of a processor.

    Those of other users stay with them.
    """

    PREFIX = "penstock-authorities-"

    def __init__(self):
        self.directory = None
        self.lock = None

    def make(self):
        """Removes first what sessions have left that were killed: the lock of each says whether it lives."""
        for lock in Path(tempfile.gettempdir()).glob(f"{self.PREFIX}*/lock"):
            with contextlib.suppress(OSError), lock.open() as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # One that is being made is not locked as yet.
                if time.time() - lock.stat().st_mtime > 60:
                    shutil.rmtree(lock.parent)
        self.directory = Path(tempfile.mkdtemp(prefix=self.PREFIX))
        self.lock = (self.directory / "lock").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        atexit.register(shutil.rmtree, self.directory)

    def options(self, binary, name):
        """What `init` is told, so that a site of this name has the authority that the first one had."""
        kept = self.of(binary, name)
        return ["--ca", str(kept)] if kept.exists() else []

    def keep(self, binary, name, site):
        is_own = (site / "ca").stat().st_uid == os.geteuid()
        kept = self.of(binary, name)
        if is_own and not kept.exists():
            shutil.copytree(site / "ca", kept)

    def of(self, binary, name):
        if not self.directory:
            self.make()
        return self.directory / binary.name / name


AUTHORITIES = Authorities()


class Site:
    """A site directory and, while it is served, the process that serves it."""

    def __init__(self, binary, directory, name, host, peers=(), base=None, own_authority=False):
        """`own_authority`: not that of an earlier site of this name."""
        self.binary = Path(binary)
        self.directory = Path(directory)
        self.name = name
        self.host = host
        # On a machine of its own a site may have any ports.
        self.base = base or free_ports(host)
        self.process = None
        self.starts = 0
        self.small_disk = None
        # Such as `debug`; None: the program's own choice.
        self.log_levels = None
        # Words before the command that serves, such as `env` with its variables.
        self.prefix = []
        options = [word for peer in peers for word in ("--peer", str(peer.directory))]
        options += [] if own_authority else AUTHORITIES.options(self.binary, name)
        self.command("init", "--site", name, "--host", host, "--ports", str(self.base), *options)
        if not own_authority:
            AUTHORITIES.keep(self.binary, name, self.directory)
        self.any_port = self.every_port()
        # Servers of others, which tests start on loopback, at ports that happen to be free.
        self.configure("[trust]", private_addresses=[f"127.0.0.0/8{self.any_port}"])

    @property
    def door(self):
        return f"https://{self.host}:{self.base}"

    @property
    def plain_door(self):
        return f"http://{self.host}:{self.base + 1}"

    @property
    def service(self):
        return f"https://{self.host}:{self.base + 3}"

    @property
    def certificates(self):
        return self.directory / "certificates"

    @property
    def storage_id(self):
        """As FTS names the storage element."""
        return f"https://{self.host}"

    def command(self, *words, **options):
        """Runs a command of the binary on this site's directory; gives back what it printed."""
        line = [str(self.binary), *words, "--dir", str(self.directory)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, **options)
        assert done.returncode == 0, f"{' '.join(line)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def token(self, scope=EVERYTHING, audience=None, lifetime="6h", subject="alice", groups=()):
        """A token from this site's own issuer: for any service, but an administrator's for this site alone."""
        words = ["token", "--scope", scope, "--lifetime", lifetime, "--subject", subject]
        audience = audience or (None if "penstock.admin" in scope.split() else ANY_AUDIENCE)
        words += ["--audience", audience] if audience else []
        words += [word for group in groups for word in ("--group", group)]
        return self.command(*words).strip()

    def admin_token(self):
        """The token that `init` made for the owner."""
        return (self.directory / "admin.token").read_text().strip()

    def configure(self, section, **values):
        """Sets keys of a section of `penstock.toml`. A running site learns it by `reload` or a restart."""
        path = self.directory / "penstock.toml"
        lines = path.read_text().splitlines()
        for key, value in values.items():
            set_key(lines, section, key, json.dumps(value))
        path.write_text("\n".join(lines) + "\n")

    def append(self, text):
        """Adds to the end of `penstock.toml`: tables of which there can be several."""
        with open(self.directory / "penstock.toml", "a") as file:
            file.write(text)

    def remove(self, role):
        """Takes a role out of the configuration."""
        path = self.directory / "penstock.toml"
        kept, is_of_role = [], False
        for line in path.read_text().splitlines():
            if line.startswith("["):
                is_of_role = line.strip("[]").split(".")[0] == role
            if not is_of_role:
                kept.append(line)
        path.write_text("\n".join(kept) + "\n")

    def trust(self, ca_certificate):
        """Adds a CA to the hashed directory."""
        hashed = subprocess.run(
            ["openssl", "x509", "-hash", "-noout", "-in", str(ca_certificate)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        (self.certificates / f"{hashed}.0").write_bytes(Path(ca_certificate).read_bytes())

    def allow(self, *hosts):
        """Adds hosts to those that third-party copies may go to or come from, with and without TLS, at every port."""
        everywhere = [f"{scheme}{host}{self.any_port}" for host in hosts for scheme in ("", "http://")]
        hosts = everywhere if self.any_port else hosts
        path = self.directory / "penstock.toml"
        lines = path.read_text().splitlines()
        at = find_key(lines, "[storage.outbound]", "allow")
        allowed = json.loads(lines[at].split("=", 1)[1])
        lines[at] = f"allow = {json.dumps(allowed + [host for host in hosts if host not in allowed])}"
        path.write_text("\n".join(lines) + "\n")

    def every_port(self):
        """What follows a host in lists to mean every port, spelt out so that its servers count as storage elements. Nothing
        with a binary from before such lists had ports."""
        lines = (self.directory / "penstock.toml").read_text().splitlines()
        allowed = lines[find_key(lines, "[storage.outbound]", "allow")]
        return ":1-65535" if f":{self.base}" in allowed else ""

    def put_on_small_disk(self, subdirectory, size):
        """From the next start on, a subdirectory is a file system of its own, empty at each start."""
        self.small_disk = (size, str(self.directory / subdirectory))
        (self.directory / subdirectory).mkdir(parents=True, exist_ok=True)

    @property
    def seen(self):
        """The site directory as the running process sees it."""
        if self.small_disk is None:
            return self.directory
        return Path(f"/proc/{self.process.pid}/root") / self.directory.relative_to("/")

    def launch(self, drain="30s"):
        """Starts to serve, without waiting until it does."""
        assert self.process is None, f"{self.name} runs already"
        self.starts += 1
        log = self.directory / f"serve-{self.starts}.log"
        line = [str(self.binary), "serve", "--dir", str(self.directory), "--drain", drain]
        line += ["--log", self.log_levels] if self.log_levels else []
        line = [*self.prefix, *line]
        if self.small_disk is not None:
            # Without root, a user namespace gives the right to mount inside it.
            as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
            line = ["unshare", "--mount", *as_root, "sh", "-c", MOUNT, "sh", *self.small_disk, *line]
        with open(self.output, "wb") as stdout, open(log, "wb") as stderr:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)

    def start(self, drain="30s"):
        """Serves, and waits until it says that it is ready."""
        self.launch(drain)
        self.wait_ready()
        return self

    def wait_ready(self):
        eventually(f"{self.name} serves", self.is_ready, START_SECONDS)

    def is_ready(self):
        code = self.process.poll()
        assert code is None, f"{self.name} ended with {code}\n{self.log_tail()}"
        return "ready" in self.output.read_text().split()

    @property
    def output(self):
        return self.directory / f"serve-{self.starts}.out"

    def log_text(self):
        return (self.directory / f"serve-{self.starts}.log").read_text(errors="replace")

    def log_tail(self, lines=40):
        return "\n".join(self.log_text().splitlines()[-lines:])

    def reload(self):
        """What `kill -HUP` does."""
        self.process.send_signal(signal.SIGHUP)

    def stop(self):
        """SIGTERM; gives back the exit code and the seconds that it took."""
        if self.process is None:
            return 0, 0.0
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.wait_ended(begun)

    def wait_ended(self, begun):
        """The exit code of a process that was asked to end, and the seconds since then."""
        process, self.process = self.process, None
        try:
            return process.wait(STOP_SECONDS), time.monotonic() - begun
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self.name} did not end on SIGTERM\n{self.log_tail()}") from None

    def strike(self):
        """SIGKILL, without waiting for the end: `kill` does that."""
        self.process.kill()

    def kill(self):
        """SIGKILL: nothing is said, nothing is tidied up."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def journal(self, query, *values):
        """Rows of the transfer service's database, read beside it."""
        return read_database(self.seen / "state/transfer.sqlite", query, values)

    def ledger(self, job):
        """Every event of a job, oldest first."""
        rows = self.journal("SELECT event FROM ledger WHERE job_id = ? ORDER BY sequence", job)
        return [json.loads(event) for (event,) in rows]

    def landed_modes(self, job):
        """Which way the bytes of each landed transfer went."""
        return [event["mode"] for event in self.ledger(job) if event["event"] == "landed"]

    def namespace_files(self):
        """Ids of all files that the namespace knows, in hexadecimal as the pools name them."""
        rows = read_database(self.seen / "state/namespace.sqlite", "SELECT id FROM entry WHERE kind = 1", ())
        return {f"{number:x}" for (number,) in rows}

    def trash_files(self):
        """The same of files that were removed or replaced and are kept for a time."""
        rows = read_database(self.seen / "state/namespace.sqlite", "SELECT file_id FROM trash", ())
        return {f"{number:x}" for (number,) in rows}

    def incoming(self):
        """Files that are being written, or should not be there any more."""
        return sorted(path.name for path in self.seen.glob("pools/*/incoming/*"))

    def data(self):
        """Names of all files in the pools, without leading zeros."""
        return {path.name.lstrip("0") for path in self.seen.glob("pools/*/data/*/*")}

    def orphans(self):
        """What pools and namespace disagree about: empty when none is missing and none in vain."""
        known, kept = self.namespace_files(), self.data()
        return {
            "incoming": self.incoming(),
            "kept for nothing": sorted(kept - known - self.trash_files()),
            "missing": sorted(known - kept),
        }

    def wait_tidy(self, within=30.0):
        """Pools and namespace agree. Data without an entry goes in the background, hence the wait."""

        def tidy():
            return not any(self.orphans().values())

        try:
            eventually("pools and namespace agree", tidy, within)
        except AssertionError:
            raise AssertionError(f"{self.name}: pools and namespace differ: {self.orphans()}") from None


def read_database(path, query, values):
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as database:
        return database.execute(query, values).fetchall()


def find_key(lines, section, key):
    """The line that sets a key in a section, also as a comment; None when there is none."""
    at = lines.index(section)
    for number in range(at + 1, len(lines)):
        line = lines[number]
        if line.startswith("["):
            return None
        if line.lstrip("# ").startswith(f"{key} ="):
            return number
    return None


def set_key(lines, section, key, value):
    at = find_key(lines, section, key)
    if at is None:
        lines.insert(lines.index(section) + 1, f"{key} = {value}")
    else:
        lines[at] = f"{key} = {value}"


def free_ports(host):
    """A base port such that all ports of a site are free on an address."""
    draw = random.Random(os.urandom(8))
    for _ in range(200):
        base = draw.choice(PORTS)
        if all(is_free(host, base + offset) for offset in OFFSETS):
            return base
    raise AssertionError(f"no free ports on {host}")


def is_free(host, port):
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host):
    """One port that is free on an address."""
    draw = random.Random(os.urandom(8))
    for _ in range(200):
        port = draw.choice(PORTS)
        if is_free(host, port):
            return port
    raise AssertionError(f"no free port on {host}")
