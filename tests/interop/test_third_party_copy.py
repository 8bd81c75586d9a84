"""Third-party copies between two sites: pulled, pushed, streamed; through the service and by plain COPY."""

import subprocess

import pytest

from .clients import adler32, content

SIZES = [0, 1, 70_000, 5_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_the_service_lets_the_destination_pull(grid, place, size):
    data = content(place, size)
    grid.here_door.put(f"{place}/a", data)
    job = grid.service.submit((grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/new/dir/b")))
    grid.service.wait_finished(job)
    assert grid.here.landed_modes(job) == ["pull"]
    assert grid.there_door.get(f"{place}/new/dir/b") == data


@pytest.mark.parametrize("size", SIZES)
def test_the_service_lets_the_source_push_when_the_destination_cannot_pull(grid, faulty, place, size):
    data = content(place, size)
    grid.here_door.put(f"{place}/a", data)
    job = grid.service.submit((grid.here_door.url(f"{place}/a"), faulty.url + f"{place}/b"))
    grid.service.wait_finished(job)
    assert grid.here.landed_modes(job) == ["push"]
    assert faulty.files[f"{place}/b"] == data


@pytest.mark.parametrize("size", SIZES)
def test_the_service_streams_when_neither_end_copies(grid, faulty, elsewhere, place, size):
    data = content(place, size)
    source = faulty.offer(f"{place}/a", data)
    job = grid.service.submit((source, elsewhere.url + f"{place}/b"))
    grid.service.wait_finished(job)
    assert grid.here.landed_modes(job) == ["streamed"]
    assert elsewhere.files[f"{place}/b"] == data


def test_a_destination_that_may_not_pull_from_the_source_is_pushed_to(own_grid, place):
    grid = own_grid
    path = grid.there.directory / "penstock.toml"
    path.write_text(path.read_text().replace('"127.0.0.2"', '"127.0.0.99"', 1))
    grid.there.configure("[storage.outbound]", allow=["127.0.0.99"])
    for site in grid.sites:
        site.start()
    data = content(place, 100_000)
    grid.here_door.put("/a", data)
    job = grid.service.submit((grid.here_door.url("/a"), grid.there_door.url("/b")))
    grid.service.wait_finished(job)
    assert grid.here.landed_modes(job) == ["push"]
    assert grid.there_door.get("/b") == data


def curl(grid, *words):
    """A request by curl to a door; gives back what it printed."""
    line = [
        "curl",
        "-sS",
        "--capath",
        str(grid.here.certificates),
        "-H",
        f"Authorization: Bearer {grid.token}",
        *words,
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"curl: exit {done.returncode}: {done.stderr}"
    return done.stdout


def copy(grid, active, passive, role):
    """A COPY as gfal2 and davix send it; gives back the lines of the answer."""
    bearer = f"TransferHeaderAuthorization: Bearer {grid.token}"
    return curl(
        grid,
        "-X",
        "COPY",
        "-H",
        f"{role}: {passive}",
        "-H",
        bearer,
        "-H",
        "Credential: none",
        "-H",
        "X-Number-Of-Streams: 1",
        "-H",
        "Secure-Redirection: 1",
        "-H",
        "Overwrite: T",
        active,
    ).splitlines()


def last_line(lines):
    return [line for line in lines if line.strip()][-1]


@pytest.mark.parametrize("role", ["Source", "Destination"])
def test_curl_asks_for_a_copy_and_reads_markers_to_success(grid, place, role):
    data = content(place, 3_000_000)
    grid.here_door.put(f"{place}/a", data)
    source, destination = grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/b")
    active, passive = (destination, source) if role == "Source" else (source, destination)
    lines = copy(grid, active, passive, role)
    assert last_line(lines).startswith("success:"), lines
    assert grid.there_door.get(f"{place}/b") == data
    assert grid.there_door.checksum(f"{place}/b") == adler32(data)
    markers = "\n".join(lines[:-1])
    for key in (
        "Perf Marker",
        "Timestamp:",
        "Stripe Index: 0",
        "Stripe Bytes Transferred:",
        "Total Stripe Count: 1",
    ):
        assert key in markers, markers
    assert lines.count("Perf Marker") == lines.count("End") >= 1


def test_a_copy_of_nothing_fails_with_a_last_line_or_a_status(grid, place):
    lines = copy(grid, grid.there_door.url(f"{place}/b"), grid.here_door.url(f"{place}/nothing"), "Source")
    assert "404" in "\n".join(lines) or last_line(lines).startswith("failure:"), lines
    assert not last_line(lines).startswith("success:")
    assert not grid.there_door.exists(f"{place}/b")


def test_a_copy_to_a_host_that_is_not_allowed_is_refused(grid, place):
    grid.here_door.put(f"{place}/a", b"secret")
    status = curl(
        grid,
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "-X",
        "COPY",
        "-H",
        "Credential: none",
        "-H",
        "Destination: https://127.0.0.77:8443/a",
        grid.here_door.url(f"{place}/a"),
    )
    assert status == "403"


def test_a_copy_that_asks_for_both_directions_is_a_bad_request(grid, place):
    url = grid.here_door.url(f"{place}/a")
    status = curl(
        grid,
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "-X",
        "COPY",
        "-H",
        f"Source: {url}1",
        "-H",
        f"Destination: {url}2",
        url,
    )
    assert status == "400"
