"""`penstock demo`: with `--stay` the sites keep running, with something to look at, until a signal ends all of it."""

import json
import os
import shlex
import signal
import socket
import subprocess
from urllib.parse import urlsplit

import pytest
import requests

from .waiting import eventually

# Enough that the link's limit makes files wait.
SMALL = ("--files", "6", "--size", "6 MB")


class Demo:
    """A demo that runs, in a process group of its own as from a terminal."""

    def __init__(self, binary, tmp_path, *words):
        self.printed = tmp_path / "printed"
        self.temporary = tmp_path / "sites"
        self.temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        with open(self.printed, "wb") as out:
            line = [str(binary), "demo", *SMALL, *words]
            self.process = subprocess.Popen(line, stdout=out, stderr=subprocess.STDOUT, env=environment, process_group=0)

    def text(self):
        return self.printed.read_text()

    def shows(self, text):
        def seen():
            assert self.process.poll() is None or text in self.text(), self.text()
            return text in self.text()

        eventually(f"it shows '{text}'", seen, 90)

    def end(self, number):
        """Ctrl-C in a terminal reaches the whole group."""
        os.killpg(self.process.pid, number)
        code = self.process.wait(60)
        # What it had made is gone: nobody uses it any more.
        assert list(self.temporary.iterdir()) == []
        return code


@pytest.fixture
def start(binary, tmp_path):
    started = []

    def run(*words):
        started.append(Demo(binary, tmp_path, *words))
        return started[-1]

    yield run
    for demo in started:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(60)


def is_open(url):
    place = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((place.hostname, place.port)) == 0


def run(line):
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_who_stays_gets_addresses_and_a_job_to_look_at(start):
    demo = start("--stay")
    demo.shows("until Ctrl-C")
    demo.shows("ls --dir")
    lines = [line.strip() for line in demo.text().partition("until Ctrl-C")[2].splitlines()]
    explain, top, login, listing = [line for line in lines if " --dir " in line]
    addresses = {line.split()[0]: line.split()[1] for line in lines if line.startswith(("north ", "south ", "live "))}
    assert list(addresses) == ["north", "south", "live"]

    # Failures first, in one sentence, then why the others wait.
    told = eventually("the missing file has failed", lambda: "1 failed" in (shown := run(explain)) and shown)
    # Files that move just then stand before them, with their rate.
    summary, failure = [line for line in told.splitlines() if " moving: " not in line][:2]
    assert "1 failed" in summary and "queued" in told, told
    assert failure.startswith("1 file failed at the source: The path does not exist. [path-not-found]"), told
    assert "details:" not in told and "details: " in run(f"{explain} --verbose")
    assert json.loads(run(f"{explain} --json"))["totals"]["files"] == 7
    assert "LINK" in run(f"{top} --once")
    assert run(listing)

    # The link in a browser: the page, and its data for the token that stands behind the address.
    page, _, secret = addresses["live"].partition("#login=")
    root = next(demo.temporary.iterdir()) / "north"
    trusted = str(root / "ca" / "ca.pem")
    assert "<html" in requests.get(page, verify=trusted, timeout=30).text
    service = page.removesuffix("/live/")
    redeem = {"url": f"{service}/api/v1/access-links/redeem", "json": {"secret": secret}, "verify": trusted, "timeout": 30}
    token = requests.post(**redeem).json()["token"]
    assert requests.post(**redeem).status_code == 410
    assert "/live/#login=" in run(login)
    seen = requests.get(f"{page}api/series", headers={"Authorization": f"Bearer {token}"}, verify=trusted, timeout=30)
    assert seen.status_code == 200, seen.text

    # The log has the failure, and the job.
    log = (root / "serve.log").read_text()
    assert log.count("a transfer has failed") == 1 and "path-not-found" in log, log
    assert log.count("a job was accepted") == 2, log

    assert demo.end(signal.SIGINT) == 0, demo.text()
    assert not any(is_open(url) for url in addresses.values())


def test_programs_are_told_what_runs_on_and_end_it_by_sigterm(start):
    demo = start("--stay", "--json")
    told = eventually("the report", lambda: demo.text().endswith("}\n") and json.loads(demo.text()), 90)
    stay = told["stay"]
    assert stay["files"] == 7 and len(stay["commands"]) == 4 and is_open(stay["north"])
    assert demo.end(signal.SIGTERM) == 0
    assert not is_open(stay["north"]) and not is_open(stay["south"])


def test_a_demo_that_is_stopped_before_its_report_says_so(start):
    demo = start()
    demo.shows("north")
    assert demo.end(signal.SIGTERM) == 130
    assert "both sites are shut down" in demo.text()


def test_a_site_that_ends_by_itself_ends_the_demo(start):
    demo = start("--stay", "--json")
    told = eventually("the report", lambda: demo.text().endswith("}\n") and json.loads(demo.text()), 90)
    root = next(demo.temporary.iterdir())
    os.kill(int((root / "south" / "state" / "serve.lock").read_text()), signal.SIGKILL)
    assert demo.process.wait(60) == 7
    assert "the south site ended unexpectedly" in demo.text()
    assert not is_open(told["stay"]["north"])
