"""Storage elements that are reached by the system's gfal2: real GridFTP, XRootD and sftp servers, and jobs that the
fts3 client submits with a delegated proxy. A process works for each attempt, and what becomes of it concerns that
attempt alone.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from .certificates import private_vo
from .clients import TERMINAL, Door, Service, adler32, content
from .cloud_servers import ACCESS_KEY, SECRET_KEY
from .fault_server import stalled
from .field import grant
from .grid_servers import ADDRESS, HOST, NAMES, GridFtp, RootXrootd, Sftp
from .site import Site, free_port
from .waiting import eventually

TOOLS = Path(sys.executable).parent
JOB_ID = re.compile(r"Job id: ([0-9a-f-]{36})")
MIB = 1 << 20


class Lab:
    """One site, the servers around it, and Alice, who may do everything everywhere."""

    def __init__(self, binary, directory, ca):
        self.alice = ca.user("Alice Lab")
        self.proxy = ca.proxy(self.alice)
        users = [self.alice.subject]
        self.vo = private_vo(self.alice.subject)
        self.site = Site(binary, directory / "site", "lab", "127.0.0.21")
        self.servers = []
        self.gridftp = [self.serve(GridFtp(ca, users)) for _ in range(2)]
        self.root = [self.serve(RootXrootd(ca, users)) for _ in range(2)]
        self.alone = self.serve(RootXrootd(ca, users, copies=False))
        self.sftp = self.serve(Sftp())
        ca.trusted_by(self.site)
        self.site.configure("[transfer]", retry_delay="1s", retries=1)
        grant(self.site, self.alice.subject)
        self.site.append(
            f'\n[transfer.gfal.environment]\nGLOBUS_GSSAPI_NAME_COMPATIBILITY = "{NAMES}"\n'
            f'GLOBUS_HOSTNAME = "{HOST}"\nGLOBUS_TCP_PORT_RANGE = ""\n'
            f'\n[[transfer.gfal.sftp]]\nhost = "{HOST}"\nuser = "{self.sftp.user}"\n'
            f'key = "{self.sftp.key}"\nvo = "{self.vo}"\n'
        )

    def serve(self, server):
        self.servers.append(server)
        return server

    def start(self):
        for server in self.servers:
            server.start()
        self.site.start()
        self.door = Door(self.site)
        self.delegate()

    def close(self):
        self.site.kill()
        for server in self.servers:
            server.close()

    def delegate(self):
        self.fts("delegate", "--force")

    def fts(self, command, *words, exit_code=0):
        line = [str(TOOLS / f"fts-rest-{command}"), "-s", self.site.service, *words]
        environment = {
            "PATH": "/usr/bin:/bin",
            "X509_CERT_DIR": str(self.site.certificates),
            "X509_USER_PROXY": str(self.proxy.pem),
        }
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        said = done.stdout + done.stderr
        assert done.returncode == exit_code, f"{line}: exit {done.returncode}\n{said}\n{self.site.log_tail()}"
        return said

    def ask(self, method, path, **options):
        pem, ca = str(self.proxy.pem), str(self.site.certificates)
        url = self.site.service + path
        return requests.request(method, url, cert=(pem, pem), verify=ca, timeout=60, **options)

    def submit(self, source, destination, *words):
        """By the fts3 client."""
        said = self.fts("transfer-submit", source, destination, *words)
        return JOB_ID.search(said).group(1)

    def submit_many(self, pairs, **params):
        files = [{"sources": [source], "destinations": [destination]} for source, destination in pairs]
        answer = self.ask("POST", "/jobs", json={"files": files, "params": params})
        assert answer.status_code == 200, answer.text
        return answer.json()["job_id"]

    def job(self, job):
        return self.ask("GET", f"/jobs/{job}").json()

    def files(self, job):
        return self.ask("GET", f"/jobs/{job}/files").json()

    def wait(self, job, within=120):
        def ended():
            seen = self.job(job)
            return seen if seen["job_state"] in TERMINAL else None

        return eventually(f"job {job} ends", ended, within)

    def wait_finished(self, job):
        seen = self.wait(job)
        reasons = [(file["reason"], self.site.log_tail(15)) for file in self.files(job)]
        assert seen["job_state"] == "FINISHED", reasons

    def wait_failed(self, job):
        seen = self.wait(job)
        [file] = self.files(job)
        assert seen["job_state"] == "FAILED", (seen, file)
        return file["reason"]

    def attempts(self, job):
        return [event for event in self.site.ledger(job) if event["event"] == "started"]

    def busy(self):
        """Those of them that speak with a server."""
        return [pid for pid in self.children() if has_socket(pid)]

    def children(self):
        """Processes of the site that work with gfal2, by process id."""
        found = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.site.process.pid)], capture_output=True, text=True
        )
        rows = (line.split(None, 1) for line in found.stdout.splitlines())
        return [int(pid) for pid, line in rows if "gfal-agent" in line]


def has_socket(pid):
    links = []
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            links.append(os.readlink(link))
        except OSError:
            pass
    return any(link.startswith("socket:") for link in links)


def is_alive(pid):
    """A process that has ended and is not reaped counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, user_ca, fault_ca):
    lab = Lab(binary, tmp_path_factory.mktemp("gfal"), user_ca)
    try:
        lab.site.trust(fault_ca.certificate)
        lab.start()
        yield lab
        code, _ = lab.site.stop()
        assert code == 0, lab.site.log_tail()
    finally:
        lab.close()


@pytest.fixture
def name(place):
    return place.strip("/")


def test_files_go_from_gridftp_to_gridftp_and_are_verified(lab, name):
    data = content(name, 3 * MIB)
    source, destination = lab.gridftp
    source.write(name, data)
    words = [f"ADLER32:{adler32(data)}", "-C", "both", "--nostreams", "3"]
    job = lab.submit(source.url(name), destination.url(f"made/on/the/way/{name}"), *words)
    lab.wait_finished(job)
    assert (destination.files / "made/on/the/way" / name).read_bytes() == data
    [landed] = landed_of(lab, job)
    assert landed["mode"] == "push"
    streams = landed["report"]["streams"]
    assert (streams["asked"], streams["used"], streams["because"]) == (3, 3, ["as_asked"])


def landed_of(lab, job):
    return [event for event in lab.site.ledger(job) if event["event"] == "landed"]


@pytest.mark.parametrize("size", [0, 1, 5 * MIB + 7])
def test_files_go_from_gridftp_to_a_door_and_back(lab, name, size):
    data = content(name, size)
    source, destination = lab.gridftp
    source.write(name, data)
    job = lab.submit(source.url(name), lab.door.url(f"/{name}").replace("https", "davs"), "-C", "both")
    lab.wait_finished(job)
    assert lab.door.get(f"/{name}") == data
    job = lab.submit(lab.door.url(f"/{name}"), destination.url(name), "-C", "both")
    lab.wait_finished(job)
    assert (destination.files / name).read_bytes() == data
    assert lab.site.landed_modes(job) == ["streamed"]


def test_files_go_from_xrootd_to_xrootd_among_themselves(lab, name):
    data = content(name, 2 * MIB)
    source, destination = lab.root
    put_root(source, name, data)
    job = lab.submit(source.url(f"/{name}"), destination.url(f"/new/{name}"), "-C", "both")
    lab.wait_finished(job)
    assert (destination.files / "new" / name).read_bytes() == data
    assert lab.site.landed_modes(job) == ["pull"]


def test_where_xrootd_servers_do_not_copy_the_process_does(lab, name):
    data = content(name, 2 * MIB)
    put_root(lab.alone, name, data)
    job = lab.submit(lab.alone.url(f"/{name}"), lab.root[0].url(f"/{name}"), "-C", "both")
    lab.wait_finished(job)
    assert (lab.root[0].files / name).read_bytes() == data
    [landed] = landed_of(lab, job)
    assert landed["mode"] == "streamed"
    [refused] = landed["report"]["not_offered"]
    assert refused["mode"] == "pull", refused


def put_root(server, name, data):
    path = server.files / name
    path.write_bytes(data)
    path.chmod(0o644)


def test_files_go_from_xrootd_to_a_door(lab, name):
    data = content(name, 2 * MIB + 1)
    put_root(lab.root[0], name, data)
    job = lab.submit(lab.root[0].url(f"/{name}"), lab.door.url(f"/{name}"), "-C", "both")
    lab.wait_finished(job)
    assert lab.door.get(f"/{name}") == data
    assert lab.site.landed_modes(job) == ["streamed"]


@pytest.mark.parametrize("size", [1000, pytest.param(40 * MIB, marks=pytest.mark.soak)])
def test_files_go_from_gridftp_to_a_cloud_storage_and_back_with_the_users_keys(lab, clouds, name, size):
    cloud, admin = clouds["s3s-fs"], Service(lab.site, lab.site.admin_token())
    keys = {"user_dn": lab.alice.subject, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    for path, body in [("", {"storage_name": cloud.name}), (f"/{cloud.name}", keys)]:
        answer = admin.ask("POST", f"/config/cloud_storage{path}", json=body)
        assert answer.status_code == 201, answer.text
    data = content(name, size)
    source, destination = lab.gridftp
    source.write(name, data)
    checksum = f"ADLER32:{adler32(data)}"
    job = lab.submit(source.url(name), cloud.url(name), checksum, "-C", "target", "--s3alternate")
    lab.wait_finished(job)
    assert cloud.get(name) == data and cloud.uploads() == []
    job = lab.submit(cloud.url(name), destination.url(name), checksum, "-C", "both")
    lab.wait_finished(job)
    assert (destination.files / name).read_bytes() == data
    assert lab.site.landed_modes(job) == ["streamed"]


def test_files_go_from_gridftp_to_xrootd_through_the_process(lab, name):
    data = content(name, 9 * MIB)
    lab.gridftp[0].write(name, data)
    job = lab.submit(lab.gridftp[0].url(name), lab.root[0].url(f"/{name}"), "-C", "both")
    lab.wait_finished(job)
    assert (lab.root[0].files / name).read_bytes() == data
    assert lab.site.landed_modes(job) == ["streamed"]


def test_files_go_from_and_to_sftp_by_the_account_of_the_site(lab, name):
    data = content(name, MIB)
    lab.sftp.write(name, data)
    job = lab.submit(lab.sftp.url(name), lab.gridftp[0].url(name))
    lab.wait_finished(job)
    assert (lab.gridftp[0].files / name).read_bytes() == data
    job = lab.submit(lab.gridftp[0].url(name), lab.sftp.url(f"back-{name}"))
    lab.wait_finished(job)
    assert (lab.sftp.files / f"back-{name}").read_bytes() == data


def test_an_existing_file_is_replaced_only_when_the_job_says_so(lab, name):
    old, new = content("old", 2 * MIB), content("new", MIB)
    source, destination = lab.gridftp
    source.write(name, new)
    destination.write(name, old).chmod(0o666)
    job = lab.submit(source.url(name), destination.url(name))
    assert lab.wait_failed(job) == "DESTINATION [17] Destination file exists and overwrite is not enabled"
    assert (destination.files / name).read_bytes() == old
    assert len(lab.attempts(job)) == 1
    lab.wait_finished(lab.submit(source.url(name), destination.url(name), "-o", "-C", "both"))
    assert (destination.files / name).read_bytes() == new
    put_root(lab.root[0], name, old)
    (lab.root[0].files / name).chmod(0o666)
    lab.wait_finished(lab.submit(source.url(name), lab.root[0].url(f"/{name}"), "-o", "-C", "both"))
    assert (lab.root[0].files / name).read_bytes() == new


@pytest.mark.parametrize("kind", ["gridftp", "root", "sftp"])
def test_a_missing_source_is_final(lab, name, kind):
    sources = {"gridftp": lab.gridftp[0].url(name), "root": lab.root[0].url(f"/{name}"), "sftp": lab.sftp.url(name)}
    job = lab.submit(sources[kind], lab.gridftp[1].url(name))
    assert lab.wait_failed(job).startswith("SOURCE [2] No such file or directory: ")
    assert len(lab.attempts(job)) == 1
    assert not (lab.gridftp[1].files / name).exists()


def test_a_wrong_checksum_is_found_and_what_was_copied_is_removed(lab, name):
    lab.gridftp[0].write(name, content(name, MIB))
    ends = lab.gridftp[0].url(name), lab.gridftp[1].url(name)
    reason = lab.wait_failed(lab.submit(*ends, "ADLER32:00000001", "-C", "target", "--retry", "-1"))
    assert reason.startswith("DESTINATION [5] User-defined and destination adler32 checksum do not match (00000001 != ")
    assert not (lab.gridftp[1].files / name).exists()


def test_cancel_in_the_middle_ends_the_process_and_removes_what_it_wrote(lab, faulty, name):
    data = content(name, 4 * MIB)
    source = faulty.offer("/f", data, stalled(data, 3 * MIB))
    partial = lab.gridftp[0].files / name
    job = lab.submit(source, lab.gridftp[0].url(name))
    eventually("bytes arrive", lambda: partial.exists() and partial.stat().st_size, 60)
    [pid] = lab.busy()
    lab.fts("transfer-cancel", job)
    eventually("the process is gone", lambda: not is_alive(pid), 30)
    eventually("the partial file is gone", lambda: not partial.exists(), 30)
    assert lab.job(job)["job_state"] == "CANCELED"
    eventually("nobody works", lambda: not lab.busy(), 30)


def test_a_crash_costs_one_attempt_and_the_others_go_on(lab, faulty, name):
    data = content(name, 3 * MIB)
    pairs, partial = [], []
    for number in range(3):
        source = faulty.offer(f"/f{number}", data, stalled(data, 2 * MIB))
        pairs.append((source, lab.gridftp[0].url(f"{number}-{name}")))
        partial.append(lab.gridftp[0].files / f"{number}-{name}")
    job = lab.submit_many(pairs)
    eventually("bytes arrive", lambda: all(path.exists() and path.stat().st_size for path in partial), 60)
    victim = eventually("three work", lambda: len(busy := lab.busy()) == 3 and busy[0], 30)
    # The first is taken by the Rust runtime, which looks for a full stack, and sees none.
    eventually("it dies", lambda: kill(victim, signal.SIGSEGV) or not is_alive(victim), 30)

    def failures():
        return [event for event in lab.site.ledger(job) if event["event"] == "attempt_failed"]

    [failed] = eventually("one attempt fails", failures, 60)
    assert failed["failure"]["detail"].startswith("agent died: SIGSEGV in gfal2"), failed
    faulty.release()
    lab.wait_finished(job)
    assert all(path.read_bytes() == data for path in partial)
    assert len(lab.attempts(job)) == 4 and len(failures()) == 1


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def test_a_server_that_says_nothing_is_given_up(lab, name):
    source = lab.gridftp[1]
    source.write(name, b"x")
    with paused(source):
        job = lab.submit(source.url(name), lab.door.url(f"/{name}"), "--timeout", "4", "--retry", "-1")
        reason = lab.wait_failed(job)
    assert re.match(r"SOURCE \[110\] .*timed out", reason), reason
    eventually("nobody works", lambda: not lab.busy(), 30)


@contextmanager
def paused(server):
    server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


def test_an_srm_that_is_not_there_gives_a_plain_error(lab, name):
    source = f"srm://{HOST}:{free_port(ADDRESS)}/srm/managerv2?SFN=/{name}"
    reason = lab.wait_failed(lab.submit(source, lab.gridftp[0].url(name), "--retry", "-1"))
    assert reason.startswith("SOURCE [70] ") and "could not open connection" in reason, reason


def test_an_srm_that_does_not_answer_is_asked_for_a_file_of_its_tape_until_its_time_is_over(lab, name):
    source = f"srm://{HOST}:{free_port(ADDRESS)}/srm/managerv2?SFN=/{name}"
    job = lab.submit_many([(source, lab.gridftp[0].url(name))], bring_online=3)
    reason = lab.wait_failed(job)
    assert reason == "STAGING [110] bring-online timeout has been exceeded", reason


def test_an_xrootd_server_without_tape_is_asked_and_says_that_files_are_on_disk(lab, name):
    put_root(lab.root[0], name, content(name, MIB))
    source, destination = lab.root[0].url(f"/{name}"), lab.root[1].url(f"/{name}")
    reason = lab.wait_failed(lab.submit_many([(source, destination)], bring_online=60, retry=-1))
    # It takes a request, but cannot tell how far that is as tape systems do.
    assert reason.startswith("STAGING [42] Failed to parse JSON object in the server response"), reason
    reason = lab.wait_failed(lab.submit_many([(source, destination)], archive_timeout=3))
    assert reason == "ARCHIVING [110] archive timeout has been exceeded", reason


def test_a_gridftp_server_has_no_tape_to_be_asked_for(lab, name):
    job = lab.submit_many([(lab.gridftp[0].url(name), lab.gridftp[1].url(name))], bring_online=60, retry=-1)
    reason = lab.wait_failed(job)
    assert reason.startswith("STAGING [93] gsiftp://localhost has no tape that gfal2 can ask: "), reason


def test_tokens_are_no_credential_for_gridftp(lab, name):
    service = Service(lab.site)
    answer = service.try_submit((lab.gridftp[0].url(name), lab.door.url(f"/{name}")))
    assert answer.status_code == 400
    assert "gsiftp://localhost takes no tokens; delegate a proxy" in answer.text


def test_sftp_is_for_the_vo_that_the_operators_named(lab, name):
    service = Service(lab.site)
    answer = service.try_submit((lab.sftp.url(name), lab.door.url(f"/{name}")))
    assert answer.status_code == 400
    assert "sftp://localhost: the site has no account there for transfers of lab" in answer.text


def test_no_process_outlives_a_service_that_was_killed(lab, faulty, name):
    data = content(name, 3 * MIB)
    source = faulty.offer("/f", data, stalled(data, 2 * MIB))
    target = lab.gridftp[0].files / name
    job = lab.submit(source, lab.gridftp[0].url(name), "-C", "both")
    eventually("bytes arrive", lambda: target.exists() and target.stat().st_size, 60)
    children = lab.children()
    assert lab.busy()
    lab.site.kill()
    eventually("no process is left", lambda: not any(is_alive(pid) for pid in children), 30)
    faulty.release()
    lab.site.start()
    # What the lost attempt has left is known to be ours.
    lab.wait_finished(job)
    assert target.read_bytes() == data


def test_without_plugins_such_jobs_are_refused_and_check_says_so(binary, tmp_path):
    site = Site(binary, tmp_path / "site", "bare", "127.0.0.22")
    found = site.command("check")
    assert re.search(r"^gfal2 plug-ins: .*gridftp", found, re.M), found
    (tmp_path / "none").mkdir()
    site.append(f'\n[transfer.gfal.environment]\nGFAL_PLUGIN_DIR = "{tmp_path / "none"}"\n')
    assert not re.search(r"^gfal2 plug-ins: .*gridftp", site.command("check"), re.M)
    try:
        site.start()
        service = Service(site)
        answer = service.try_submit(("root://localhost:1094//f", site.door + "/f"))
        assert answer.status_code == 400
        assert "gfal2-plugin-xrootd" in answer.text, answer.text
    finally:
        site.kill()
