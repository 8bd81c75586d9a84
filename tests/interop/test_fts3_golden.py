"""Requests of the shapes that FTS clients send with tokens, and our answers, compared with golden files.

The shapes were recorded from fts3 3.14.2, its command line and bindings; the golden answers are our own. Those that
come with certificates, and Rucio's, are in `test_certificate_golden.py`.
"""

import pytest

from . import golden
from .clients import content
from .fault_server import stalled
from .recorder import FILE, NOBODY, PARAMS, Recorder

@pytest.fixture
def recorder(grid, faulty, place):
    return Recorder(grid.service, grid, faulty, token=grid.token, place=place)


@pytest.fixture
def check(recorder, request):
    write = request.config.getoption("--write-golden")
    return lambda name: golden.check(name, recorder.exchanges, write)


@pytest.fixture
def ends(grid, place):
    grid.here_door.put(f"{place}/source", content("golden", 10_000))
    return {
        "sources": [grid.here_door.url(f"{place}/source")],
        "destinations": [grid.there_door.url(f"{place}/destination")],
    }


@pytest.fixture
def stuck(grid, faulty, place):
    """Ends of a file that does not move while the test looks at it."""
    source = faulty.offer(f"{place}/stuck", b"y" * 500, get=stalled(b"y" * 500, after=1))
    yield {"sources": [source], "destinations": [grid.there_door.url(f"{place}/stuck")]}
    faulty.release()


def test_the_root_and_whoami_answer_what_every_command_asks_first(recorder, check):
    recorder.ask("GET", "//")
    recorder.ask("GET", "//whoami")
    check("whoami-token")


def test_a_submission_with_one_token_for_all(recorder, ends, check, grid):
    job = recorder.submit(**ends, source_tokens=[grid.token], destination_tokens=[grid.token])
    grid.service.wait_finished(job)
    recorder.ask("GET", f"//jobs/{job}")
    check("submit-access-token")


def test_a_submission_with_separate_tokens(recorder, ends, check, grid):
    params = {"unmanaged_tokens": True}
    job = recorder.submit(params, **ends, source_tokens=[grid.token], destination_tokens=[grid.token])
    grid.service.wait_finished(job)
    recorder.ask("GET", f"//jobs/{job}/files")
    check("submit-tokens")


def test_a_submission_with_every_option(recorder, ends, check, grid):
    params = {
        "overwrite": True,
        "verify_checksum": "b",
        "timeout": 100,
        "retry": 2,
        "priority": 5,
        "nostreams": "4",
        "job_metadata": {"a": 1},
    }
    file = {
        "checksum": "ADLER32:12345678",
        "filesize": 10_000,
        "activity": "prod",
        "scitag": 65,
        "metadata": "f",
    }
    job = recorder.submit(params, **ends, **file)
    grid.service.wait(job)
    recorder.ask("GET", f"//jobs/{job}")
    recorder.ask("GET", f"//jobs/{job}/files")
    check("submit-options")


def test_a_bulk_submission(recorder, ends, place, check, grid):
    first = FILE | ends | {"checksum": "ADLER32", "metadata": {"k": 1}}
    second = first | {"destinations": [grid.there_door.url(f"{place}/second")], "metadata": {"k": 2}}
    job = recorder.ask("POST", "//jobs", {"params": PARAMS | {"retry": 3}, "files": [first, second]})[
        "job_id"
    ]
    grid.service.wait_finished(job)
    recorder.ask("GET", f"//jobs/{job}/files")
    check("submit-bulk")


def test_a_deterministic_id_is_accepted_once(recorder, ends, place, check):
    recorder.submit({"id_generator": "deterministic", "sid": place}, **ends)
    again = {"params": PARAMS | {"id_generator": "deterministic", "sid": place}, "files": [FILE | ends]}
    recorder.ask("POST", "//jobs", again)
    check("submit-deterministic")


def test_the_status_of_a_running_and_of_a_finished_job(recorder, stuck, ends, check, grid):
    for files, state in [(stuck, "ACTIVE"), (ends, "FINISHED")]:
        job = recorder.submit(**files)
        grid.service.wait_state(job, state)
        recorder.ask("GET", f"//jobs/{job}")
        recorder.ask("GET", f"//jobs/{job}/files")
        recorder.ask("GET", f"//jobs/{job}/dm")
    check("status-json")


def test_the_status_of_an_unknown_job(recorder, check):
    recorder.ask("GET", f"//jobs/{NOBODY}")
    recorder.ask("GET", "//jobs/this-is-no-id")
    recorder.ask("GET", f"//jobs/{NOBODY}/files")
    recorder.ask("DELETE", f"//jobs/{NOBODY}")
    check("status-unknown")


def test_lists_of_jobs(recorder, stuck, check, grid, faulty):
    # A subject of its own, so that jobs of other tests are not listed.
    grid.service.session.headers["Authorization"] = f"Bearer {grid.here.token(subject='lister')}"
    try:
        job = recorder.submit(**stuck)
        grid.service.wait_state(job, "ACTIVE")
        recorder.ask("GET", "//jobs?user_dn=lister")
        recorder.ask(
            "GET", f"//jobs?user_dn=lister&vo_name=here&source_se=https%3A%2F%2F{faulty.host}%3A8443"
        )
        recorder.ask("GET", f"//jobs?user_dn=lister&dest_se=https%3A%2F%2F{faulty.host}")
        recorder.ask("GET", "//jobs?user_dn=lister&state_in=FINISHED,FAILED")
        recorder.ask("GET", "//jobs?user_dn=lister&state_in=ACTIVE&fields=job_id,job_state")
        recorder.ask("GET", "//jobs?limit=many")
        recorder.ask("DELETE", f"//jobs/{job}")
    finally:
        grid.service.session.headers["Authorization"] = f"Bearer {grid.token}"
    check("list")


def test_cancels(recorder, stuck, ends, check, grid):
    job = recorder.submit(**stuck)
    grid.service.wait_state(job, "ACTIVE")
    recorder.ask("DELETE", f"//jobs/{job}")
    recorder.ask("DELETE", f"//jobs/{job}")
    done = recorder.submit(**ends)
    grid.service.wait_finished(done)
    recorder.ask("DELETE", f"//jobs/{done}")
    check("cancel")


def test_cancels_of_files(recorder, stuck, place, check, grid):
    second = stuck | {"destinations": [grid.there_door.url(f"{place}/second")]}
    body = {"params": PARAMS, "files": [FILE | stuck, FILE | second]}
    job = recorder.ask("POST", "//jobs", body)["job_id"]
    grid.service.wait_state(job, "ACTIVE")
    first, second = [file["file_id"] for file in grid.service.files(job)]
    recorder.normalised.named += [(f"{first},{second}", "<both files>"), (f"files/{first}", "files/<file>")]
    recorder.ask("DELETE", f"//jobs/{job}/files/{first}")
    recorder.ask("DELETE", f"//jobs/{job}/files/{first},{second}")
    recorder.ask("DELETE", f"//jobs/{job}/files/0")
    check("cancel-files")


def test_a_priority_is_changed(recorder, stuck, check, grid):
    job = recorder.submit(**stuck)
    grid.service.wait_state(job, "ACTIVE")
    recorder.ask("POST", f"/jobs/{job}", {"params": {"priority": 5}})
    recorder.ask("POST", f"/jobs/{job}", {"params": {"priority": "high"}})
    recorder.ask("DELETE", f"//jobs/{job}")
    check("priority")
