"""History goes when its time is over, while files move; what is open, or not yet taken by a sink, stays."""

import json
import sqlite3
import time
import uuid
from contextlib import closing

import pytest
import requests

from .clients import Door, Service, content
from .site import Site, free_port
from .waiting import eventually

HOST = "127.0.3.31"
DAY_MS = 86_400_000
DATA = content("history", 1000)
COPIES = """
    INSERT INTO job (job_id, user, vo, delegation, submitted_ms, finished_ms, final_state, priority, parameters,
        source_se, destination_se, ended_sequence)
    SELECT :job, user, vo, delegation, submitted_ms, finished_ms, final_state, priority, parameters, source_se,
        destination_se, ended_sequence FROM job WHERE job_id = :template;
    INSERT INTO transfer (transfer_id, job_id, request, state_name, state, size_bytes, started_ms, finished_ms)
    SELECT :transfer, :job, request, state_name, state, size_bytes, started_ms, finished_ms
        FROM transfer WHERE job_id = :template;
    INSERT INTO ledger (at_ms, monotonic_us, job_id, transfer_id, version, event)
    SELECT at_ms, monotonic_us, :job, :transfer, version, event FROM ledger WHERE job_id = :template"""


@pytest.fixture
def site(binary, tmp_path, fault_ca):
    """A site that copies within itself."""
    site = Site(binary, tmp_path / "site", "keeper", HOST)
    site.trust(fault_ca.certificate)
    try:
        yield site
    finally:
        site.kill()


def move(site, name, **params):
    door = Door(site)
    if not door.exists("/source"):
        door.put("/source", DATA)
    return Service(site).submit((door.url("/source"), door.url(f"/{name}")), **params)


def moved(site, name):
    job = move(site, name)
    Service(site).wait_finished(job)
    return job


def change(site, *statements):
    """Changes the journal of a site that is stopped."""
    with closing(sqlite3.connect(site.directory / "state/transfer.sqlite")) as database, database:
        for statement in statements:
            database.execute(*statement)


def grow_old(site, job, days):
    """As if the job had been submitted and had ended so many days earlier."""
    by = days * DAY_MS
    change(
        site,
        ("UPDATE job SET submitted_ms = submitted_ms - ?, finished_ms = finished_ms - ? WHERE job_id = ?", (by, by, job)),
        ("UPDATE ledger SET at_ms = at_ms - ? WHERE job_id = ?", (by, job)),
        ("UPDATE link_sample SET at_ms = at_ms - ?", (by,)),
    )


def multiply(site, job, times):
    """Copies of a job that has ended, each with its transfer and entries."""
    with closing(sqlite3.connect(site.directory / "state/transfer.sqlite")) as database, database:
        (first,) = database.execute("SELECT max(transfer_id) + 1 FROM transfer").fetchone()
        for number in range(times):
            values = {"job": str(uuid.uuid4()), "template": job, "transfer": first + number}
            for statement in COPIES.split(";"):
                database.execute(statement, values)


def history(site):
    return json.loads(site.command("history", "--json"))


def transfers(site):
    return site.journal("SELECT count(*) FROM transfer")[0][0]


def known(site, job):
    return Service(site).ask("GET", f"/jobs/{job}").status_code == 200


def metric(site, name):
    answer = requests.get(f"{site.service}/metrics", verify=str(site.certificates), timeout=10)
    lines = [line.split() for line in answer.text.splitlines() if line.startswith(name)]
    return sum(float(value) for _, value in lines)


def test_old_jobs_go_and_numbers_are_not_given_again(site):
    site.start()
    old, young = moved(site, "old"), moved(site, "young")
    numbers = [file["file_id"] for job in (old, young) for file in Service(site).files(job)]
    last = history(site)["sequence_last"]
    site.stop()
    # The youngest number is among those that go.
    change(site, ("UPDATE transfer SET transfer_id = 1000 WHERE job_id = ?", (old,)))
    change(site, ("UPDATE ledger SET transfer_id = 1000 WHERE job_id = ?", (old,)))
    grow_old(site, old, 91)
    site.start()
    eventually("the old job is gone", lambda: not known(site, old))
    assert known(site, young)
    assert site.journal("SELECT count(*) FROM ledger WHERE job_id = ?", old) == [(0,)]
    assert site.journal("SELECT count(*) FROM link_sample") == [(0,)]
    eventually("it is told", lambda: metric(site, 'penstock_history_removed_total{kind="jobs"}') == 1)
    told = history(site)
    assert told["removed"]["jobs"] == 1 and told["removed"]["transfers"] == 1
    assert told["removed"]["until"] > 0 and told["sequence_last"] >= last
    site.stop()
    site.start()
    newest = Service(site).files(moved(site, "newest"))[0]["file_id"]
    assert newest > 1000 and newest not in numbers
    until = told["removed"]["until"]

    def tells_since_when():
        return Service(site).ask("GET", "/api/v1/transfers?within=0").json()["removed_until"] == until

    eventually("searches tell since when", tells_since_when)
    missing = Service(site).ask("GET", "/api/v1/transfers/1000")
    assert missing.status_code == 404 and "no longer kept" in missing.text


def test_what_is_open_stays_however_old_it_is(site):
    site.start()
    site.command("drain", "on")
    job = move(site, "waiting")
    site.stop()
    change(site, ("UPDATE job SET submitted_ms = submitted_ms - ?", (400 * DAY_MS,)))
    site.start()
    # Something else goes meanwhile: pruning is at work.
    site.command("drain", "off")
    Service(site).wait_finished(job)
    done = moved(site, "done")
    site.stop()
    grow_old(site, done, 91)
    site.start()
    eventually("what ended is gone", lambda: not known(site, done))
    assert known(site, job)


def test_a_sink_that_is_away_holds_history_back_and_not_for_ever(site):
    port = free_port(HOST)
    site.append(
        f'[[transfer.messages]]\nname = "away"\nbrokers = ["stomp://{HOST}:{port}"]\nuser = "u"\n'
        f'password_file = "keys/broker"\n'
    )
    secret = site.directory / "keys/broker"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    site.start()
    job = moved(site, "file")
    site.stop()
    grow_old(site, job, 100)
    site.start()
    eventually("it is held", lambda: metric(site, "penstock_history_held_seconds") > 9 * 86_400)
    told = history(site)
    assert told["held"]["sinks"] == ["away"] and told["held"]["goes_in_seconds"] > 19 * 86_400
    assert known(site, job)
    assert "history is kept longer" in site.log_text()
    site.configure("[transfer]", history_held_max="7d")
    site.stop()
    site.start()
    eventually("it is gone", lambda: not known(site, job))
    eventually("it is told", lambda: metric(site, "penstock_history_untaken_total") == 1)
    assert "before every sink had taken it" in site.log_text()


def test_files_move_while_history_goes_and_a_kill_in_between_loses_nothing(site):
    site.start()
    template = moved(site, "template")
    site.stop()
    grow_old(site, template, 100)
    multiply(site, template, 1500)
    site.start()
    before = transfers(site)
    eventually("some are gone", lambda: transfers(site) < before - 200, 30)
    jobs = [move(site, f"beside-{number}") for number in range(10)]
    site.kill()
    site.start()
    jobs += [move(site, f"after-{number}") for number in range(10)]
    for job in jobs:
        Service(site).wait_finished(job)
    eventually("all that is old is gone", lambda: history(site)["removed"]["jobs"] == 1501, 60)
    assert transfers(site) == 20
    orphans = "SELECT count(*) FROM ledger WHERE transfer_id NOT IN (SELECT transfer_id FROM transfer)"
    assert site.journal(orphans) == [(0,)]
    assert site.journal("PRAGMA integrity_check") == [("ok",)]
    assert history(site)["free_bytes"] > 0


def test_times_that_would_harm_clients_are_refused_with_the_remedy(site):
    site.configure("[transfer]", keep_history="0s")
    with pytest.raises(AssertionError, match="forever"):
        site.command("check")


def test_a_site_that_never_ran_says_so(site):
    with pytest.raises(AssertionError, match="does not exist yet"):
        site.command("history")
    began = time.monotonic()
    site.start()
    assert history(site)["removed"]["until"] is None and time.monotonic() - began < 60
