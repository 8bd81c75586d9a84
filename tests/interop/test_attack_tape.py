"""Storage elements that announce their tape interface where it is not.

What is announced is judged as the file's own URL is: no token leaves for a place that the operator has not allowed.
"""

import itertools
import socket

import pytest

from .clients import Service
from .site import Site, free_port
from .tape_endpoint import SITE, TapeEndpoint
from .waiting import eventually

HOST, TAPE_HOST, OTHER_HOST = "127.0.13.1", "127.0.13.2", "127.0.13.3"


@pytest.fixture
def site(binary, tmp_path, fault_ca):
    site = Site(binary, tmp_path / "site", "site", HOST)
    site.trust(fault_ca.certificate)
    site.configure("[transfer]", retries=0)
    site.append('\n[transfer.staging]\nquiet = "100ms"\npoll_min = "100ms"\npoll_max = "200ms"\n')
    yield site
    site.kill()


@pytest.fixture
def tapes(fault_ca):
    servers = []

    def start(host=TAPE_HOST, ca=fault_ca):
        servers.append(TapeEndpoint(host, ca))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def stage(site, tape, path="/f", within=60):
    """The job's only file, once bringing it to disk has ended."""
    source = tape.put_on_tape(path, b"data")
    service = Service(site)
    job = service.submit((source, source), bring_online=600, retry=-1)
    service.wait(job, within)
    [file] = service.files(job)
    return file


def announce(tape, uri):
    tape.discovery = lambda *_: (200, {"sitename": SITE, "endpoints": [{"uri": uri, "version": "v1", "metadata": {}}]})


def bearers(tape):
    return [call for call in tape.calls if "Authorization" in call.headers]


def test_another_port_of_the_same_host_is_an_honest_place(site, tapes):
    first, second = tapes(), tapes()
    announce(first, second.api)
    second.files = first.files
    site.start()
    assert stage(site, first)["file_state"] == "FINISHED"
    assert second.called("stage") and bearers(second) == second.calls


def test_another_host_gets_no_token_unless_the_operator_says_so(site, tapes):
    first, other = tapes(), tapes(OTHER_HOST)
    announce(first, other.api)
    other.files = first.files
    numbers = itertools.count()

    def outcome():
        file = stage(site, first, f"/f{next(numbers)}")
        return file["file_state"], "transfer.credentials_follow" in (file["reason"] or "")

    site.start()
    assert outcome() == ("FAILED", True)
    assert other.calls == []
    site.configure("[transfer]", credentials_follow=[OTHER_HOST])
    site.reload()
    eventually("the operator's leave counts", lambda: outcome() == ("FINISHED", False), 60)
    assert other.called("stage")
    # What is remembered of the first one is no leave for longer than the operator gives it.
    site.configure("[transfer]", credentials_follow=[])
    site.reload()
    eventually("the operator's leave has ended", lambda: outcome() == ("FAILED", True), 60)
    seen = len(other.calls)
    assert outcome() == ("FAILED", True)
    assert len(other.calls) == seen


def test_a_place_without_tls_gets_no_token_of_one_with_tls(site, tapes):
    first, plain = tapes(), tapes(ca=None)
    announce(first, plain.api)
    site.configure("[transfer]", credentials_follow=[TAPE_HOST], tokens_unencrypted=[TAPE_HOST])
    site.start()
    assert stage(site, first)["file_state"] == "FAILED"
    assert plain.calls == []


@pytest.mark.parametrize("uri", ["ftp://{host}/api", "file:///etc/passwd", "gopher://{host}:70/", "https://:p@{host}/api"])
def test_a_place_that_is_no_server_of_http_is_not_asked(site, tapes, uri):
    first = tapes()
    announce(first, uri.format(host=TAPE_HOST))
    site.log_levels = "info,penstock_transfer_service=debug"
    site.start()
    source = first.put_on_tape("/f", b"data")
    service = Service(site)
    job = service.submit((source, source), bring_online=600)
    # It may be mended, and is read again later.
    eventually("it is told", lambda: "its address is not one of a server" in site.log_text(), 60)
    assert first.called("stage") == []
    service.ask("DELETE", f"/jobs/{job}")
    service.wait(job)


def test_a_place_that_is_a_port_of_the_site_or_is_not_listed_is_not_connected_to(site, tapes):
    first = tapes()
    port = free_port(OTHER_HOST)
    with socket.create_server((OTHER_HOST, port)) as inside:
        inside.settimeout(0.2)
        listed = [HOST, f"{TAPE_HOST}:{first.http.server_port}"]
        site.configure("[trust]", private_addresses=listed)
        site.configure("[transfer]", credentials_follow=[OTHER_HOST, HOST])
        site.start()
        announce(first, f"https://{OTHER_HOST}:{port}/api/v1")
        assert "trust.private_addresses" in stage(site, first)["reason"]
        with pytest.raises(TimeoutError):
            inside.accept()
    site.kill()
    site.start()
    announce(first, f"{site.service}/api/v1")
    reason = stage(site, first, "/g")["reason"]
    assert "not for files" in reason, reason
