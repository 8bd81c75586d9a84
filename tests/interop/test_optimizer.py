"""How many transfers run on a link is found out beside a storage that has enough of a few, and is told with its reasons."""

import json
import threading
import time

import pytest

from .clients import Service, content
from .waiting import eventually

FILES = 150
BOUND = 4
DATA = content("optimizer", 20_000)


class Crowded:
    """Gives files slowly, and says that it is overloaded when more than a few ask at once."""

    def __init__(self, bound):
        self.bound, self.running, self.refused, self.given = bound, 0, 0, 0
        self.lock = threading.Lock()

    def __call__(self, exchange):
        with self.lock:
            self.running += 1
            is_too_much = self.running > self.bound
            self.refused += is_too_much
        try:
            if is_too_much:
                return exchange.reply(503, b"too many\n", headers={"Retry-After": "2"})
            time.sleep(0.1)
            exchange.reply(200, DATA)
            with self.lock:
                self.given += 1
        finally:
            with self.lock:
                self.running -= 1


@pytest.fixture
def crowded(own_grid, faulty):
    faulty.answer = Crowded(BOUND)
    own_grid.admin = Service(own_grid.here, own_grid.here.token("penstock.admin", subject="root"))
    return faulty


def submit(grid, server, place, count=FILES):
    files = [
        {
            "sources": [server.offer(f"{place}/{number}", DATA, get=server.answer)],
            "destinations": [grid.there_door.url(f"{place}/{number}")],
        }
        for number in range(count)
    ]
    return grid.service.submit(*files, retry=50)


def link_of(grid, server):
    host = f"https://{server.host}"
    links = grid.service.overview()["links"]
    return next((link for link in links if link["source"] == host), None)


def test_a_storage_that_says_it_is_overloaded_gets_fewer_and_all_arrives(own_grid, crowded, place):
    sink = own_grid.here.directory / "state/told.jsonl"
    own_grid.here.configure("[transfer]", retry_delay="1s", halt_after=10_000)
    own_grid.here.append(
        '[[transfer.messages]]\nname = "told"\nfile = "state/told.jsonl"\noptimizer_every = "1s"\n'
    )
    for site in own_grid.sites:
        site.start()
    job = submit(own_grid, crowded, place)
    pushed = eventually(
        "it is left alone",
        lambda: (link := link_of(own_grid, crowded)) and "overload" in (link["limit_because"] or "") and link,
        30,
    )
    assert pushed["limit"] < 10 and pushed["limit_max"] == 50 and pushed["tuning"] == "measured"
    own_grid.service.wait_finished(job, within=120)
    answer = crowded.answer
    assert answer.given >= FILES and answer.refused < FILES, (answer.given, answer.refused)

    rows = own_grid.admin.ask("GET", f"/optimizer/evolution?source_se=https://{crowded.host}").json()
    assert any("overload" in row["rationale"] and row["diff"] < 0 for row in rows), rows
    assert {row["decided_by"] for row in rows} == {"measured"}
    told = own_grid.admin.ask("GET", "/fts3/ftsmon/optimizer/detailed").json()["evolution"]
    assert told["count"] >= len(rows)
    messages = [json.loads(line)["body"] for line in sink.read_text().splitlines() if "queue_state" in line]
    assert any("overload" in body["rationale"] for body in messages), messages[-3:]

    # What was found is where the next process begins.
    found = rows[0]["active"]
    own_grid.here.stop()
    own_grid.here.start()
    crowded.answer = Crowded(1000)
    job = submit(own_grid, crowded, f"{place}-again", 3)
    own_grid.service.wait_finished(job)
    link = eventually("the link is told", lambda: link_of(own_grid, crowded))
    assert link["limit"] == found, (link, rows[:3])


def test_a_rule_for_a_link_says_who_decides(own_grid, crowded, place):
    for site in own_grid.sites:
        site.start()
    crowded.answer = Crowded(1000)
    rule = {"symbolicname": "r", "source": f"https://{crowded.host}", "destination": "*"}

    def decided(limit, who, **changes):
        """Files move until the rule is seen to hold."""
        made = own_grid.admin.ask("POST", "/config/links", json=rule | changes)
        assert made.status_code == 201, made.text
        job = submit(own_grid, crowded, f"{place}-{who}-{limit}", 100)
        holds = lambda: (link := link_of(own_grid, crowded)) and (link["limit"], link["tuning"]) == (limit, who)
        eventually(f"{changes} holds", holds, 30)
        own_grid.service.wait_finished(job)

    decided(30, "fixed", max_active=30, optimizer_mode=0)
    # FTS begins with the largest number that an operator gave.
    decided(30, "fts3", max_active=30, min_active=2, optimizer_mode=2, tuning="fts3")
    # Nothing is left to be found.
    decided(5, "fixed", max_active=5, min_active=5, optimizer_mode=2, tuning="measured")
