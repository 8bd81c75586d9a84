"""What is at a destination belongs to a transfer only as far as there is evidence, and what it left is looked after."""

from .clients import content
from .fault_server import delete, refused
from .waiting import eventually

DATA = content("destination", 3_000_000)


def visible_taker(exchange):
    """A PUT whose bytes are seen as they come, and that never comes to its end."""
    taken = bytearray()
    for piece in exchange.body_pieces():
        taken += piece
        exchange.fault.files[exchange.path] = bytes(taken)
        exchange.fault.released.wait(0.05)
    exchange.fault.released.wait()


def owed(grid, job):
    rows = grid.here.journal("SELECT tidying FROM tidying")
    return [tidying for (tidying,) in rows if job in tidying]


def test_a_cancel_whose_removal_is_refused_is_looked_after_until_it_succeeds(grid, faulty, elsewhere, place):
    source, path = faulty.offer(f"{place}/a", DATA), f"{place}/b"
    elsewhere.answers["PUT", path] = visible_taker
    elsewhere.answers["DELETE", path] = refused(503)
    job = grid.service.submit((source, elsewhere.url + path))
    eventually("a part is there", lambda: path in elsewhere.files)
    grid.service.ask("DELETE", f"/jobs/{job}")
    assert grid.service.wait(job)["job_state"] == "CANCELED"
    eventually("its removal is tried again", lambda: len(elsewhere.requests("DELETE", path)) >= 3)
    assert path in elsewhere.files and len(owed(grid, job)) == 1
    grid.service.wait_idle()
    elsewhere.answers["DELETE", path] = delete
    eventually("it is removed", lambda: path not in elsewhere.files)


def test_a_copy_that_outlives_the_service_lands_and_its_transfer_with_it(own_grid, faulty, place):
    grid, path = own_grid, f"{place}/b"
    for site in grid.sites:
        site.start()
    grid.here_door.put(f"{place}/a", DATA)
    busy = refused(409, b"it is being written by another client\n")

    def copy(exchange):
        # The first one goes on whatever becomes of who asked for it.
        exchange.fault.answers["COPY", path] = busy
        exchange.start(202, {"Transfer-Encoding": "chunked"})
        exchange.fault.released.wait()

    faulty.answers["COPY", path] = copy
    job = grid.service.submit((grid.here_door.url(f"{place}/a"), faulty.url + path))
    eventually("the copy runs", lambda: faulty.requests("COPY", path))
    grid.here.kill()
    grid.here.start()
    # More often than there are retries.
    eventually("it meets its own copy", lambda: len(faulty.requests("COPY", path)) >= 4, within=60)
    assert {file["file_state"] for file in grid.service.files(job)} <= {"SUBMITTED", "ACTIVE"}
    faulty.files[path] = DATA
    grid.service.wait_finished(job)
    assert faulty.files[path] == DATA and not faulty.requests("DELETE", path)
    assert grid.here.landed_modes(job) == [None]


def test_a_copy_without_checks_spares_what_is_there_until_it_is_retried(grid, place):
    grid.here_door.put(f"{place}/a", DATA)
    grid.there_door.put(f"{place}/b", b"precious")
    pair = (grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/b"))
    job = grid.service.submit(pair, strict_copy=True, overwrite_on_retry=True, retry=-1)
    assert grid.service.wait(job)["job_state"] == "FAILED"
    assert grid.there_door.get(f"{place}/b") == b"precious"
