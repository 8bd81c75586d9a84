"""Users who send a site where only the site can go: to ports of its own, to what trusts its address, by redirects, by
names that change, by every spelling of an address; and servers that pose as the site's database or broker.

Each test acts as the attacker and looks at what the attacked server has seen.
"""

import json
import socket
import ssl
import struct
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from .clients import Door, Service
from .fault_server import FaultCa
from .site import Site, free_port
from .tape_endpoint import TapeEndpoint
from .token_issuer import EXCHANGE, TokenIssuer
from .waiting import eventually

HOST = "127.0.12.1"
INTERNAL_HOST = "127.0.12.2"
STORAGE_HOST = "127.0.12.3"
RESOLVER_HOST = "127.0.12.53"
NAME = "db.example.org"
PASSWORD = "a-password-that-nobody-learns"
SECRET = "the-words-of-an-internal-service"


class Internal:
    """A server that is for nobody who comes by way of the site. Remembers the heads of requests, and answers as told."""

    def __init__(self, host, answers=None, family=socket.AF_INET):
        self.seen = []
        self.connections = 0
        answers = answers or {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                owner.connections += 1
                super().setup()

            def answer(self):
                owner.seen.append((self.command, self.path, {key.lower(): value for key, value in self.headers.items()}))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, headers, body = answers.get(self.path, (200, {}, SECRET))
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body.encode())

            do_GET = do_HEAD = do_PUT = do_DELETE = do_COPY = do_POST = do_PROPFIND = answer

            def log_message(self, *words):
                pass

        class Server(ThreadingHTTPServer):
            address_family = family
            daemon_threads = True

        self.server = Server((host, free_port(host) if family == socket.AF_INET else 0), Handler)
        self.port = self.server.server_address[1]
        self.host = f"[{host}]" if family == socket.AF_INET6 else host
        self.url = f"http://{self.host}:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def internal():
    servers = []

    def start(host=INTERNAL_HOST, answers=None, family=socket.AF_INET):
        servers.append(Internal(host, answers, family))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def site(binary, tmp_path):
    site = Site(binary, tmp_path / "site", "site", HOST)
    site.configure("[transfer]", retries=0)
    yield site
    site.kill()


def copy(site, path, direction, url, **headers):
    """A COPY by one of the site's users; gives back the status and what it was told."""
    answer = Door(site).ask("COPY", path, headers={direction: url, "Overwrite": "T"} | headers)
    return answer.status_code, answer.text


def was_refused(told):
    status, text = told
    assert "success:" not in text, text
    return status == 403 or "failure:" in text


# Ports


def test_a_copy_reaches_no_port_of_the_own_host_but_the_storage_doors(site, internal):
    admin = internal(HOST)
    site.start()
    door = Door(site)
    door.put("/mine", b"forged")
    assert was_refused(copy(site, "/stolen", "Source", f"{admin.url}/admin"))
    assert was_refused(copy(site, "/mine", "Destination", f"{admin.url}/_cluster"))
    assert was_refused(copy(site, "/stolen", "Source", f"{site.service}/metrics"))
    assert admin.connections == 0
    assert not door.exists("/stolen")
    # Its own files it copies.
    status, text = copy(
        site, "/copied", "Source", door.url("/mine"), TransferHeaderAuthorization=f"Bearer {site.token()}"
    )
    assert "success:" in text, (status, text)


def test_a_copy_of_the_own_metrics_does_not_count_as_coming_from_this_machine(site):
    site.start()
    door = Door(site)
    told = copy(site, "/stolen", "Source", f"{site.door}/metrics")
    assert "success:" not in told[1], told
    assert not door.exists("/stolen")
    # A neighbour on the machine still sees them.
    seen = subprocess.run(
        ["curl", "-sS", "--capath", str(site.certificates), f"{site.door}/metrics"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "penstock_" in seen.stdout, seen


@pytest.mark.parametrize("listed", ["127.0.0.0/8", None])
def test_a_job_reaches_no_port_of_a_private_address_that_is_not_listed_or_of_a_storage_element(site, internal, listed):
    admin = internal()
    if listed:
        site.configure("[trust]", private_addresses=[listed])
    site.start()
    if not listed:
        # As the site lists its tests' servers, but not the own service.
        target = f"{site.service}/metrics"
    else:
        target = f"{admin.url}/admin"
    job = Service(site).submit((target, Door(site).url("/stolen")))
    reason = Service(site).wait_failed(job)
    assert admin.connections == 0
    assert ("trust.private_addresses" if listed else "not for files") in reason, reason
    assert not Door(site).exists("/stolen")


def test_a_host_that_is_listed_with_a_port_is_reached_at_this_port(site, internal):
    storage = internal(STORAGE_HOST)
    other = internal(STORAGE_HOST)
    site.configure("[storage.outbound]", allow=[f"http://{STORAGE_HOST}:{storage.port}"])
    site.configure("[trust]", private_addresses=[f"127.0.12.0/24:{storage.port}"])
    site.start()
    assert "success:" in copy(site, "/f", "Source", f"{storage.url}/f")[1]
    assert was_refused(copy(site, "/g", "Source", f"{other.url}/g"))
    assert was_refused(copy(site, "/g", "Source", f"https://{STORAGE_HOST}:{storage.port}/g"))
    assert other.connections == 0
    job = Service(site).submit((f"{other.url}/g", Door(site).url("/g")))
    Service(site).wait_failed(job)
    assert other.connections == 0


# Headers and texts


def test_only_headers_that_somebody_needs_are_passed_on_and_none_to_another_server(site, internal):
    other = internal(STORAGE_HOST)
    first = internal(STORAGE_HOST, {"/moved": (307, {"Location": f"{other.url}/f"}, "")})
    site.allow(STORAGE_HOST)
    site.start()
    secrets = {
        "TransferHeaderAuthorization": "Bearer secret",
        "TransferHeaderX-Auth-Token": "secret",
        "TransferHeaderX-Api-Key": "secret",
        "TransferHeaderPrivate-Token": "secret",
        "TransferHeaderAuthorization-2": "secret",
        "TransferHeaderX-Request-Id": "secret",
    }
    assert "success:" in copy(site, "/f", "Source", f"{first.url}/moved", **secrets)[1]
    passed = {key for key, value in first.seen[0][2].items() if "secret" in value}
    assert passed == {"authorization", "x-request-id"}
    assert [key for key, value in other.seen[0][2].items() if "secret" in value] == []


def test_what_a_server_answers_that_may_be_anything_is_not_told(site, internal):
    storage = internal(STORAGE_HOST, {"/f": (500, {}, "the pool is offline")})
    stranger = internal(INTERNAL_HOST, {"/f": (500, {}, SECRET)})
    site.allow(STORAGE_HOST)
    every = ":*" if site.any_port else ""
    allowed = [f"http://{STORAGE_HOST}:{storage.port}", f"http://{INTERNAL_HOST}{every}"]
    site.configure("[storage.outbound]", allow=allowed if site.any_port else [STORAGE_HOST, INTERNAL_HOST])
    site.start()
    assert SECRET not in copy(site, "/f", "Source", f"{stranger.url}/f")[1]
    told = copy(site, "/f", "Source", f"{storage.url}/f")[1]
    assert "the pool is offline" in told, told


# Addresses


IPV6 = ["[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.12.2]", "[::ffff:7f00:c02]", "[64:ff9b::7f00:c02]", "[::7f00:c02]"]
IPV6 += ["[2002:7f00:c02::]", "[fe80::1]", "[::]", "[::ffff:0:7f00:c02]"]


def test_no_spelling_of_an_address_in_ipv6_leads_past_the_rules(site, internal):
    six = internal("::1", family=socket.AF_INET6)
    four = internal(INTERNAL_HOST)
    urls = [f"http://{host}:{port}/admin" for host in IPV6 for port in (six.port, four.port)]
    allow = [url.removesuffix("/admin") for url in urls] if site.any_port else IPV6
    site.configure("[storage.outbound]", allow=allow)
    site.configure("[trust]", private_addresses=["127.0.12.1"])
    site.start()
    for url in urls:
        assert was_refused(copy(site, "/stolen", "Source", url)), url
    service = Service(site)
    jobs = [service.submit((url, Door(site).url(f"/stolen-{number}"))) for number, url in enumerate(urls)]
    for job in jobs:
        service.wait_failed(job)
    zone = Door(site).ask("COPY", "/stolen", headers={"Source": f"http://[fe80::1%25lo]:{six.port}/admin"})
    assert zone.status_code == 400, zone.text
    assert (six.connections, four.connections) == (0, 0)


def test_ipv6_is_allowed_by_address_and_port(site, internal):
    storage, other = (internal("::1", family=socket.AF_INET6) for _ in range(2))
    site.configure("[storage.outbound]", allow=[f"http://[::1]:{storage.port}", f"http://[::1]:{other.port}"])
    site.configure("[trust]", private_addresses=["127.0.12.1", f"[::1]:{storage.port}"])
    site.start()
    assert "success:" in copy(site, "/f", "Source", f"{storage.url}/f")[1]
    assert was_refused(copy(site, "/g", "Source", f"{other.url}/f"))
    assert other.connections == 0


# Names


class Resolver:
    """Answers questions for addresses of names as it is told, a different answer each time, without a lifetime."""

    def __init__(self, answers, host=RESOLVER_HOST):
        self.answers = answers
        self.asked = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, 53))
        self.socket.settimeout(0.1)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while not self.stopping.is_set():
            try:
                question, client = self.socket.recvfrom(4096)
            except TimeoutError:
                continue
            self.socket.sendto(self.answer(question), client)

    def answer(self, question):
        end = question.index(b"\0", 12) + 5
        kind = struct.unpack("!H", question[end - 4 : end - 2])[0]
        addresses = []
        if kind == 1:
            addresses = self.answers[min(self.asked, len(self.answers) - 1)]
            self.asked += 1
        records = [
            b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(address) for address in addresses
        ]
        head = question[:2] + b"\x85\x80" + struct.pack("!HHHH", 1, len(records), 0, 0)
        return head + question[12:end] + b"".join(records)

    def close(self):
        self.stopping.set()
        self.thread.join()
        self.socket.close()


def resolving(site, directory, hosts="", resolver=RESOLVER_HOST):
    """From the next start on the site asks our resolver, in a view of the file system of its own."""
    resolv, names = directory / "resolv.conf", directory / "hosts"
    resolv.write_text(f"nameserver {resolver}\noptions timeout:1 attempts:1\n")
    names.write_text(f"127.0.0.1 localhost\n{hosts}\n")
    wrapper = directory / "penstock-with-names"
    wrapper.write_text(
        "#!/bin/sh\nexec unshare --mount sh -c '"
        f"mount --bind {resolv} /etc/resolv.conf && mount --bind {names} /etc/hosts && "
        f'exec "$@"\' sh {site.binary} "$@"\n'
    )
    wrapper.chmod(0o755)
    site.binary = wrapper


@pytest.mark.parametrize(
    "answers",
    [
        [[STORAGE_HOST], [INTERNAL_HOST]],
        [[INTERNAL_HOST], [STORAGE_HOST]],
        [[STORAGE_HOST, INTERNAL_HOST]],
        [[INTERNAL_HOST, STORAGE_HOST]],
    ],
    ids=["changes to bad", "changes to good", "good and bad", "bad and good"],
)
def test_a_name_that_changes_leads_to_no_address_that_is_not_allowed(site, internal, tmp_path, answers):
    storage = internal(STORAGE_HOST)
    trap = socket.socket()
    trap.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    trap.bind((INTERNAL_HOST, storage.port))
    trap.listen()
    trap.settimeout(0.2)
    resolver = Resolver(answers)
    try:
        at = f":{storage.port}" if site.any_port else ""
        scheme = "http://" if site.any_port else ""
        site.configure("[storage.outbound]", allow=[f"{scheme}{NAME}{at}"])
        site.configure("[trust]", private_addresses=["127.0.12.1", f"{STORAGE_HOST}{at}"])
        resolving(site, tmp_path)
        site.start()
        for number in range(4):
            copy(site, f"/f{number}", "Source", f"http://{NAME}:{storage.port}/f")
        service = Service(site)
        jobs = [
            service.submit((f"http://{NAME}:{storage.port}/g{number}", Door(site).url(f"/g{number}")))
            for number in range(4)
        ]
        for job in jobs:
            service.wait(job)
        assert resolver.asked > 0
        with pytest.raises(TimeoutError):
            trap.accept()
        assert storage.connections > 0
    finally:
        resolver.close()
        trap.close()


class Named:
    """An authority that certifies the name instead of the address at which a server listens."""

    def __init__(self, ca):
        self.ca = ca

    def issue(self, _address):
        return self.ca.issue(NAME)


@contextmanager
def changing_names(port):
    """A name that is at an allowed address for every other question; gives back who was told, and who must not be."""
    resolver = Resolver([[STORAGE_HOST], [INTERNAL_HOST]] * 50)
    trap = socket.socket()
    trap.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    trap.bind((INTERNAL_HOST, port))
    trap.listen()
    trap.settimeout(0.2)
    try:
        yield resolver, trap
    finally:
        resolver.close()
        trap.close()


def confined(site, port, directory):
    """The site may go to the storage host at this port, and asks our resolver."""
    site.configure("[trust]", private_addresses=["127.0.12.1", f"{STORAGE_HOST}:{port}"])
    resolving(site, directory)


@pytest.fixture
def issuer(fault_ca):
    issuer = TokenIssuer(STORAGE_HOST, Named(fault_ca))
    issuer.url = f"https://{NAME}:{issuer.http.server_port}/"
    yield issuer
    issuer.close()


def test_a_name_that_changes_leads_no_question_for_an_issuers_keys_astray(site, issuer, fault_ca, tmp_path):
    port = issuer.http.server_port
    site.trust(fault_ca.certificate)
    issuer.trusted_by(site, client=None)
    confined(site, port, tmp_path)
    with changing_names(port) as (resolver, trap):
        site.start()
        service = Service(site, issuer.token(audience=site.service))

        def is_known():
            return service.ask("GET", "/whoami").status_code == 200

        eventually("the keys were fetched from where the site may go", is_known, 60)
        assert resolver.asked > 0
        with pytest.raises(TimeoutError):
            trap.accept()


def test_a_name_that_changes_leads_no_question_for_a_new_token_astray(site, issuer, fault_ca, tmp_path):
    port = issuer.http.server_port
    site.trust(fault_ca.certificate)
    issuer.trusted_by(site, vo="site")
    site.configure("[transfer]", retries=10, retry_delay="1s")
    confined(site, port, tmp_path)
    with changing_names(port) as (resolver, trap):
        site.start()
        Door(site).put("/a", b"data")
        file = {
            "sources": [Door(site).url("/a")],
            "destinations": [Door(site).url("/b")],
            "source_tokens": [issuer.token("storage.read:/ offline_access", audience=site.door)],
            "destination_tokens": [site.token()],
        }
        service = Service(site)
        # Its keys are needed first, and the name leads to them every other time.
        eventually("it is accepted", lambda: service.try_submit(file).status_code == 200, 60)
        eventually("the issuer was asked at last", lambda: issuer.asked(EXCHANGE), 60)
        assert resolver.asked > 0
        with pytest.raises(TimeoutError):
            trap.accept()


def test_a_name_that_changes_leads_no_call_of_a_tape_system_astray(site, fault_ca, tmp_path):
    tape = TapeEndpoint(STORAGE_HOST, Named(fault_ca))
    port = tape.http.server_port
    tape.url, tape.api = f"https://{NAME}:{port}", f"https://{NAME}:{port}/api/v1"
    site.trust(fault_ca.certificate)
    site.configure("[transfer]", retries=10, retry_delay="1s")
    site.append('\n[transfer.staging]\nquiet = "100ms"\npoll_min = "100ms"\npoll_max = "200ms"\n')
    confined(site, port, tmp_path)
    try:
        with changing_names(port) as (resolver, trap):
            site.start()
            source = tape.put_on_tape("/f", b"data")
            Service(site).submit((source, source), bring_online=600)
            eventually("the tape system was asked at last", lambda: tape.called("stage"), 60)
            assert resolver.asked > 0
            with pytest.raises(TimeoutError):
                trap.accept()
    finally:
        tape.close()


# A database that is none


class FakePostgres:
    """Speaks as much of PostgreSQL as is needed to ask for a password in clear, with TLS when it has a certificate."""

    def __init__(self, certificate=None):
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
        self.heard = b""
        self.connections = 0
        self.listener = socket.create_server((STORAGE_HOST, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                tcp, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            tcp.settimeout(5)
            try:
                self.talk(tcp)
            except (OSError, ValueError):
                pass
            finally:
                tcp.close()

    def talk(self, stream):
        first = stream.recv(4096)
        if first[4:8] == b"\x04\xd2\x16\x2f":
            stream.sendall(b"S" if self.context else b"N")
            if self.context:
                stream = self.context.wrap_socket(stream, server_side=True)
            first = stream.recv(4096)
        if not first:
            return
        # AuthenticationCleartextPassword.
        stream.sendall(b"R" + struct.pack("!II", 8, 3))
        self.heard += first + stream.recv(4096)

    def close(self):
        self.listener.close()


@pytest.mark.parametrize(
    ("mode", "tls"),
    [
        (None, None),
        (None, "another authority"),
        ("verify-full", "another name"),
        ("verify-ca", "another authority"),
        ("require", "another authority"),
        ("require", None),
        ("prefer", None),
        ("prefer", "another authority"),
    ],
)
def test_who_poses_as_the_database_does_not_learn_its_password(site, tmp_path, mode, tls):
    known, unknown = FaultCa(tmp_path / "known"), FaultCa(tmp_path / "unknown")
    certificate = {None: None, "another authority": unknown, "another name": known}[tls]
    server = FakePostgres(certificate and certificate.issue(STORAGE_HOST))
    try:
        options = [f"sslmode={mode}"] if mode else []
        options += [f"sslrootcert={known.certificate}"] if mode and mode.startswith("verify") else []
        query = f"?{'&'.join(options)}" if options else ""
        secret = site.directory / "keys/database"
        secret.write_text(PASSWORD)
        secret.chmod(0o600)
        site.configure(
            "[transfer]",
            database=f"postgres://penstock@{NAME}:{server.port}/penstock{query}",
            database_password_file="keys/database",
        )
        resolving(site, tmp_path, f"{STORAGE_HOST} {NAME}")
        line = [str(site.binary), "check", "--dir", str(site.directory)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0, done.stdout
        assert PASSWORD.encode() not in server.heard
        assert PASSWORD not in done.stdout + done.stderr
        assert "transfer.database" in done.stdout, done.stdout
    finally:
        server.close()


# A broker that is none


class FakeBroker:
    """Says its greeting, then what it is told, and remembers everything that it hears."""

    def __init__(self, greeting=b"", reply=b"", certificate=None):
        self.heard = b""
        self.connections = 0
        self.greeting, self.reply, self.context = greeting, reply, None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
        self.listener = socket.create_server((STORAGE_HOST, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                tcp, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.talk, args=(tcp,), daemon=True).start()

    def talk(self, tcp):
        tcp.settimeout(5)
        try:
            tcp.sendall(self.greeting)
            stream = self.context.wrap_socket(tcp, server_side=True) if self.context else tcp
            self.heard += stream.recv(65536)
            stream.sendall(self.reply)
            self.heard += stream.recv(65536)
        except OSError:
            pass
        finally:
            tcp.close()

    def close(self):
        self.listener.close()


INFO = b'INFO {"jetstream":true,"headers":true,"tls_required":false}\r\n'


def told_by(site, url):
    secret = site.directory / "keys/broker"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    site.append(
        f'\n[[transfer.messages]]\nname = "test"\nbrokers = [{json.dumps(url)}]\nuser = "penstock"\n'
        'password_file = "keys/broker"\n'
    )
    site.configure("[trust]", private_addresses=["127.0.0.0/8"])


@pytest.mark.parametrize("kind", ["stomp", "nats"])
@pytest.mark.parametrize("server", ["without TLS", "another authority"])
def test_who_poses_as_the_broker_does_not_learn_its_password(site, tmp_path, kind, server):
    unknown = FaultCa(tmp_path / "unknown")
    certificate = unknown.issue(STORAGE_HOST) if server == "another authority" else None
    broker = FakeBroker(INFO if kind == "nats" else b"", certificate=certificate)
    try:
        told_by(site, f"{kind}+tls://{STORAGE_HOST}:{broker.port}")
        site.start()
        Door(site).put("/f", b"data")
        Service(site).wait_finished(Service(site).submit((Door(site).url("/f"), Door(site).url("/g"))))
        eventually("the broker is tried twice", lambda: broker.connections >= 2, 60)
        assert PASSWORD.encode() not in broker.heard
        assert b"CONNECT" not in broker.heard
        assert PASSWORD not in site.log_text()
    finally:
        broker.close()


GARBAGE = {
    "stomp, no frame": ("stomp", b"", b"\xff\xfe\x00\x00" * 100),
    "stomp, endless header": ("stomp", b"", b"CONNECTED\n" + b"a" * 1_000_000),
    "stomp, huge body": ("stomp", b"", b"CONNECTED\ncontent-length:99999999999\n\n"),
    "stomp, negative body": ("stomp", b"", b"CONNECTED\ncontent-length:-1\n\n\0"),
    "nats, no greeting": ("nats", b"\xff" * 1_000_000, b""),
    "nats, deep greeting": ("nats", b"INFO " + b"[" * 60_000 + b"\r\n", b""),
    "nats, huge message": ("nats", INFO, b"MSG _INBOX.x.0 1 99999999999\r\n"),
    "nats, odd message": ("nats", INFO, b"HMSG _INBOX.x.0 1 18446744073709551615 3\r\nabc\r\n"),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_a_broker_that_answers_garbage_harms_nothing(site, case):
    kind, greeting, reply = GARBAGE[case]
    broker = FakeBroker(greeting, reply)
    try:
        told_by(site, f"{kind}://{STORAGE_HOST}:{broker.port}")
        site.start()
        door, service = Door(site), Service(site)
        door.put("/f", b"data")
        job = service.submit((door.url("/f"), door.url("/g")), job_metadata={"a": "b\r\n\r\n\1SEND\ndestination:/x"})
        service.wait_finished(job)
        eventually("the broker is tried twice", lambda: broker.connections >= 2, 60)
        assert site.is_running()
        service.wait_finished(service.submit((door.url("/f"), door.url("/h"))))
    finally:
        broker.close()


# What an operator is told


def test_the_check_tells_of_lists_that_let_others_send_the_site_around(site):
    site.configure("[storage.outbound]", allow=["*.org", "se.example.org", "http://se.example.org:80"])
    site.configure("[trust]", private_addresses=["0.0.0.0/0", "10.0.0.0/8"])
    line = [str(site.binary), "check", "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    for words in [
        "'*.org' means everybody who can get a name below org",
        "'se.example.org' names no port",
        "'http://se.example.org:80' is without TLS",
        "'0.0.0.0/0' switches the rule off",
        "'10.0.0.0/8' is a wide network",
    ]:
        assert words in done.stdout, done.stdout
