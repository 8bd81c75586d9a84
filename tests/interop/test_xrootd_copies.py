"""Third-party copies between Penstock and a real XRootD, both ways, pulled and pushed: by our transfer service, by
gfal2 and by davix, with tokens, macaroons and proxies.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .clients import Endpoint, Service, adler32, content
from .waiting import eventually

SMALL = 300_000
LARGE = 50_000_000
# Blanks and letters beyond ASCII, as people have them in file names.
ODD = "/two%20words/%C3%BCn%C3%AFcode%20%E2%80%93%20caf%C3%A9"
WAYS = ["to XRootD", "from XRootD"]
CREDENTIALS = ["token", "macaroon"]
WRITING = ("DOWNLOAD", "LIST", "UPLOAD", "MANAGE", "DELETE")


class Way:
    """A direction between our site and XRootD."""

    def __init__(self, field, name, place):
        ends = (field.here, field.xrootd)
        self.source, self.destination = ends if name == "to XRootD" else reversed(ends)
        self.field = field
        self.place = place

    @property
    def source_door(self):
        return self.field.door(self.source)

    @property
    def destination_door(self):
        return self.field.door(self.destination)

    def put(self, size, name="/a"):
        """A file at the source; its content and its two URLs."""
        data = content((self.place, name), size)
        expected = 200 if self.source is self.field.xrootd else 201
        self.source_door.put(self.place + name, data, expect=expected)
        return data, self.source_door.url(self.place + name), self.destination_door.url(self.place + name)

    def offer_much(self, directory):
        """A file that takes a while to copy, and its two URLs. XRootD serves a file of holes that nobody wrote."""
        url = self.source_door.url(f"{self.place}/a")
        if self.source is self.field.xrootd:
            local = self.field.xrootd.files / self.place.strip("/") / "a"
            local.parent.mkdir()
            make_holes(local, 300_000_000)
        else:
            make_holes(directory / "much", 300_000_000)
            self.field.run("token", "curl", *self.curl_options, "-T", directory / "much", url)
        return url, self.destination_door.url(f"{self.place}/a")

    @property
    def curl_options(self):
        bearer = f"Authorization: Bearer {self.field.token}"
        return ["-sS", "--fail-with-body", "--capath", self.field.certificates, "-H", bearer]

    def wait_moving(self):
        """Some bytes have arrived at the destination, as its disks tell."""

        def moved():
            if self.destination is self.field.xrootd:
                return self.field.xrootd.all_files().get(f"{self.place}/a", 0) > 0
            written = self.destination.seen.glob("pools/*/incoming/*")
            return sum(path.stat().st_size for path in written) > 0

        eventually("the copy moves bytes", moved)

    def wait_tidy(self):
        self.field.here.wait_tidy()
        eventually(
            "XRootD keeps nothing of the copy",
            lambda: self.destination is not self.field.xrootd
            or f"{self.place}/a" not in self.field.xrootd.all_files(),
        )
        assert not self.destination_door.exists(f"{self.place}/a")

    def make_room(self):
        """XRootD does not make the directory of a file that it fetches."""
        path = f"{self.place}{ODD.rpartition('/')[0]}/"
        for end in [at for at, letter in enumerate(path) if letter == "/"][1:]:
            status = self.destination_door.ask("MKCOL", path[: end + 1]).status_code
            assert status in (201, 405), status

    def put_older(self):
        """Something else at the destination already. XRootD keeps checksums by the second of the file's change, so
        that of a file which is replaced in the same second would be told of its successor."""
        expected = 200 if self.destination is self.field.xrootd else 201
        self.destination_door.put(f"{self.place}/a", b"older", expect=expected)
        written = time.time()
        eventually("the next second", lambda: time.time() > written + 1.1)

    def assert_copied(self, data, name="/a"):
        assert self.destination_door.get(self.place + name) == data
        assert self.destination_door.checksum(self.place + name) == adler32(data)

    def tokens(self, kind, at=""):
        """Credentials for both ends, as a job takes them. Macaroons are for a path of the destination."""
        if kind == "token":
            return {}
        reads = self.field.macaroon(self.source, self.place, "DOWNLOAD", "LIST")
        writes = self.field.macaroon(self.destination, self.place + at, *WRITING)
        return {"source_tokens": [reads], "destination_tokens": [writes]}


@pytest.fixture(params=WAYS)
def way(request, field, place):
    return Way(field, request.param, place)


def make_holes(path, size):
    path.touch()
    os.truncate(path, size)


def submit(field, source, destination, tokens=None, **params):
    file = {"sources": [source], "destinations": [destination], **(tokens or {})}
    return field.service.submit(file, **params)


class ProxyService(Service):
    """The jobs of the field's user, who has delegated a proxy to the service and has no token."""

    def __init__(self, field):
        Endpoint.__init__(self, field.here.service, field.certificates)
        self.session.cert = str(field.proxy.pem)
        field.run("proxy", Path(sys.executable).parent / "fts-rest-delegate", "-s", field.here.service)


# By our transfer service.


@pytest.mark.parametrize("size", [0, 1, SMALL, LARGE])
def test_the_service_lets_the_destination_pull(field, way, size):
    data, source, destination = way.put(size)
    job = submit(field, source, destination)
    field.service.wait_finished(job)
    assert field.here.landed_modes(job) == ["pull"]
    way.assert_copied(data)


@pytest.mark.parametrize("size", [0, 1, SMALL])
def test_the_service_copies_with_a_macaroon_for_each_end(field, way, size):
    data, source, destination = way.put(size)
    job = submit(field, source, destination, way.tokens("macaroon"))
    field.service.wait_finished(job)
    assert field.here.landed_modes(job) == ["pull"]
    way.assert_copied(data)


def test_a_macaroon_for_one_file_in_a_new_directory_is_enough(field, way):
    """XRootD makes directories for a PUT, but not for a COPY: then the source pushes."""
    data, source, destination = way.put(SMALL)
    job = submit(field, source, destination, way.tokens("macaroon", "/a"))
    field.service.wait_finished(job)
    assert field.here.landed_modes(job) == ["push" if way.destination is field.xrootd else "pull"]
    way.assert_copied(data)


@pytest.mark.parametrize("credential", CREDENTIALS)
def test_the_service_copies_names_with_blanks_and_foreign_letters(field, way, credential):
    data, source, destination = way.put(SMALL, ODD)
    job = submit(field, source, destination, way.tokens(credential))
    field.service.wait_finished(job)
    assert field.here.landed_modes(job) == ["pull"]
    way.assert_copied(data, ODD)


@pytest.mark.parametrize("size", [0, 1, SMALL, LARGE])
def test_the_service_copies_for_a_delegated_proxy(field, way, size):
    data, source, destination = way.put(size)
    service = ProxyService(field)
    job = service.submit((source, destination))
    service.wait_finished(job)
    assert field.here.landed_modes(job) == ["pull"]
    way.assert_copied(data)


@pytest.mark.parametrize("size", [0, 1, LARGE])
@pytest.mark.parametrize("to", ["an XRootD that copies nothing", "a site that may not fetch"])
def test_the_service_pushes_for_a_delegated_proxy(field, place, to, size):
    """Either end gives a macaroon to the proxy, which the other end shows."""
    data = content(place, size)
    source, destination = (field.here, field.without_copies) if "XRootD" in to else (field.xrootd, field.secluded)
    field.door(source).put(f"{place}/a", data, expect=201 if source is field.here else 200)
    service = ProxyService(field)
    ends = field.door(source).url(f"{place}/a"), field.door(destination).url(f"{place}/b")
    job = service.submit(ends)
    service.wait_finished(job)
    assert field.here.landed_modes(job) == ["push"]
    assert field.door(destination).get(f"{place}/b") == data


@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_the_service_lets_our_door_push_to_an_xrootd_that_copies_nothing(field, place, size):
    data = content(place, size)
    field.door(field.here).put(f"{place}/a", data)
    plain = field.door(field.without_copies)
    job = submit(field, field.door(field.here).url(f"{place}/a"), plain.url(f"{place}/b"))
    field.service.wait_finished(job)
    assert field.here.landed_modes(job) == ["push"]
    assert plain.get(f"{place}/b") == data


@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_the_service_lets_xrootd_push_to_a_site_that_may_not_fetch_from_it(field, place, size):
    data = content(place, size)
    field.door(field.xrootd).put(f"{place}/a", data, expect=200)
    there = field.door(field.secluded)
    job = submit(field, field.xrootd.url(f"{place}/a"), there.url(f"{place}/b"))
    field.service.wait_finished(job)
    assert field.here.landed_modes(job) == ["push"]
    assert there.get(f"{place}/b") == data


def test_a_wrong_checksum_of_the_user_fails_before_a_byte_moves(field, way):
    data, source, destination = way.put(SMALL)
    file = {"sources": [source], "destinations": [destination], "checksum": "ADLER32:00000001"}
    job = field.service.submit(file, verify_checksum="both", retry=-1)
    assert "do not match" in field.service.wait_failed(job)
    assert not way.destination_door.exists(f"{way.place}/a")


def test_a_wrong_checksum_that_only_the_destination_can_see_leaves_nothing(field, way):
    _, source, destination = way.put(SMALL)
    file = {"sources": [source], "destinations": [destination], "checksum": "ADLER32:00000001"}
    job = field.service.submit(file, verify_checksum="target", retry=-1)
    assert "do not match" in field.service.wait_failed(job)
    assert not way.destination_door.exists(f"{way.place}/a")


def test_a_missing_source_is_said_so(field, way):
    source, destination = (door.url(f"{way.place}/no") for door in (way.source_door, way.destination_door))
    job = submit(field, source, destination, retry=-1)
    reason = field.service.wait_failed(job)
    assert reason.startswith("SOURCE [2] "), reason
    assert "No such file or directory" in reason
    assert not way.destination_door.exists(f"{way.place}/no")


def test_an_existing_destination_is_kept_without_overwrite_and_replaced_with_it(field, way):
    data, source, destination = way.put(SMALL)
    way.put_older()
    job = submit(field, source, destination, retry=-1)
    reason = field.service.wait_failed(job)
    assert "Destination file exists and overwrite is not enabled" in reason
    assert way.destination_door.get(f"{way.place}/a") == b"older"
    job = submit(field, source, destination, overwrite=True)
    field.service.wait_finished(job)
    way.assert_copied(data)


def test_a_token_that_opens_only_one_end_is_not_lent_to_the_other(field, way):
    """XRootD remembers the user of a connection: what one job was allowed to read, the next is not."""
    _, source, destination = way.put(SMALL)
    field.service.wait_finished(submit(field, source, destination))
    nothing = field.here.token(scope="storage.read:/elsewhere")
    job = submit(
        field,
        source,
        destination + "-2",
        {"source_tokens": [nothing], "destination_tokens": [field.here.token()]},
        overwrite=True,
        retry=-1,
    )
    reason = field.service.wait_failed(job)
    assert "403" in reason, reason
    assert not way.destination_door.exists(f"{way.place}/a-2")


def test_a_canceled_job_leaves_nothing(field, way, tmp_path):
    source, destination = way.offer_much(tmp_path)
    job = submit(field, source, destination)
    way.wait_moving()
    with field.xrootd.paused():
        field.service.ask("DELETE", f"/jobs/{job}")
    assert field.service.wait(job)["job_state"] == "CANCELED"
    way.wait_tidy()
    field.service.wait_idle()


# By gfal2, which takes macaroons from both ends when it has a proxy.


@pytest.mark.parametrize("mode", ["pull", "push", "streamed"])
@pytest.mark.parametrize("credential", ["token", "proxy"])
def test_gfal_copies_and_compares_checksums(field, way, credential, mode):
    data, source, destination = way.put(SMALL)
    way.make_room()
    field.run(credential, "gfal-copy", "--copy-mode", mode, "-K", "ADLER32", source, destination)
    way.assert_copied(data)


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_gfal_copies_a_large_file_and_names_with_blanks(field, way, mode):
    data, source, destination = way.put(LARGE, ODD)
    way.make_room()
    field.run("proxy", "gfal-copy", "-p", "--copy-mode", mode, "-K", "ADLER32", source, destination)
    way.assert_copied(data, ODD)


@pytest.mark.parametrize("size", [0, 1])
def test_gfal_copies_files_of_next_to_nothing(field, way, size):
    data, source, destination = way.put(size)
    way.make_room()
    field.run("proxy", "gfal-copy", "-K", "ADLER32", source, destination)
    way.assert_copied(data)


def test_gfal_refuses_an_existing_destination_unless_forced(field, way):
    data, source, destination = way.put(SMALL)
    way.put_older()
    done = field.run("proxy", "gfal-copy", "--copy-mode", "pull", source, destination, check=False)
    assert done.returncode == 17, done.stderr  # EEXIST
    assert way.destination_door.get(f"{way.place}/a") == b"older"
    field.run("proxy", "gfal-copy", "-f", "--copy-mode", "pull", "-K", "ADLER32", source, destination)
    way.assert_copied(data)


def test_gfal_tells_a_checksum_that_does_not_match_and_a_missing_source(field, way):
    _, source, destination = way.put(SMALL)
    way.make_room()
    wrong = field.run("proxy", "gfal-copy", "-K", "ADLER32:00000001", source, destination, check=False)
    assert wrong.returncode != 0
    assert "checksum" in wrong.stderr.lower(), wrong.stderr
    missing = field.run("proxy", "gfal-copy", source + "-no", destination + "-no", check=False)
    assert missing.returncode == 2, missing.stderr  # ENOENT
    assert not way.destination_door.exists(f"{way.place}/a-no")


def test_a_client_that_dies_while_our_door_fetches_leaves_nothing(field, place, tmp_path):
    way = Way(field, "from XRootD", place)
    source, destination = way.offer_much(tmp_path)
    line = ["gfal-copy", "--copy-mode", "pull", source, destination]
    client = subprocess.Popen(line, env=field.environment("proxy"), stdout=subprocess.DEVNULL)
    try:
        way.wait_moving()
        with field.xrootd.paused():
            client.kill()
            client.wait()
    finally:
        client.kill()
        client.wait()
    way.wait_tidy()


# By davix, which brings no credential for the other end unless told to.


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("credential", [*CREDENTIALS, "proxy"])
def test_davix_copies_with_a_credential_for_each_end(field, way, credential, mode):
    """A proxy opens the end that copies; davix cannot delegate it, so a macaroon opens the other one."""
    data, source, destination = way.put(SMALL)
    way.make_room()
    tokens = way.tokens("macaroon" if credential == "proxy" else credential)
    reads, writes = (tokens.get(f"{end}_tokens", [field.token])[0] for end in ("source", "destination"))
    active, passive = (writes, reads) if mode == "pull" else (reads, writes)
    headers = ["-H", f"Authorization: Bearer {active}"]
    if credential == "proxy":
        headers = ["--cert", field.proxy.pem]
    headers += ["-H", f"TransferHeaderAuthorization: Bearer {passive}"]
    field.run(
        "proxy",
        "davix-cp",
        "--capath",
        field.certificates,
        *headers,
        "--copy-mode",
        mode,
        source,
        destination,
    )
    way.assert_copied(data)


def test_davix_without_a_credential_for_the_other_end_is_refused(field, way):
    """Also after others have copied from there: no connection keeps their rights for it."""
    _, source, destination = way.put(SMALL)
    line = ["davix-cp", "--capath", field.certificates, "--cert", field.proxy.pem, "--copy-mode", "pull"]
    done = field.run("proxy", *line, source, destination, check=False)
    assert done.returncode != 0
    assert not way.destination_door.exists(f"{way.place}/a")
