"""A PostgreSQL of a test, behind a Unix socket: made, asked, killed, started again."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from .waiting import eventually

START_SECONDS = 120
STOP_SECONDS = 30


class Postgres:
    """A server of its own, run by nobody in particular: it refuses to be run by root. One database, named as its user."""

    def __init__(self, user):
        self.user = user
        self.directory = Path(tempfile.mkdtemp(prefix="interop-postgres-"))
        self.binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        self.data = self.directory / "data"
        # A crash of this machine loses nothing that anybody wants.
        self.settings = ["fsync=off"]
        self.process = None
        self.prefix = []
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)
            self.prefix = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]

    @property
    def sqlalchemy_url(self):
        return f"postgresql+psycopg://{self.user}@/{self.user}?host={self.directory}"

    @property
    def url(self):
        """As Penstock takes it."""
        return self.url_of(self.user)

    def url_of(self, database):
        socket = str(self.directory).replace("/", "%2F")
        return f"postgres://{self.user}@{socket}/{database}"

    def start(self):
        self.initialise()
        self.launch()
        self.wait_ready()
        self.create(self.user)
        return self

    def initialise(self):
        options = ["-A", "trust", "-U", self.user, "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"]
        self.run("initdb", "-D", self.data, *options)

    def launch(self):
        # Loopback is not listened on.
        options = ["listen_addresses=", f"unix_socket_directories={self.directory}", *self.settings]
        options += ["max_connections=200", "log_min_messages=warning"]
        line = [*self.prefix, str(self.binaries / "postgres"), "-D", str(self.data)]
        line += [word for option in options for word in ("-c", option)]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(line, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self):
        eventually("PostgreSQL answers", self.is_ready, START_SECONDS)

    def is_ready(self):
        assert self.process.poll() is None, (self.directory / "log").read_text()[-2000:]
        line = [str(self.binaries / "pg_isready"), "-q", "-h", str(self.directory)]
        return subprocess.run(line).returncode == 0

    def create(self, database):
        self.run("createdb", "-h", self.directory, "-U", self.user, database)

    def ask(self, database, query):
        """Rows of an answer, as texts."""
        line = ["psql", "-h", self.directory, "-U", self.user, "-d", database, "-At", "-F", "\t", "-c", query]
        printed = self.run(*line)
        return [tuple(row.split("\t")) for row in printed.splitlines()]

    def run(self, command, *words):
        line = [*self.prefix, str(self.binaries / command), *(str(word) for word in words)]
        done = subprocess.run(line, cwd="/", capture_output=True, text=True, timeout=START_SECONDS)
        assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def crash(self):
        """At once, whoever is still connected; what is under way ends wherever it is."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(STOP_SECONDS)
        self.process = None

    def close(self):
        if self.process is not None:
            self.crash()
        shutil.rmtree(self.directory, ignore_errors=True)
