"""Numbers that hold: caps of bytes per second for files that end at once, and counts that a restart does not make fairer."""

import time

import pytest

from .clients import Endpoint, Service, content
from .fault_server import refused
from .waiting import eventually

MIB = 1024 * 1024


@pytest.fixture
def admin(grid):
    return Service(grid.here, grid.here.token("penstock.admin", subject="root"))


@pytest.fixture
def capped(grid, admin):
    """What `there` receives is capped."""
    rule = {grid.there.storage_id: {"se_info": {"inbound_max_throughput": 2}}}
    answer = admin.ask("POST", "/config/se", json=rule)
    assert answer.ok, answer.text
    yield 2 * MIB
    assert admin.ask("DELETE", f"/config/se?se={grid.there.storage_id}").ok


def test_a_cap_holds_for_files_that_end_between_two_samples(grid, capped, place):
    data, count = content("capped", 400_000), 36
    grid.here_door.put(f"{place}/source", data)
    pairs = [
        (grid.here_door.url(f"{place}/source"), grid.there_door.url(f"{place}/{number}"))
        for number in range(count)
    ]
    begun = time.time()
    job = grid.service.submit(*pairs)
    reason = eventually(
        "files wait for the cap",
        lambda: [row for row in grid.service.overview()["waiting"] if row["reason"] == "rate_capped"],
    )
    assert "over any 10 s" in reason[0]["text"] or "over 10 s" in reason[0]["text"], reason
    grid.service.wait_finished(job)
    found = grid.service.ask("GET", f"/api/v1/transfers?q={place}/&state=FINISHED&limit=100").json()["transfers"]
    finished = sorted(transfer["finished"] / 1000 for transfer in found)
    assert len(finished) == count
    total = count * len(data)
    # However others load this machine, nothing comes sooner.
    assert finished[-1] - begun >= total / (1.1 * capped) - 1
    for seconds in (2, 4):
        by_then = sum(at - begun <= seconds for at in finished) * len(data)
        assert by_then <= (seconds + 1) * 1.1 * capped, f"{by_then} bytes in {seconds} s"


def test_a_restart_gives_no_false_all_clear(own_grid, faulty, place):
    grid = own_grid
    for site in grid.sites:
        site.start()
    faulty.answers["HEAD", f"{place}/a"] = refused(503)
    job = grid.service.submit((faulty.url + f"{place}/a", grid.there_door.url(f"{place}/b")), retry=1)
    grid.service.wait_failed(job)

    def seen():
        page = Endpoint(grid.here.service, grid.here.certificates, grid.here.admin_token())
        report = page.ask("GET", "/live/api/report?seconds=900").json()
        return page.ask("GET", "/api/v1/overview").json(), report

    def counted():
        overview, _ = seen()
        return overview if overview["totals"]["failed"] else None

    before = eventually("the failure is counted", counted)
    assert (before["totals"]["failed"], before["totals"]["failed_attempts"]) == (1, 2)
    assert grid.here.stop()[0] == 0
    grid.here.start()
    after, report = seen()
    assert report["complete"] and report["transfers"]["failed"] == 1, report
    assert report["quality"]["errors"] == 2, report["quality"]
    # What is counted anew says since when.
    after = eventually("the new process counts", lambda: (found := seen()[0])["counted_since"] and found)
    assert after["counted_since"] > before["counted_since"] and after["totals"]["failed"] == 0
