"""What one user does wrong is told to that user, ends, and holds nobody else up."""

import base64

import pytest

from .clients import Door, Service, adler32, content
from .fault_server import redirected, refused
from .waiting import eventually

DATA = content("failures", 20_000)
HOPELESS = 60
# Failures after which a link was halted, and for how long at first.
HALT_AFTER = 20
HALT_SECONDS = 30


@pytest.fixture
def link(own_grid):
    """Sites whose links no other test has used."""
    for site in own_grid.sites:
        site.start()
    return own_grid


@pytest.fixture
def stranger(link):
    """Somebody of another VO."""
    token = link.there.token(subject="mallory")
    return Service(link.here, token), Door(link.there, token)


def retries_of(service, job):
    return [file["retry"] for file in service.files(job)]


def fails_once(service, job):
    """The reason of a file that must fail without a retry."""
    reason = service.wait_failed(job)
    assert retries_of(service, job) == [0], reason
    return reason


# Mistakes of one VO, and good files of another on the same link.


def below_a_file(door, place):
    door.put(f"{place}/file", b"x")
    return [door.url(f"{place}/file/{number}") for number in range(HOPELESS)], {}


def onto_directories(door, place):
    for number in range(HOPELESS):
        door.put(f"{place}/{number}/file", b"x")
    return [door.url(f"{place}/{number}") for number in range(HOPELESS)], {}


def with_wrong_checksums(door, place):
    params = {"verify_checksum": "target"}
    return [door.url(f"{place}/wrong/{number}") for number in range(HOPELESS)], params


@pytest.mark.parametrize("mistake", [below_a_file, onto_directories, with_wrong_checksums])
def test_mistakes_of_one_vo_do_not_halt_the_link_of_another(link, faulty, stranger, place, mistake):
    source = faulty.offer(f"{place}/a", DATA)
    service, door = stranger
    targets, params = mistake(door, place)
    files = [
        {"sources": [source], "destinations": [target], "checksum": "ADLER32:00000001"}
        if params
        else {"sources": [source], "destinations": [target]}
        for target in targets
    ]
    hopeless = service.submit(*files, overwrite=True, retry=3, retry_delay=1, **params)

    def failed():
        told = service.files(hopeless)
        attempts = (f"/jobs/{hopeless}/files/{file['file_id']}/retries" for file in told)
        count = sum(bool(service.ask("GET", path).json()) for path in attempts)
        return count >= HALT_AFTER and all(file["file_state"] != "ACTIVE" for file in told)

    eventually("as many files as halt a link have failed, and none runs", failed, 60)
    job = link.service.submit((source, link.there_door.url(f"{place}/good")))
    link.service.wait_finished(job, within=HALT_SECONDS * 2 / 3)
    seen = service.wait(hopeless, within=120)
    assert seen["job_state"] == "FAILED", "those that cannot arrive use up their retries"


# What a user may not do.


def test_a_destination_that_is_denied_is_told_as_such_and_not_tried_again(grid, place):
    grid.here_door.put(f"{place}/a", DATA)
    reader = grid.here.token("storage.read:/")
    file = {
        "sources": [grid.here_door.url(f"{place}/a")],
        "destinations": [grid.there_door.url(f"{place}/denied")],
        "source_tokens": [grid.token],
        "destination_tokens": [reader],
    }
    reason = fails_once(grid.service, grid.service.submit(file, retry=2))
    assert reason.startswith(("DESTINATION [1] ", "DESTINATION [13] ")), reason
    assert "COPY (pull)" in reason and "403" in reason, reason


def test_a_destination_that_denies_a_push_is_told_as_such_and_not_tried_again(grid, faulty, place):
    grid.here_door.put(f"{place}/a", DATA)
    faulty.answers["PUT", f"{place}/denied"] = refused(403, b"you may not write here\n")
    pair = (grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/denied")
    reason = fails_once(grid.service, grid.service.submit(pair, retry=2))
    assert reason.startswith("DESTINATION [1] "), reason
    assert "pull was not offered" in reason and "405" in reason, reason


# Checksums.


def verifies(exchange):
    """Takes a file only with the checksum that it is announced with, as our own doors do."""
    data = exchange.read_body()
    expected = exchange.headers.get("Digest", "")
    if expected and expected != f"adler32={adler32(data)}":
        text = f"checksum mismatch: expected {expected}, got adler32:{adler32(data)}; the file was removed\n"
        return exchange.reply(412, text.encode())
    exchange.fault.files[exchange.path] = data
    return exchange.reply(201)


def test_a_wrong_checksum_of_the_user_is_no_file_that_exists(grid, faulty, elsewhere, place):
    source = elsewhere.offer(f"{place}/a", DATA)
    faulty.answers["PUT", f"{place}/b"] = verifies
    file = {"sources": [source], "destinations": [faulty.url + f"{place}/b"], "checksum": "ADLER32:00000001"}
    reason = fails_once(grid.service, grid.service.submit(file, verify_checksum="target", retry=2))
    words = f"User-defined and destination adler32 checksum do not match (00000001 != {adler32(DATA)})"
    assert reason.startswith(f"DESTINATION [5] {words}"), reason


def tells_no_checksum(fault, path):
    """A source that says how large its file is, and no more."""

    def answer(exchange):
        is_look = exchange.command == "HEAD"
        exchange.reply(200, b"" if is_look else DATA, {"Content-Length": str(len(DATA))})

    fault.answers["HEAD", path] = fault.answers["GET", path] = answer


@pytest.mark.parametrize("told", ["by the user alone", "by user and source"])
def test_a_file_that_arrives_with_another_checksum_than_the_users_is_copied_again(grid, faulty, elsewhere, place, told):
    source = elsewhere.offer(f"{place}/a", DATA)
    if told == "by the user alone":
        tells_no_checksum(elsewhere, f"{place}/a")

    def damages(exchange):
        faulty.answers["PUT", f"{place}/b"] = verifies
        data = bytearray(exchange.read_body())
        data[0] ^= 1
        text = f"checksum mismatch: expected adler32:{adler32(DATA)}, got adler32:{adler32(data)}; the file was removed\n"
        exchange.reply(412, text.encode())

    faulty.answers["PUT", f"{place}/b"] = damages
    file = {
        "sources": [source],
        "destinations": [faulty.url + f"{place}/b"],
        "checksum": f"ADLER32:{adler32(DATA)}",
    }
    job = grid.service.submit(file, verify_checksum="target", retry=2)
    grid.service.wait_finished(job)
    assert retries_of(grid.service, job) == [1]
    assert faulty.files[f"{place}/b"] == DATA


def test_a_checksum_that_nobody_confirms_ends_with_the_jobs_retries(grid, faulty, elsewhere, place):
    source = elsewhere.offer(f"{place}/a", DATA)
    tells_no_checksum(elsewhere, f"{place}/a")
    faulty.answers["PUT", f"{place}/b"] = verifies
    file = {"sources": [source], "destinations": [faulty.url + f"{place}/b"], "checksum": "ADLER32:00000001"}
    job = grid.service.submit(file, verify_checksum="target", retry=1, retry_delay=1)
    reason = grid.service.wait_failed(job)
    words = f"User-defined and destination adler32 checksum do not match (00000001 != {adler32(DATA)})"
    assert reason.startswith(f"DESTINATION [5] {words}"), reason
    assert retries_of(grid.service, job) == [1]
    assert f"{place}/b" not in faulty.files


def test_a_source_that_contradicts_the_user_is_final(grid, faulty, elsewhere, place):
    source = elsewhere.offer(f"{place}/a", DATA)
    file = {"sources": [source], "destinations": [faulty.url + f"{place}/b"], "checksum": "ADLER32:00000001"}
    reason = fails_once(grid.service, grid.service.submit(file, verify_checksum="both", retry=2))
    assert reason.startswith("SOURCE [5] Source and user-defined adler32 checksum do not match"), reason
    assert f"{place}/b" not in faulty.files


def test_a_file_that_was_damaged_on_its_way_is_copied_again(grid, faulty, elsewhere, place):
    source = elsewhere.offer(f"{place}/a", DATA)

    def first_time(exchange):
        faulty.answers["PUT", f"{place}/b"] = verifies
        exchange.read_body()
        exchange.reply(412, b"checksum mismatch: expected adler32:1, got adler32:2; the file was removed\n")

    faulty.answers["PUT", f"{place}/b"] = first_time
    job = grid.service.submit((source, faulty.url + f"{place}/b"), verify_checksum="both", retry=2)
    grid.service.wait_finished(job)
    assert retries_of(grid.service, job) == [1]
    assert faulty.files[f"{place}/b"] == DATA


def test_a_push_that_ends_with_a_wrong_checksum_is_no_file_that_exists(grid, faulty, place):
    grid.here_door.put(f"{place}/a", DATA)
    text = b"checksum mismatch: expected adler32:1, got adler32:2; the file was removed\n"
    faulty.answers["PUT", f"{place}/b"] = lambda exchange: (exchange.read_body(), exchange.reply(412, text))
    pair = (grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/b")
    reason = grid.service.wait_failed(grid.service.submit(pair, retry=-1))
    assert reason.startswith("DESTINATION [5] Source and destination checksum do not match"), reason


def test_a_copy_whose_checksum_nobody_tells_is_not_removed(grid, faulty, place):
    grid.here_door.put(f"{place}/a", DATA)

    def no_digest(exchange):
        data = faulty.files.get(exchange.path)
        exchange.reply(404) if data is None else exchange.reply(200, headers={"Content-Length": str(len(data))})

    faulty.answers["HEAD", f"{place}/b"] = no_digest
    pair = (grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/b")
    job = grid.service.submit(pair, verify_checksum="both", retry=2)
    reason = fails_once(grid.service, job)
    assert reason.startswith("DESTINATION [95] the adler32 checksum of the copy cannot be verified"), reason
    assert "tells none" in reason
    assert faulty.files[f"{place}/b"] == DATA


def crc32c(data):
    """Castagnoli's polynomial, as in RFC 3720, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_crc32c_that_an_old_xrootd_tells_in_base64_is_compared(grid, faulty, place):
    value = crc32c(DATA).to_bytes(4, "big")
    grid.here_door.put(f"{place}/a", DATA)

    def old_xrootd(exchange):
        data = faulty.files.get(exchange.path)
        told = {"Content-Length": str(len(DATA)), "Digest": f"crc32c={base64.b64encode(value).decode()}"}
        exchange.reply(404) if data is None else exchange.reply(200, headers=told)

    faulty.answers["HEAD", f"{place}/b"] = old_xrootd
    file = {
        "sources": [grid.here_door.url(f"{place}/a")],
        "destinations": [faulty.url + f"{place}/b"],
        "checksum": f"CRC32C:{value.hex()}",
    }
    grid.service.wait_finished(grid.service.submit(file, verify_checksum="both"))


# Sources that are no files, or are told of in other ways.


def test_a_directory_is_no_source(grid, place):
    grid.here_door.put(f"{place}/directory/a", DATA)
    pair = (grid.here_door.url(f"{place}/directory"), grid.there_door.url(f"{place}/b"))
    reason = fails_once(grid.service, grid.service.submit(pair, retry=2))
    assert reason.startswith("SOURCE [21] ") and "is a directory" in reason, reason
    assert not grid.there_door.exists(f"{place}/b")


def told_as_directory(faulty, path, status, headers):
    """Answers HEAD so, and PROPFIND with what a directory is."""
    listing = (
        '<?xml version="1.0"?><D:multistatus xmlns:D="DAV:"><D:response>'
        f"<D:href>{path}/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop>"
        "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"
    ).encode()

    def propfind(exchange):
        exchange.read_body()
        exchange.reply(207, listing, {"Content-Type": "application/xml", "Content-Length": str(len(listing))})

    faulty.answers["HEAD", path] = lambda exchange: exchange.start(status, headers)
    faulty.answers["PROPFIND", path] = propfind


HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    ("status", "headers", "slash"),
    [
        (200, {"Content-Type": "text/html", "Transfer-Encoding": "chunked"}, ""),
        # As dCache, a plain web server and XRootD answer for directories.
        (200, HTML | {"Last-Modified": "Sun, 22 Nov 2026 10:00:00 GMT", "Content-Length": "0"}, ""),
        (200, HTML | {"Content-Length": "7386"}, "/"),
        (409, {"Content-Length": "0"}, ""),
        (200, {"Content-Length": "4096"}, "/"),
    ],
)
def test_a_directory_of_another_server_is_no_source(grid, faulty, place, status, headers, slash):
    path = f"{place}/directory{slash}"
    told_as_directory(faulty, path, status, headers)
    job = grid.service.submit((faulty.url + path, grid.there_door.url(f"{place}/b")), retry=2)
    reason = fails_once(grid.service, job)
    assert reason.startswith("SOURCE [21] ") and "is a directory, not a file" in reason, reason
    assert not faulty.requests("GET", path) and not grid.there_door.exists(f"{place}/b")


def test_a_path_below_a_file_is_tried_once(grid, place):
    grid.here_door.put(f"{place}/a", DATA)
    grid.there_door.put(f"{place}/file", DATA)
    pair = (grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/file/b"))
    reason = fails_once(grid.service, grid.service.submit(pair, retry=2))
    assert "is a file, so nothing can be below it" in reason, reason


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_directory_is_no_destination(grid, place, slash):
    grid.here_door.put(f"{place}/a", DATA)
    grid.there_door.put(f"{place}/directory/b", DATA)
    pair = (grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/directory{slash}"))
    reason = fails_once(grid.service, grid.service.submit(pair, retry=2))
    assert reason.startswith("DESTINATION [21] ") and "is a directory, not a file" in reason, reason


def test_an_ordinary_file_costs_no_second_question(grid, faulty, place):
    source = faulty.offer(f"{place}/a", b"")
    grid.service.wait_finished(grid.service.submit((source, grid.there_door.url(f"{place}/b"))))
    assert not faulty.requests("PROPFIND", f"{place}/a")


def test_a_source_that_knows_no_head_is_read(grid, faulty, place):
    def part(exchange):
        if exchange.headers.get("Range") != "bytes=0-0":
            return exchange.reply(200, DATA)
        told = {"Content-Range": f"bytes 0-0/{len(DATA)}", "Digest": f"adler32={adler32(DATA)}"}
        return exchange.reply(206, DATA[:1], {"Content-Length": "1"} | told)

    faulty.answers["HEAD", f"{place}/a"] = refused(405)
    faulty.answers["GET", f"{place}/a"] = part
    file = {
        "sources": [faulty.url + f"{place}/a"],
        "destinations": [grid.there_door.url(f"{place}/b")],
        "checksum": f"ADLER32:{adler32(DATA)}",
    }
    grid.service.wait_finished(grid.service.submit(file, verify_checksum="both"))
    assert grid.there_door.get(f"{place}/b") == DATA


def test_redirects_without_end_are_told_as_such(grid, faulty, place):
    faulty.answers["HEAD", f"{place}/a"] = redirected(faulty.url + f"{place}/a")
    job = grid.service.submit((faulty.url + f"{place}/a", grid.there_door.url(f"{place}/b")), retry=2)
    assert fails_once(grid.service, job).startswith("SOURCE [40] ")
