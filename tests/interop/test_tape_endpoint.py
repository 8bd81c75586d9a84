"""The tape endpoint of these tests, seen by gfal2: what a real client takes for a tape system is one."""

import os
import shutil
import subprocess

import pytest

from .tape_endpoint import TapeEndpoint

HOST = "127.0.0.12"


@pytest.fixture
def library(fault_ca):
    endpoint = TapeEndpoint(HOST, fault_ca)
    yield endpoint
    endpoint.close()


@pytest.fixture
def gfal(fault_ca, tmp_path):
    """Runs a command of gfal2 with a token; what it printed."""
    line = ["openssl", "x509", "-hash", "-noout", "-in", str(fault_ca.certificate)]
    name = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    shutil.copy(fault_ca.certificate, tmp_path / f"{name}.0")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "BEARER_TOKEN": "t"}
    environment |= {"X509_CERT_DIR": str(tmp_path), "GFAL_PYTHONBIN": "/usr/bin/python3"}

    def run(command, *words):
        line = [f"gfal-{command}", *words]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


def test_gfal_brings_a_file_to_disk_reads_it_and_lets_it_go(library, gfal, tmp_path):
    url = library.put_on_tape("/store/f", b"from tape")
    assert gfal("copy", url, f"file://{tmp_path}/early")[0] != 0
    code, shown = gfal("bringonline", "--polling-timeout", "60", url)
    assert (code, "READY" in shown) == (0, True), shown
    assert gfal("xattr", url, "user.status")[1].strip() == "ONLINE_AND_NEARLINE"
    code, shown = gfal("copy", url, f"file://{tmp_path}/copy")
    assert code == 0, shown
    [request] = library.requests
    assert gfal("evict", url, request)[0] == 0
    assert gfal("xattr", url, "user.status")[1].strip() == "NEARLINE"


def test_gfal_sees_when_a_file_is_archived(library, gfal):
    url = library.put_on_disk("/store/f", b"new")
    code, shown = gfal("archivepoll", url)
    assert "READY" not in shown, shown
    library.files["/store/f"].on_tape = True
    code, shown = gfal("archivepoll", url)
    assert (code, "READY" in shown) == (0, True), shown
