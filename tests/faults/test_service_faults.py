"""A transfer service whose journal's disk fails: it takes no job that it cannot keep, says so, fails no transfer for it, and goes
on by itself when the disk is well again.
"""

import errno
import shutil
from dataclasses import dataclass
from functools import partial

import pytest
import requests
from interop.test_kill import Background
from interop.waiting import eventually

from .disk import CHANGES, FLUSHES, WRITES
from .element import assert_runs
from .power_cut import Cut
from .service import SETTLE_SECONDS
from .test_service_power_cut import make_run  # noqa: F401  (fixture)

JOURNAL = "/state/transfer.sqlite*"
# Without the index of its log, which is memory of the processes that use it: a page of it that cannot be read ends them.
JOURNAL_PAGES = ("/state/transfer.sqlite", "/state/transfer.sqlite-wal")
NOTICE_SECONDS, RECOVER_SECONDS = 15, 60
SLOW_MS = 300
JOBS_BEFORE, JOBS_AMID = 3, 3


@dataclass(frozen=True)
class Fault:
    name: str
    strike: object
    # Health must name the journal.
    is_named: bool = True
    # Jobs are taken meanwhile.
    takes_jobs: bool = False


def failing(*operations, path=JOURNAL, error=errno.EIO, count=-1, wait_ms=0):
    return lambda disk: disk.fault(*operations, path=path, error=error, count=count, wait_ms=wait_ms)


def reading(**options):
    def strike(disk):
        for path in JOURNAL_PAGES:
            failing("read", path=path, **options)(disk)
        disk.forget()

    return strike


FAULTS = [
    Fault("EIO on writes", failing(*WRITES)),
    Fault("a full disk", failing("write", "create", "statfs", error=errno.ENOSPC)),
    Fault("a disk that became read-only", failing(*CHANGES, error=errno.EROFS)),
    Fault("a flush that fails once", failing(*FLUSHES, count=1), is_named=False, takes_jobs=True),
    Fault("flushes that fail for ever", failing(*FLUSHES)),
    Fault("slow flushes", failing(*FLUSHES, error=0, wait_ms=SLOW_MS), is_named=False, takes_jobs=True),
    Fault("flushes that hang", failing(*FLUSHES, error=0, wait_ms=-1)),
    Fault("EIO on reads, once", reading(count=1), is_named=False, takes_jobs=True),
    Fault("EIO on reads", reading()),
    Fault("reads that hang", reading(error=0, wait_ms=-1)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(",", "").replace(" ", "-"))
def test_a_transfer_service_endures(make_run, tmp_path, tier, rounds, fault):  # noqa: F811
    for seed in rounds.of("service", fault.name, tier.rounds):
        directory = tmp_path / str(seed)
        run = make_run(directory, seed)
        run.site.start()
        with Background(partial(run.submit_until, run.stopping.is_set), run.stopping.set):
            with Background(run.watch, run.stopping.set):
                wait_jobs(run, JOBS_BEFORE)
                struck = run.disk.hits()
                fault.strike(run.disk)
                endure(run, fault)
                assert run.disk.hits() > struck, "the fault struck nothing, so this proves nothing"
                run.disk.clear()
                run.site.wait_healthy(RECOVER_SECONDS)
                wait_jobs(run, len(taken(run)) + 2)
        run.judge()
        cut(run, seed)
        shutil.rmtree(directory)


def taken(run):
    return [job for job in run.jobs if job.id is not None]


def wait_jobs(run, count):
    eventually(f"{count} jobs are taken", lambda: len(taken(run)) >= count, SETTLE_SECONDS)


def endure(run, fault):
    if fault.takes_jobs:
        wait_jobs(run, len(taken(run)) + JOBS_AMID)
    if fault.is_named:
        eventually("health says what is wrong with the journal", lambda: is_named(run), NOTICE_SECONDS)
    assert_runs(run.site)


def is_named(run):
    assert_runs(run.site)
    try:
        return run.site.findings("journal")
    except requests.RequestException as error:
        print(f"health: {error}")
        return None


def cut(run, seed):
    """What was told amid the fault and after it is durable as well."""
    run.site.kill()
    run.disk.cut_power(Cut.drawn(seed))
    run.disk.start()
    run.site.start()
    run.judge()
    run.site.kill()
    run.store.kill()
    run.disk.stop()
