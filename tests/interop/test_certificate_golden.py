"""Requests that the fts3 client and Rucio were recorded to send with certificates, and our answers, compared with golden
files. What is tested once with a token (`test_fts3_golden.py`) and answered alike is here once more in the order of a
whole command.

The requests are those of fts3 3.14.2 and of Rucio 41.5.1; the golden answers are our own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from . import golden
from .certificates import VO
from .clients import Door, Service, adler32, content
from .conftest import make_grid
from .fault_server import stalled
from .recorder import FIELDS_OF_RUCIO, FILE, NOBODY, PARAMS, Recorder
from .waiting import eventually

RUCIO_AGENT = "python-requests/2.32.5"
TOOLS = Path(sys.executable).parent
# What Rucio says of each job.
OF_RUCIO = {
    "account": "root",
    "verify_checksum": "both",
    "copy_pin_lifetime": None,
    "bring_online": None,
    "job_metadata": {"issuer": "rucio", "multi_sources": False, "overwrite_when_only_on_disk": False},
    "overwrite": True,
    "overwrite_when_only_on_disk": False,
    "priority": 3,
    "s3alternate": True,
    "max_time_in_queue": 168,
}


class Lab:
    def __init__(self, grid, ca):
        self.here, self.there = grid.here, grid.there
        self.grid = grid
        alice = ca.user("Alice Lab")
        self.proxy, self.subject = ca.voms_proxy(alice), alice.subject
        for site in grid.sites:
            ca.trusted_by(site)
            site.configure("[issuer]", vo=VO)
            site.append(f'\n[[storage.group]]\ngroup = "/{VO}"\npath = "/{VO}"\nrights = ["read", "modify"]\n')
        self.here.append(f'\n[[transfer.administrator]]\ndn = "{alice.subject}"\n')
        for site in grid.sites:
            site.start()
        self.service = Service(self.here)
        del self.service.session.headers["Authorization"]
        self.service.session.cert = str(self.proxy.pem)

    def delegate(self):
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            "X509_CERT_DIR": str(self.here.certificates),
            "X509_USER_PROXY": str(self.proxy.pem),
        }
        line = [str(TOOLS / "fts-rest-delegate"), "-s", self.here.service]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, fault_ca, user_ca):
    grid = make_grid(binary, tmp_path_factory.mktemp("golden"), fault_ca)
    try:
        lab = Lab(grid, user_ca)
        lab.delegate()
        yield lab
    finally:
        for site in grid.sites:
            site.kill()


@pytest.fixture
def at(place):
    return f"/{VO}{place}"


@pytest.fixture
def recorder(lab, faulty, at):
    recorder = Recorder(lab.service, lab.grid, faulty, place=at)
    recorder.normalised.named += [
        (lab.here.door.replace("https", "davs"), "<davs door>"),
        (lab.there.door.replace("https", "davs"), "<davs other>"),
    ]
    return recorder


@pytest.fixture
def check(recorder, request):
    write = request.config.getoption("--write-golden")
    return lambda name: golden.check(name, recorder.exchanges, write)


@pytest.fixture
def ends(lab, at):
    return give(lab, at, "source")


def give(lab, at, name):
    """Both ends of a file that is at the source."""
    Door(lab.here).put(f"{at}/{name}", content(name, 10_000))
    return {"sources": [f"{lab.here.door}{at}/{name}"], "destinations": [f"{lab.there.door}{at}/copies/{name}"]}


@pytest.fixture
def stuck(lab, faulty, at):
    """Ends of a file that does not move while the test looks at it."""
    source = faulty.offer(f"{at}/stuck", b"y" * 500, get=stalled(b"y" * 500, after=1))
    yield {"sources": [source], "destinations": [f"{lab.there.door}{at}/stuck"]}
    faulty.release()


def introduce(recorder):
    """What every command asks that wants a delegation: who it is, and whether there is one."""
    recorder.ask("GET", "//")
    who = recorder.ask("GET", "//whoami")
    recorder.normalised.named += [(who["delegation_id"], "<identity>")]
    assert recorder.ask("GET", f"//delegation/{who['delegation_id']}")["termination_time"]


def test_whoami_of_a_certificate(recorder, check):
    recorder.ask("GET", "//")
    recorder.ask("GET", "//whoami")
    check("whoami-x509")


def test_a_delegation_that_is_good_still(recorder, check):
    introduce(recorder)
    introduce(recorder)
    check("delegate-again")


def test_a_submission_that_is_waited_for(recorder, ends, check, lab):
    introduce(recorder)
    job = recorder.submit(**ends)
    lab.service.wait_finished(job)
    recorder.ask("GET", f"//jobs/{job}")
    check("submit-blocking")


def test_a_submission_with_the_options_of_tape(recorder, tape, check, lab, at):
    recorder.normalised.named += [(tape.url, "<tape>")]
    params = {"bring_online": 600, "copy_pin_lifetime": 3600, "archive_timeout": 900}
    ends = {"sources": [tape.put_on_tape(f"{at}/source", b"x")], "destinations": [f"{tape.url}{at}/copy"]}
    job = recorder.submit(params, **ends)
    lab.service.wait_finished(job)
    recorder.ask("GET", f"//jobs/{job}")
    check("submit-bringonline")


def test_a_deletion(recorder, check, lab, at):
    params = {"spacetoken": None, "job_metadata": "None", "retry": 0, "credential": None}
    urls = [f"{lab.there.door}{at}/{number}" for number in (1, 2)]
    recorder.ask("POST", "//jobs", {"params": params, "delete": urls})
    check("delete-submit")


def test_the_state_and_the_list_of_what_runs(recorder, stuck, check, lab, faulty):
    job = recorder.submit(**stuck)
    lab.service.wait_state(job, "ACTIVE")
    recorder.ask("GET", f"//jobs/{job}")
    subject = lab.subject.replace("/", "%2F").replace("=", "%3D").replace(" ", "%20")
    recorder.ask("GET", f"//jobs?user_dn={subject}&vo_name={VO}&source_se=https%3A%2F%2F{faulty.host}%3A8443")
    # The live view is of a moment ago.
    counted = {lab.here.host: {"active": 1, "staging": 0}}
    eventually("one is counted", lambda: lab.service.ask("GET", "/status/hosts").json() == counted)
    recorder.ask("GET", "//status/hosts")
    recorder.ask("DELETE", f"//jobs/{job}")
    check("list-x509")


def test_a_ban_and_its_end(recorder, check):
    ban = {"storage": "https://127.0.0.99:8443", "status": "cancel", "timeout": 0, "allow_submit": False}
    recorder.ask("POST", "//ban/se", ban)
    recorder.ask("GET", "/ban/se", agent=RUCIO_AGENT)
    recorder.ask("DELETE", "//ban/se?storage=https%3A%2F%2F127.0.0.99%3A8443")
    check("ban-se")


def rucios(number, ends, source_type="DISK", destination_type="DISK", **more):
    """A file as Rucio names it, with what it wants to be told of it later."""
    name = f"ds.{number}"
    data = content(f"rucio {number}", 10_000)
    metadata = {
        "request_id": f"{number:032x}",
        "scope": "lab",
        "name": name,
        "activity": "User Subscriptions",
        "request_type": "TRANSFER",
        "src_type": source_type,
        "dst_type": destination_type,
        "src_rse": "LAB1",
        "dst_rse": "LAB2",
        "src_rse_id": "f320a03dd0f54169998a7a39745b6891",
        "dest_rse_id": "11a277f7e41148c2a0251ccfce081b12",
        "filesize": len(data),
        "md5": "4a7d97cb00bdd6659e807ee0b00960eb",
        "adler32": adler32(data),
    }
    file = {
        "metadata": metadata | more.pop("metadata", {}),
        "filesize": len(data),
        "checksum": f"ADLER32:{adler32(data)}",
        "selection_strategy": "orderly",
        "activity": "User Subscriptions",
    }
    return ends | file | more


def offer(lab, at, number, scheme="https"):
    name = f"rucio-{number}"
    Door(lab.here).put(f"{at}/{name}", content(f"rucio {number}", 10_000))
    source, destination = (url.replace("https", scheme) for url in (lab.here.door, lab.there.door))
    return {"sources": [f"{source}{at}/{name}"], "destinations": [f"{destination}{at}/copies/{name}"]}


def poll(recorder, *jobs):
    return recorder.ask("GET", f"/jobs/{','.join(jobs)}?files={FIELDS_OF_RUCIO}", agent=RUCIO_AGENT)


def test_rucio_submits_files_together_and_asks_for_several_jobs(recorder, check, lab, at):
    files = [rucios(number, offer(lab, at, number)) for number in range(1, 4)]
    job = recorder.ask("POST", "/jobs", {"files": files, "params": OF_RUCIO}, RUCIO_AGENT)["job_id"]
    lab.service.wait_finished(job)
    poll(recorder, job)
    poll(recorder, job, NOBODY)
    poll(recorder, NOBODY)
    check("rucio-x509")


def test_rucio_submits_with_tokens_and_polls_with_a_certificate(recorder, check, lab, at):
    def token(scope, site):
        return lab.here.token(scope, audience=site.host, subject="rucio")

    source = token(f"offline_access storage.read:{at}", lab.here)
    destination = token(f"offline_access storage.modify:{at} storage.read:{at}", lab.there)
    recorder.normalised.named += [(source, "<source token>"), (destination, "<destination token>")]
    tokens = {"source_tokens": [source], "destination_tokens": [destination]}
    client = Service(lab.here, token("fts", lab.here))
    body = {"files": [rucios(7, offer(lab, at, 7, "davs"), **tokens)], "params": OF_RUCIO}
    job = recorder.ask("POST", "/jobs", body, RUCIO_AGENT, service=client)["job_id"]
    lab.service.wait_finished(job)
    poll(recorder, job)
    check("rucio-tokens")


def test_rucio_submits_from_tape_to_tape(recorder, tape, check, lab, at):
    recorder.normalised.named += [(tape.url, "<tape>")]
    params = OF_RUCIO | {
        "bring_online": 43200,
        "overwrite": False,
        "archive_timeout": 3600,
        "dst_file_report": True,
    }
    files = [
        rucios(
            number,
            {
                "sources": [tape.put_on_tape(f"{at}/rucio-{number}", content(f"rucio {number}", 10_000))],
                "destinations": [f"{tape.url}{at}/copies/rucio-{number}"],
            },
            "TAPE",
            "TAPE",
            metadata={"vo": "def"},
            staging_metadata={"default": {"activity": "User Subscriptions"}},
        )
        for number in (8, 9)
    ]
    job = recorder.ask("POST", "/jobs", {"files": files, "params": params}, RUCIO_AGENT)["job_id"]
    lab.service.wait_finished(job)
    poll(recorder, job)
    check("rucio-tape")
