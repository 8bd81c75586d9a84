"""What a push that is given up leaves at a real XRootD, which shows a file while it comes in: nothing, unless it was
there before.
"""

import subprocess

import pytest

from .test_xrootd_copies import make_holes
from .waiting import eventually

SIZE = 300_000_000


class Push:
    """A push of a large file from our door to an XRootD that copies nothing itself."""

    def __init__(self, field, source, place):
        self.field, self.server = field, field.without_copies
        self.source = source
        self.path = f"{place}/a"
        self.destination = field.door(self.server).url(self.path)

    def submit(self, **params):
        return self.field.service.submit((self.source, self.destination), **params)

    @property
    def kept(self):
        """Bytes that XRootD keeps under the path; none when there is no such file."""
        return self.server.all_files().get(self.path)

    def wait_moving(self, more_than=0):
        eventually("bytes arrive at XRootD", lambda: (self.kept or 0) > more_than)

    def wait_gone(self):
        eventually("XRootD keeps nothing of it", lambda: self.kept is None)
        self.field.here.wait_tidy()

    def put_older(self):
        self.field.door(self.server).put(self.path, b"older", expect=200)


@pytest.fixture(scope="module")
def much(whole_field, tmp_path_factory):
    """A file at our door that takes a while to copy."""
    path = tmp_path_factory.mktemp("leftovers") / "much"
    make_holes(path, SIZE)
    url = whole_field.door(whole_field.here).url("/leftovers/much")
    whole_field.run("token", "curl", *curl_options(whole_field), "-T", path, url)
    return url


def curl_options(field):
    bearer = f"Authorization: Bearer {field.token}"
    return ["-sS", "--fail-with-body", "--capath", field.certificates, "-H", bearer]


@pytest.fixture
def push(field, much, place):
    return Push(field, much, place)


@pytest.mark.parametrize("older", [False, True])
def test_a_client_that_dies_while_our_door_pushes_leaves_only_what_was_there(field, push, older):
    if older:
        push.put_older()
    line = ["curl", *curl_options(field), "-X", "COPY", "-H", f"Destination: {push.destination}", "-H", "Credential: none"]
    line += ["-H", f"TransferHeaderAuthorization: Bearer {field.token}", push.source]
    line = [str(word) for word in line]
    client = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        push.wait_moving(more_than=5)
        with push.server.paused():
            client.kill()
            client.wait()
        if older:
            # It is overwritten, as was asked for, but its name is its owner's.
            field.here.wait_tidy()
            assert push.kept > 0
        else:
            push.wait_gone()
    finally:
        client.kill()
        client.wait()


def test_a_canceled_job_leaves_nothing_where_it_was_pushed_to(field, push):
    job = push.submit()
    push.wait_moving()
    with push.server.paused():
        field.service.ask("DELETE", f"/jobs/{job}")
    assert field.service.wait(job)["job_state"] == "CANCELED"
    push.wait_gone()
    field.service.wait_idle()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_killed_service_finishes_what_its_push_had_begun(field, push, overwrite):
    job = push.submit(overwrite=overwrite)
    push.wait_moving()
    with push.server.paused():
        field.here.kill()
    field.here.start()
    field.service.wait_finished(job)
    assert push.kept == SIZE
    ledger = field.here.ledger(job)
    assert [event["event"] for event in ledger].count("landed") == 1
    # What it found when it looked again was its own, and was removed first.
    assert [event["replaces"] for event in ledger if event["event"] == "prepared"] == [False, False]


def test_a_job_that_is_canceled_after_a_kill_leaves_nothing(field, push):
    job = push.submit()
    push.wait_moving()
    with push.server.paused():
        field.here.kill()
        field.here.start()
        # The next attempt cannot look at XRootD, which stands still.
        field.service.ask("DELETE", f"/jobs/{job}")
        assert field.service.wait(job)["job_state"] == "CANCELED"
    push.wait_gone()
    field.service.wait_idle()


def test_a_service_that_is_killed_after_a_cancel_leaves_nothing(field, push):
    job = push.submit()
    push.wait_moving()
    with push.server.paused():
        field.service.ask("DELETE", f"/jobs/{job}")
        assert field.service.wait(job)["job_state"] == "CANCELED"
        # The agent that stops cannot clean up, nor can the one after it.
        field.here.kill()
        field.here.start()
        field.here.kill()
        field.here.start()
    push.wait_gone()
    field.service.wait_idle()


def test_a_file_that_was_there_survives_a_job_that_is_canceled_after_a_kill(field, push):
    """It may be replaced, and its bytes are being replaced; but it is not the job's to remove."""
    push.put_older()
    job = push.submit(overwrite=True)
    push.wait_moving(more_than=5)
    with push.server.paused():
        field.here.kill()
        field.here.start()
        field.service.ask("DELETE", f"/jobs/{job}")
        assert field.service.wait(job)["job_state"] == "CANCELED"
    field.service.wait_idle(within=60)
    assert push.kept is not None


def test_a_foreign_file_survives_a_job_that_may_not_replace_it(field, push):
    push.put_older()
    job = push.submit(retry=-1)
    reason = field.service.wait_failed(job)
    assert "exists and overwrite is not enabled" in reason, reason
    assert push.kept == len(b"older")
    assert field.door(push.server).get(push.path) == b"older"
