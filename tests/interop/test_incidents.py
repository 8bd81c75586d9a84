"""What went wrong, by cause: asked of a service over REST and by command, and of the record of a site that is stopped."""

import json
import re
import subprocess
from datetime import datetime, timezone

import pytest

from .clients import Service, content
from .waiting import eventually

DATA = content("incidents", 1000)
FILES = 40


def untimed(ticket):
    """A ticket without when its incident was last seen."""
    return re.sub(r"last seen \S+ \(UTC\), .*? later", "last seen", ticket)


@pytest.fixture
def admin(own_grid):
    # A halted link would make many failures last long.
    own_grid.here.configure("[transfer]", halt_after=0)
    for site in own_grid.sites:
        site.start()
    return Service(own_grid.here, own_grid.here.token("penstock.admin", subject="root"))


@pytest.fixture
def broken(own_grid, admin, faulty, place):
    """A job of many files that a source breaks off for one cause."""

    def breaks(exchange):
        exchange.reply(500, b"the disk of the source is broken\n")

    pairs = []
    for number in range(FILES):
        source = faulty.offer(f"{place}/{number}", DATA, get=breaks)
        pairs.append((source, own_grid.there_door.url(f"{place}/{number}")))
    job = own_grid.service.submit(*pairs, retry=-1)
    assert own_grid.service.wait(job)["job_state"] == "FAILED"
    return {"source": faulty.url.rsplit(":", 1)[0], "destination": own_grid.there.storage_id}


def code_of(site, *words):
    line = [str(site.binary), "incidents", *words, "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_many_failures_of_one_cause_are_one_incident_in_every_form(own_grid, admin, broken):
    grid = own_grid
    told = admin.ask("GET", "/api/v1/incidents").json()
    assert len(told["incidents"]) == 1, told["incidents"]
    [incident] = told["incidents"]
    assert incident["failed_attempts"] == FILES and incident["drops"] == 0, incident
    assert (incident["class"], incident["place"]) == ("storage", {"link": broken}), incident
    assert incident["is_open"] and "the disk of the source is broken" in incident["text"], incident
    month = datetime.now(timezone.utc).strftime("%Y-%m")
    [of_month] = told["months"]
    assert of_month["month"] == month and of_month["classes"][0]["share_percent"] == 100.0, of_month

    # One of them, as far as who asks may see.
    path = f"/api/v1/incidents/{incident['id']}"
    whole, shown = admin.ask("GET", path).json(), grid.service.ask("GET", path).json()
    assert whole["ticket"].startswith("Subject\n  [storage] ") and str(FILES) in whole["ticket"], whole
    assert shown["failed_attempts"] == FILES and shown["id"] == incident["id"]
    assert incident["object"] not in json.dumps(shown), shown
    for name in ("00000000-00000000", "x"):
        unknown = admin.ask("GET", f"/api/v1/incidents/{name}")
        assert unknown.status_code == 404 and "penstock incidents" in unknown.text
    for query in ("?class=storm", "?seconds=0", "?until=-1"):
        assert admin.ask("GET", f"/api/v1/incidents{query}").status_code == 400, query
    assert admin.ask("GET", "/api/v1/incidents?class=network").json()["incidents"] == []

    # By command.
    listed = grid.here.command("incidents")
    assert listed.count("\nincident ") == 1, listed
    assert f"{FILES} failed attempts" in listed and f"month {month}: 1 incident: storage 100.0 %" in listed, listed
    assert "no incidents" in grid.here.command("incidents", "--class", "tape")
    # With intervals of another length it may begin a little earlier or later.
    assert incident["id"].split("-")[1] in grid.here.command("incidents", "--month", month)
    assert json.loads(grid.here.command("incidents", "--json"))["incidents"][0]["id"] == incident["id"]
    asked = lambda *words: grid.here.command("incidents", "ticket", *words, incident["id"])
    ticket = asked()
    # An incident that goes on was last seen now: both have to be asked in one second.
    eventually("the record alone tells the same", lambda: asked("--offline") == asked())
    for title in ("Subject", "What happens", "Since when", "Evidence", "Requested action", "How to verify"):
        assert re.search(f"^{title}", ticket, re.M), ticket
    assert "(UTC)" in ticket and broken["source"] in ticket and f"{FILES} failed attempts" in ticket, ticket
    one = grid.here.command("incidents", "show", incident["id"])
    assert one.startswith(f"incident {incident['id']}") and "Requested action" in one, one

    # What cannot be done has its code.
    assert code_of(grid.here, "show", "00000000-00000000")[0] == 4
    for words in (("--class", "storm"), ("--month", "2026-13"), ("--month", "2999-01"), ("show", "x")):
        code, text = code_of(grid.here, *words)
        assert code == 2, (words, code, text)

    # The record alone tells the same.
    grid.here.stop()
    assert code_of(grid.here)[0] == 5
    alone = json.loads(grid.here.command("incidents", "--offline", "--json"))
    assert [row["id"] for row in alone["incidents"]] == [incident["id"]], alone
    assert untimed(asked("--offline")) == untimed(ticket)
