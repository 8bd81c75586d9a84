"""A real XRootD as the other end of copies: HTTPS with WebDAV, third-party copy, macaroons, tokens and
certificates, on a loopback address of its own.

XRootD refuses to be root and listens on every address. Started by root it takes Debian's account `xrootd`, and a
small library, which the bench shares, keeps it on its address.
"""

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path

from .site import free_port
from .waiting import eventually

ACCOUNT = "xrootd"
SHIM = Path(__file__).resolve().parents[2] / "bench/src/loopback.c"
START_SECONDS = 60
STOP_SECONDS = 20
DAY_SECONDS = 86_400
CONFIGURATION = """\
all.role server
all.export /
all.sitename INTEROP
all.adminpath {here}/admin
all.pidpath {here}/run
oss.localroot {here}/files
xrd.port {root_port}
xrd.network nodnr
xrd.protocol XrdHttp:{port} libXrdHttp.so
xrd.tls {here}/host.pem {here}/host.key
xrd.tlsca certdir {here}/certificates
xrootd.chksum max 2 adler32 crc32c
xrootd.seclib libXrdSec.so
sec.protocol unix
http.selfhttps2http no
http.listingdeny no
http.gridmap {here}/gridmap
http.header2cgi Authorization authz
http.exthandler xrdmacaroons libXrdMacaroons.so
macaroons.secretkey {here}/macaroon.key
ofs.authorize 1
ofs.authlib ++ libXrdMacaroons.so
ofs.authlib ++ libXrdAccSciTokens.so config={here}/scitokens.cfg
acc.authdb {here}/authdb
"""
THIRD_PARTY_COPY = "http.exthandler xrdtpc libXrdHttpTPC.so\n"


# What is known of servers that were ended by a signal of their own making.
CRASHES = []


class Xrootd:
    """A server process and its files. With `copies=False` it knows no third-party copy."""

    def __init__(self, host, ca, certificates, users=(), issuer=None, copies=True):
        self.host = host
        self.port, self.root_port = free_port(host), free_port(host)
        # Not below pytest's directory, into which only its owner can look.
        self.directory = Path(tempfile.mkdtemp(prefix="interop-xrootd-"))
        self.directory.chmod(0o755)
        self.process = None
        for part in ("files", "admin", "run", "home"):
            (self.directory / part).mkdir()
        self.prepare_trust(ca, certificates)
        self.prepare_users(users)
        self.prepare_tokens(issuer)
        (self.directory / "xrootd.cfg").write_text(
            CONFIGURATION.format(here=self.directory, port=self.port, root_port=self.root_port)
            + (THIRD_PARTY_COPY if copies else "")
        )
        self.build_shim()

    @property
    def door(self):
        return f"https://{self.host}:{self.port}"

    def url(self, path):
        return self.door + path

    @property
    def files(self):
        """Where its files are: what it serves as `/a` is `files/a`."""
        return self.directory / "files"

    def prepare_trust(self, ca, certificates):
        certificate, key = ca.issue(self.host)
        shutil.copy(certificate, self.directory / "host.pem")
        shutil.copy(key, self.directory / "host.key")
        shutil.copytree(certificates, self.directory / "certificates")
        for path in (self.directory / "certificates").iterdir():
            path.chmod(0o644)

    def prepare_users(self, users):
        """Users by subject; each may do everything."""
        names = {subject: f"user{number}" for number, subject in enumerate(users)}
        lines = [f'"{subject}" {name}\n' for subject, name in names.items()]
        (self.directory / "gridmap").write_text("".join(lines))
        rules = [f"u {name} / a\n" for name in names.values()]
        (self.directory / "authdb").write_text("".join(rules) + "u bearer / a\n")

    def prepare_tokens(self, issuer):
        """Tokens of an issuer count; its keys are put where libscitokens keeps what it fetched, because it fetches
        from servers of the system's authorities only."""
        key = base64.b64encode(secrets.token_bytes(64)).decode()
        (self.directory / "macaroon.key").write_text(key + "\n")
        text = "[Global]\naudience = https://wlcg.cern.ch/jwt/v1/any\n"
        if issuer:
            text += f"\n[Issuer interop]\nissuer = {issuer.url}\nbase_path = /\ndefault_user = bearer\n"
            remember_keys(self.directory / "home/scitokens", issuer)
        (self.directory / "scitokens.cfg").write_text(text)

    def build_shim(self):
        library = self.directory / "loopback.so"
        run("cc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl")

    def start(self):
        here = self.directory
        line = ["xrootd", "-n", "interop", "-I", "v4", "-c", here / "xrootd.cfg", "-l", here / "xrootd.log"]
        if os.geteuid() == 0:
            run("chown", "-R", "-h", ACCOUNT, here)
            line += ["-R", ACCOUNT]
        # XRootD insists that secrets are its owner's alone.
        for name in ("host.key", "macaroon.key"):
            (here / name).chmod(0o400)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(here / "home"),
            "XDG_CACHE_HOME": str(here / "home"),
            "X509_CERT_DIR": str(here / "certificates"),
            "LD_PRELOAD": str(here / "loopback.so"),
            "LOOPBACK_ADDRESS": self.host,
        }
        with open(here / "output", "wb") as output:
            self.process = subprocess.Popen(
                [str(word) for word in line],
                cwd=here,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        eventually("xrootd listens", self.is_ready, START_SECONDS)
        return self

    def is_ready(self):
        code = self.process.poll()
        assert code is None, f"xrootd ended with {code}\n{self.log_tail()}"
        return answers(self.host, self.port) and answers(self.host, self.root_port)

    def assert_runs(self):
        """Ended by itself, it is started anew, so that one test tells of it and not all that follow."""
        code = self.process.poll()
        if code is not None:
            tail = self.log_tail()
            if code < 0:
                CRASHES.append(f"xrootd ended by signal {-code}")
            self.start()
            raise AssertionError(f"xrootd ended with {code}\n{tail}")

    def log(self):
        """XRootD puts its log into a directory of its instance's name."""
        path = self.directory / "interop/xrootd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def log_tail(self, lines=40):
        output = (self.directory / "output").read_text(errors="replace")
        return "\n".join((output + self.log()).splitlines()[-lines:])

    @contextmanager
    def paused(self):
        """Stands still for a while, as a server does whose disk does."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def all_files(self):
        """Paths and sizes of all that it keeps, also of what is half written."""
        found = (path for path in self.files.rglob("*") if path.is_file())
        return {f"/{path.relative_to(self.files)}": path.stat().st_size for path in found}

    def close(self):
        """Ends the process that was started here, and removes all that it had."""
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def remember_keys(directory, issuer):
    directory.mkdir(parents=True)
    until = int(time.time()) + 30 * DAY_SECONDS
    keys = json.dumps({"jwks": issuer.keys, "expires": until, "next_update": until})
    with closing(sqlite3.connect(directory / "scitokens_cpp.sqllite")) as cache:
        cache.execute("CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)")
        cache.execute("INSERT INTO keycache VALUES (?, ?)", (issuer.url, keys))
        cache.commit()


def answers(host, port):
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
