"""Bodies that are too large, too many or too deep for a transfer service or a door, and jobs of a size that is asked for in good
faith: each is refused with the right status or done, and the memory of the process stays bounded while it happens.
"""

import http.client
import re
import ssl
import threading
import time

import pytest

from .clients import Door, Service
from .openapi import concrete, interface
from .site import Site
from .waiting import eventually

HOST = "127.0.0.9"
MIB = 1 << 20
# Files in the job that is listed: what a client may read slowly, or a thousand times in one answer.
FILES = {"guard": 20_000, "soak": 100_000}
# Of a large body; 64 MB are too large as such.
BODY_BYTES = {"guard": 16_000_000, "soak": 60_000_000}
# A body is in memory once as it came and once whole; four may be. What would be made of it is many times as large.
FOUR_BODIES_BYTES_MAX = 700 * MIB
ONE_BODY_BYTES_MAX = 256 * MIB
LISTING_BYTES_MAX = 64 * MIB
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory, tier):
    site = Site(binary, tmp_path_factory.mktemp("bodies") / "site", "bodies", HOST)
    # One user has three quarters of it.
    site.configure("[transfer]", retry_delay="1h", open_max=(FILES[tier.name] + 2) * 4 // 3)
    site.start()
    yield site
    code = site.stop()[0]
    assert code == 0, site.log_tail()


@pytest.fixture(scope="module")
def service(site):
    return Service(site)


@pytest.fixture(scope="module")
def token(site):
    return site.token()


class Memory:
    """The most that a process has had in memory since this was made."""

    def __init__(self, site):
        self.directory = f"/proc/{site.process.pid}"
        with open(f"{self.directory}/clear_refs", "w", encoding="ascii") as peak:
            peak.write("5")
        self.before = self.read("VmRSS")

    def read(self, name):
        with open(f"{self.directory}/status", encoding="ascii") as status:
            return int(re.search(rf"{name}:\s+(\d+) kB", status.read())[1]) << 10

    @property
    def grown(self):
        return self.read("VmHWM") - self.before


@pytest.fixture
def memory(site):
    return Memory(site)


@pytest.fixture(autouse=True)
def unmoved(site, service):
    """After every test the service answers others."""
    yield
    assert site.is_running(), site.log_tail()
    assert service.ask("GET", "/whoami").status_code == 200
    assert Door(site).list("/") is not None
    assert "panicked" not in site.log_text()


def post(site, token, pieces, path="/jobs", length=None, method="POST", port=3, media_type="application/json"):
    """Sends a body in pieces, with its length or in chunks; the status, also when it comes before the body's end."""
    context = ssl.create_default_context(capath=str(site.certificates))
    connection = http.client.HTTPSConnection(site.host, site.base + port, context=context, timeout=SECONDS_MAX)
    connection.putrequest(method, path)
    connection.putheader("Authorization", f"Bearer {token}")
    connection.putheader("Content-Type", media_type)
    connection.putheader(*(("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))))
    connection.endheaders()
    try:
        for piece in pieces:
            connection.send(piece if length is not None else b"%x\r\n%b\r\n" % (len(piece), piece))
        if length is None:
            connection.send(b"0\r\n\r\n")
    except OSError:
        pass
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text


def repeated(first, piece, last, size):
    """A document of about `size` bytes, in pieces of a megabyte."""
    block = piece * (MIB // len(piece))
    return [first, *[block] * (size // len(block)), last]


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("path", ["/jobs", "/jobs/00000000-0000-0000-0000-000000000000"])
def test_a_body_of_a_hundred_megabytes_is_refused(site, token, memory, path, framing):
    pieces = repeated(b'{"files":[', b" " * 1024, b"]}", 100 * MIB)
    length = sum(map(len, pieces)) if framing == "length" else None
    status, text = post(site, token, pieces, path, length)
    assert status == 413, f"{status} {text}"
    assert memory.grown < ONE_BODY_BYTES_MAX, f"{memory.grown / MIB:.0f} MiB"


def test_a_body_of_nobody_known_is_not_kept(site, memory):
    pieces = repeated(b'{"files":[', b" " * 1024, b"]}", 100 * MIB)
    status, _ = post(site, "eyJ.no.token", pieces, length=sum(map(len, pieces)))
    assert status == 401
    assert memory.grown < 16 * MIB, f"{memory.grown / MIB:.0f} MiB"


FILE = b'{"sources":["http://a/1"],"destinations":["http://b/1"]},'
FILES_BEGIN = b'{"files":['
LARGE = {
    "a million files": (FILES_BEGIN, FILE, FILE[:-1] + b"]}", "one job can hold 200000 files"),
    "millions of lists": (FILES_BEGIN, b"[]," * 300, b"[]]}", "one job can hold 200000 files"),
    "numbers in a file": (b'{"files":[{"x":[', b"0," * 512, b"0]}]}", "it is longer than"),
    "numbers in the parameters": (b'{"params":{"x":[', b"0," * 512, b"0]}}", "it is longer than"),
    "keys": (b'{"files":[{', b'"k":0,' * 128, b'"k":0}]}', "it is longer than"),
    "depth without end": (b"[", b"[" * 1024, b"[", "is not valid JSON"),
    "one long text": (b'{"files":["', b"x" * 1024, b'"]}', "it is longer than"),
}


def large(case, size):
    begin, piece, end, reason = LARGE[case]
    if case == "a million files":
        size = 1_000_000 * len(FILE)
    return repeated(begin, piece, end, size), reason


@pytest.mark.parametrize("case", LARGE)
def test_a_submission_beyond_any_need_is_refused_before_it_takes_memory(site, token, memory, case, tier):
    pieces, reason = large(case, BODY_BYTES[tier.name])
    begun = time.monotonic()
    status, text = post(site, token, pieces, length=sum(map(len, pieces)))
    assert status == 400 and reason in text, f"{status} {text[:300]}"
    assert memory.grown < ONE_BODY_BYTES_MAX, f"{memory.grown / MIB:.0f} MiB"
    assert time.monotonic() - begun < SECONDS_MAX


@pytest.mark.parametrize(
    "begin, end, depth", [(b'{"files":[{"x":', b"}]}", 100_000), (b'{"params":{"x":', b"}}", 30_000)]
)
def test_depth_in_what_is_read_is_refused(site, token, begin, end, depth):
    body = begin + b"[" * depth + b"]" * depth + end
    status, text = post(site, token, [body], length=len(body))
    assert status == 400 and "recursion limit" in text, f"{status} {text}"


def test_a_million_files_as_clients_write_them_are_too_large(site, token, memory):
    file = b'{"sources":["https://source.example.org/data/file"],"destinations":["https://b.example.org/data/file"]},'
    status, text = post(site, token, repeated(FILES_BEGIN, file, file[:-1] + b"]}", 1_000_000 * len(file)))
    assert status == 413, f"{status} {text}"
    assert memory.grown < ONE_BODY_BYTES_MAX, f"{memory.grown / MIB:.0f} MiB"


def test_many_large_submissions_at_once_take_the_memory_of_four(site, token, memory, tier):
    pieces, _ = large("numbers in a file", BODY_BYTES[tier.name])
    statuses = []

    def send():
        statuses.append(post(site, token, pieces, length=sum(map(len, pieces)))[0])

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS_MAX)
    assert statuses == [400] * 6
    assert memory.grown < FOUR_BODIES_BYTES_MAX, f"{memory.grown / MIB:.0f} MiB"


OPERATIONS = [
    (method.upper(), concrete(path), media_type)
    for path, method, operation in interface("fts").operations()
    for media_type in operation.get("requestBody", {}).get("content", {})
]


@pytest.mark.parametrize("method, path, media_type", [of for of in OPERATIONS if of[1] != "/jobs"])
def test_no_other_operation_keeps_a_body_of_a_hundred_megabytes(site, memory, method, path, media_type):
    pieces = repeated(b'{"x":[', b"0," * 512, b"0]}", 100 * MIB)
    status, text = post(site, site.admin_token(), pieces, path, sum(map(len, pieces)), method)
    assert status == 413, f"{status} {text}"
    assert memory.grown < 16 * MIB, f"{memory.grown / MIB:.0f} MiB"


@pytest.mark.parametrize("method, path, media_type", OPERATIONS)
def test_depth_is_refused_wherever_json_is_read(site, method, path, media_type):
    status, text = post(site, site.admin_token(), [b"[" * 60_000], path, 60_000, method)
    # What belongs to a certificate is refused to a token whatever it says.
    assert status == (403 if path.startswith("/delegation") else 400), f"{status} {text}"


@pytest.mark.parametrize("path", ["/live/api/report", "/live/api/series", "/api/v1/overview", "/health", "/metrics", "/whoami"])
def test_a_body_that_nobody_asked_for_is_not_kept(site, memory, path):
    pieces = repeated(b"[", b"0," * 512, b"0]", 100 * MIB)
    status, text = post(site, site.admin_token(), pieces, path, sum(map(len, pieces)), "GET")
    assert status == 200, f"{status} {text}"
    assert memory.grown < 16 * MIB, f"{memory.grown / MIB:.0f} MiB"


@pytest.mark.parametrize(
    "method, path, media_type",
    [
        ("POST", "/", "application/macaroon-request"),
        ("POST", "/.oauth2/token", "application/x-www-form-urlencoded"),
        ("PROPFIND", "/", "application/xml"),
        ("PROPPATCH", "/kept", "application/xml"),
        ("LOCK", "/lock", "application/xml"),
    ],
)
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_door_keeps_no_document_of_a_hundred_megabytes(site, token, memory, method, path, media_type, framing):
    Door(site, token).ask("PUT", "/kept", data=b"kept")
    pieces = repeated(b'{"caveats":["', b"x" * 1024, b'"]}', 100 * MIB)
    length = sum(map(len, pieces)) if framing == "length" else None
    status, text = post(site, token, pieces, path, length, method, 0, media_type)
    assert status in (400, 413), f"{status} {text}"
    assert memory.grown < 16 * MIB, f"{memory.grown / MIB:.0f} MiB"


def test_depth_in_a_request_for_a_macaroon_is_refused(site, token):
    for body in (b"[" * 4000, b'{"caveats":' + b"[" * 3000, b'{"validity":"PT1M","x":' + b'{"x":' * 700):
        status, text = post(site, token, [body], "/", len(body), "POST", 0, "application/macaroon-request")
        assert status == 400, f"{status} {text}"


@pytest.fixture(scope="module")
def job(service, tier):
    """A large job that waits: nothing listens at its source."""
    files = [(f"https://127.0.0.250:1/{n}", f"https://127.0.0.251:1/{n}") for n in range(FILES[tier.name])]
    return service.submit(*files, retry=3)


def test_the_files_of_a_large_job_are_listed_in_bounded_memory(service, memory, job, tier):
    with service.ask("GET", f"/jobs/{job}/files", stream=True) as answer:
        size = sum(map(len, answer.iter_content(65536)))
    assert answer.status_code == 200 and size > 900 * FILES[tier.name]
    assert memory.grown < LISTING_BYTES_MAX, f"{memory.grown / MIB:.0f} MiB for {size / MIB:.0f}"
    ids = [file["file_id"] for file in service.files(job)]
    assert len(ids) == FILES[tier.name] and ids == sorted(set(ids))


def test_a_large_job_named_a_thousand_times_is_not_held_in_memory(service, memory, job):
    ids = ",".join([job] * 1000)
    with service.ask("GET", f"/jobs/{ids}?files=file_state,dest_surl", stream=True) as answer:
        assert answer.status_code == 200
        # The first of very much; the client goes in the middle of it.
        begin = next(answer.iter_content(10 * MIB))
        assert begin.startswith(b"[{")
    assert memory.grown < LISTING_BYTES_MAX, f"{memory.grown / MIB:.0f} MiB"


def test_clients_that_read_a_large_listing_slowly_cost_little(site, token, memory, job):
    context = ssl.create_default_context(capath=str(site.certificates))
    connections = []
    for _ in range(12):
        connection = http.client.HTTPSConnection(site.host, site.base + 3, context=context, timeout=SECONDS_MAX)
        connection.request("GET", f"/jobs/{job}/files", headers={"Authorization": f"Bearer {token}"})
        connections.append((connection, connection.getresponse()))
    assert all(answer.status == 200 and answer.read(1) == b"[" for _, answer in connections)
    assert memory.grown < LISTING_BYTES_MAX, f"{memory.grown / MIB:.0f} MiB"
    for connection, _ in connections:
        connection.close()


def test_the_explanation_of_a_large_job_is_whole_and_in_bounded_memory(service, memory, job, tier):
    told = service.ask("GET", f"/api/v1/jobs/{job}/explain").json()
    assert memory.grown < LISTING_BYTES_MAX, f"{memory.grown / MIB:.0f} MiB"
    assert len(told["files"]) == FILES[tier.name]
    assert told["lines"][0].endswith(f"{FILES[tier.name]} files")


def test_what_is_more_than_the_service_may_hold_is_not_accepted(service, job):
    pairs = [(f"https://127.0.0.250:1/more/{n}", f"https://127.0.0.251:1/more/{n}") for n in range(3)]
    answer = service.try_submit(*pairs)
    assert answer.status_code == 503 and "transfer.open_max" in answer.text, f"{answer.status_code} {answer.text}"
    assert service.try_submit(pairs[0]).status_code == 200


def test_a_large_job_is_canceled_and_what_it_held_is_free(site, service, job):
    assert service.ask("DELETE", f"/jobs/{job}").status_code == 200
    assert service.wait(job)["job_state"] == "CANCELED"
    for more in service.ask("GET", "/jobs").json():
        service.ask("DELETE", f"/jobs/{more['job_id']}")
    eventually("nothing waits any more", lambda: not service.ask("GET", "/jobs").json())
