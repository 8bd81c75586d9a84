"""Servers that gfal2's processes speak with, and what such servers can lead them to: a cluster of XRootD, name servers, sftp
servers; and a service that is not root.
"""

import os
import pwd
import re
import shutil
import socket
import struct
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from .clients import Door, Service, content
from .grid_servers import ADDRESS, HOST, XrootdCluster
from .hostile_sftp import EndlessBanner, HostileSftp
from .hostile_xrootd import OPEN, HostileXrootd
from .site import Site
from .test_attack_children import children, has_caller, listener, text_of
from .test_attack_outbound import Resolver, resolving
from .waiting import eventually

# Addresses of the attacker; the first is one that the site may connect to, the second is not.
ATTACKER, INSIDE = "127.0.3.24", "127.0.9.8"
SITE_HOST, MANAGER, RESOLVER = "127.0.0.25", "127.0.3.25", "127.0.12.54"
NAME = "se.example.org"
SECRET = "keys/token-signing.pem"
# What a job may take, and what the end of its attempt may take after that.
JOB_SECONDS, ENDING_SECONDS = 15, 60


def site_of(binary, directory, *allowed):
    """A site that may connect to these addresses and no others of this machine."""
    site = Site(binary, directory, "target", SITE_HOST)
    only = [f"{address}/32{site.any_port}" for address in (SITE_HOST, *allowed)]
    site.configure("[trust]", private_addresses=only)
    site.configure("[transfer]", retries=0)
    return site


def failed(site, source, destination, **params):
    service = Service(site)
    return service.wait_failed(service.submit((source, destination), **params), 150)


def finished(site, source, destination):
    service = Service(site)
    service.wait_finished(service.submit((source, destination)), 120)


# A cluster


@pytest.fixture(scope="module")
def cluster():
    cluster = XrootdCluster(MANAGER)
    try:
        yield cluster.start()
    finally:
        cluster.close()


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "off limits"])
def test_a_manager_of_a_cluster_sends_a_process_to_a_data_server_that_is_allowed_only(binary, tmp_path, cluster, allowed):
    name = f"f-{allowed}"
    cluster.write(name, data := content(name, 1 << 20))
    site = site_of(binary, tmp_path / "site", MANAGER, *([ADDRESS] if allowed else []))
    try:
        site.start()
        if allowed:
            finished(site, cluster.url(name), f"{site.door}/{name}")
            assert Door(site).get(f"/{name}") == data
        else:
            reason = failed(site, cluster.url(name), f"{site.door}/{name}", timeout=JOB_SECONDS)
            server = f"{ADDRESS}:{cluster.ports['server']}"
            assert f"sent this transfer on to {server}" in reason and "trust.private_addresses" in reason, reason
            assert not Door(site).exists(f"/{name}")
    finally:
        site.kill()


# Names


class TcpResolver(Resolver):
    """Answers over UDP as it is told, and over TCP, by which alone a process may ask, in its own way."""

    def __init__(self, answers, by_tcp, truncated=False):
        super().__init__(answers, RESOLVER)
        self.by_tcp, self.truncated, self.asked_by_tcp = by_tcp, truncated, 0
        self.listener = socket.create_server((RESOLVER, 53))
        threading.Thread(target=self.accept, daemon=True).start()

    def answer(self, question):
        told = super().answer(question)
        # TC (RFC 1035 §4.1.1): the client is to ask again by TCP.
        return told[:2] + bytes([told[2] | 2]) + told[3:] if self.truncated else told

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        with client, client.makefile("rb") as asking:
            try:
                while length := asking.read(2):
                    question = asking.read(struct.unpack("!H", length)[0])
                    self.asked_by_tcp += 1
                    self.by_tcp(self, client, question)
            except OSError:
                pass

    def close(self):
        # A blocked accept() ends only by shutdown().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        super().close()


def addresses(*given):
    """An answer with these addresses."""

    def by_tcp(_, client, question):
        end = question.index(b"\0", 12) + 5
        kind = struct.unpack("!H", question[end - 4 : end - 2])[0]
        found = given if kind == 1 else ()
        records = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(address) for address in found
        )
        head = question[:2] + b"\x85\x80" + struct.pack("!HHHH", 1, len(found), 0, 0)
        told = head + question[12:end] + records
        client.sendall(struct.pack("!H", len(told)) + told)

    return by_tcp


def silence(resolver, *_):
    resolver.stopping.wait(600)


def noise(resolver, client, question):
    """Answers to nothing, that never end and are not what their length says."""
    while not resolver.stopping.is_set():
        client.sendall(b"\xff\xff" + question[:2] + os.urandom(20_000))


def looped(_, client, question):
    """A name that is where it points to."""
    told = question[:2] + b"\x85\x80" + struct.pack("!HHHH", 1, 9, 0, 0)
    told += question[12 : question.index(b"\0", 12) + 5] + b"\xc0\x29\xc0\x29" * 20
    client.sendall(struct.pack("!H", len(told)) + told)


class Named:
    """A site whose names are given by a resolver of the test."""

    def __init__(self, binary, directory, resolver):
        self.resolver = resolver
        self.site = site_of(binary, directory / "site", ATTACKER)
        resolving(self.site, directory, resolver=RESOLVER)

    def __enter__(self):
        self.site.start()
        return self.site

    def __exit__(self, *_):
        self.site.kill()
        self.resolver.close()


def test_a_process_asks_for_names_by_tcp_and_goes_where_the_answer_is_allowed(binary, tmp_path):
    resolver = TcpResolver([[ATTACKER]], addresses(ATTACKER))
    with HostileXrootd(ATTACKER, {"/data/f": b"abc"}) as server, Named(binary, tmp_path, resolver) as site:
        finished(site, f"root://{NAME}:{server.port}//data/f", f"{site.door}/f")
        assert Door(site).get("/f") == b"abc"
        assert server.asked(OPEN) and resolver.asked_by_tcp > 0


@pytest.mark.parametrize("truncated", [False, True], ids=["other by TCP", "truncated"])
def test_an_answer_by_tcp_leads_a_process_nowhere_else(binary, tmp_path, truncated):
    # When it is not truncated, the service is told an address that it may connect to, and its process another one.
    resolver = TcpResolver([[ATTACKER]], addresses(INSIDE), truncated)
    with HostileXrootd(ATTACKER, {"/data/f": b"abc"}) as server, Named(binary, tmp_path, resolver) as site:
        with closing(socket.create_server((INSIDE, server.port))) as inside:
            inside.settimeout(0)
            source = f"root://{NAME}:{server.port}//data/f"
            reason = failed(site, source, f"{site.door}/f", timeout=JOB_SECONDS)
            assert not has_caller(inside), "nobody connects there"
        assert resolver.asked_by_tcp > 0
        assert INSIDE in reason and "trust.private_addresses" in reason, reason
        assert not Door(site).exists("/f")


@pytest.mark.parametrize("by_tcp", [silence, noise, looped])
def test_a_name_server_that_answers_nothing_of_use_holds_a_process_no_longer_than_its_job_may_take(binary, tmp_path, by_tcp):
    resolver = TcpResolver([[ATTACKER]], by_tcp)
    with HostileXrootd(ATTACKER, {"/data/f": b"abc"}) as server, Named(binary, tmp_path, resolver) as site:
        begun = time.monotonic()
        failed(site, f"root://{NAME}:{server.port}//data/f", f"{site.door}/f", timeout=JOB_SECONDS)
        assert time.monotonic() - begun < JOB_SECONDS + ENDING_SECONDS
        assert resolver.asked_by_tcp > 0 and not server.asked(OPEN)
        eventually("no process is left that works", lambda: not busy(site), 30)


def busy(site):
    """Processes with a connection."""
    return [pid for pid in children(site) if any(is_inet(pid, name) for name in os.listdir(f"/proc/{pid}/fd"))]


def is_inet(pid, name):
    try:
        target = os.readlink(f"/proc/{pid}/fd/{name}")
    except OSError:
        return False
    inode = re.fullmatch(r"socket:\[(\d+)\]", target)
    table = text_of(pid, "net/tcp") + text_of(pid, "net/tcp6")
    return bool(inode) and f" {inode.group(1)} " in table


# sftp


class SftpLab:
    def __init__(self, binary, directory):
        self.server = HostileSftp()
        self.site = site_of(binary, directory / "site", ADDRESS)
        self.site.append(
            f'\n[[transfer.gfal.sftp]]\nhost = "{HOST}"\nuser = "{self.server.user}"\n'
            f'key = "{self.server.key}"\nvo = "target"\n'
        )

    def __enter__(self):
        self.server.start()
        self.site.start()
        return self

    def __exit__(self, *_):
        self.site.kill()
        self.server.close()

    @property
    def secret(self):
        return self.site.directory / SECRET


@pytest.fixture(scope="module")
def sftp(binary, tmp_path_factory):
    with SftpLab(binary, tmp_path_factory.mktemp("sftp")) as lab:
        yield lab


def test_an_sftp_server_that_is_honest_is_read_and_written(sftp, place):
    sftp.server.conduct(content=b"honest")
    finished(sftp.site, sftp.server.url("f"), f"{sftp.site.door}{place}/f")
    assert Door(sftp.site).get(f"{place}/f") == b"honest"
    assert "READ" in [kind for kind, _ in sftp.server.requests()]


@pytest.mark.parametrize("how", ["names", "link"])
@pytest.mark.parametrize("relative", [True, False], ids=["relative", "absolute"])
def test_names_and_links_of_an_sftp_server_lead_to_no_file_of_the_service(sftp, place, how, relative):
    target = os.path.relpath(sftp.secret, "/") if relative else str(sftp.secret)
    target = "../" * 12 + target if relative else target
    secret = sftp.secret.read_bytes()
    sftp.server.conduct(how, bytes(len(secret)), target)
    service = Service(sftp.site)
    service.wait(service.submit((sftp.server.url("f"), f"{sftp.site.door}{place}/loot"), timeout=JOB_SECONDS))
    assert sftp.server.requests(), "the server was asked"
    got = Door(sftp.site).ask("GET", f"{place}/loot")
    assert got.status_code == 404 or got.content == bytes(len(secret)), "what the server sent, or nothing"
    # And the way back: what it is given is the file of the job.
    Door(sftp.site).put(f"{place}/own", b"own bytes")
    job = service.submit((f"{sftp.site.door}{place}/own", sftp.server.url("out")), timeout=JOB_SECONDS, overwrite=True)
    service.wait(job)
    assert sftp.server.written().replace(b"own bytes", b"") == b""
    assert sftp.secret.read_bytes() == secret


@pytest.mark.parametrize("how", ["endless", "huge", "longer", "lie", "packet", "listing", "silent"])
def test_an_sftp_server_that_breaks_the_rules_fails_its_attempt_in_time_and_nothing_else(sftp, place, how):
    sftp.server.conduct(how)
    begun = time.monotonic()
    failed(sftp.site, sftp.server.url("f"), f"{sftp.site.door}{place}/f", timeout=JOB_SECONDS)
    assert time.monotonic() - begun < JOB_SECONDS + ENDING_SECONDS
    assert sftp.server.requests(), "the server was asked"
    assert not Door(sftp.site).exists(f"{place}/f")
    eventually("no process is left that works", lambda: not busy(sftp.site), 30)
    assert sftp.site.is_running()


def test_a_banner_without_an_end_fails_its_attempt_in_time(sftp, place):
    with closing(EndlessBanner()) as server:
        begun = time.monotonic()
        failed(sftp.site, server.url("f"), f"{sftp.site.door}{place}/f", timeout=JOB_SECONDS)
        assert time.monotonic() - begun < JOB_SECONDS + ENDING_SECONDS
        assert server.connections > 0
        eventually("no process is left that works", lambda: not busy(sftp.site), 30)


# An account that is not root


class Unprivileged(Site):
    """A site of an account that may do nothing but what everybody may."""

    def __init__(self, binary, directory):
        self.account = pwd.getpwnam("nobody")
        self.place = directory
        directory.chmod(0o755)
        program = directory / "penstock"
        shutil.copy(binary, program)
        program.chmod(0o755)
        if os.geteuid() == 0:
            home = directory / "home"
            home.mkdir()
            os.chown(home, self.account.pw_uid, self.account.pw_gid)
            wrapper = directory / "as-nobody"
            wrapper.write_text(
                f"#!/bin/sh\nexec setpriv --reuid={self.account.pw_uid} --regid={self.account.pw_gid} --clear-groups "
                f'--bounding-set=-all --inh-caps=-all {program} "$@"\n'
            )
            wrapper.chmod(0o755)
            program, directory = wrapper, home
        super().__init__(program, directory / "site", "target", SITE_HOST)
        only = [f"{address}/32{self.any_port}" for address in (SITE_HOST, ATTACKER)]
        self.configure("[trust]", private_addresses=only)
        self.configure("[transfer]", retries=0)

    def close(self):
        self.kill()
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture(scope="module")
def unprivileged(binary):
    # Not below pytest's directory, into which only its owner can look.
    site = Unprivileged(binary, Path(tempfile.mkdtemp(prefix="interop-unprivileged-")))
    try:
        yield site.start()
    finally:
        site.close()


def test_a_service_that_is_not_root_confines_its_processes(unprivileged):
    with HostileXrootd(ATTACKER, {"/data/f": b"abc"}) as server:
        finished(unprivileged, server.url("/data/f"), f"{unprivileged.door}/f")
    assert Door(unprivileged).get("/f") == b"abc"
    pid = eventually("one is started ahead", lambda: next(iter(children(unprivileged)), None), 60)
    status = dict(line.split(":\t", 1) for line in text_of(pid, "status").splitlines() if ":\t" in line)
    own = unprivileged.account.pw_uid if os.geteuid() == 0 else os.geteuid()
    assert status["Uid"].split() == [str(own)] * 4
    found = {name: status[name].strip() for name in ("NoNewPrivs", "Seccomp", "CapEff", "Umask")}
    assert found == {"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0" * 16, "Umask": "0077"}


def test_a_service_that_is_not_root_lets_no_redirect_pass(unprivileged):
    secret = (unprivileged.directory / SECRET).read_bytes()
    target = f"file://localhost{unprivileged.directory / SECRET}"
    with HostileXrootd(ATTACKER, {"/data/f": bytes(len(secret))}, target) as server:
        reason = failed(unprivileged, server.url("/data/f"), f"{unprivileged.door}/loot")
        assert server.asked(OPEN), "the file was opened"
    assert not Door(unprivileged).exists("/loot"), reason
    with closing(listener(INSIDE)) as inside:
        elsewhere = inside.getsockname()
        with HostileXrootd(ATTACKER, {"/data/f": b"abc"}, elsewhere) as server:
            reason = failed(unprivileged, server.url("/data/f"), f"{unprivileged.door}/loot")
        assert not has_caller(inside), "nobody connects there"
    assert f"sent this transfer on to {elsewhere[0]}:{elsewhere[1]}" in reason, reason


def test_check_says_what_a_service_that_is_not_root_cannot_do(unprivileged):
    found = unprivileged.command("check")
    assert re.search(r"^gfal2 plug-ins: .*xrootd", found, re.M), found
    kept = (unprivileged.directory / "penstock.toml").read_text()
    try:
        unprivileged.append('\n[transfer.gfal]\nuser = "daemon"\n')
        found = unprivileged.command("check")
    finally:
        (unprivileged.directory / "penstock.toml").write_text(kept)
    assert "gfal2 is not used" in found and "cannot change to its account" in found, found
