"""Pulls over several streams, between our sites and with a real XRootD: what was asked for, what was in effect."""

import pytest

from .clients import adler32, content

SIZE = 40_000_000
WAYS = ["to our site", "to XRootD", "from XRootD"]


class Ends:
    """Where a file is and shall be, and the doors that they are behind."""

    def __init__(self, field, way):
        self.source, self.destination = {
            "to our site": (field.here, field.there),
            "to XRootD": (field.here, field.xrootd),
            "from XRootD": (field.xrootd, field.here),
        }[way]
        self.field = field
        self.source_door, self.destination_door = field.door(self.source), field.door(self.destination)

    def put(self, path, data):
        self.source_door.put(path, data, expect=200 if self.source is self.field.xrootd else 201)
        return self.source_door.url(path)


@pytest.fixture(params=WAYS)
def ends(request, field):
    return Ends(field, request.param)


def explained(field, job):
    answer = field.service.ask("GET", f"/api/v1/jobs/{job}/explain")
    assert answer.status_code == 200, answer.text
    return answer.json()["files"][0]


def test_a_job_that_asks_for_streams_tells_what_was_in_effect(field, ends, place):
    data = content(place, SIZE)
    source = ends.put(f"{place}/a", data)
    file = {"sources": [source], "destinations": [ends.destination_door.url(f"{place}/a")]}
    job = field.service.submit(file, nostreams=4, buffer_size=1 << 20)
    field.service.wait_finished(job)
    assert ends.destination_door.get(f"{place}/a") == data
    assert ends.destination_door.checksum(f"{place}/a") == adler32(data)
    assert field.service.job(job)["internal_job_params"] == f"nostreams:4,buffersize:{1 << 20}"
    told = explained(field, job)
    copied, in_file = told["copied"], field.service.files(job)[0]["internal_file_params"]
    assert (copied["mode"], copied["not_offered"]) == ("pull", [])
    assert copied["asked"] == {"streams": 4, "buffer_bytes": 1 << 20}
    if ends.destination is field.xrootd:
        assert copied["in_effect"] is None and in_file is None
        return
    streams = copied["in_effect"]
    assert streams["asked"] == 4 and 1 <= streams["used"] <= 4, streams
    assert streams["because"] == ["as_asked"], streams
    # A part for each of four connections; what arrives out of order waits there, not on the disk.
    assert 4 * (2 << 20) <= streams["buffer"] <= 4 * (16 << 20), streams
    assert streams["writes"] >= SIZE >> 20 and streams["writes_elsewhere"] == 0, streams
    assert in_file == f"nostreams:{streams['used']},buffersize:{streams['buffer']}"
    text = field.here.command("explain", job)
    assert told["text"] in text and "stream" in told["text"], text


def test_a_plain_copy_over_several_streams_tells_them_in_its_last_marker(field, place):
    data = content(place, 20_000_000)
    ends = Ends(field, "to our site")
    headers = {
        "Source": ends.put(f"{place}/a", data),
        "Credential": "none",
        "TransferHeaderAuthorization": f"Bearer {field.token}",
        "X-Number-Of-Streams": "3",
    }
    answer = ends.destination_door.ask("COPY", f"{place}/b", headers=headers)
    assert answer.status_code == 202
    lines = answer.text.splitlines()
    assert lines[-1].startswith("success:"), lines
    told = [line for line in lines if line.startswith("Penstock-Streams: ")]
    assert "asked=3;" in told[-1] and "writes_elsewhere=0;" in told[-1], told
    assert told[-1].endswith("because=as_asked"), told
    assert ends.destination_door.get(f"{place}/b") == data


@pytest.mark.parametrize("streams", ["101", "-1", "two", "1,2"])
def test_a_number_of_streams_that_makes_no_sense_is_refused(field, place, streams):
    headers = {"Source": "https://127.0.0.6/f", "X-Number-Of-Streams": streams}
    answer = field.door(field.here).ask("COPY", f"{place}/b", headers=headers)
    assert answer.status_code == 400
    assert "x-number-of-streams" in answer.text.lower(), answer.text


def test_a_mode_that_was_not_offered_is_told_beside_the_one_that_was_used(field, place):
    ends = Ends(field, "from XRootD")
    data = content(place, 10_000_000)
    source = ends.put(f"{place}/a", data)
    file = {"sources": [source], "destinations": [field.door(field.secluded).url(f"{place}/a")]}
    job = field.service.submit(file, nostreams=4)
    field.service.wait_finished(job)
    copied = explained(field, job)["copied"]
    assert copied["mode"] == "push", copied
    assert [way["mode"] for way in copied["not_offered"]] == ["pull"], copied
    assert field.door(field.secluded).get(f"{place}/a") == data
