"""Storage elements that are reached by the system's gfal2: real GridFTP, XRootD and sftp servers, and jobs that the
fts3 client submits with a delegated proxy. A process works for each attempt, and what becomes of it concerns that
attempt alone.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from .clients import TERMINAL, Door, adler32, content
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

    vo = "Alice Lab@interop.lab"

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

    def children(self):
        """Processes of the site that work with gfal2, by process id."""
        found = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.site.process.pid)], capture_output=True, text=True
        )
        rows = (line.split(None, 1) for line in found.stdout.splitlines())
        return [int(pid) for pid, line in rows if "gfal-agent" in line]


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, user_ca):
    lab = Lab(binary, tmp_path_factory.mktemp("gfal"), user_ca)
    try:
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
