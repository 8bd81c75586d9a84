"""The live page in a real browser, and the numbers behind it, while files move between two sites."""

import subprocess

import pytest

from .clients import Endpoint, Service, content
from .fault_server import Throttle
from .waiting import eventually

DATA = content("live", 5_000_000)


@pytest.fixture
def traffic(grid, faulty, place):
    """Transfers that run while the test looks, and some that wait behind them."""
    admin = Endpoint(grid.service.base, grid.here.certificates, grid.here.admin_token())
    # What the service makes of a slow storage is not what is looked at.
    rule = {"symbolicname": "live", "source": f"https://{faulty.host}", "destination": grid.there.storage_id,
            "min_active": 1, "max_active": 50, "optimizer_mode": 0}
    assert admin.ask("POST", "/config/links", json=rule).ok
    throttle = Throttle(DATA, bytes_per_second=100_000)
    pairs = []
    for number in range(55):
        source = faulty.offer(f"{place}/{number}", DATA, get=throttle)
        pairs.append((source, grid.there_door.url(f"{place}/{number}")))
    job = grid.service.submit(*pairs)
    eventually("the link is full", lambda: grid.service.overview()["waiting"])
    yield job
    grid.service.ask("DELETE", f"/jobs/{job}")
    throttle.open()
    grid.service.wait_idle()
    assert admin.ask("DELETE", "/config/links/live").ok


def test_the_page_shows_what_the_service_says(grid, browser_tools, traffic):
    line = ["node", "test/live.mjs", grid.service.base, grid.here.admin_token()]
    done = subprocess.run(line, cwd=browser_tools, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_the_overview_counts_links_slots_and_reasons(grid, faulty, traffic):
    def fed():
        seen = Endpoint(grid.service.base, grid.here.certificates, grid.here.admin_token())
        seen = seen.ask("GET", "/api/v1/overview").json()
        return (
            seen if seen["totals"]["rate_bytes_per_second"] > 0 and seen["totals"]["active"] == 50 else None
        )

    seen = eventually("bytes are counted", fed)
    [link] = [link for link in seen["links"] if link["queued"]]
    assert (link["source"], link["destination"]) == (f"https://{faulty.host}", grid.there.storage_id)
    assert (link["active"], link["limit"], link["queued"]) == (50, 50, 5)
    assert link["waiting_because"]
    assert sum(reason["transfers"] for reason in seen["waiting"]) == 5
    assert seen["active_transfers"] and grid.service.overview()["active_transfers"]
    stranger = Service(grid.here, grid.there.token()).overview()
    assert stranger["totals"]["active"] and not stranger["active_transfers"], (
        "another VO sees numbers, not names"
    )


def test_each_site_serves_its_own_page_and_asks_for_a_token(grid):
    for site in grid.sites:
        anyone = Endpoint(site.service, site.certificates)
        page = anyone.ask("GET", "/live/")
        assert page.status_code == 200 and page.headers["Content-Type"].startswith("text/html")
        assert "Content-Security-Policy" in page.headers
        assert anyone.ask("GET", "/api/v1/overview").status_code == 401
