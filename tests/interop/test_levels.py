"""Who sees and touches what: every operation of the interfaces' documents, asked by those who may not.

The documents name every operation that is served (tests of them see to that), so what is added later is asked as well.
"""

import json
import re

import pytest

from .clients import Service, content
from .conftest import make_grid, served
from .openapi import interface
from .token_issuer import TokenIssuer

ISSUER_HOST = "127.0.0.8"
SECRET = "only-for-members"
OPERATIONS = [
    (name, method.upper(), path, operation)
    for name in ("fts", "penstock")
    for path, method, operation in interface(name).operations()
]
# What a document says with an empty `security`: no credential is asked for.
PUBLIC = {(method, path) for _, method, path, operation in OPERATIONS if operation.get("security") == []}
# Answered from this very machine without a credential, as the documents say.
LOCAL = {"/health", "/health/live", "/health/ready", "/api/v1/health", "/metrics"}
# What an operator's form needs to be understood; what it says is refused before it matters.
BODIES = {
    "/jobs/{ids}": {"params": {"priority": 5}},
    "/ban/se": {"storage": "https://se.example.org"},
    "/ban/dn": {"user_dn": "/CN=Somebody"},
    "/config/links": {"source": "*", "destination": "*", "max_active": 1},
    "/config/se": {"https://se.example.org": {"se_info": {"inbound_max_active": 1}}},
    "/config/authorize": {"dn": "/CN=Somebody", "operation": "config"},
    "/config/global": {"*": {"retry": 1}},
    "/config/shares": {"source": "*", "destination": "*", "vo": "dteam", "share": 1},
    "/config/activity_shares": {"vo": "dteam", "active": True, "share": {"default": 1}},
    "/config/drain": {"hostname": "localhost"},
    "/config/cloud_storage": {"storage_name": "S3:s3.example.org"},
    "/admin/force-start": {"job_id": "x"},
    "/api/v1/mutes": {"class": "tape", "seconds": 60, "why": "a test"},
}


@pytest.fixture(scope="module")
def issuer(fault_ca):
    issuer = TokenIssuer(ISSUER_HOST, fault_ca)
    yield issuer
    issuer.close()


@pytest.fixture(scope="module")
def halls(binary, tmp_path_factory, fault_ca, issuer):
    """Two sites where tokens of an issuer are of the VO `strangers`."""
    grid = make_grid(binary, tmp_path_factory.mktemp("levels"), fault_ca)
    issuer.trusted_by(grid.here, client=None, vo="strangers")
    yield from served(grid)


@pytest.fixture(scope="module")
def ours(halls):
    """A job that has ended and one that waits, with names that nobody else may read."""
    halls.here_door.put(f"/{SECRET}/a", content("levels", 100))
    source = halls.here_door.url(f"/{SECRET}/a")
    metadata = {"note": SECRET}
    ended = halls.service.submit((source, halls.there_door.url(f"/{SECRET}/b")), job_metadata=metadata)
    halls.service.wait_finished(ended)
    halls.here.command("drain", "on", "--service", halls.service.base)
    waiting = halls.service.submit((source, halls.there_door.url(f"/{SECRET}/c")), job_metadata=metadata)
    return {"ended": ended, "waiting": waiting, "file": halls.service.files(waiting)[0]["file_id"]}


@pytest.fixture(scope="module")
def stranger(halls, issuer):
    """A user of another VO, with every scope that means something at a storage element or here."""
    scope = "fts penstock.admin penstock.monitor storage.read:/ storage.modify:/ offline_access"
    service = Service(halls.here, issuer.token(scope, audience=halls.service.base, sub="mallory"))
    seen = service.ask("GET", "/whoami").json()
    assert seen["vos"] == ["strangers"] and not seen["is_root"]
    return service


def targets(path, ours):
    """A path of a document with our jobs and files in the places of ids."""
    for job in (ours["ended"], ours["waiting"]):
        filled = re.sub(r"\{ids?\}", job, path)
        filled = re.sub(r"\{files?\}", str(ours["file"]), filled)
        filled = filled.replace("{field}", "job_metadata").replace("{vo}", "here")
        filled = filled.replace("config/{kind}", "config/links").replace("{kind}", "vo")
        yield re.sub(r"\{\w+\}", SECRET, filled)


def asked(service, method, path, ours):
    body = BODIES.get(path, {}) if method in ("POST", "PUT") else None
    for target in targets(path, ours):
        answer = service.ask(method, target, json=body)
        yield target, answer


def ids(cases):
    return [f"{method}-{path}" for _, method, path, _ in cases]


CLOSED = [case for case in OPERATIONS if case[1:3] not in PUBLIC and case[2] not in LOCAL]


@pytest.mark.parametrize("case", CLOSED, ids=ids(CLOSED))
def test_nobody_is_answered_without_a_credential(halls, ours, case):
    _, method, path, _ = case
    nobody = Service(halls.here)
    del nobody.session.headers["Authorization"]
    for target, answer in asked(nobody, method, path, ours):
        assert answer.status_code in (401, 403), f"{method} {target}: {answer.status_code} {answer.text[:200]}"
        assert SECRET not in answer.text.replace(target, "")


@pytest.mark.parametrize("case", CLOSED, ids=ids(CLOSED))
def test_another_vo_learns_nothing_and_changes_nothing(halls, ours, stranger, case):
    _, method, path, _ = case
    before = told(halls, ours)
    for target, answer in asked(stranger, method, path, ours):
        shown = answer.text.replace(target, "").replace(ours["ended"], "", 1).replace(ours["waiting"], "", 1)
        assert SECRET not in shown, f"{method} {target}: {answer.text[:500]}"
        is_of_a_job = re.search(r"\{(ids?|files?)\}", path) and path.startswith(("/jobs", "/archive", "/api"))
        if is_of_a_job:
            assert answer.status_code in (403, 404), f"{method} {target}: {answer.status_code} {answer.text[:200]}"
        elif method in ("POST", "PUT", "DELETE") and path != "/jobs/all":
            assert answer.status_code in (400, 403, 404, 405, 419), (
                f"{method} {target}: {answer.status_code} {answer.text[:200]}"
            )
    assert told(halls, ours) == before


def told(halls, ours):
    """What must not change: our jobs, and what operators have set."""
    operator = Service(halls.here, halls.here.admin_token())
    asked = ["/config/links", "/config/se", "/config/authorize", "/config/global", "/config/shares"]
    asked += ["/config/activity_shares", "/config/cloud_storage", "/ban/se", "/ban/dn"]
    settings = {path: operator.ask("GET", path).text for path in asked}
    jobs = [halls.service.job(ours[name])["job_state"] for name in ("ended", "waiting")]
    return jobs, json.dumps(settings, sort_keys=True)


def test_a_member_of_the_vo_sees_both_jobs(halls, ours):
    """So that the tests above would see what they look for."""
    member = Service(halls.here, halls.here.token(subject="bob"))
    for name in ("ended", "waiting"):
        assert SECRET in member.ask("GET", f"/jobs/{ours[name]}?files=source_surl").text
        assert SECRET in member.ask("GET", f"/api/v1/jobs/{ours[name]}/explain").text
    assert SECRET in member.ask("GET", "/jobs").text
