"""No secret comes out of a site: secrets of every kind are planted, two sites are driven through all that they do, with
logs of everything, and then whatever they wrote, answered and sent is looked through for them.
"""

import base64
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from . import brokers
from .brokers import Nats, RabbitMq
from .certificates import blocks
from .clients import TERMINAL, Door, Endpoint, Service, content
from .cloud_servers import ACCESS_KEY
from .conftest import make_grid
from .fault_server import FaultServer
from .grid_servers import HOST as GRID_HOST
from .grid_servers import Sftp
from .postgres import Postgres
from .secret_scan import SecretScan, forms_of, open_to_others, part_of, processes_below
from .site import Site, free_port
from .test_nodes import Node
from .token_issuer import TokenIssuer
from .waiting import eventually

ISSUER_HOST, ODD_HOST, HOST = "127.0.3.71", "127.0.3.72", "127.0.3.73"
NODE_HOSTS = ["127.0.3.74", "127.0.3.75"]
TOOLS = Path(sys.executable).parent
DATA = content("secrets", 50_000)
LASTING = "storage.read:/ storage.modify:/ offline_access"
EVERYTHING = "storage.read:/ storage.modify:/"
# Where a secret must be, and why: pattern of the path below the site's directory, secret, reason.
ALLOWED = [
    ("keys/token-signing*.pem", "token-signing key", "signs tokens"),
    ("keys/credential-encryption", "credential-encryption key", "seals what is stored"),
    ("keys/macaroon-root", "macaroon root key", "signs macaroons"),
    ("keys/broker", "broker password", "the service logs in with it"),
    ("keys/broker-stomp", "STOMP password", "the service logs in with it"),
    ("keys/webhook-secret", "webhook secret", "alerts are sent with it"),
    ("keys/issuer-client-secret", "client secret", "the service proves with it who it is"),
    ("keys/sftp", "sftp private key", "transfers log in with it"),
    ("keys/database-password", "database password", "the service logs in with it"),
    ("host/key.pem", "host key", "the ports prove with it who they are"),
    ("ca/ca.key", "authority's key", "`init` signs host certificates with it"),
    ("admin.token", "admin token", "the owner's"),
]
PRIVATE_KEYS = {"token-signing key": "keys/token-signing.pem", "host key": "host/key.pem", "authority's key": "ca/ca.key"}
FILES_MIN, BYTES_MIN = 40, 2_000_000
# Kinds of places, each of which must have been looked at.
PLACES = {"log", "output", "site", "temporary", "cli", "process", "other-user", "broker", "page", "backup"}


def random_text(length=32):
    return secrets.token_hex(length // 2)


def test_the_scan_finds_a_secret_in_each_form(tmp_path):
    scan = SecretScan()
    secret = scan.plant("planted", f"begin-{random_text()}/+é\"-end")
    part = part_of(secret)
    for number, (kind, form) in enumerate(forms_of(part).items()):
        path = tmp_path / str(number)
        path.write_bytes(b"some text before\n" * number + form + b"\nand after")
        assert scan.in_tree("site", tmp_path), f"it does not find {kind}"
        path.unlink()
    assert not scan.in_tree("site", tmp_path)
    # As a whole, in what programs make of it.
    for text in [
        base64.b64encode(secret.encode()), base64.urlsafe_b64encode(b"xy" + secret.encode()), secret.encode().hex().encode(),
        quote(secret).encode(), json.dumps({"a": secret}).encode(), repr(secret.encode()).encode(), secret.encode("utf-16"),
        base64.b64encode(f"user:{secret}".encode()),
    ]:
        assert scan.in_bytes("page x", text), text
    (tmp_path / secret.replace("/", "-")).touch()
    assert scan.in_tree("site", tmp_path), "the name of a file counts"


def test_the_scan_says_who_may_look(tmp_path):
    (tmp_path / "kept").touch(mode=0o600)
    tmp_path.chmod(0o700)
    assert not open_to_others(tmp_path)
    (tmp_path / "kept").chmod(0o640)
    assert open_to_others(tmp_path)


class Processes:
    """Looks at the command lines and environments of sites and of all that they start, again and again."""

    def __init__(self, sites):
        self.sites, self.seen, self.stopping = sites, {}, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.stopping.wait(0.05):
            for site in self.sites:
                if site.process is not None:
                    for pid in processes_below(site.process.pid):
                        self.note(pid)

    def note(self, pid):
        for name in ("cmdline", "environ"):
            try:
                text = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
            self.seen[pid, name, text] = True

    def close(self):
        self.stopping.set()
        self.thread.join()


class Life:
    """Two sites with everything that needs a secret, and whoever uses them."""

    def __init__(self, binary, directory, fault_ca, user_ca, clouds):
        self.scan, self.binary, self.directory = SecretScan(), binary, directory
        self.user_ca, self.found, self.heard = user_ca, [], []
        self.closing = []
        self.grid = make_grid(binary, directory, fault_ca)
        self.here, self.there = self.grid.here, self.grid.there
        self.cloud = clouds["moto"]
        self.odd = self.keep(FaultServer(ODD_HOST, fault_ca))
        self.issuer = self.keep(
            TokenIssuer(ISSUER_HOST, fault_ca, [("penstock", self.scan.plant("client secret", random_text()))])
        )
        self.broker = self.keep(Nats(fault_ca))
        self.stomp = self.keep(RabbitMq(fault_ca, self.scan.plant("STOMP password", random_text())))
        self.sftp = self.keep(Sftp())
        self.configure()
        self.broker.start()
        self.stomp.start()
        self.sftp.start()
        self.temporary = directory / "tmp"
        self.temporary.mkdir(mode=0o700)

    def keep(self, server):
        self.closing.append(server)
        return server

    def configure(self):
        here, scan = self.here, self.scan
        # Of the VO of those who submit: others cannot have its tokens renewed.
        self.issuer.trusted_by(here, vo="here")
        self.issuer.trusted_by(self.there, client=None)
        self.alice = self.user_ca.user("Alice Lab")
        for site in self.grid.sites:
            self.user_ca.trusted_by(site)
            site.allow(ODD_HOST, GRID_HOST)
            site.append(f'\n[[storage.user]]\ndn = "{self.alice.subject}"\npath = "/"\nrights = ["read", "modify"]\n')
            site.log_levels = "trace"
        write_private(here.directory / "keys/broker", brokers.PASSWORD + "\n")
        write_private(here.directory / "keys/broker-stomp", self.stomp.password + "\n")
        webhook_secret = random_text()
        scan.plant("webhook secret", webhook_secret)
        write_private(here.directory / "keys/webhook-secret", webhook_secret + "\n")
        write_private(here.directory / "keys/sftp", self.sftp.key.read_text())
        scan.plant_key_file("sftp private key", self.sftp.key)
        here.append(
            f'\n[[transfer.messages]]\nname = "nats"\nbrokers = ["{self.broker.url()}"]\nuser = "{brokers.USER}"\n'
            'password_file = "keys/broker"\n\n'
            f'[[transfer.messages]]\nname = "stomp"\nbrokers = ["{self.stomp.url()}"]\nuser = "{brokers.USER}"\n'
            'prefix = "/queue/"\npassword_file = "keys/broker-stomp"\n\n[[transfer.messages]]\nname = "file"\nfile = "state/messages.jsonl"\n'
            f'\n[[transfer.gfal.sftp]]\nhost = "{GRID_HOST}"\nuser = "{self.sftp.user}"\nkey = "keys/sftp"\nvo = "here"\n'
            f'\n[observe.alerts]\nwebhook = "https://{ODD_HOST}:1/hook"\nwebhook_secret_file = "keys/webhook-secret"\n'
        )
        for name, path in PRIVATE_KEYS.items():
            scan.plant_key_file(name, here.directory / path)
        self.plant_root_keys()
        scan.plant("broker password", brokers.PASSWORD)
        scan.plant("admin token", signature(here.admin_token()))

    def plant_root_keys(self):
        for name, path in (("credential-encryption key", "credential-encryption"), ("macaroon root key", "macaroon-root")):
            plant_lines(self.scan, name, self.here.directory / "keys" / path)

    def start(self):
        for site in self.grid.sites:
            site.start()
        self.processes = Processes(self.grid.sites)
        self.door, self.remote = Door(self.here, self.token("door")), Door(self.there, self.token("remote door"))
        # Its files are reached with the same token.
        self.service = Service(self.here, self.token("submitter's"))
        self.admin = Service(self.here, self.token("administrator's", "penstock.admin", self.here.service))
        self.other = Service(self.here, self.token("another user's", audience=self.here.service, subject="bob"))

    def token(self, name, scope=EVERYTHING, audience=None, subject="alice"):
        text = self.here.token(scope, audience=audience, subject=subject)
        self.scan.plant(f"{name} token", signature(text))
        return text

    def close(self):
        for site in self.grid.sites:
            site.kill()
        for server in reversed(self.closing):
            server.close()

    # What people do.

    def penstock(self, *words, directory=True, exit_codes=(0,), **environment):
        line = [str(self.binary), *map(str, words), *(["--dir", str(self.here.directory)] if directory else [])]
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TMPDIR": str(self.temporary), **environment}
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=90)
        assert done.returncode in exit_codes, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        self.hear("cli", " ".join(map(str, words[:2])), done.stdout + done.stderr)
        return done.stdout

    def hear(self, kind, what, text):
        self.heard.append((f"{kind} {what}", text))

    def wait(self, job, state):
        seen = self.service.wait(job)
        assert seen["job_state"] == state, [file["reason"] for file in self.service.files(job)]
        return job

    def copy_by_tokens(self):
        """Submissions with tokens of their own for both ends, renewed at their issuer, well and badly."""
        self.door.put("/in/a", DATA)
        files = []
        for number, path in enumerate(("/in/a", "/in/nothing")):
            file = {"sources": [self.door.url(path)], "destinations": [self.remote.url(f"/out/{number}")]}
            for end, site in (("source", self.here), ("destination", self.there)):
                text = self.issuer.token(LASTING, audience=site.door)
                self.scan.plant(f"{end} token {number}", signature(text))
                file[f"{end}_tokens"] = [text]
            files.append(file)
        jobs = [self.wait(self.service.submit(files[0]), "FINISHED"), self.wait(self.service.submit(files[1]), "FAILED")]
        assert self.issuer.refresh_tokens, "the service got a refresh token"
        for text in self.issuer.refresh_tokens:
            self.scan.plant("refresh token", text)
        return jobs

    def copy_by_hand(self):
        """Third-party copies in both directions, with a token in the headers, and one that is refused."""
        away = {"TransferHeaderAuthorization": f"Bearer {self.token('copied', audience=self.there.door)}"}
        self.remote.put("/in/b", DATA)
        pulled = self.door.ask("COPY", "/pulled", headers=away | {"Source": self.remote.url("/in/b")})
        assert "success" in pulled.text, pulled.text
        pushed = self.door.ask("COPY", "/in/a", headers=away | {"Destination": self.remote.url("/pushed")})
        assert "success" in pushed.text, pushed.text
        failed = self.door.ask("COPY", "/none", headers=away | {"Source": self.remote.url("/in/none")})
        assert "failure" in failed.text, failed.text
        # A server that says what it was sent.
        self.odd.offer("/echo", DATA)
        self.odd.answers["GET", "/echo"] = self.odd.answers["HEAD", "/echo"] = echo
        echoed = self.door.ask("COPY", "/echoed", headers=away | {"Source": f"{self.odd.url}/echo"})
        assert "failure" in echoed.text, echoed.text
        self.hear("other-user", "failure of a copy", failed.text + echoed.text)

    def use_links(self):
        """Links that carry their authorisation, opened as browsers do, and used in jobs, where others see them."""
        self.door.put("/drop/x/there", DATA)
        made = self.penstock("share", self.door.url("/in"), "--for", "1h").strip()
        drop = self.penstock("share", self.door.url("/drop/x"), "--upload", "--for", "1h").strip()
        # What the command prints is for who typed it.
        del self.heard[-2:]
        for number, link in enumerate((made, drop)):
            self.scan.plant(f"share link {number}", link.rpartition("/s/S")[2])
        login = self.penstock("login-link").strip()
        self.scan.plant("login link", login.rpartition("=L")[2])
        del self.heard[-1:]
        secret = login.rpartition("=")[2]
        redeemed = requests.post(
            f"{self.here.service}/api/v1/access-links/redeem", json={"secret": secret}, verify=str(self.here.certificates), timeout=60
        )
        self.scan.plant("session", redeemed.json()["token"][1:])
        base, query = self.door.url("/in"), f"authz={made.rpartition('/s/')[2]}"
        page = requests.get(made, headers={"Accept": "text/html"}, verify=str(self.here.certificates), timeout=60)
        assert page.status_code == 200 and "a" in page.text
        got = requests.get(f"{base}/a?{query}", verify=str(self.here.certificates), timeout=60)
        assert got.content == DATA
        refused = requests.get(f"{self.door.url('/elsewhere')}?{query}", verify=str(self.here.certificates), timeout=60)
        assert refused.status_code == 403
        self.hear("page", "refusal", refused.text)
        job = self.service.submit((f"{base}/a?{query}", self.remote.url("/out/link")))
        self.service.wait(job)
        secret = self.scan.plant("password in a URL", random_text())
        for url in (f"https://user:{secret}@{ODD_HOST}/x", f"root://user:{secret}@{ODD_HOST}//x"):
            refused = self.service.try_submit((url, self.remote.url("/out/x")))
            assert refused.status_code == 400, refused.text
            self.hear("other-user", "refusal of a URL", refused.text)
        text = self.scan.plant("access_token in a URL", random_text(40))
        job_with_token = self.service.submit((f"{self.odd.url}/x?access_token={text}", self.remote.url("/out/y")), retry=-1)
        self.service.wait(job_with_token)
        return [job, job_with_token]

    def use_cloud(self):
        """Keys of a cloud storage, by the command line and by the interface; the other end gets presigned addresses."""
        secret = self.scan.plant("cloud secret key", random_text(40))
        session = self.scan.plant("cloud session token", random_text(60))
        keys = self.directory / "cloud-keys"
        write_private(keys, f"access_key={ACCESS_KEY}\nsecret_key={secret}\n")
        self.penstock("cloud-storage", "add", self.cloud.name)
        self.penstock("cloud-storage", "grant", self.cloud.name, "--vo", "here", "--keys", keys)
        granted = self.admin.ask(
            "POST", f"/config/cloud_storage/{self.cloud.name}",
            json={"user_dn": "somebody", "access_key": ACCESS_KEY, "secret_key": secret + "2", "access_token": session},
        )
        assert granted.status_code in (201, 400), granted.text
        self.hear("other-user", "answer to a grant", granted.text)
        self.cloud.put("secrets/a", DATA)
        pair = (self.cloud.url("secrets/a"), self.remote.url("/out/cloud"))
        jobs = [self.wait(self.service.submit(pair, s3alternate=True), "FINISHED")]
        pair = (self.remote.url("/in/b"), self.cloud.url("secrets/back"))
        jobs.append(self.wait(self.service.submit(pair, s3alternate=True), "FINISHED"))
        pair = (self.cloud.url("secrets/none"), self.remote.url("/out/none"))
        return [*jobs, self.wait(self.service.submit(pair, s3alternate=True), "FAILED")]

    def use_proxies(self):
        """The fts3 client delegates, and a job runs by the proxy."""
        proxy = self.user_ca.proxy(self.alice)
        self.scan.plant_key_file("proxy's private key", proxy.key)
        self.scan.plant_key_file("user's private key", self.alice.key)
        environment = {"PATH": "/usr/bin:/bin", "X509_CERT_DIR": str(self.here.certificates), "X509_USER_PROXY": str(proxy.pem)}
        line = [str(TOOLS / "fts-rest-delegate"), "-s", self.here.service]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        files = [{"sources": [self.door.url("/in/a")], "destinations": [self.remote.url("/out/proxy")]}]
        options = {"cert": (str(proxy.pem), str(proxy.pem)), "verify": str(self.here.certificates), "timeout": 60}
        told = requests.post(f"{self.here.service}/jobs", json={"files": files}, **options)
        assert told.status_code == 200, told.text
        job = told.json()["job_id"]
        url = f"{self.here.service}/jobs/{job}"
        eventually("the job ends", lambda: requests.get(url, **options).json()["job_state"] in TERMINAL, 60)
        assert requests.get(url, **options).json()["job_state"] == "FINISHED"

    def use_sftp(self):
        """A child process logs in with a key."""
        self.sftp.write("f", DATA)
        job = self.service.submit((self.sftp.url("f"), self.remote.url("/out/sftp")))
        self.wait(job, "FINISHED")
        job = self.service.submit((self.sftp.url("none"), self.remote.url("/out/sftp-none")), retry=-1)
        self.wait(job, "FAILED")

    def use_door(self):
        """Uploads in pieces, locks, macaroons, and tokens that are not believed."""
        begun = self.door.ask("PUT", "/pieces", data=b"first", headers={"Upload-Complete": "?0"})
        assert begun.status_code == 201
        self.door.ask("LOCK", "/in/a", data=LOCK)
        for number in range(3):
            bad = self.scan.plant(f"refused token {number}", random_text(60))
            for base in (self.here.door, self.here.service):
                asking = Endpoint(base, self.here.certificates, f"eyJhbGciOiJFUzI1NiJ9.e30.{bad}")
                answer = asking.ask("GET", "/whoami" if base == self.here.service else "/in/a")
                assert answer.status_code == 401
                self.hear("other-user", "401", answer.text + repr(answer.headers))
            answer = requests.get(f"{self.door.url('/in/a')}?authz={bad}", verify=str(self.here.certificates), timeout=60)
            assert answer.status_code == 401
            self.hear("other-user", "401", answer.text + repr(answer.headers))
        end = self.here.token(EVERYTHING, audience="https://elsewhere.example.org")
        self.scan.plant("token for others", signature(end))
        assert Endpoint(self.here.service, self.here.certificates, end).ask("GET", "/jobs").status_code == 401

    def operate(self):
        """What administrators do."""
        backup = self.directory / "made.backup"
        self.penstock("backup", "--to", backup)
        self.found += self.scan.in_bytes("backup made.backup", backup.read_bytes())
        for words in (["check"], ["check", "--json"], ["key", "list"], ["audit"], ["list"], ["ban", "list"], ["history"]):
            self.penstock(*words, exit_codes=(0, 1, 2, 3))
        self.penstock("find", "out", exit_codes=(0, 1))
        self.penstock("ls", self.door.url("/in"))
        self.penstock("submit", "--wait", self.door.url("/in/a"), self.door.url("/out/by-cli"))
        self.penstock("key", "rotate", "credential")
        self.penstock("key", "rotate", "macaroon")
        self.penstock("key", "rotate", "token")
        self.plant_root_keys()
        signing = sorted((self.here.directory / "keys").glob("token-signing*.pem"))
        assert len(signing) > 1, "the new key lies beside the old one"
        for path in signing:
            self.scan.plant_key_file(f"token-signing key {path.name}", path)
        self.here.reload()

    def ask_as_others(self, jobs):
        """Everything that another user of the VO and an administrator are told of the jobs."""
        pages = ["/fts3/ftsmon/", "/live/", "/live/api/report", "/live/api/series", "/fts3/ftsmon/errors", "/metrics"]
        pages += ["/fts3/ftsmon/errors/list", "/fts3/ftsmon/transfers", "/fts3/ftsmon/jobs", "/jobs?limit=100&time_window=1"]
        pages += ["/files?time_window=1&state_in=FINISHED,FAILED", "/api/v1/overview", "/whoami", "/api/v1/health", "/config/audit"]
        pages += ["/config/cloud_storage", "/api/v1/transfers?search=out", "/jobs?state_in=FINISHED,FAILED&time_window=1"]
        for job in jobs:
            file = self.service.files(job)[0]["file_id"]
            own = [f"/jobs/{job}", f"/jobs/{job}/files", f"/jobs/{job}/files/{file}/retries", f"/jobs/{job}/files/{file}/log"]
            own += [f"/api/v1/jobs/{job}/explain", f"/api/v1/transfers/{file}", f"/archive/{job}", f"/jobs/{job}/dm"]
            pages += [*own, f"/fts3/ftsmon/jobs/{job}", f"/fts3/ftsmon/jobs/{job}/files"]
            self.penstock("explain", job)
            self.penstock("status", "--files", job, exit_codes=(0, 1))
        for who, service in (("of the VO", self.other), ("administrator", self.admin)):
            for page in pages:
                answer = Endpoint.ask(service, "GET", page)
                assert answer.status_code < 500, f"{page}: {answer.status_code}"
                self.hear("page" if "ftsmon" in page or "live" in page else "other-user", f"{who} {page}", answer.text)
        for path in ("/.penstock/metrics", "/.penstock/health", "/in/"):
            self.hear("page", path, self.remote.ask("GET", path).text + self.door.ask("GET", path).text)

    def look(self):
        """Everything that was written, sent and answered, once the sites have ended."""
        for broker in (self.broker, self.stomp):
            told = [(topic, body) for topic, body, _ in broker.collect(20)]
            self.hear("broker", broker.language, json.dumps(told))
        for seen in self.processes.seen:
            self.hear("process", f"{seen[0]} {seen[1]}", seen[2])
        for what, text in self.heard:
            self.found += self.scan.in_bytes(what, text)
        for site in self.grid.sites:
            for path in sorted(site.directory.glob("serve-*")):
                kind = "log" if path.suffix == ".log" else "output"
                self.found += self.scan.in_bytes(f"{kind} {site.name} {path.name}", path.read_bytes())
            self.found += self.scan.in_tree("site", site.directory, ALLOWED)
        self.found += self.scan.in_tree("temporary", self.temporary)


LOCK = (
    '<?xml version="1.0"?><D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope>'
    "<D:locktype><D:write/></D:locktype></D:lockinfo>"
)


def signature(token):
    """Of a token: nobody has the rest's worth without it."""
    return token.rpartition(".")[2]


def write_private(path, text):
    path.touch(mode=0o600)
    path.write_text(text)


def echo(exchange):
    """An error that repeats the whole request, with all that came in its headers."""
    said = "\n".join(f"{name}: {value}" for name, value in exchange.headers.items())
    body = f"I do not like {exchange.path}\n{said}\n".encode()
    exchange.reply(400, body, headers={"Content-Length": str(len(body)), "X-Said": said.replace("\n", " ")[:3000]})


@pytest.fixture(scope="module")
def life(binary, tmp_path_factory, fault_ca, user_ca, clouds):
    """The whole life of the two sites, at whose end everything has been looked at."""
    patch = pytest.MonkeyPatch()
    patch.setattr(brokers, "PASSWORD", random_text())
    directory = tmp_path_factory.mktemp("secrets")
    patch.setenv("TMPDIR", str(directory / "tmp"))
    life = Life(binary, directory, fault_ca, user_ca, clouds)
    try:
        life.start()
        jobs = life.copy_by_tokens()
        life.copy_by_hand()
        jobs += life.use_links()
        jobs += life.use_cloud()
        life.use_proxies()
        life.use_sftp()
        life.use_door()
        life.operate()
        life.ask_as_others(jobs)
        life.processes.close()
        codes = [site.stop()[0] for site in life.grid.sites]
        assert codes == [0, 0], life.here.log_tail()
        life.look()
        yield life
    finally:
        life.close()
        patch.undo()


def assert_nothing(life, *kinds):
    found = [line for line in life.found if line.split(" ")[0] in kinds]
    assert not found, "\n".join(found)


def test_enough_was_looked_at(life):
    """Without this, finding nothing would mean nothing."""
    assert life.scan.files > FILES_MIN and life.scan.bytes > BYTES_MIN, f"{life.scan.files} files, {life.scan.bytes} bytes"
    assert life.scan.places >= PLACES, PLACES - life.scan.places
    names = {name.split(",")[0].rstrip(" 0123456789") for name in life.scan.secrets.values()}
    assert len(names) >= 20, names
    logs = "".join(path.read_text(errors="replace") for path in life.here.directory.glob("serve-*.log"))
    assert "DEBUG" in logs, "everything is logged"
    # And the scan reads what it looks at: each key is found where it must be.
    for pattern, name, reason in ALLOWED:
        paths = list(life.here.directory.glob(pattern))
        if name != "database password":
            assert any(life.scan.in_bytes("site", path.read_bytes(), of=lambda of: of.startswith(name)) for path in paths), reason


def test_no_secret_is_in_a_log(life):
    assert_nothing(life, "log", "output")


def test_no_secret_is_in_what_a_site_keeps(life):
    """Databases with their logs, backups, files of pools, whatever lies in the directory; and temporary files."""
    assert_nothing(life, "site", "backup", "temporary")


def test_no_secret_is_shown_to_others(life):
    assert_nothing(life, "other-user", "page")


def test_no_secret_is_in_what_commands_print(life):
    assert_nothing(life, "cli")


def test_no_secret_is_sent_to_a_broker(life):
    assert_nothing(life, "broker")


def test_no_secret_is_in_a_command_line_or_an_environment(life):
    assert_nothing(life, "process")


def test_no_private_key_and_no_signature_lies_about(life):
    """Keys that the service makes itself are unknown here: by what they begin with."""
    marks = [b"PRIVATE KEY-----", b"X-Amz-Signature=", b"X-Amz-Security-Token="]
    allowed = ("keys", "host", "ca")
    wrong = []
    for site in life.grid.sites:
        for path in site.directory.rglob("*"):
            if path.is_file() and path.relative_to(site.directory).parts[0] not in allowed:
                wrong += [f"{path}: {mark}" for mark in marks if mark in path.read_bytes()]
    for what, text in life.heard:
        data = text if isinstance(text, bytes) else text.encode()
        wrong += [f"{what}: {mark}" for mark in marks if mark in data]
    assert not wrong, wrong


def test_nobody_else_may_read_what_a_site_keeps(life):
    """Whatever the mode of the directory is in which it lies. The rest of a site's directory is public: certificates, and a
    configuration without secrets."""
    wrong = open_to_others(life.directory / "made.backup")
    for site in life.grid.sites:
        for name in ("keys", "state", "pools", "host/key.pem", "ca/ca.key", "admin.token"):
            wrong += open_to_others(site.directory / name)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("named", ["by the configuration", "by PGPASSFILE"])
def test_no_password_of_a_database_comes_out(binary, tmp_path, monkeypatch, named):
    """A service whose record is in a PostgreSQL that asks for a password, first with a wrong one."""
    scan, postgres = SecretScan(), Postgres("penstock")
    site = Site(binary, tmp_path / "site", "deep", HOST)
    try:
        postgres.start()
        password, wrong = scan.plant("database password", random_text()), scan.plant("wrong database password", random_text())
        postgres.ask("penstock", f"ALTER ROLE penstock PASSWORD '{password}'")
        (postgres.directory / "data/pg_hba.conf").write_text("local all all scram-sha-256\n")
        postgres.run("pg_ctl", "reload", "-D", postgres.directory / "data")
        site.configure("[transfer]", database=postgres.url, nodes=f"{HOST}:{free_port(HOST)}")
        if named == "by PGPASSFILE":
            file, before = tmp_path / "passwords", "*:*:*:*:"
            monkeypatch.setenv("PGPASSFILE", str(file))
        else:
            file, before = site.directory / "keys/database-password", ""
            site.configure("[transfer]", database_password_file="keys/database-password")
        write_private(file, before + wrong)
        site.log_levels = "trace"
        site.launch()
        eventually("it says that the password is wrong", lambda: says_password(site), 30)
        site.kill()
        write_private(file, before + password)
        site.start()
        processes = Processes([site])
        door, service = Door(site), Service(site)
        door.put("/a", DATA)
        service.wait_finished(service.submit((door.url("/a"), door.url("/b"))))
        site.command("backup", "--to", str(tmp_path / "made.backup"))
        told = "".join(Endpoint.ask(service, "GET", page).text for page in ("/metrics", "/api/v1/nodes", "/api/v1/health"))
        site.command("check")
        time.sleep(0.1)
        processes.close()
        assert site.stop()[0] == 0
        found = scan.in_tree("site", site.directory, ALLOWED) + scan.in_bytes("page", told)
        found += scan.in_bytes("backup", (tmp_path / "made.backup").read_bytes())
        for pid, name, text in processes.seen:
            found += scan.in_bytes(f"process {pid} {name}", text)
        assert scan.bytes > 100_000 and scan.files > 10 and processes.seen
        assert not found, found
        assert not open_to_others(site.directory / "keys")
    finally:
        site.kill()
        postgres.close()


def newest_key(path):
    """The first line of a file of keys that is no comment."""
    return next(line for line in path.read_text().splitlines() if not line.startswith("#"))


def says_password(site):
    return "password" in site.log_text() or (site.process.poll() is not None and site.log_text())


def test_no_key_and_no_token_that_nodes_share_comes_out(binary, tmp_path):
    """Two nodes over one database: the second gets the keys that seal secrets from the first, also when they are changed, and
    passes on what its clients ask."""
    scan, postgres = SecretScan(), Postgres("penstock")
    store = Site(binary, tmp_path / "store", "store", HOST)
    nodes = [
        Node(binary, tmp_path / f"node{at}", f"node{at}", host, [store], postgres.url) for at, host in enumerate(NODE_HOSTS)
    ]
    sites = [store, *nodes]
    processes = None
    try:
        postgres.start()
        for site in sites:
            site.log_levels = "trace"
            site.start()
        processes = Processes(sites)
        keys = [node.directory / "keys/credential-encryption" for node in nodes]
        newest = [newest_key(path) for path in keys]
        assert newest[0] == newest[1], "the second node got it from the first"
        nodes[0].command("key", "rotate", "credential")
        changed = newest_key(keys[0])
        assert changed != newest[0]
        eventually("the other takes the new key over", lambda: changed in keys[1].read_text(), 60)
        for path in keys:
            plant_lines(scan, "credential-encryption key", path)
        for node in nodes:
            scan.plant_key_file("host key", node.directory / "host/key.pem")
        token = store.token()
        scan.plant("submitter's token", signature(token))
        door, told = Door(store, token), []
        door.put("/a", DATA)
        for number, node in enumerate(nodes):
            service = Service(node, token)
            link = scan.plant(f"access_token in a URL {number}", random_text(40))
            failing = service.submit((f"{door.url('/none')}?access_token={link}", door.url(f"/no{number}")), retry=-1)
            job = service.submit((door.url("/a"), door.url(f"/b{number}")))
            service.wait_finished(job)
            service.wait(failing)
            pages = ["/metrics", "/api/v1/nodes", "/api/v1/health", f"/jobs/{failing}", f"/jobs/{failing}/files"]
            told += [Endpoint.ask(service, "GET", page).text for page in pages]
            told.append(node.command("check"))
        dumped = postgres.run("pg_dump", "-h", postgres.directory, "-U", postgres.user, postgres.user)
        assert "transfer" in dumped
        time.sleep(0.1)
        processes.close()
        assert [site.stop()[0] for site in reversed(sites)] == [0, 0, 0]
        found = scan.in_bytes("database", dumped) + scan.in_bytes("page", "\n".join(told))
        found += scan.in_tree("database", postgres.directory)
        for site in sites:
            found += scan.in_tree("site", site.directory, ALLOWED)
        for pid, name, text in processes.seen:
            found += scan.in_bytes(f"process {pid} {name}", text)
        assert len(scan.secrets) >= 6 and scan.bytes > 1_000_000 and processes.seen
        assert not found, found
        for node in nodes:
            assert not open_to_others(node.directory / "keys")
    finally:
        if processes is not None:
            processes.close()
        for site in sites:
            site.kill()
        postgres.close()


def plant_lines(scan, name, path):
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            scan.plant(name, line)
