"""A cancel takes effect within a second: the job says so, the slot is free, nothing stays behind."""

import time

import pytest

from .clients import content
from .fault_server import Throttle, slow_taker, stalled
from .waiting import eventually

DATA = content("cancel", 20_000_000)
# The overview is renewed once a second, so a free slot is seen at most that much later.
SLOT_SECONDS = 1.0 + 1.0


def cancel(grid, job):
    begun = time.monotonic()
    answer = grid.service.ask("DELETE", f"/jobs/{job}").json()
    assert time.monotonic() - begun < 1.0
    assert answer["job_state"] == "CANCELED"
    assert {file["file_state"] for file in grid.service.files(job)} == {"CANCELED"}
    grid.service.wait_idle(SLOT_SECONDS)


@pytest.mark.parametrize("how", ["slow", "stalled"])
def test_a_running_pull_is_canceled_within_a_second(grid, faulty, place, how):
    throttle = Throttle(DATA, bytes_per_second=4_000_000)
    source = faulty.offer(
        f"{place}/a", DATA, get=throttle if how == "slow" else stalled(DATA, after=5_000_000)
    )
    job = grid.service.submit((source, grid.there_door.url(f"{place}/b")))
    eventually("it is being written", grid.there.incoming)
    cancel(grid, job)
    eventually("nothing is being written any more", lambda: not grid.there.incoming())
    assert not grid.there_door.exists(f"{place}/b")
    assert [event["event"] for event in grid.here.ledger(job)][-1] == "canceled"


def test_a_running_push_is_canceled_within_a_second(grid, faulty, place):
    grid.here_door.put(f"{place}/a", DATA)
    faulty.answers["PUT", f"{place}/b"] = slow_taker(bytes_per_second=500_000)
    job = grid.service.submit((grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/b"))
    eventually("the upload has begun", lambda: faulty.requests("PUT", f"{place}/b"))
    before = len(faulty.requests("HEAD", f"{place}/b"))
    cancel(grid, job)
    eventually("what it may have left is looked for", lambda: len(faulty.requests("HEAD", f"{place}/b")) > before)
    assert not faulty.requests("DELETE", f"{place}/b"), "nothing was seen there"
    assert f"{place}/b" not in faulty.files


def test_a_running_stream_is_canceled_within_a_second(grid, faulty, elsewhere, place):
    throttle = Throttle(DATA, bytes_per_second=1_000_000)
    source = faulty.offer(f"{place}/a", DATA, get=throttle)
    job = grid.service.submit((source, elsewhere.url + f"{place}/b"))
    eventually("bytes move", lambda: throttle.sent > 200_000)
    cancel(grid, job)
    assert f"{place}/b" not in elsewhere.files


def test_waiting_files_are_canceled_without_having_started(grid, faulty, place):
    throttle = Throttle(DATA, bytes_per_second=100_000)
    pairs = []
    for number in range(60):
        source = faulty.offer(f"{place}/{number}", DATA, get=throttle)
        pairs.append((source, grid.there_door.url(f"{place}/{number}")))
    job = grid.service.submit(*pairs)
    eventually("the link is full", lambda: grid.service.overview()["totals"]["active"] == 50)
    cancel(grid, job)
    started = grid.here.journal(
        "SELECT count(*) FROM ledger WHERE job_id = ? AND json_extract(event, '$.event') = 'started'", job
    )
    assert started == [(50,)]
    eventually("nothing is being written any more", lambda: not grid.there.incoming())
    assert set(grid.there_door.list(place)) <= {place}
