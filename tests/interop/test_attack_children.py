"""What a hostile storage element can make gfal2 do: nothing with the files of the service, and no connection that the
service itself may not make. Servers that send clients on honestly still work.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from .clients import Door, Service, content
from .field import grant
from .grid_servers import ADDRESS, HOST, NAMES, GridFtp, RootXrootd
from .hostile_srm import HostileSrm
from .hostile_xrootd import OPEN, HostileXrootd
from .site import Site
from .test_attack_process import as_nobody
from .test_gfal_endpoints import Lab, is_alive
from .waiting import eventually

# Addresses of the attacker; the first is one that the site may connect to, the second is not.
ATTACKER, INSIDE = "127.0.3.20", "127.0.9.9"
SITE_HOST, OTHER_HOST = "127.0.0.23", "127.0.0.24"
SECRET = "keys/token-signing.pem"
MIB = 1 << 20


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory):
    site = Site(binary, tmp_path_factory.mktemp("children") / "site", "target", SITE_HOST)
    only = [f"{address}/32{site.any_port}" for address in (ATTACKER, SITE_HOST, ADDRESS)]
    site.configure("[trust]", private_addresses=only)
    site.configure("[transfer]", retries=0)
    try:
        site.start()
        yield site
    finally:
        site.kill()


@pytest.fixture
def service(site):
    return Service(site)


def failure(service, source, destination, within=150):
    job = service.submit((source, destination))
    return job, service.wait_failed(job, within)


def test_a_redirect_to_a_file_of_the_service_reads_nothing(site, service, place):
    secret = (site.directory / SECRET).read_bytes()
    target = f"file://localhost{site.directory / SECRET}"
    with HostileXrootd(ATTACKER, {"/data/f": bytes(len(secret))}, target) as server:
        _, reason = failure(service, server.url("/data/f"), site.door + f"{place}/loot")
        assert server.asked(OPEN), "the file was opened"
    assert Door(site).ask("GET", f"{place}/loot").status_code == 404, reason
    assert "gave" not in reason, reason


def test_a_redirect_to_a_file_of_the_service_writes_nothing(site, service, place, tmp_path):
    Door(site).put(f"{place}/own", b"* * * * * root id")
    outside = tmp_path / "outside/cron"
    with HostileXrootd(ATTACKER, {}, f"file://localhost{outside}") as server:
        failure(service, site.door + f"{place}/own", server.url("/data/out"))
        assert server.asked(OPEN), "the file was opened"
    assert not outside.exists() and not outside.parent.exists()


def test_a_redirect_to_an_address_that_is_off_limits_is_refused_and_said(site, service, place):
    with closing(listener(INSIDE)) as inside:
        elsewhere = inside.getsockname()
        with HostileXrootd(ATTACKER, {"/data/f": b"abc"}, elsewhere) as server:
            job, reason = failure(service, server.url("/data/f"), site.door + f"{place}/loot")
        assert not has_caller(inside), "nobody connects there"
    assert f"sent this transfer on to {elsewhere[0]}:{elsewhere[1]}" in reason, reason
    assert "trust.private_addresses" in reason and reason.startswith("SOURCE [13] "), reason
    assert len([event for event in site.ledger(job) if event["event"] == "started"]) == 1


def listener(host):
    made = socket.create_server((host, 0))
    made.settimeout(0)
    return made


def has_caller(listening):
    try:
        listening.accept()[0].close()
    except BlockingIOError:
        return False
    return True


OWN_PORTS = {0: "it is a storage door of this site", 3: "is a port of this site that is not for files"}


@pytest.mark.parametrize("offset", OWN_PORTS)
def test_a_redirect_to_the_ports_of_the_site_itself_is_refused(site, service, place, offset):
    with HostileXrootd(ATTACKER, {"/data/f": b"abc"}, (SITE_HOST, site.base + offset)) as server:
        _, reason = failure(service, server.url("/data/f"), site.door + f"{place}/loot")
    assert f"sent this transfer on to {SITE_HOST}:{site.base + offset}" in reason, reason
    assert OWN_PORTS[offset] in reason, reason


def test_a_metalink_is_a_file_like_others(site, service, place):
    with closing(listener(ATTACKER)) as named:
        host, port = named.getsockname()
        text = (
            '<?xml version="1.0"?><metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="f">'
            f"<size>3</size><url>root://{host}:{port}//elsewhere</url></file></metalink>"
        ).encode()
        with HostileXrootd(ATTACKER, {"/data/f.meta4": text}) as server:
            url = server.url("/data/f.meta4")
            service.wait_finished(service.submit((url, site.door + f"{place}/f")), 120)
        assert not has_caller(named), "what it names is not asked"
    assert Door(site).get(f"{place}/f") == text


def test_parameters_that_name_files_of_the_service_go_to_no_library(site, service, place):
    with HostileXrootd(ATTACKER, {"/data/f": b"abc"}) as server:
        query = "?xrd.gsiusrcrt=/tmp/c&authz=kept&xrd.gsiusrkey=/tmp/k&xrdcl.unzip=x"
        service.wait_finished(service.submit((server.url("/data/f", query), site.door + f"{place}/f")), 120)
        asked = " ".join(path for _, path in server.requests)
    assert "authz=kept" in asked and "/tmp/" not in asked and "unzip" not in asked, asked


def test_a_process_is_confined_before_it_serves_and_leaves_no_core_file(site, service, place):
    with HostileXrootd(ATTACKER, {"/data/f": b"abc"}) as server:
        service.wait_finished(service.submit((server.url("/data/f"), site.door + f"{place}/f")), 120)
    pid = eventually("one is started ahead", lambda: next(iter(children(site)), None), 60)
    status = dict(line.split(":\t", 1) for line in text_of(pid, "status").splitlines() if ":\t" in line)
    found = {name: status[name].strip() for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapBnd", "Umask")}
    nothing = "0" * 16
    expected = {"NoNewPrivs": "1", "Seccomp": "2", "CapEff": nothing, "Umask": "0077"}
    expected["CapBnd"] = nothing if os.geteuid() == 0 else found["CapBnd"]
    assert found == expected
    # 1 stops cores that go to a program as well, 0 does not (core(5)).
    assert re.search(r"^Max core file size +1 +1 ", text_of(pid, "limits"), re.M)
    assert int(text_of(pid, "coredump_filter"), 16) == 0
    before = set(os.listdir("/"))
    eventually("it dies", lambda: end(pid) or not is_alive(pid), 30)
    assert set(os.listdir("/")) == before, "no core file"


def end(pid):
    try:
        os.kill(pid, signal.SIGSEGV)
    except ProcessLookupError:
        pass


def text_of(pid, name):
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()


def children(site):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = text_of(name, "stat").rpartition(")")[2].split()[1]
            if int(parent) == site.process.pid and "gfal-agent" in text_of(name, "cmdline"):
                found.append(int(name))
        except OSError:
            pass
    return found


def test_check_says_what_is_at_stake_without_confinement(binary, tmp_path):
    site = Site(binary, tmp_path / "site", "open", OTHER_HOST)
    site.append('\n[transfer.gfal]\nconfinement = "off"\n')
    found = site.command("check")
    assert "read and write the files of this service, its signing keys among them" in found, found
    assert "this machine supports confinement" in found, found


def test_a_site_among_what_gfal2_may_read_does_not_start(binary, tmp_path):
    site = Site(binary, tmp_path / "site", "near", OTHER_HOST)
    site.append(f'\n[transfer.gfal]\nreadable = ["{tmp_path}"]\n')
    site.launch()
    code, _ = site.wait_ended(time.monotonic())
    assert code != 0
    assert "a storage element could make it read this file" in site.log_text(), site.log_text()


def test_processes_work_as_an_account_of_their_own(binary):
    directory = Path(tempfile.mkdtemp(prefix="interop-account-"))
    site = Site(binary, directory / "site", "own", OTHER_HOST)
    site.append('\n[transfer.gfal]\nuser = "nobody"\n')
    try:
        if os.geteuid() != 0:
            assert "cannot change to its account" in site.command("check")
            return
        assert "certificates cannot be read: Permission denied" in site.command("check")
        # The account finds the authorities and nothing else.
        directory.chmod(0o711)
        site.directory.chmod(0o711)
        site.start()
        service = Service(site)
        with HostileXrootd(ATTACKER, {"/data/f": b"abc"}) as server:
            service.wait_finished(service.submit((server.url("/data/f"), site.door + "/f")), 120)
        pid = eventually("one is started ahead", lambda: next(iter(children(site)), None), 60)
        account = pwd.getpwnam("nobody")
        users = re.search(r"^Uid:\s+(.*)$", text_of(pid, "status"), re.M).group(1).split()
        assert users == [str(account.pw_uid)] * 4
        assert re.search(r"^Groups:\s*$", text_of(pid, "status"), re.M)
        for name in ("environ", "maps", "mem"):
            done = as_nobody("head", "-c", "1", f"/proc/{pid}/{name}")
            assert done.returncode != 0 and b"Permission denied" in done.stderr, f"{name}: {done}"
    finally:
        site.kill()
        shutil.rmtree(directory, ignore_errors=True)


class Redirected(Lab):
    """Real servers, to which others send clients on."""

    def __init__(self, binary, directory, ca):
        self.alice = ca.user("Alice Lab")
        self.proxy = ca.proxy(self.alice)
        self.site = Site(binary, directory / "site", "sent", OTHER_HOST)
        self.servers = []
        self.root = self.serve(RootXrootd(ca, [self.alice.subject]))
        self.gridftp = self.serve(GridFtp(ca, [self.alice.subject]))
        self.astray = self.serve(GridFtp(ca, [self.alice.subject], data_address=INSIDE))
        self.split = self.serve(GridFtp(ca, [self.alice.subject], data_address=ATTACKER))
        ca.trusted_by(self.site)
        ports = self.site.any_port
        only = [f"{address}/32{ports}" for address in (ATTACKER, OTHER_HOST, ADDRESS)]
        only.append(f"[::1/128]{ports}" if ports else "::1/128")
        self.site.configure("[trust]", private_addresses=only)
        self.site.configure("[transfer]", retries=0)
        grant(self.site, self.alice.subject)
        self.site.append(
            f'\n[transfer.gfal.environment]\nGLOBUS_GSSAPI_NAME_COMPATIBILITY = "{NAMES}"\n'
            f'GLOBUS_HOSTNAME = "{HOST}"\nGLOBUS_TCP_PORT_RANGE = ""\n'
        )


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, user_ca):
    lab = Redirected(binary, tmp_path_factory.mktemp("redirected"), user_ca)
    try:
        lab.start()
        yield lab
    finally:
        lab.close()


@pytest.fixture
def name(place):
    return place.strip("/")


# Where a process has what it holds, and where files of a process and of the system lie beside it. `{}` is a descriptor.
HELD = [
    "/proc/self/fd/{}", "/proc/thread-self/fd/{}", "/dev/fd/{}", "//proc/./self//fd/{}", "/usr/lib/../../proc/self/fd/{}",
]
BESIDE = ["/proc/self/environ", "/dev/stdin"]


def test_a_redirect_to_what_a_process_holds_reads_nothing(lab, name):
    """The submitter's proxy among it, with its private key."""
    # Orders, the proxy, the key for sftp.
    places = [HELD[0].format(number) for number in (3, 5, 6)] + [place.format(5) for place in HELD[1:]] + BESIDE
    files = {f"/{number}": b"x" for number in range(len(places))}
    targets = {path: f"file://localhost{place}" for path, place in zip(files, places, strict=True)}
    with HostileXrootd(ATTACKER, files, targets) as server:
        found = failures(lab, server, name, files)
        # A size that is not the one that was told is in the reason: a server that is told so tells it the next time.
        for path, reason in found.items():
            if size := re.search(r"gave (\d+) bytes", reason):
                server.files[path] = bytes(int(size[1]))
        told = [path for path, content in server.files.items() if content != b"x"]
        failures(lab, server, name, told)
        assert {path.split("?")[0].replace("//", "/") for path in server.asked(OPEN)} == set(files)
    stored = {place: lab.door.ask("GET", f"/{name}{path}") for path, place in zip(files, places, strict=True)}
    loot = {place: answer.content[:60] for place, answer in stored.items() if answer.status_code != 404}
    sizes = [(place, found[path]) for path, place in zip(files, places, strict=True) if path in told]
    assert not loot and not sizes, (loot, sizes)


def failures(lab, server, name, paths):
    """Why files of a server could not be copied."""
    if not paths:
        return {}
    job = lab.submit_many([(server.url(path), lab.door.url(f"/{name}{path}")) for path in paths])
    lab.wait(job, 240)
    return {path: file["reason"] for path, file in zip(paths, lab.files(job), strict=True)}


def test_no_server_is_told_where_a_process_has_its_proxy(lab, name):
    with HostileXrootd(ATTACKER, {"/f": b"abc"}) as server:
        lab.wait_finished(lab.submit(server.url("/f"), lab.door.url(f"/{name}")))
        assert server.asked(OPEN)
        told = [path for _, path in server.requests if "/fd/" in path or "gsiusr" in path or "/proc" in path]
    assert not told


def test_an_honest_redirect_to_a_data_server_is_followed(lab, name):
    data = content(name, 2 * MIB)
    real = lab.root.files / name
    real.write_bytes(data)
    real.chmod(0o644)
    with HostileXrootd(ATTACKER, {f"/{name}": data}, (HOST, lab.root.root_port)) as manager:
        lab.wait_finished(lab.submit(manager.url(f"/{name}"), lab.door.url(f"/{name}")))
        assert lab.door.get(f"/{name}") == data
        asked = manager.asked(OPEN)
    assert asked


def test_a_gridftp_server_with_another_data_address_is_followed_where_the_service_may_go(lab, name):
    data = content(name, MIB)
    lab.split.write(name, data)
    lab.wait_finished(lab.submit(lab.split.url(name), lab.door.url(f"/{name}"), "-C", "both"))
    assert lab.door.get(f"/{name}") == data


def test_a_gridftp_server_that_names_an_address_off_limits_is_refused(lab, name):
    lab.astray.write(name, content(name, MIB))
    reason = lab.wait_failed(lab.submit(lab.astray.url(name), lab.door.url(f"/{name}")))
    assert f"sent this transfer on to {INSIDE}:" in reason and reason.startswith("SOURCE [13] "), reason


def srm_host(ca):
    # CGSI puts the machine's own name where a URL has `localhost`.
    return ca.host(socket.gethostname())


def test_a_transfer_url_of_an_srm_that_names_a_file_of_the_service_reads_nothing(lab, user_ca, name):
    secret = (lab.site.directory / SECRET).read_bytes()
    target = f"file://{lab.site.directory / SECRET}"
    with HostileSrm(ADDRESS, srm_host(user_ca), target, len(secret)) as server:
        reason = lab.wait_failed(lab.submit(server.url(HOST, "/f"), lab.door.url(f"/{name}")))
        assert "srmPrepareToGet" in server.calls, (server.calls, reason)
    assert lab.door.ask("GET", f"/{name}").status_code == 404


def test_a_transfer_url_of_an_srm_is_judged_like_any_other(lab, user_ca, name):
    with closing(listener(INSIDE)) as inside:
        host, port = inside.getsockname()
        with HostileSrm(ADDRESS, srm_host(user_ca), f"gsiftp://{host}:{port}/f", 3) as server:
            reason = lab.wait_failed(lab.submit(server.url(HOST, "/f"), lab.door.url(f"/{name}")))
            assert "srmPrepareToGet" in server.calls, (server.calls, reason)
        assert not has_caller(inside), "nobody connects there"
    assert f"sent this transfer on to {INSIDE}:{port}" in reason, reason
