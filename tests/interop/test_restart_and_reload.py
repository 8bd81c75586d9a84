"""Orderly ends and new limits: SIGTERM drains, the restart continues, SIGHUP takes what was changed."""

import time
from functools import partial

import pytest
import requests

from .clients import Door, content
from .fault_server import Throttle, silent
from .site import Site
from .waiting import eventually

DATA = content("restart", 2_000_000)


@pytest.fixture
def slow(faulty):
    """A source that takes twenty seconds, unless it is opened."""
    throttle = Throttle(DATA, bytes_per_second=100_000)
    return throttle, faulty.offer("/slow", DATA, get=throttle)


def started(grid, **options):
    for site in grid.sites:
        site.start(**options)
    return grid


def test_a_sigterm_lets_a_transfer_end_and_accepts_nothing_new(own_grid, slow):
    grid, (throttle, source) = started(own_grid), slow
    job = grid.service.submit((source, grid.there_door.url("/b")))
    eventually("bytes move", lambda: throttle.sent > 0)
    begun = time.monotonic()
    grid.here.process.terminate()
    nothing = (grid.here_door.url("/nothing"), grid.there_door.url("/c"))
    eventually("new jobs are refused", lambda: refuses(grid, nothing))
    throttle.open()
    code, _ = grid.here.wait_ended(begun)
    assert code == 0, grid.here.log_tail()
    grid.here.start()
    assert grid.service.job(job)["job_state"] == "FINISHED"
    [landed] = [event for event in grid.here.ledger(job) if event["event"] == "landed"]
    assert landed["attempt"] == 1
    assert grid.there_door.get("/b") == DATA


def refuses(grid, pair):
    try:
        return grid.service.try_submit(pair).status_code == 503
    except requests.ConnectionError:
        return True


def test_a_sigterm_stops_what_does_not_end_in_time_and_it_continues_after_the_restart(own_grid, slow):
    grid, (throttle, source) = started(own_grid, drain="1s"), slow
    grid.here_door.put("/a", DATA)
    pairs = [(source, grid.there_door.url("/b")), (grid.here_door.url("/a"), grid.there_door.url("/c"))]
    jobs = [grid.service.submit(pair) for pair in pairs]
    eventually("bytes move", lambda: throttle.sent > 0)
    code, seconds = grid.here.stop()
    assert code == 0, grid.here.log_tail()
    assert seconds < 10, f"it took {seconds:.1f} s to end"
    throttle.open()
    grid.here.start()
    for job in jobs:
        grid.service.wait_finished(job)
    assert grid.there_door.get("/b") == DATA and grid.there_door.get("/c") == DATA
    grid.there.wait_tidy()


def test_a_file_that_a_killed_service_had_delivered_is_known_as_its_own(own_grid, faulty, elsewhere):
    grid = started(own_grid)
    source = faulty.offer("/a", DATA)

    def keeps_the_file_and_never_says_so(exchange):
        exchange.fault.files["/b"] = exchange.read_body()
        silent(exchange)

    elsewhere.answers["PUT", "/b"] = keeps_the_file_and_never_says_so
    job = grid.service.submit((source, elsewhere.url + "/b"), retry=3)
    eventually("the file is there", lambda: "/b" in elsewhere.files)
    grid.here.kill()
    # The next attempt fails before it can look at the destination; the one after it must not take the file
    # for somebody else's.
    ordinary = faulty.answers["HEAD", "/a"]

    def fails_once(exchange):
        faulty.answers["HEAD", "/a"] = ordinary
        exchange.reply(503)

    faulty.answers["HEAD", "/a"] = fails_once
    grid.here.start()
    grid.service.wait_finished(job)
    events = [event["event"] for event in grid.here.ledger(job)]
    assert events.count("attempt_lost") == 1 and events.count("attempt_failed") == 1
    assert grid.here.landed_modes(job) == [None]
    assert elsewhere.files["/b"] == DATA


def test_a_storage_that_is_stopped_while_it_receives_ends_clean(own_grid, slow):
    grid, (throttle, source) = started(own_grid, drain="1s"), slow
    job = grid.service.submit((source, grid.there_door.url("/b")), retry=30)
    eventually("bytes move", lambda: throttle.sent > 0)
    code, seconds = grid.there.stop()
    assert code == 0 and seconds < 10, f"exit {code} after {seconds:.1f} s\n{grid.there.log_tail()}"
    assert grid.there.incoming() == []
    throttle.open()
    grid.there.start()
    grid.service.wait_finished(job)
    assert grid.there_door.get("/b") == DATA


def test_sighup_takes_new_limits(own_grid):
    grid = started(own_grid)
    assert grid.service.overview()["agents"]["limit"] == 500
    grid.here.configure("[transfer]", active_max=7, active_max_per_link=3)
    grid.here.reload()
    eventually("the new limit is in force", lambda: grid.service.overview()["agents"]["limit"] == 7)


def test_a_lower_limit_holds_from_then_on(own_grid, faulty):
    grid = started(own_grid)
    throttles = [Throttle(DATA, bytes_per_second=50_000) for _ in range(4)]
    sources = [faulty.offer(f"/{number}", DATA, get=throttle) for number, throttle in enumerate(throttles)]
    grid.here.configure("[transfer]", active_max=2)
    grid.here.reload()
    eventually("the new limit is in force", lambda: grid.service.overview()["agents"]["limit"] == 2)
    job = grid.service.submit(*((source, grid.there_door.url(f"/{n}")) for n, source in enumerate(sources)))
    eventually("two run", lambda: grid.service.overview()["totals"]["active"] == 2)
    seen = grid.service.overview()
    assert seen["totals"]["submitted"] == 2 and seen["waiting"], seen
    for throttle in throttles:
        throttle.open()
    grid.service.wait_finished(job)


def test_sighup_with_a_broken_configuration_changes_nothing(own_grid):
    grid = started(own_grid)
    path = grid.here.directory / "penstock.toml"
    good = path.read_text()
    path.write_text(good.replace("active_max = 500", "active_maximum = 7"))
    grid.here.reload()
    eventually("the mistake is logged", lambda: "active_maximum" in grid.here.log_tail(200))
    assert grid.here.is_running() and grid.service.overview()["agents"]["limit"] == 500
    path.write_text(good.replace("active_max = 500", "active_max = 9"))
    grid.here.reload()
    eventually("the next good one is taken", lambda: grid.service.overview()["agents"]["limit"] == 9)


def test_sighup_learns_to_trust_another_issuer(own_grid, tmp_path):
    grid = started(own_grid)
    newcomer = Site(
        grid.here.binary, tmp_path / "newcomer", "newcomer", "127.0.0.6", peers=[grid.here]
    ).start()
    try:
        door = Door(grid.here, newcomer.token())
        look = partial(door.ask, "PROPFIND", "/", headers={"Depth": "0"})
        assert look().status_code == 401
        grid.here.reload()
        eventually("its tokens are accepted", lambda: look().status_code == 207)
    finally:
        newcomer.stop()


def test_a_site_is_served_only_once(own_grid):
    grid = started(own_grid)
    second = Site.__new__(Site)
    second.__dict__.update(grid.here.__dict__, process=None, starts=100)
    second.launch()
    code = eventually("the second one ends", lambda: second.process.poll(), 20)
    assert code == 7 and "another `penstock serve`" in second.log_tail()
    assert grid.service.overview()["site"] == "here"
