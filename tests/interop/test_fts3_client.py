"""The fts3 client from PyPI, unmodified: its commands and bindings, with tokens, against our service."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import fts3.rest.client.easy as fts3
import pytest

from .clients import adler32, content
from .fault_server import stalled
from .waiting import eventually

JOB_ID = re.compile(r"Job id: ([0-9a-f-]{36})")


@pytest.fixture
def fts(grid):
    """Runs a command of the client against the service of the first site."""

    def run(command, *words, exit_code=0, option="--fts-access-token"):
        line = [str(Path(sys.executable).parent / f"fts-rest-{command}"), "-s", grid.service.base]
        line += [option, grid.token, *words]
        environment = {"PATH": os.environ["PATH"], "X509_CERT_DIR": str(grid.here.certificates)}
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == exit_code, (
            f"{command} {words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    return run


@pytest.fixture
def submit(fts):
    """Submits with one token for everything, unless told otherwise; gives back the job's id."""

    def run(*words, option="--access-token"):
        return JOB_ID.search(fts("transfer-submit", *words, option=option)).group(1)

    return run


@pytest.fixture
def ends(grid, place):
    """A file at the first site, and where it is to go at the second."""
    data = content(place, 300_000)
    grid.here_door.put(f"{place}/source", data)
    return Ends(grid, place, data)


class Ends:
    def __init__(self, grid, place, data):
        self.grid, self.place, self.data = grid, place, data
        self.source = grid.here_door.url(f"{place}/source")
        self.destination = grid.there_door.url(f"{place}/destination")

    def assert_arrived(self):
        assert self.grid.there_door.get(f"{self.place}/destination") == self.data
        assert self.grid.there_door.checksum(f"{self.place}/destination") == adler32(self.data)


def test_whoami_names_the_token_s_subject(fts, grid):
    shown = fts("whoami")
    assert "User DN: alice" in shown and "VO: here" in shown
    told = json.loads(fts("whoami", "-j"))
    assert told["dn"] == ["alice"] and told["vos"] == ["here"]
    assert re.fullmatch("[0-9a-f]{16}", told["delegation_id"])


def test_a_submitted_file_is_polled_to_finished_and_is_the_source_s(fts, submit, ends):
    job = submit(ends.source, ends.destination)
    eventually("the client sees FINISHED", lambda: "Status: FINISHED" in fts("transfer-status", job), 30)
    ends.assert_arrived()


def test_a_blocking_submission_returns_when_the_file_is_there(fts, ends):
    shown = fts("transfer-submit", "-b", "-i", "1", ends.source, ends.destination, option="--access-token")
    assert "Job finished with state FINISHED" in shown
    ends.assert_arrived()


def test_source_and_destination_may_have_tokens_of_their_own(submit, grid, ends):
    source = grid.here.token(f"storage.read:{ends.place}", audience=grid.here.door)
    destination = grid.there.token(
        f"storage.read:{ends.place} storage.modify:{ends.place}", audience=grid.there.door
    )
    job = submit(
        "--src-access-token",
        source,
        "--dst-access-token",
        destination,
        "--unmanaged-tokens",
        ends.source,
        ends.destination,
        option="--fts-access-token",
    )
    grid.service.wait_finished(job)
    ends.assert_arrived()


def test_options_reach_the_job(submit, grid, ends):
    job = submit(
        "-o",
        "-K",
        "--nostreams",
        "4",
        "--timeout",
        "100",
        "--retry",
        "2",
        "-p",
        "5",
        "--file-size",
        str(len(ends.data)),
        "--job-metadata",
        '{"a":1}',
        "--file-metadata",
        "f",
        "--activity",
        "prod",
        "--scitag",
        "65",
        ends.source,
        ends.destination,
        f"ADLER32:{adler32(ends.data)}",
    )
    job = grid.service.wait_finished(job)
    [file] = grid.service.files(job["job_id"])
    assert (job["priority"], job["retry"], job["verify_checksum"], job["overwrite_flag"]) == (5, 2, "b", "Y")
    assert job["job_metadata"]["a"] == 1
    assert (file["activity"], file["scitag"], file["user_filesize"]) == ("prod", 65, len(ends.data))
    ends.assert_arrived()


def test_a_bulk_file_submits_many(submit, grid, place, tmp_path):
    files = []
    for number in range(5):
        data = content((place, number), 1000 * number)
        grid.here_door.put(f"{place}/{number}", data)
        files.append(
            {
                "sources": [grid.here_door.url(f"{place}/{number}")],
                "destinations": [grid.there_door.url(f"{place}/{number}")],
                "checksum": f"ADLER32:{adler32(data)}",
                "filesize": len(data),
                "metadata": {"k": number},
                "source_tokens": [grid.token],
                "destination_tokens": [grid.token],
            }
        )
    bulk = tmp_path / "bulk.json"
    bulk.write_text(json.dumps({"files": files}))
    job = submit("-f", str(bulk))
    grid.service.wait_finished(job)
    assert [file["file_metadata"] for file in grid.service.files(job)] == [
        {"k": number} for number in range(5)
    ]
    for number in range(5):
        assert grid.there_door.get(f"{place}/{number}") == content((place, number), 1000 * number)


def test_status_is_shown_plain_and_as_json(fts, submit, grid, ends):
    job = submit(ends.source, ends.destination)
    grid.service.wait_finished(job)
    shown = fts("transfer-status", job)
    for line in (
        f"Request ID: {job}",
        "Status: FINISHED",
        "Client DN: alice",
        "Priority: 3",
        "VO Name: here",
    ):
        assert line in shown
    told = json.loads(fts("transfer-status", "-j", job))
    told = told[0] if isinstance(told, list) else told
    assert told["http_status"] == "200 Ok" and told["dm"] == []
    assert [file["file_state"] for file in told["files"]] == ["FINISHED"]


def test_the_status_of_an_unknown_job_is_not_found(fts):
    nobody = "00000000-0000-0000-0000-000000000000"
    assert f"Not found: {nobody}" in fts("transfer-status", nobody, exit_code=1)


@pytest.fixture
def waiting_job(faulty, grid, place):
    """A job of three files that do not move, because their source has stopped."""
    pairs = []
    for number in range(3):
        source = faulty.offer(f"{place}/{number}", b"x" * 1000, get=stalled(b"x" * 1000, after=10))
        pairs.append((source, grid.there_door.url(f"{place}/{number}")))
    job = grid.service.submit(*pairs)
    grid.service.wait_state(job, "ACTIVE")
    yield job
    grid.service.ask("DELETE", f"/jobs/{job}")
    faulty.release()
    grid.service.wait_idle()


def test_lists_can_be_filtered(fts, grid, waiting_job, faulty):
    here, there = grid.here.storage_id, grid.there.storage_id
    for words, listed in [
        ([], True),
        (["-u", "alice"], True),
        (["-o", "here"], True),
        (["--source", f"https://{faulty.host}"], True),
        (["--source", f"https://{faulty.host}:443", "--destination", there], True),
        (["-u", "bob"], False),
        (["--source", here], False),
        (["--destination", here], False),
    ]:
        assert (waiting_job in fts("transfer-list", *words)) == listed, words


def test_a_job_is_canceled_as_a_whole(fts, grid, waiting_job):
    assert fts("transfer-cancel", waiting_job).strip() == "CANCELED"
    assert {file["file_state"] for file in grid.service.files(waiting_job)} == {"CANCELED"}
    grid.service.wait_idle()


def test_files_of_a_job_are_canceled_alone(fts, grid, waiting_job):
    ids = [file["file_id"] for file in grid.service.files(waiting_job)]
    assert fts("transfer-cancel", f"{waiting_job}:{ids[0]},{ids[1]}").split() == ["CANCELED", "CANCELED"]
    assert fts("transfer-cancel", f"{waiting_job}:{ids[2]}").split() == ["CANCELED"]
    assert grid.service.wait(waiting_job)["job_state"] == "CANCELED"


def test_a_finished_job_that_is_canceled_stays_finished(fts, submit, grid, ends):
    job = submit(ends.source, ends.destination)
    grid.service.wait_finished(job)
    assert fts("transfer-cancel", job).strip() == "FINISHED"


@pytest.fixture
def context(grid, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(grid.here.certificates))
    return fts3.Context(grid.service.base, fts_access_token=grid.token, verify=True, no_creds=False)


def test_the_bindings_submit_and_list_files(context, grid, ends):
    transfer = fts3.new_transfer(
        ends.source,
        ends.destination,
        checksum=f"ADLER32:{adler32(ends.data)}",
        filesize=len(ends.data),
        metadata={"request_id": "r1"},
    )
    job = fts3.new_job(
        [transfer], verify_checksum=True, overwrite=False, retry=1, metadata={"issuer": "test"}
    )
    job = fts3.submit(context, job)
    grid.service.wait_finished(job)
    status = fts3.get_job_status(context, job, list_files=True)
    assert (status["job_state"], status["job_metadata"]["issuer"]) == ("FINISHED", "test")
    assert [file["file_metadata"] for file in status["files"]] == [{"request_id": "r1"}]
    [listed] = as_list(fts3.get_jobs_statuses(context, [job], list_files=True))
    assert listed["files"][0]["file_state"] == "FINISHED"
    assert listed["files"][0]["dest_surl"] == ends.destination
    ends.assert_arrived()


def test_the_bindings_know_several_jobs_at_once(context, grid, place, ends):
    jobs = []
    for number in range(2):
        destination = grid.there_door.url(f"{place}/{number}")
        jobs.append(fts3.submit(context, fts3.new_job([fts3.new_transfer(ends.source, destination)])))
    for job in jobs:
        grid.service.wait_finished(job)
    statuses = fts3.get_jobs_statuses(context, jobs, list_files=True)
    assert {status["job_id"] for status in statuses} == set(jobs)
    assert {status["http_status"] for status in statuses} == {"200 Ok"}
    assert fts3.whoami(context)["dn"] == ["alice"]


def test_the_bindings_cancel(context, grid, waiting_job):
    ids = [file["file_id"] for file in grid.service.files(waiting_job)]
    assert fts3.cancel(context, waiting_job, [ids[0]]) == "CANCELED"
    assert fts3.cancel(context, waiting_job)["job_state"] == "CANCELED"


def as_list(value):
    return value if isinstance(value, list) else [value]
