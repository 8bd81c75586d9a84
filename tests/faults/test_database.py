"""Several nodes over a PostgreSQL whose machine fails: its power is cut, it loses its last commits, it stands still, its disk is
full. Nobody restarts a node; what is acknowledged by a database that keeps its word comes to its end once.
"""

import errno
import json
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import requests
from interop.postgres import Postgres
from interop.test_kill import Background
from interop.test_nodes import Cluster
from interop.waiting import eventually

from .disk import Disk, DiskIsOff
from .power_cut import MARK, Cut

NODES = 2
FILES_PER_JOB = 6
SETTLE_SECONDS = 120
# Until a job is taken after the database is back.
BACK_SECONDS = 45
# A leader that cannot write for ten gives the lead back.
FULL_SECONDS = 14
RESIGNS = "this node gives the lead back"
CUTS_PER_RUN = 10


class DiskPostgres(Postgres):
    """A PostgreSQL whose data directory is on a disk of a test."""

    def __init__(self, program):
        super().__init__("penstock")
        # The user of PostgreSQL must get there.
        self.place = Path(tempfile.mkdtemp(prefix="faults-postgres-"))
        self.place.chmod(0o755)
        self.disk = Disk(program, self.place / "disk")
        self.settings = ["fsync=on", "autovacuum=off", "restart_after_crash=off"]

    def start(self):
        self.data = self.disk.backing / "data"
        self.data.mkdir(mode=0o700)
        shutil.chown(self.data, *(("postgres", "postgres") if self.prefix else ()))
        self.initialise()
        self.data = self.disk.path / "data"
        self.disk.start()
        self.launch()
        self.wait_ready()
        self.create(self.user)
        return self

    def note(self, text):
        # A job may be acknowledged at the last moment before the power goes.
        with suppress(DiskIsOff):
            self.disk.mark(text)

    def is_ready(self):
        if self.process.poll() is not None:
            # It ended with its disk or during recovery; whoever runs it starts it again.
            self.process = None
            self.launch()
        return super().is_ready()

    def lose_power(self, cut, until=None):
        """All its processes at once."""
        signal_all(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        eventually("all of it has ended", lambda: not users_of(self.disk.path), 30)
        self.disk.cut_power(cut, until)
        self.disk.start()
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def close(self):
        if self.disk.process is not None:
            self.disk.clear()
        if self.process is not None:
            signal_all(self.process.pid, signal.SIGCONT)
        super().close()
        self.disk.stop()
        shutil.rmtree(self.place, ignore_errors=True)


class ReplicatedPostgres(Postgres):
    """A primary with a standby that follows it asynchronously. Nodes know both."""

    def __init__(self):
        super().__init__("penstock")
        self.standby = Postgres("penstock")

    @property
    def url(self):
        sockets = [str(server.directory).replace("/", "%2F") for server in (self, self.standby)]
        return f"postgres://{self.user}@{','.join(sockets)}/{self.user}"

    def start(self):
        super().start()
        options = ["-h", self.directory, "-U", self.user, "-R", "--no-sync", "--checkpoint=fast"]
        self.standby.run("pg_basebackup", "-D", self.standby.data, *options)
        self.standby.launch()
        self.standby.wait_ready()
        return self

    def ask(self, database, query):
        return self.standby.ask(database, query) if self.process is None else super().ask(database, query)

    def wait_ready(self):
        return self.standby.wait_ready() if self.process is None else super().wait_ready()

    def note(self, text):
        """Nobody asks later when something happened."""

    def fall_behind(self):
        """From now on the standby gets nothing any more, and the primary does not care."""
        nowhere = "ALTER SYSTEM SET primary_conninfo = 'host=/nowhere'"
        self.standby.ask("postgres", nowhere)
        self.standby.ask("postgres", "SELECT pg_reload_conf()")
        gone = "SELECT count(*) FROM pg_stat_wal_receiver"
        eventually("it follows no more", lambda: self.standby.ask("postgres", gone) == [("0",)], 30)

    def fail_over(self):
        """The primary is lost, and the standby takes over with what it has."""
        signal_all(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        self.standby.ask("postgres", "SELECT pg_promote()")

    def close(self):
        super().close()
        self.standby.close()


def signal_all(pid, number):
    """A signal to a process of this test's and to its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in (pid, *map(int, children)):
        try:
            os.kill(one, number)
        except ProcessLookupError:
            pass


def users_of(path):
    """Processes whose directory is below."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(process).startswith(str(path)):
                found.append(process.parent.name)
        except OSError:
            continue
    return found


class Jobs:
    """Jobs that come all the time; which were acknowledged."""

    def __init__(self, cluster):
        self.cluster, self.taken = cluster, {}
        self.violations = []

    def submit_until(self, is_over):
        while not is_over():
            try:
                self.submit(self.cluster.nodes, FILES_PER_JOB)
            except AssertionError as error:
                self.violations.append(str(error))
                return

    def submit(self, nodes, count, within=BACK_SECONDS):
        """A job under an id of its own, to one node after the other until it is acknowledged."""
        name = f"job-{len(self.taken)}-{time.monotonic_ns()}"
        files = [self.cluster.submission(name, number) for number in range(count)]
        turns, seen = list(nodes), None

        def accepted():
            nonlocal seen
            turns.append(turns.pop(0))
            try:
                seen = self.cluster.service(turns[0]).try_submit(*files, id_generator="deterministic", sid=name)
            except requests.RequestException as error:
                seen = error
                return None
            if seen.status_code == 409:
                return seen.json()["message"].split("the job ")[1].split()[0]
            assert seen.status_code in (200, 500, 503), f"{seen.status_code} {seen.text}"
            return seen.json()["job_id"] if seen.status_code == 200 else None

        try:
            self.taken[name] = eventually(f"job {name} is accepted", accepted, within)
        except AssertionError as late:
            logs = "\n".join(f"{node.name}:\n{node.log_tail(10)}" for node in self.cluster.nodes)
            raise AssertionError(f"{late}; the last answer: {getattr(seen, 'text', seen)}\n{logs}") from None
        self.cluster.postgres.note(f"taken {name}")


@pytest.fixture
def make_cluster(binary, disk_program):
    made = []

    def make(directory, postgres=None):
        cluster = Cluster(binary, directory, postgres or DiskPostgres(disk_program))
        made.append(cluster)
        cluster.start(NODES)
        cluster.upload()
        return cluster

    yield make
    for cluster in made:
        cluster.close()


def is_over(stop):
    return bool(stop)


def run(cluster, deed):
    """Does something while jobs come; afterwards a new one is taken, without a restart of any node."""
    jobs, stop = Jobs(cluster), []
    pids = [node.process.pid for node in cluster.nodes]
    with Background(partial(jobs.submit_until, partial(is_over, stop)), partial(stop.append, True)):
        eventually("jobs come", lambda: len(jobs.taken) >= 5, SETTLE_SECONDS)
        deed()
        cluster.postgres.wait_ready()
        for node in cluster.nodes:
            jobs.submit([node], 1)
    assert not jobs.violations, jobs.violations
    assert pids == [node.process.pid for node in cluster.nodes if node.is_running()], "a node has ended"
    return jobs


def judge(cluster, jobs):
    """Each acknowledged job is known and has ended, each transfer landed once."""
    cluster.wait_all_ended()
    states = dict(cluster.ask("SELECT job_id, string_agg(DISTINCT state_name, ' ') FROM transfer GROUP BY job_id"))
    for name, job in jobs.taken.items():
        assert job in states, f"{name} was acknowledged as {job}, and is lost"
        assert states[job] == "FINISHED", f"{name} ({job}): {states[job]}"
    judge_runs(cluster)
    for store in cluster.stores:
        store.wait_tidy()


def in_rounds(make_cluster, tmp_path, rounds, fault, wanted, make_postgres=lambda: None):
    for seed in rounds.of("cluster", fault, wanted):
        cluster = make_cluster(tmp_path / str(seed), make_postgres())
        yield cluster, seed
        cluster.close()
        shutil.rmtree(tmp_path / str(seed))


def test_a_power_cut_of_the_database_loses_nothing_acknowledged(make_cluster, tmp_path, tier, rounds):
    cuts = min(tier.live_cuts, CUTS_PER_RUN)
    for cluster, seed in in_rounds(
        make_cluster, tmp_path, rounds, f"power cut of the database, {cuts} times", -(-tier.live_cuts // CUTS_PER_RUN)
    ):
        for number in range(cuts):

            def lose_power(number=number):
                # PostgreSQL counts on it for the names of its directories.
                cluster.postgres.lose_power(replace(Cut.drawn(seed + number), journal=True))
                cluster.postgres.launch()

            judge(cluster, run(cluster, lose_power))


def test_nodes_go_on_with_a_database_that_has_lost_its_last_commits(make_cluster, tmp_path, tier, rounds):
    """As after a fail-over to a standby that was behind. What it forgot is forgotten; everything else goes on by itself."""
    for cluster, seed in in_rounds(make_cluster, tmp_path, rounds, "the database loses its last commits", tier.rounds):

        def forget():
            taken = [record.number for record in cluster.postgres.disk.records() if record.kind == MARK]
            # What came after the first two of these is gone.
            cluster.postgres.lose_power(Cut(seed, journal=True), until=taken[-3])
            cluster.postgres.launch()

        judge_what_is_known(cluster, run(cluster, forget))


def test_nodes_go_on_with_a_standby_that_was_behind_its_lost_primary(make_cluster, tmp_path, tier, rounds):
    fault = "the primary is lost, its standby was behind"
    for cluster, _ in in_rounds(make_cluster, tmp_path, rounds, fault, tier.rounds, ReplicatedPostgres):

        def lose_primary():
            cluster.postgres.fall_behind()
            [(before,)] = cluster.postgres.standby.ask("penstock", "SELECT count(*) FROM job")
            eventually("jobs come that only the primary knows", lambda: count_jobs(cluster) > int(before) + 1, SETTLE_SECONDS)
            cluster.postgres.fail_over()

        judge_what_is_known(cluster, run(cluster, lose_primary))


def count_jobs(cluster):
    return int(cluster.ask("SELECT count(*) FROM job")[0][0])


def judge_what_is_known(cluster, jobs):
    """What the database knows of comes to its end."""
    cluster.wait_all_ended()
    known = {job for (job,) in cluster.ask("SELECT DISTINCT job_id FROM transfer")}
    assert known & set(jobs.taken.values()), "nothing is known of what came before: the database has lost too much"
    failed = cluster.ask("SELECT transfer_id, state FROM transfer WHERE state_name = 'FAILED' LIMIT 5")
    record = "SELECT sequence, event FROM ledger WHERE transfer_id = {} ORDER BY sequence"
    assert not failed, (failed, cluster.ask(record.format(failed[0][0])))
    judge_runs(cluster)


def judge_runs(cluster):
    """No transfer landed twice, and none ran twice at once as far as the record goes."""
    running, landed = set(), Counter()
    for transfer, event in cluster.ask("SELECT transfer_id, event FROM ledger ORDER BY sequence"):
        name = json.loads(event)["event"]
        if name == "started":
            assert transfer not in running, f"{transfer} runs twice at once"
            running.add(transfer)
        elif name in ("landed", "attempt_failed", "attempt_lost", "canceled"):
            running.discard(transfer)
        landed[transfer] += name == "landed"
    assert set(landed.values()) <= {0, 1}, [transfer for transfer, times in landed.items() if times > 1][:10]


def test_a_database_that_stands_still_holds_jobs_up_and_loses_none(make_cluster, tmp_path, tier, rounds):
    for cluster, _ in in_rounds(make_cluster, tmp_path, rounds, "the database stands still", tier.rounds):

        def stand_still():
            signal_all(cluster.postgres.process.pid, signal.SIGSTOP)
            for node in cluster.nodes:
                eventually(f"{node.name} says that it is not ready", lambda node=node: not is_ready(cluster, node))
                assert node.is_running(), node.log_tail()
            signal_all(cluster.postgres.process.pid, signal.SIGCONT)

        judge(cluster, run(cluster, stand_still))


def is_ready(cluster, node):
    try:
        return cluster.service(node).ask("GET", "/health/ready", timeout=5).status_code == 200
    except requests.RequestException:
        return False


def test_a_database_on_a_full_disk_comes_back_with_everything(make_cluster, tmp_path, tier, rounds):
    for cluster, _ in in_rounds(make_cluster, tmp_path, rounds, "the database's disk is full", tier.rounds):

        def fill():
            disk = cluster.postgres.disk
            disk.fault("write", "create", error=errno.ENOSPC)
            eventually("the fault strikes", disk.hits)
            time.sleep(FULL_SECONDS)
            assert any(RESIGNS in node.log_text() for node in cluster.nodes), "the leader has kept the lead"
            disk.clear()

        judge(cluster, run(cluster, fill))
