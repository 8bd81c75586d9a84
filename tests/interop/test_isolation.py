"""What one end does to the others: nothing. A storage that never answers delays no other link, and clients that vanish
leave nothing behind.
"""

import json
import os
import random
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .clients import Door, Service, content
from .conftest import make_grid
from .fault_server import FaultServer, silent
from .waiting import eventually

HEALTHY_HOSTS = [f"127.0.2.{last}" for last in range(1, 20)]
HUNG_HOST = "127.0.2.20"
HUNG_FILES = 120
FILES_OF_EACH = 3
# Longer than the test: what hangs goes on hanging while the others arrive.
HUNG_TIMEOUT_SECONDS = 3600
DATA = content("isolation", 20_000)
MEMORY_BYTES_MAX = 64 << 20
CLIENTS_AT_ONCE = 16


class Mute:
    """Accepts connections, reads nothing, and never says a word: not even TLS gets through."""

    def __init__(self, host):
        self.listener = socket.create_server((host, 0), backlog=256)
        self.taken = []
        self.url = f"https://{host}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                self.taken.append(self.listener.accept()[0])
            except OSError:
                return

    def offer(self, path):
        return self.url + path

    def close(self):
        self.listener.close()
        for connection in self.taken:
            connection.close()


class Hanging(FaultServer):
    """Tells sizes and checksums at once, and never sends a byte of a file."""

    def offer(self, path):
        return super().offer(path, DATA, get=silent)


@pytest.fixture(scope="module")
def grid(binary, tmp_path_factory, fault_ca):
    """Two sites that may fetch from everybody here."""
    made = make_grid(binary, tmp_path_factory.mktemp("isolation"), fault_ca)
    for site in made.sites:
        site.allow(*HEALTHY_HOSTS, HUNG_HOST)
        site.start()
    yield made
    codes = [site.stop()[0] for site in made.sites]
    assert codes == [0, 0], f"sites ended with {codes}"


@pytest.fixture(scope="module")
def healthy(fault_ca):
    servers = [FaultServer(host, fault_ca) for host in HEALTHY_HOSTS]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture(params=["is mute", "tells of files and sends none"])
def hung(request, fault_ca):
    server = Mute(HUNG_HOST) if request.param == "is mute" else Hanging(HUNG_HOST, fault_ca)
    yield server
    server.close()


def test_a_storage_that_never_answers_delays_no_other_link(grid, healthy, hung, place):
    service, there = Service(grid.here), Door(grid.there)
    pairs = [(hung.offer(f"{place}/{name}"), there.url(f"{place}/hung/{name}")) for name in range(HUNG_FILES)]
    stuck = service.submit(*pairs, retry=-1, timeout=HUNG_TIMEOUT_SECONDS)
    service.wait_state(stuck, "ACTIVE")
    jobs = []
    for server in healthy:
        files = [f"{place}/{server.host}/{number}" for number in range(FILES_OF_EACH)]
        jobs.append(service.submit(*((server.offer(file, DATA), there.url(file)) for file in files)))
    for job in jobs:
        service.wait_finished(job)
    states = {file["file_state"] for file in service.files(stuck)}
    assert states <= {"ACTIVE", "SUBMITTED"}, "what hangs hung all the while"
    assert "ACTIVE" in states
    service.ask("DELETE", f"/jobs/{stuck}")
    service.wait_state(stuck, "CANCELED")
    service.wait_idle()
    grid.there.wait_tidy()


class Process:
    """What a site's process holds."""

    def __init__(self, site):
        self.at = Path(f"/proc/{site.process.pid}")

    def descriptors(self):
        return len(os.listdir(self.at / "fd"))

    def threads(self):
        return len(os.listdir(self.at / "task"))

    def memory(self):
        [line] = [line for line in (self.at / "status").read_text().splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) << 10


class Vanishing:
    """Submits a job and goes away at a moment of its own choice."""

    def __init__(self, site, token, source, destination):
        self.address = (site.host, site.base + 3)
        self.context = ssl.create_default_context(capath=str(site.certificates))
        self.token, self.source, self.destination = token, source, destination

    def submit(self, number):
        draw = random.Random(number)
        file = {"sources": [self.source], "destinations": [f"{self.destination}/{number}"]}
        body = json.dumps({"files": [file], "params": {"retry": -1}}).encode()
        head = f"POST /jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n"
        request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        with socket.create_connection(self.address, timeout=60) as plain:
            if draw.random() < 0.1:
                return
            with self.context.wrap_socket(plain, server_hostname=self.address[0]) as line:
                match draw.randrange(4):
                    case 0:
                        line.sendall(request[: draw.randrange(len(request))])
                    case 1:
                        line.sendall(request)
                    case 2:
                        line.sendall(request)
                        line.recv(1)
                    case _:
                        line.sendall(request)
                        line.recv(65536)


def test_clients_that_vanish_leave_nothing_behind(grid, tier, place):
    """Their jobs are run to the end all the same, as far as they were whole."""
    site = grid.here
    missing, nowhere = grid.here_door.url(f"{place}/missing"), grid.there_door.url(place)
    vanishing = Vanishing(site, site.token(), missing, nowhere)

    def submit_many(numbers):
        with ThreadPoolExecutor(CLIENTS_AT_ONCE) as pool:
            list(pool.map(vanishing.submit, numbers))
        eventually("all jobs have ended", lambda: open_jobs() == 0, 600)

    def open_jobs():
        return site.journal("SELECT count(*) FROM job WHERE finished_ms IS NULL")[0][0]

    # Pools, caches and threads get the size that they need.
    submit_many(range(tier.vanishing_jobs // 10))
    process = Process(site)
    descriptors, threads, memory = process.descriptors(), process.threads(), process.memory()
    submit_many(range(tier.vanishing_jobs))
    eventually("descriptors are closed", lambda: process.descriptors() <= descriptors + 8, 60)
    eventually("threads that found nothing to do have ended", lambda: process.threads() <= threads + 4, 60)
    grown = process.memory() - memory
    assert grown < MEMORY_BYTES_MAX, f"{grown >> 20} MiB more"
    counted = site.journal("SELECT count(*) FROM job")[0][0]
    assert counted > tier.vanishing_jobs // 3, "most of them were taken"
