"""Files that come from tape and go there where gfal2 asks the tape system, as for SRM.

The storage element is gfal2's own plug-in for tests, whose files are what their URLs say. It remembers nothing from one
process to the next: whatever has been asked for is there when it is looked at, and what is said to it shows in the log.
"""

import json

import pytest

from .clients import Service
from .site import Site
from .waiting import eventually

SIZE = 1000


def looks(site, every):
    """How often requests are looked at."""
    site.configure("[transfer.staging]", poll_min=every, poll_max=every)


class Lab:
    """A site that may move files which do not exist."""

    def __init__(self, binary, directory):
        self.site = Site(binary, directory / "site", "lab", "127.0.0.22")
        self.site.configure("[transfer]", retry_delay="1s", retries=1)
        self.site.append('\n[transfer.staging]\nquiet = "100ms"\n')
        self.site.append("\n[transfer.gfal]\nmock = true\n")
        looks(self.site, "200ms")
        self.site.log_levels = "info,penstock_transfer_service=debug"

    @property
    def service(self):
        return Service(self.site)

    def states(self, job):
        return [file["file_state"] for file in self.service.files(job)]

    def reasons(self, job):
        return [file["reason"] for file in self.service.files(job)]

    def token(self, job):
        """Of the stage request that its files are part of, once there is one."""

        def known():
            [token] = {file["bringonline_token"] for file in self.service.files(job)}
            return token

        return eventually("a request is open", known)

    def said(self, text):
        eventually(f"it is told: {text}", lambda: text in self.site.log_tail(500))


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory):
    lab = Lab(binary, tmp_path_factory.mktemp("gfal_tape"))
    try:
        lab.site.start()
        yield lab
        code, _ = lab.site.stop()
        assert code == 0, lab.site.log_tail()
    finally:
        lab.site.kill()


@pytest.fixture
def patient(lab):
    """Nobody looks at what is asked for now."""
    restart(lab, "1h")
    yield lab
    restart(lab, "200ms")


def restart(lab, every):
    lab.site.kill()
    looks(lab.site, every)
    lab.site.start()


@pytest.fixture
def url(place):
    def url(name, host="localhost", **properties):
        words = {"size": SIZE, **properties}
        query = "&".join(f"{word}={value}" for word, value in words.items())
        return f"mock://{host}{place}/{name}?{query}"

    return url


def test_files_are_staged_in_one_request_and_that_is_all(lab, url):
    files = [url(f"f{number}", staging_time=60) for number in range(30)]
    job = lab.service.submit(*((file, file) for file in files), bring_online=600, copy_pin_lifetime=60)
    lab.service.wait_finished(job)
    assert len(lab.token(job)) == 36
    told = lab.service.files(job)
    assert all(file["staging_start"] <= file["staging_finished"] for file in told)
    assert {file["start_time"] for file in told} == {None}


def test_a_file_is_staged_copied_and_let_go(lab, url):
    source = url("f", staging_time=60, release_errno=5)
    job = lab.service.submit((source, url("copy", time=0)), bring_online=600, overwrite=True)
    seen = lab.service.wait_finished(job)
    assert seen["bring_online"] == 600
    [file] = lab.service.files(job)
    assert file["staging_finished"] <= file["start_time"] and file["filesize"] == SIZE
    lab.said('order="release"')


def test_more_files_than_one_call_may_name_are_asked_for_in_several(lab, url):
    files = [url(f"f{number}", staging_time=60) for number in range(250)]
    job = lab.service.submit(*((file, file) for file in files), bring_online=600)
    lab.service.wait_finished(job)
    tokens = [file["bringonline_token"] for file in lab.service.files(job)]
    assert sorted(tokens.count(token) for token in set(tokens)) in ([50, 100, 100], [250]), tokens


def test_a_request_that_ends_its_process_is_made_in_smaller_ones_and_bad_files_fail_alone(lab, url):
    # Together they are longer than a line that a process takes, and each is longer than gfal2 takes.
    files = [*(url(name, filler="x" * 400_000) for name in "abc"), url("short")]
    job = lab.service.submit(*((file, file) for file in files), bring_online=600, retry=-1)
    assert lab.service.wait(job)["job_state"] == "FINISHEDDIRTY"
    assert lab.states(job) == ["FAILED"] * 3 + ["FINISHED"]
    assert all(reason.startswith("STAGING [22] Invalid surl, surl too long") for reason in lab.reasons(job)[:3])
    assert "agent died" in lab.site.log_tail(500)


def test_one_that_fails_leaves_the_others(lab, url):
    good, missing = url("good", staging_time=60), url("missing", staging_time=60, staging_errno=2)
    bad = url("bad", staging_time=60, staging_errno=5)
    job = lab.service.submit(*((file, file) for file in (good, missing, bad)), bring_online=600, retry=1)
    assert lab.service.wait(job)["job_state"] == "FINISHEDDIRTY"
    assert lab.states(job) == ["FINISHED", "FAILED", "FAILED"]
    _, missing, bad = lab.reasons(job)
    assert missing.startswith("STAGING [2] No such file or directory (mock://localhost)")
    assert bad.startswith("STAGING [5] Input/output error (mock://localhost)")
    events = [event["event"] for event in lab.site.ledger(job)]
    assert events.count("stage_requested") == 4, "one file has a retry"


def test_a_tape_system_is_asked_with_the_credentials_of_a_url(lab, url):
    # The plug-in reads the first letters of a name; for the service this is a token, and kept apart.
    files = [url("secret", staging_errno_token=2, staging_time=60), url("open", staging_time=60)]
    job = lab.service.submit(*((file, file) for file in files), bring_online=600, retry=-1)
    assert lab.service.wait(job)["job_state"] == "FINISHEDDIRTY"
    assert lab.states(job) == ["FAILED", "FINISHED"]
    assert lab.reasons(job)[0].startswith("STAGING [2] No such file or directory")
    assert "staging_errno_token" not in json.dumps(lab.service.files(job)) + lab.site.log_text()


def test_what_is_refused_at_once_fails_each_file_with_its_own_words(lab, url):
    files = [url("missing", staging_errno=2), url("forbidden", staging_errno=13)]
    job = lab.service.submit(*((file, file) for file in files), bring_online=600, retry=-1)
    assert lab.service.wait(job)["job_state"] == "FAILED"
    missing, forbidden = lab.reasons(job)
    assert missing.startswith("STAGING [2] ") and forbidden.startswith("STAGING [13] ")


def test_a_cancel_while_staging_reaches_the_tape_system(patient, url):
    file = url("f", staging_time=60, release_errno=5)
    marks = patient.site.log_tail(500).count('order="release"')
    job = patient.service.submit((file, file), bring_online=600)
    patient.token(job)
    assert patient.states(job) == ["STARTED"]
    patient.service.ask("DELETE", f"/jobs/{job}")
    assert patient.service.job(job)["job_state"] == "CANCELED"
    eventually("it is told", lambda: patient.site.log_tail(500).count('order="release"') > marks)


def test_a_kill_in_the_middle_goes_on_with_the_same_request(patient, url):
    files = [url(f"f{number}", staging_time=60) for number in range(3)]
    job = patient.service.submit(*((file, file) for file in files), bring_online=600)
    token = patient.token(job)
    assert set(patient.states(job)) == {"STARTED"}
    restart(patient, "200ms")
    patient.service.wait_finished(job)
    assert patient.token(job) == token
    events = [event["event"] for event in patient.site.ledger(job)]
    assert events.count("stage_requested") == 3


def test_copies_are_followed_until_they_are_on_tape(lab, url):
    def archived(name, status, seconds):
        pair = url(f"{name}-source"), url(name, time=0, **{"user.status": status})
        return lab.service.submit(pair, archive_timeout=seconds, overwrite=True)

    on_tape, on_both = archived("tape", "NEARLINE", 600), archived("both", "ONLINE_AND_NEARLINE", 600)
    lost, only_disk = archived("lost", "LOST", 600), archived("disk", "ONLINE", 3)
    lab.service.wait_finished(on_tape)
    lab.service.wait_finished(on_both)
    assert lab.service.wait_failed(lost) == "ARCHIVING [2] the tape system says that the file is lost"
    assert lab.service.wait_failed(only_disk) == "ARCHIVING [110] archive timeout has been exceeded"


def test_names_of_spaces_are_kept_and_told(lab, url):
    job = lab.service.submit(
        (url("f"), url("copy", time=0)), overwrite=True, source_spacetoken="IN", destination_spacetoken="OUT"
    )
    seen = lab.service.wait_finished(job)
    assert (seen["source_spacetoken"], seen["destination_spacetoken"]) == ("IN", "OUT")


def test_only_services_that_are_told_to_take_such_files(grid, url):
    answer = grid.service.try_submit((url("f"), url("f")), bring_online=60)
    assert answer.status_code == 400
    assert "mock: such files exist in tests only (transfer.gfal.mock)" in json.dumps(answer.json())
