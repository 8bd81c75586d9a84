"""The power of the transfer service's disk is cut while jobs come, run and are canceled: nothing acknowledged is lost, nothing
counts twice, and nothing that landed is called a failure.

The ends go on; so the disk is cut where it stands, whenever chance says.
"""

import shutil
from functools import partial

import pytest
from interop.site import Site
from interop.test_kill import Background
from interop.waiting import eventually

from .disk import Disk
from .power_cut import Cut
from .service import HOSTS, SETTLE_SECONDS, Delegator, ServiceRun, ServiceSite

# A run has so many cuts at most, then it is judged and a new one begins.
CUTS_PER_RUN = 10


@pytest.fixture
def make_run(binary, disk_program, fault_ca, faulty):
    """A service on a disk, a storage element, and a source; closed at the end."""
    made = []

    def make(directory, seed):
        disk = Disk(disk_program, directory / "disk")
        store = Site(binary, directory / "store", "store", HOSTS[0])
        store.remove("transfer")
        store.trust(fault_ca.certificate)
        store.allow(faulty.host)
        site = ServiceSite(binary, directory / "service", "service", HOSTS[1], disk, [store])
        site.trust(fault_ca.certificate)
        site.tell()
        disk.start()
        run = ServiceRun(site, store, faulty, seed)
        run.disk = disk
        made.append(run)
        store.start()
        return run

    yield make
    for run in made:
        run.stopping.set()
        if run.disk.process is not None:
            run.disk.clear()
        run.site.kill()
        run.store.kill()
        run.disk.stop()


def test_a_power_cut_loses_nothing_that_the_transfer_service_acknowledged(make_run, user_ca, tmp_path, tier, rounds):
    rounds_wanted = -(-tier.live_cuts // CUTS_PER_RUN)
    cuts = min(tier.live_cuts, CUTS_PER_RUN)
    for seed in rounds.of("service", f"power cut, {cuts} times", rounds_wanted):
        directory = tmp_path / str(seed)
        run = make_run(directory, seed)
        delegator = Delegator(run.site, user_ca, directory)
        run.site.start()
        delegated = delegator.delegate()
        with Background(partial(run.submit_until, run.stopping.is_set), run.stopping.set):
            with Background(run.watch, run.stopping.set):
                for _ in range(cuts):
                    cut_amid_work(run)
                assert delegator.termination_time() == delegated, "what was delegated is lost"
        run.judge()
        lost = run.site.journal("SELECT count(*) FROM ledger WHERE json_extract(event, '$.event') = 'attempt_lost'")
        assert lost[0][0], "at no cut a transfer ran, so this proves nothing"
        run.site.kill()
        run.store.kill()
        run.disk.stop()
        shutil.rmtree(directory)


def test_where_a_sink_had_come_to_survives_a_power_cut(make_run, tmp_path):
    """What was not told yet when the power failed is told afterwards."""
    run = make_run(tmp_path, 1)
    run.site.start()
    told, first = run.site.directory / "state/told.jsonl", run.new_job(is_slow=False)
    assert run.submit(first)
    run.service().wait_finished(first.id)
    eventually("it was told", lambda: not run.ends_of([first]) - run.site.told_ends())
    told.rename(told.with_name("aside"))
    told.mkdir()
    second = run.new_job(is_slow=False)
    assert run.submit(second)
    run.service().wait_finished(second.id)
    eventually("it cannot be told", lambda: "messages are not taken" in run.site.log_text())
    run.site.kill()
    run.disk.cut_power(Cut())
    run.disk.start()
    assert told.is_file(), "the disk kept what was not flushed, so this proves nothing"
    run.site.start()
    run.judge()
    assert "where it had come to is not known" not in run.site.log_text()


def cut_amid_work(run):
    """Once more jobs have come, at an instant that chance chooses."""
    wanted = len(run.jobs) + run.draw.randint(2, 4)
    eventually("more jobs come", lambda: len(run.jobs) >= wanted, SETTLE_SECONDS)
    run.stopping.wait(run.draw.uniform(0, 0.3))
    run.site.kill()
    run.disk.cut_power(Cut.drawn(run.draw.randrange(1 << 32)))
    run.disk.start()
    run.site.start()
