"""A record that the journal refuses for good stops nobody but who asked for it; what was refused is not taken for done."""

import sqlite3
from contextlib import closing

import pytest

from .clients import Door, Service, content
from .site import Site
from .waiting import eventually

HOST = "127.0.7.31"
POISON = "a job that the journal does not take"


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory):
    """A site that copies within itself."""
    site = Site(binary, tmp_path_factory.mktemp("refusing") / "site", "refusing", HOST)
    site.configure("[transfer]", retries=0)
    site.start()
    Door(site, site.token()).put("/from", content("refused", 5000))
    yield site
    site.kill()


def copy_to(site, name):
    return f"{site.door}/from", f"{site.door}/{name}"


def execute(site, sql):
    with closing(sqlite3.connect(site.directory / "state/transfer.sqlite", timeout=20)) as journal:
        journal.execute(sql)
        journal.commit()


def test_a_record_that_is_refused_stops_nobody_else(site):
    service = Service(site)
    done = service.submit(copy_to(site, "before"))
    execute(
        site,
        "CREATE TRIGGER refuse BEFORE INSERT ON job WHEN NEW.parameters LIKE '%does not take%' "
        "BEGIN SELECT RAISE(ABORT, 'no such job here'); END",
    )
    try:
        # Its name is free for the next one.
        poisoned = {"job_metadata": {"label": POISON}, "id_generator": "deterministic", "sid": "refused"}
        refused = service.try_submit(copy_to(site, "refused"), **poisoned)
        assert refused.status_code == 500, f"{refused.status_code} {refused.text}"
        assert "no such job here" in refused.json()["message"]
        # What comes before and after is taken, and done.
        for job in (done, service.submit(copy_to(site, "after"))):
            assert service.wait(job)["job_state"] == "FINISHED"
        findings = service.ask("GET", "/health").json()["findings"]
        assert any("refused 1 record" in finding["text"] for finding in findings), findings
        metrics = service.ask("GET", "/metrics").text
        assert "penstock_journal_refusals_total 1\n" in metrics
        assert site.journal("SELECT count(*) FROM job WHERE parameters LIKE '%does not take%'") == [(0,)]
    finally:
        execute(site, "DROP TRIGGER refuse")
    taken = service.submit(copy_to(site, "refused"), **poisoned)
    assert service.wait(taken)["job_state"] == "FINISHED"


def test_a_job_that_was_refused_was_not_submitted_before(site):
    service, admin = Service(site), Service(site, site.admin_token())
    ban = {"storage": site.storage_id, "status": "cancel"}
    assert admin.ask("POST", "/ban/se", json=ban).status_code == 200
    params = {"id_generator": "deterministic", "sid": "asked twice"}
    try:
        for _ in range(2):
            answer = service.try_submit(copy_to(site, "banned"), **params)
            assert answer.status_code == 403, f"{answer.status_code} {answer.text}"
    finally:
        assert admin.ask("DELETE", "/ban/se", params={"storage": site.storage_id}).status_code == 204
    job = service.submit(copy_to(site, "banned"), **params)
    assert service.try_submit(copy_to(site, "banned"), **params).status_code == 409
    assert service.wait(job)["job_state"] == "FINISHED"


def test_a_journal_that_is_gone_is_not_made_anew(site):
    site.stop()
    state = site.directory / "state"
    for part in state.glob("transfer.sqlite*"):
        part.rename(part.with_name(part.name.replace("transfer", "aside")))
    site.launch()
    eventually("it ends", lambda: not site.is_running())
    site.kill()
    assert "is a file system not mounted" in site.log_text()
    assert not (state / "transfer.sqlite").exists()
    for part in state.glob("aside.sqlite*"):
        part.rename(part.with_name(part.name.replace("aside", "transfer")))
    site.start()
