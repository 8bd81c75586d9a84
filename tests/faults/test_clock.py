"""Clocks that leap, forward and back: nothing is destroyed that could not be made again, and nothing waits for the clock.

Only the clock of the process is moved, by libfaketime; time that has passed goes on as ever.
"""

import shutil
import time
from functools import partial
from pathlib import Path

import pytest
from interop.clients import Door, Service, content
from interop.fault_server import refused
from interop.site import Site, read_database
from interop.test_files_on_tape import STAGING, TapeLibraries, all_are, with_tape
from interop.waiting import eventually

from .conftest import LIBFAKETIME
from .service import Delegator

HOST = "127.0.9.21"
DATA = content("clock", 100_000)
# Longer than history, uploads and delegations are kept. Certificates of the site are valid for longer.
MINUTES_AHEAD, DAYS_AHEAD = "+10m", "+120d"
# Long enough for a first look at what may go, which comes seconds after a start; and for the next.
AT_START_SECONDS, AT_WORK_SECONDS = 10, 40
RECOVER_SECONDS = 60


PINNED, LATE, TRASHED = "/tape/pinned", "/tape/late", "/tape/trashed"


class Clock:
    """What a process takes for the time."""

    def __init__(self, directory):
        self.file = directory / "clock"
        directory.mkdir(parents=True, exist_ok=True)
        self.show("+0")
        [library, *_] = sorted(Path("/").glob(LIBFAKETIME[1:]))
        self.prefix = ["env", f"LD_PRELOAD={library}", f"FAKETIME_TIMESTAMP_FILE={self.file}", "NO_FAKE_STAT=1"]
        self.prefix += ["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"]

    def show(self, offset):
        """As libfaketime spells it, such as `+10d`."""
        new = self.file.with_suffix(".new")
        new.write_text(offset + "\n")
        new.rename(self.file)


class ClockLab:
    """A site with a moved clock, and everything in it that ends with time."""

    def __init__(self, binary, directory, user_ca, fault_ca, source):
        self.clock = Clock(directory)
        self.source = source
        self.site = Site(binary, directory / "site", "site", HOST)
        self.site.prefix = self.clock.prefix
        self.site.configure("[transfer]", retry_delay="1s", keep_history="30d")
        self.delegator = Delegator(self.site, user_ca, directory)
        self.site.trust(fault_ca.certificate)
        self.site.allow(source.host)
        # So that it can leap back by as much and no certificate lies in the future then.
        self.clock.show(MINUTES_AHEAD)
        self.token = self.site.token()
        self.door, self.service = Door(self.site, self.token), Service(self.site, self.token)

    def prepare(self):
        self.site.start()
        self.door.put("/source", DATA)
        self.finished = self.submit("finished")
        self.service.wait_finished(self.finished)
        self.site.command("drain", "on")
        self.waiting = self.submit("waiting", max_time_in_queue=12)
        self.delegated = self.delegator.delegate()
        answer = self.door.ask("PUT", "/upload", headers={"Upload-Complete": "?0"}, data=b"first half, ")
        assert answer.status_code == 201, answer.text
        self.upload = answer.headers["Location"].split(self.site.door)[-1]
        [(self.entries,)] = self.site.journal("SELECT count(*) FROM ledger")

    def submit(self, name, **params):
        return self.service.submit((self.door.url("/source"), self.door.url(f"/{name}")), **params)

    def judge(self):
        """The clock is right again. Tells all that is wrong, not only the first."""
        wrong = []
        self.site.command("drain", "off")
        state = self.service.wait(self.waiting, RECOVER_SECONDS)["job_state"]
        if state != "FINISHED":
            wrong.append(f"a job that waited is {state}: {self.service.files(self.waiting)[0]['reason']}")
        known = self.service.ask("GET", f"/jobs/{self.finished}")
        [(entries,)] = self.site.journal("SELECT count(*) FROM ledger")
        if known.status_code != 200 or entries < self.entries:
            wrong.append(f"history is gone: {known.status_code}, {entries} entries of at least {self.entries}")
        if self.delegator.termination_time() != self.delegated:
            wrong.append("what was delegated is gone")
        told = self.door.ask("HEAD", self.upload)
        if (told.status_code, told.headers.get("Upload-Offset")) != (204, "12"):
            wrong.append(f"the upload is gone: {told.status_code}")
        again = self.service.wait(self.submit("again"), RECOVER_SECONDS)["job_state"]
        if again != "FINISHED":
            wrong.append(f"a new job is {again}")
        assert not wrong, wrong


@pytest.fixture
def make_lab(binary, user_ca, fault_ca, faulty):
    made = []

    def make(directory):
        made.append(ClockLab(binary, directory, user_ca, fault_ca, faulty))
        return made[-1]

    yield make
    for lab in made:
        lab.site.kill()


def fault_lasts(seconds):
    """The length of a fault, not a wait for something to happen."""
    time.sleep(seconds)


def rounds_in(make_lab, tmp_path, rounds, tier, fault):
    for seed in rounds.of("service", fault, tier.rounds):
        lab = make_lab(tmp_path / str(seed))
        lab.prepare()
        yield lab
        lab.site.kill()
        shutil.rmtree(tmp_path / str(seed))


def test_a_machine_that_starts_with_a_clock_far_ahead_destroys_nothing(make_lab, tmp_path, tier, rounds):
    for lab in rounds_in(make_lab, tmp_path, rounds, tier, "starts with a clock far ahead"):
        lab.site.kill()
        lab.clock.show(DAYS_AHEAD)
        lab.site.start()
        fault_lasts(AT_START_SECONDS)
        assert lab.site.is_running(), lab.site.log_tail()
        lab.clock.show(MINUTES_AHEAD)
        lab.judge()


def test_a_clock_that_leaps_ahead_for_a_while_destroys_nothing(make_lab, tmp_path, tier, rounds):
    for lab in rounds_in(make_lab, tmp_path, rounds, tier, "the clock leaps ahead"):
        lab.clock.show(DAYS_AHEAD)
        fault_lasts(AT_WORK_SECONDS if tier.name == "soak" else AT_START_SECONDS)
        lab.clock.show(MINUTES_AHEAD)
        lab.judge()


def test_a_clock_that_leaps_back_holds_nothing_up(make_lab, tmp_path, tier, rounds):
    """Not what waits for a retry, and not what comes newly; and nothing is lost once it is right again."""
    for lab in rounds_in(make_lab, tmp_path, rounds, tier, "the clock leaps back"):
        lab.site.command("drain", "off")
        url = lab.source.offer("/later", DATA)
        ordinary, lab.source.answers["HEAD", "/later"] = lab.source.answers["HEAD", "/later"], refused(503)
        job = lab.service.submit((url, lab.door.url("/retried")), retry=20)
        eventually("it waits for a retry", partial(has_failed_once, lab, job), RECOVER_SECONDS)
        lab.clock.show("+0")
        lab.source.answers["HEAD", "/later"] = ordinary
        lab.service.wait_finished(job, RECOVER_SECONDS)
        lab.service.wait_finished(lab.submit("meanwhile"), RECOVER_SECONDS)
        lab.clock.show(MINUTES_AHEAD)
        lab.judge()


def has_failed_once(lab, job):
    return lab.service.files(job)[0]["retry"]


def test_a_copy_that_runs_on_is_waited_for_after_a_start_with_a_clock_ahead(binary, tmp_path, fault_ca, faulty):
    """By more than the copy may take, and by less than is noticed at a start."""
    clock = Clock(tmp_path / "clock")
    site = Site(binary, tmp_path / "site", "site", HOST)
    site.prefix = clock.prefix
    site.configure("[transfer]", retry_delay="1s", retries=2)
    site.trust(fault_ca.certificate)
    site.allow(faulty.host)
    site.start()
    try:
        service, door, path = Service(site), Door(site, site.token()), "/outlives"
        door.put("/s/outlives", DATA)
        busy = refused(409, b"it is being written by another client\n")

        def copy(exchange):
            exchange.fault.answers["COPY", path] = busy
            exchange.start(202, {"Transfer-Encoding": "chunked"})
            exchange.fault.released.wait()

        faulty.answers["COPY", path] = copy
        job = service.submit((door.url("/s/outlives"), faulty.url + path))
        eventually("the copy runs", lambda: faulty.requests("COPY", path))
        site.kill()
        clock.show("+20m")
        site.start()
        # More often than there are retries.
        eventually("it meets its own copy", lambda: len(faulty.requests("COPY", path)) >= 4, within=RECOVER_SECONDS)
        faulty.files[path] = DATA
        service.wait_finished(job)
        assert faulty.files[path] == DATA and not faulty.requests("DELETE", path)
    finally:
        site.kill()


def test_a_clock_that_leaps_ends_no_pin_and_gives_up_no_copy_on_tape(binary, tmp_path):
    """Neither while the service runs, nor at a start: a tape that is out of use counts as lost after 60 days."""
    clock = Clock(tmp_path / "clock")
    site = Site(binary, tmp_path / "site", "site", HOST)
    site.prefix = clock.prefix
    tapes = TapeLibraries(site)
    tapes.settings["replace_copies_after"] = "60d"
    with_tape(site, tapes)
    # What is put now is archived when the clock has leapt.
    config = site.directory / "penstock.toml"
    config.write_text(config.read_text().replace('collect_time = "0s"', 'collect_time = "6s"'))

    def rows(query, *values):
        return read_database(site.directory / "state/namespace.sqlite", query, values)

    def is_on_disk(path):
        [(pool,)] = rows("SELECT pool FROM entry WHERE name = ?", path.rpartition("/")[2])
        return pool is not None

    site.start()
    try:
        door = Door(site, site.token(STAGING))
        for path in (PINNED, TRASHED):
            door.put(path, content(path, 30_000))
        eventually("both are on tape only", lambda: all_are(door, [PINNED, TRASHED], "TAPE"), RECOVER_SECONDS)
        wanted = {"files": [{"path": path, "diskLifetime": "P7D"} for path in (PINNED, TRASHED)]}
        assert door.ask("POST", "/.penstock/tape/v1/stage", json=wanted).status_code == 201
        eventually("both are pinned on disk", lambda: all_are(door, [PINNED, TRASHED], "DISK_AND_TAPE"), RECOVER_SECONDS)
        door.put(LATE, content(LATE, 30_000))
        clock.show(DAYS_AHEAD)
        eventually("the later file has left the disk", lambda: not is_on_disk(LATE), RECOVER_SECONDS)
        assert is_on_disk(PINNED), "a pin of a week ended with the clock"
        clock.show("+0")
        for tape in {tape["name"] for tape in tapes.status()["libraries"]["tapes"] if tape["live"]["files"]}:
            site.command("tape", "disable", tape)
        assert door.ask("DELETE", TRASHED).status_code == 204
        copies = rows("SELECT count(*) FROM tape_copy")
        site.kill()
        clock.show(DAYS_AHEAD)
        site.start()
        fault_lasts(AT_START_SECONDS)
        assert rows("SELECT count(*) FROM tape_copy") == copies, "a copy of a removed file was given up"
        assert is_on_disk(PINNED)
    finally:
        site.kill()
