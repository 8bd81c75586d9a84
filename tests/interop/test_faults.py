"""Ends that misbehave: they stall, lie, send too little or too much, die, redirect, or are full. Each time
the error is clear, nothing is left behind and the slots are free again.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from .clients import Door, Service, adler32, content
from .fault_server import (
    Throttle,
    chunked,
    cut,
    flips_a_bit,
    loses_bytes,
    redirected,
    refused,
    silent,
    slow_taker,
    stalled,
)
from .waiting import eventually

DATA = content("faults", 300_000)


@pytest.fixture
def fails(grid, faulty, place):
    """Submits a file of the faulty server, expects it to fail for good, and checks that nothing is left."""

    def check(get=None, destination=None, within=60, offered=None, **params):
        source = faulty.offer(f"{place}/a", DATA, get=get, **(offered or {}))
        target = destination or grid.there_door.url(f"{place}/b")
        job = grid.service.submit((source, target), **({"retry": -1} | params))
        reason = grid.service.wait_failed(job, within)
        faulty.release()
        assert not grid.there_door.exists(f"{place}/b")
        grid.service.wait_idle()
        eventually("nothing is being written any more", lambda: not grid.there.incoming())
        return reason

    return check


def test_a_source_that_stalls_is_given_up_after_the_job_s_time(fails, tier):
    reason = fails(stalled(DATA, after=100_000), timeout=tier.stall_seconds, within=tier.stall_seconds + 30)
    assert reason.startswith("TRANSFER [110]") and "timed out" in reason.lower()


def test_a_source_that_says_nothing_is_given_up_after_the_job_s_time(fails, tier):
    reason = fails(silent, timeout=tier.stall_seconds, within=tier.stall_seconds + 30)
    assert reason.startswith("TRANSFER [110]")


def test_a_source_that_sends_too_little_is_found_out(fails):
    assert fails(cut(DATA, after=len(DATA) // 2)).startswith(("SOURCE", "TRANSFER"))


def test_a_source_that_sends_less_than_it_told_is_found_out(fails):
    reason = fails(chunked(DATA[:-1]))
    assert "size" in reason or "bytes" in reason, reason


def test_a_source_that_sends_more_than_it_told_is_found_out(fails):
    reason = fails(chunked(DATA + b"more"))
    assert "size" in reason or "bytes" in reason, reason


def test_a_source_that_sends_other_bytes_is_found_out(fails):
    other = bytearray(DATA)
    other[1000] ^= 1
    reason = fails(chunked(bytes(other)), verify_checksum="both")
    assert "checksum" in reason and adler32(DATA) in reason, reason


@pytest.mark.parametrize("status, scope", [(403, "[1]"), (404, "[2]"), (500, "[5]"), (503, "[11]")])
def test_a_source_that_refuses_is_named(grid, faulty, place, status, scope):
    faulty.answers["HEAD", f"{place}/a"] = refused(status)
    job = grid.service.submit((faulty.url + f"{place}/a", grid.there_door.url(f"{place}/b")), retry=-1)
    assert grid.service.wait_failed(job).startswith(f"SOURCE {scope}")


def test_a_source_that_fails_once_is_asked_again(grid, faulty, place):
    source = faulty.offer(f"{place}/a", DATA)
    ordinary = faulty.answers["GET", f"{place}/a"]

    def first_time(exchange):
        faulty.answers["GET", f"{place}/a"] = ordinary
        refused(503, **{"Retry-After": "1"})(exchange)

    faulty.answers["GET", f"{place}/a"] = first_time
    job = grid.service.submit((source, grid.there_door.url(f"{place}/b")), retry=2)
    grid.service.wait_finished(job)
    [file] = grid.service.files(job)
    assert file["retry"] == 1
    [retry] = grid.service.ask("GET", f"/jobs/{job}/files/{file['file_id']}/retries").json()
    assert "503" in retry["reason"]
    assert grid.there_door.get(f"{place}/b") == DATA


# Destinations. The first site pushes to the faulty server, which offers no third-party copy.


@pytest.fixture
def push_fails(grid, faulty, place):
    def check(**answers):
        grid.here_door.put(f"{place}/a", DATA)
        for method, answer in answers.items():
            faulty.answers[method, f"{place}/b"] = answer
        pair = (grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/b")
        reason = grid.service.wait_failed(grid.service.submit(pair, retry=-1, verify_checksum="both"))
        assert f"{place}/b" not in faulty.files, "the service left a partial file"
        grid.service.wait_idle()
        return reason

    return check


def test_a_destination_that_is_full_is_named(push_fails):
    assert "507" in push_fails(PUT=refused(507, b"no space left\n"))


def test_a_destination_that_loses_bytes_is_found_out(push_fails):
    reason = push_fails(PUT=loses_bytes(1))
    assert "299999" in reason, reason


def test_a_destination_that_keeps_something_else_is_found_out(push_fails):
    reason = push_fails(PUT=flips_a_bit)
    assert "checksum" in reason and adler32(DATA) in reason, reason


def test_a_destination_that_hangs_up_is_found_out(push_fails):
    def takes_some_and_goes(exchange):
        next(exchange.body_pieces())
        exchange.hang_up()

    push_fails(PUT=takes_some_and_goes)


def test_a_destination_that_claims_success_without_a_file_is_found_out(push_fails):
    def forgets(exchange):
        exchange.read_body()
        exchange.reply(201)

    assert "not there" in push_fails(PUT=forgets)


def test_a_slow_destination_is_waited_for(grid, faulty, place):
    grid.here_door.put(f"{place}/a", DATA)
    faulty.answers["PUT", f"{place}/b"] = slow_taker(bytes_per_second=len(DATA))
    grid.service.wait_finished(
        grid.service.submit((grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/b"))
    )
    assert faulty.files[f"{place}/b"] == DATA


@pytest.mark.parametrize("mode", ["pull", "streamed"])
def test_a_destination_that_dies_midway_gets_the_file_after_its_return(
    own_grid, faulty, elsewhere, place, mode
):
    grid = own_grid
    for site in grid.sites:
        site.configure("[transfer]", retry_delay="1s", retries=30)
        site.start()
    data = content(place, 8_000_000)
    throttle = Throttle(data, bytes_per_second=4_000_000)
    source = faulty.offer("/a", data, get=throttle)
    if mode == "streamed":
        # The source offers no copy and the destination may make none: the bytes go through the service.
        grid.there.configure("[storage.outbound]", allow=["127.0.0.99"])
        grid.there.stop()
        grid.there.start()
    job = grid.service.submit((source, grid.there_door.url("/b")))
    eventually("bytes move", lambda: throttle.sent > 1_000_000)
    grid.there.kill()
    eventually("the service notices", lambda: grid.service.job(job)["job_state"] == "SUBMITTED")
    throttle.open()
    grid.there.start()
    grid.service.wait_finished(job)
    assert grid.there_door.get("/b") == data
    grid.service.wait_idle()
    grid.there.wait_tidy()


# Redirects.


SECRETS = ["authorization", "cookie", "transferheaderauthorization"]


def shown(server):
    return [name for seen in server.seen for name in seen.headers if name.lower() in SECRETS]


def test_a_redirect_to_another_host_is_followed_without_credentials(grid, faulty, elsewhere, place):
    target = elsewhere.offer(f"{place}/real", DATA)
    for method in ("HEAD", "GET"):
        faulty.answers[method, f"{place}/a"] = redirected(target)
    job = grid.service.submit((faulty.url + f"{place}/a", grid.there_door.url(f"{place}/b")))
    grid.service.wait_finished(job)
    assert grid.there_door.get(f"{place}/b") == DATA
    assert shown(faulty), "the first host is to see the token"
    assert elsewhere.seen and not shown(elsewhere)


def test_an_upload_that_is_redirected_shows_no_credentials(grid, faulty, elsewhere, place):
    grid.here_door.put(f"{place}/a", DATA)
    faulty.answers["PUT", f"{place}/b"] = redirected(elsewhere.url + f"{place}/b")
    pair = (grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/b")
    job = grid.service.submit(pair, retry=-1)
    grid.service.wait(job)
    assert shown(faulty) and not shown(elsewhere)


def test_a_copy_is_not_redirected_to_another_host_with_credentials(grid, faulty, elsewhere, place):
    faulty.answers["COPY", f"{place}/b"] = redirected(elsewhere.url + f"{place}/b")
    grid.here_door.put(f"{place}/a", DATA)
    pair = (grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/b")
    grid.service.wait(grid.service.submit(pair, retry=-1))
    assert not shown(elsewhere)


def test_redirects_in_a_circle_end(grid, faulty, place):
    for method in ("HEAD", "GET"):
        faulty.answers[method, f"{place}/a"] = redirected(faulty.url + f"{place}/a")
    job = grid.service.submit((faulty.url + f"{place}/a", grid.there_door.url(f"{place}/b")), retry=-1)
    assert "redirect" in grid.service.wait_failed(job).lower()


def test_a_redirect_to_a_host_that_is_not_allowed_is_not_followed(grid, faulty, place):
    source = faulty.offer(f"{place}/a", DATA, get=redirected("https://127.0.0.77:9/a"))
    job = grid.service.submit((source, grid.there_door.url(f"{place}/b")), retry=-1)
    grid.service.wait_failed(job)
    assert not grid.there_door.exists(f"{place}/b")


# Full disks.


def leave_little_room(site, kind):
    """Leaves 8 MiB to a site's pool: by its configuration, or by a file system that has no more."""
    if kind == "quota":
        site.configure("[[storage.pool]]", capacity="8 MiB")
    else:
        # A pool keeps 64 MiB of its file system free.
        site.put_on_small_disk("pools/disk1", f"{64 + 8}m")


@pytest.mark.parametrize("kind", ["quota", "disk"])
def test_a_full_pool_refuses_and_takes_files_again_after_a_deletion(own_grid, kind):
    grid, piece = own_grid, content("full", 3_000_000)
    leave_little_room(grid.there, kind)
    for site in grid.sites:
        site.start()
    stored = fill(grid.there_door, piece)
    assert 1 <= stored <= 2
    assert grid.there_door.list("/full").keys() == {"/full", *(f"/full/{number}" for number in range(stored))}
    eventually("the refused file left nothing", lambda: not grid.there.incoming())
    grid.here_door.put("/a", piece)
    pair = (grid.here_door.url("/a"), grid.there_door.url("/b"))
    reason = grid.service.wait_failed(grid.service.submit(pair, retry=-1))
    assert "507" in reason or "space" in reason.lower() or "room" in reason.lower(), reason
    grid.service.wait_idle()
    waits = grid.service.submit(pair, retry=30)
    eventually("a first attempt has failed", lambda: grid.service.files(waits)[0]["retry"] >= 1)
    assert grid.there_door.ask("DELETE", "/full/0").status_code == 204
    grid.service.wait_finished(waits)
    assert grid.there_door.get("/b") == piece
    grid.there.wait_tidy()


def fill(door, piece):
    """Puts files until one is refused for want of space; gives back how many were taken."""
    for number in range(20):
        answer = door.ask("PUT", f"/full/{number}", data=piece)
        if answer.status_code == 507:
            return number
        assert answer.status_code == 201, f"{answer.status_code} {answer.text}"
    raise AssertionError("the pool took more than it has")


def test_an_upload_of_unknown_length_that_does_not_fit_leaves_nothing(own_grid):
    grid = own_grid
    leave_little_room(grid.there, "quota")
    grid.there.start()
    pieces = (content(number, 1_000_000) for number in range(12))
    answer = Door(grid.there).ask("PUT", "/big", data=pieces)
    assert answer.status_code == 507, answer.text
    assert not Door(grid.there).exists("/big")
    grid.there.wait_tidy()


def fill_disk(directory):
    """Until the file system holds nothing more. Removing `ballast` makes room again."""
    # Unbuffered: a rest kept in a buffer would be refused once more when the file is closed.
    with open(directory / "ballast", "wb", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
        while True:
            ballast.write(b"\0" * 65536)


def submit_until_refused(grid):
    """The statuses of submissions until one is refused, and the jobs that were accepted."""
    statuses, jobs = [], []

    def refuses():
        pair = (grid.here_door.url("/a"), grid.there_door.url(f"/during-{len(statuses)}"))
        answer = grid.service.try_submit(pair)
        statuses.append(answer.status_code)
        jobs.extend([answer.json()["job_id"]] if answer.status_code == 200 else [])
        return statuses[-1] == 503

    eventually("the service says that it cannot accept", refuses)
    assert set(statuses) <= {200, 503}
    return statuses, jobs


@pytest.fixture
def full_grid(own_grid):
    """Sites of which one keeps its state on a small disk."""
    grid = own_grid
    grid.here.put_on_small_disk("state", "24m")
    grid.there.start()
    return grid


def test_a_service_that_ends_on_a_full_disk_gives_up_says_so_and_loses_nothing_acknowledged(full_grid):
    grid = full_grid
    grid.here.start(drain="2s")
    grid.here_door.put("/a", content("journal", 10_000))
    # The disk would go with the process, unless somebody has it open.
    disk = os.open(grid.here.seen / "state", os.O_RDONLY)
    pairs = [(grid.here_door.url("/a"), grid.there_door.url(f"/before-{number}")) for number in range(20)]
    accepted = [grid.service.submit(pair) for pair in pairs]
    fill_disk(grid.here.seen / "state")
    accepted += submit_until_refused(grid)[1]
    code, seconds = grid.here.stop()
    assert code != 0 and seconds < 20, f"exit {code} after {seconds:.1f} s\n{grid.here.log_tail()}"
    said = [line for line in grid.here.log_text().splitlines() if "transfer engine ended with" in line]
    assert len(said) == 1 and "ERROR" in said[0], said
    assert "disk is full" in said[0] and "make room" in said[0], said
    grid.here.small_disk = None
    for kept in Path(f"/proc/self/fd/{disk}").iterdir():
        if kept.name != "ballast":
            shutil.copy(kept, grid.here.directory / "state" / kept.name)
    os.close(disk)
    grid.here.start()
    for job in accepted:
        grid.service.wait_finished(job)


def test_a_full_disk_under_the_journal_is_said_and_survived(full_grid):
    grid = full_grid
    grid.here.start()
    state = grid.here.seen / "state"
    data = content("journal", 10_000)
    grid.here_door.put("/a", data)
    before = grid.service.submit((grid.here_door.url("/a"), grid.there_door.url("/before")))
    grid.service.wait_finished(before)
    fill_disk(state)
    statuses, _ = submit_until_refused(grid)
    assert grid.service.ask("GET", "/api/v1/health").status_code == 503
    (state / "ballast").unlink()
    eventually("it accepts again", lambda: grid.service.ask("GET", "/api/v1/health").status_code == 200, 30)
    after = grid.service.submit((grid.here_door.url("/a"), grid.there_door.url("/after")))
    grid.service.wait_finished(after)
    assert grid.there_door.get("/after") == data
    accepted = Service(grid.here, grid.token).ask("GET", "/jobs?state_in=FINISHED,SUBMITTED,ACTIVE").json()
    assert len(accepted) == statuses.count(200) + 2


def test_a_link_whose_files_all_fail_alike_is_halted_and_opens_when_the_source_is_back(own_grid, faulty):
    own_grid.here.configure("[transfer]", halt_after=5, halt_delay="2s", active_max_per_link=3)
    for site in own_grid.sites:
        site.start()
    pairs = []
    for number in range(30):
        source = faulty.offer(f"/f{number}", DATA)
        faulty.answers["HEAD", f"/f{number}"] = refused(503)
        pairs.append((source, own_grid.there_door.url(f"/f{number}")))
    job = own_grid.service.submit(*pairs, retry=3)
    eventually("the link is halted", lambda: "a link is halted" in own_grid.here.log_tail(1000))
    states = {file["file_state"] for file in own_grid.service.files(job)}
    assert "FAILED" not in states, "nobody's retries are used up"
    eventually(
        "the page says so", lambda: "halted after" in json.dumps(own_grid.service.overview()["links"])
    )
    for number in range(30):
        faulty.offer(f"/f{number}", DATA)
    own_grid.service.wait_finished(job)
    assert "a halted link works again" in own_grid.here.log_tail(1000)
