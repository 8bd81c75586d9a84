"""Rucio as experiments run it: its database, its configuration and its own daemons, over Penstock storage elements and a
Penstock transfer service. Rucio lives in an environment of its own, which `make setup` makes.

The daemons are the commands that operators run. They run as loops with a pause of a second, so that tests only wait for
what becomes of their rules.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from .postgres import Postgres
from .waiting import eventually

RUCIO = Path(sys.prefix) / "rucio"
CONSOLE = Path(__file__).with_name("rucio_console.py")
START_SECONDS = 120
STOP_SECONDS = 30
# Activities that the pollers ask for. What has another one is told by messages, or by nobody.
POLLED = "User Subscriptions"
TOLD = "Functional Test"


class Rucio:
    """One Rucio: configuration, database, console, daemons."""

    def __init__(self, directory, proxy, certificates):
        self.directory = Path(directory)
        self.directory.mkdir()
        self.proxy, self.certificates = proxy, certificates
        self.postgres = Postgres("rucio")
        self.console = None
        self.daemons = {}

    def start(self, sections):
        """The database with its schema, and a console. `sections` are those of `rucio.cfg` that concern us."""
        self.postgres.start()
        self.configure(sections)
        self.console = Console(self.environment, self.directory / "console.log")
        self.console.ask("build")
        return self

    def configure(self, sections):
        etc = self.directory / "etc"
        etc.mkdir()
        repository = next(RUCIO.glob("lib/python3*/site-packages/rucio/db/sqla/migrate_repo"))
        alembic = etc / "alembic.ini"
        alembic.write_text(
            f"[alembic]\nscript_location = {repository}\nsqlalchemy.url = {self.postgres.sqlalchemy_url}\n"
            "[loggers]\nkeys = root\n[handlers]\nkeys =\n[formatters]\nkeys =\n"
            "[logger_root]\nlevel = WARN\nhandlers =\n"
        )
        whole = {
            "common": {"logdir": self.directory, "loglevel": "INFO"},
            "database": {"default": self.postgres.sqlalchemy_url, "pool_size": 5, "max_overflow": 10},
            "bootstrap": {"userpass_identity": "operator", "userpass_pwd": "operator"},
            "alembic": {"cfg": alembic},
            "policy": {"permission": "generic", "schema": "generic"},
            **sections,
        }
        lines = [
            line
            for name, values in whole.items()
            for line in [f"[{name}]", *(f"{key} = {value}" for key, value in values.items())]
        ]
        config = etc / "rucio.cfg"
        config.touch(mode=0o600)
        config.write_text("\n".join(lines) + "\n")

    @property
    def environment(self):
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "RUCIO_HOME": str(self.directory),
            # For its own access to storages.
            "X509_USER_PROXY": str(self.proxy.pem),
            # For Rucio's requests to its token issuer; towards an FTS it verifies nothing.
            "REQUESTS_CA_BUNDLE": str(self.certificates),
        }

    def ask(self, do, *words, **named):
        return self.console.ask(do, *words, **named)

    def run(self, name, *options):
        """Starts one of the conveyor's daemons, `poller`, or one more of a kind, `poller 2`."""
        line = [str(RUCIO / "bin" / f"rucio-conveyor-{name.split()[0]}"), *options]
        with open(self.log(name), "wb") as log:
            self.daemons[name] = subprocess.Popen(
                line, env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def run_conveyor(self):
        """Submitter, stager, pollers and finisher."""
        often = ["--sleep-time", "1"]
        self.run("submitter", *often, "--bulk", "1000", "--group-bulk", "200", "--group-policy", "rule")
        # A poller leaves alone for ten minutes what it has asked for, but not what another poller has.
        for number, other in enumerate(["Recovery", "Staging"], 1):
            self.run(f"poller {number}", *often, "--older-than", "0", "--activities", POLLED, other)
        self.run("finisher", *often)
        self.run("stager", *often)

    def log(self, name):
        return self.directory / f"{name}.out"

    def log_tail(self, lines=15):
        """The last words of each daemon, for whoever must know why something did not happen."""
        return "\n".join(
            f"--- {name}\n" + "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
            for name in self.daemons
        )

    def assert_runs(self):
        for name, process in self.daemons.items():
            assert process.poll() is None, f"{name} ended\n{self.log_tail()}"

    def assert_unharmed(self):
        """No daemon met anything that it was not written for."""
        self.assert_runs()
        for name in self.daemons:
            text = self.log(name).read_text(errors="replace")
            assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]

    @contextmanager
    def paused(self, name):
        """While a daemon does nothing."""
        self.daemons[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.daemons[name].send_signal(signal.SIGCONT)

    def close(self):
        for process in self.daemons.values():
            process.kill()
            process.wait(STOP_SECONDS)
        if self.console is not None:
            self.console.close()
        self.postgres.close()


class Console:
    """Rucio's core in a process of its own, asked line by line."""

    def __init__(self, environment, log):
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [str(RUCIO / "bin/python"), str(CONSOLE)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )

    def ask(self, do, *words, **named):
        try:
            print(json.dumps({"do": do, "words": words, "named": named}), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise AssertionError(self.log.read_text()[-3000:]) from None
        answer = self.process.stdout.readline()
        assert answer, f"Rucio's console ended\n{self.log.read_text()[-3000:]}"
        told = json.loads(answer)
        if "error" in told:
            raise RucioError(told["error"], told["trace"])
        return told["value"]

    def close(self):
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait(STOP_SECONDS)


class RucioError(Exception):
    """What Rucio's core said no with."""
