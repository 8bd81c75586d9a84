"""A storage element whose disks fail below it: it loses and misreports nothing, says what is wrong, and comes back by itself.

Of two pools one is struck, or the databases are. While the fault lasts clients go on; afterwards nobody restarts anything.
"""

import errno
import random
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass

import pytest
import requests
from interop.clients import Door, content
from interop.waiting import eventually

from .disk import CHANGES, FLUSHES, HALF_A_READ, WRITES, Disk
from .element import Book, Client, ElementSite, assert_runs, judge, work_together
from .power_cut import Cut

HOST = "127.0.9.2"
CLIENTS, STEPS, STEPS_IN_FAULT = 3, 8, 4
# More than there are threads that serve.
UPLOADS_ON_HUNG_DISK = 6
POOL, NAMESPACE, DATA = "/pools/second/*", "/state/*", "/pools/second/data/*"
# All but the index of its log, which is memory of the processes that use it: a page of it that cannot be read ends them.
NAMESPACE_PAGES = ("/state/*.sqlite", "/state/*-wal")
TIMEOUT_SECONDS = 4
SLOW_MS = 200
# Within these the element has found out that something is wrong, and that it is over. A disk may be silent for 30 s.
NOTICE_SECONDS, RECOVER_SECONDS = 45, 90
READS_IN_FAULT, KEPT_MAX = 8, 100


@dataclass(frozen=True)
class Fault:
    """What strikes, and what must go on meanwhile."""

    name: str
    strike: object
    # The subject of health that must name it; None: clients see nothing of it at all.
    about: str = "pools"
    # Meanwhile new files find their way to the other pool.
    takes_files: bool = True
    # Files of the other pool are read without delay.
    gives_files: bool = True


def writes_fail(disk):
    disk.fault(*WRITES, path=POOL)


def reads_fail(disk):
    disk.fault("read", path=DATA)
    disk.forget()


def reads_hang(disk):
    disk.hang("read", path=DATA)
    disk.forget()


def reads_are_short(disk):
    disk.fault("direct", "read", path=DATA, error=HALF_A_READ)


def is_full(path):
    def strike(disk):
        disk.fault("write", "create", "attribute", path=path, error=errno.ENOSPC)
        if path == POOL:
            disk.fault("statfs", path="/pools/second", error=errno.ENOSPC)

    return strike


def is_read_only(disk):
    disk.fault(*CHANGES, path=POOL, error=errno.EROFS)
    disk.fault("open", path="/pools/second/incoming/*", error=errno.EROFS)


def flush_fails(path, count=-1):
    return lambda disk: disk.fault(*FLUSHES, path=path, count=count)


def flush_is_slow(disk):
    disk.fault(*FLUSHES, error=0, wait_ms=SLOW_MS)


def flush_hangs(disk):
    disk.hang(*FLUSHES, path=POOL)


def statfs_hangs(disk):
    disk.hang("statfs", path="/pools/second")


def namespace_reads_fail(disk):
    for path in NAMESPACE_PAGES:
        disk.fault("read", path=path)
    disk.forget()


def namespace_reads_hang(disk):
    for path in NAMESPACE_PAGES:
        disk.hang("read", path=path)
    disk.forget()


FAULTS = [
    Fault("EIO on writes of a pool", writes_fail),
    Fault("EIO on reads of a pool", reads_fail),
    Fault("a full pool", is_full(POOL), about=None),
    Fault("a full disk of the namespace", is_full(NAMESPACE), "namespace", takes_files=False),
    Fault("a pool that became read-only", is_read_only),
    Fault("a flush of a pool that fails once", flush_fails(POOL, 1), about=None),
    Fault("flushes of a pool that fail for ever", flush_fails(POOL)),
    Fault("a flush of the namespace that fails once", flush_fails(NAMESPACE, 1), about=None),
    Fault(
        "flushes of the namespace that fail for ever",
        flush_fails(NAMESPACE),
        "namespace",
        takes_files=False,
    ),
    Fault("slow flushes", flush_is_slow, about=None),
    Fault("a pool that does not say what is free", statfs_hangs),
    Fault("flushes of a pool that hang", flush_hangs),
    Fault("reads of a pool that hang", reads_hang),
    Fault("short reads of a pool", reads_are_short, about=None),
    Fault(
        "reads of the namespace that hang",
        namespace_reads_hang,
        "namespace",
        takes_files=False,
        gives_files=False,
    ),
    Fault(
        "EIO on reads of the namespace",
        namespace_reads_fail,
        "namespace",
        takes_files=False,
        gives_files=False,
    ),
]
UNSEEN = {"slow flushes", "short reads of a pool"}


class Round:
    """An element with files in both pools, and clients."""

    def __init__(self, binary, directory, program, seed):
        self.disk = Disk(program, directory / "disk")
        self.site = ElementSite(binary, directory / "element", "element", HOST, self.disk)
        # How long one read of a file may take.
        self.site.configure("[limits]", stall_timeout="20s")
        self.book = Book(self.disk)
        self.token = self.site.token()
        self.door = Door(self.site, self.token)
        self.clients = [
            Client(f"client-{number}", Door(self.site, self.token), self.book, seed) for number in range(CLIENTS)
        ]

    def start(self):
        self.disk.start()
        self.site.start()

    def prepare(self):
        """Files for readers, in either pool, and some work of clients."""
        self.start()
        self.kept = {}
        while len(self.kept) < READS_IN_FAULT or not all(self.files_of_pools()):
            path, data = f"/kept/{len(self.kept)}", content(("kept", len(self.kept)), 50_000)
            self.door.put(path, data)
            self.kept[path] = data
            assert len(self.kept) < KEPT_MAX, f"not every pool takes files: {self.files_of_pools()}"
        work_together(self.clients, STEPS)
        assert not self.errors(), f"{self.errors()}\n{self.site.log_tail()}"

    def files_of_pools(self):
        return [len(list((self.disk.path / "pools" / pool / "data").glob("*/*"))) for pool in ("disk1", "second")]

    def errors(self):
        """Answers that a healthy element does not give."""
        statuses = [status for client in self.clients for status in client.statuses]
        return [status for status in statuses if not isinstance(status[2], int) or status[2] >= 500]

    def endure(self, fault):
        """Clients go on; what they are not told to be done may be done or not."""
        for client in self.clients:
            client.statuses, client.timeout = [], 60 if fault.name in UNSEEN else TIMEOUT_SECONDS
        work_together(self.clients, STEPS_IN_FAULT)
        self.read(fault)
        if fault.name in UNSEEN:
            assert not self.errors(), self.errors()
        if fault.about is not None:
            eventually(f"health says what is wrong with {fault.about}", lambda: self.is_named(fault.about), NOTICE_SECONDS)
        if fault.takes_files:
            self.assert_takes_files()
        assert_runs(self.site)

    def is_named(self, about):
        assert_runs(self.site)
        try:
            return self.site.findings(about)
        except requests.RequestException:
            return None

    def read(self, fault):
        """What comes is right, or it is seen to be wrong."""
        came = 0
        for path, data in self.kept.items():
            try:
                answer = self.door.ask("GET", path, timeout=TIMEOUT_SECONDS / 2)
            except requests.RequestException:
                continue
            assert answer.status_code != 200 or answer.content == data, f"{path} came with other bytes"
            came += answer.status_code == 200
        assert not fault.gives_files or came, "no file of the other pool could be read"

    def assert_takes_files(self):
        """New files go where they can be written, all of them once the element knows."""
        row = 0

        def ten_in_a_row():
            nonlocal row
            try:
                answer = self.door.ask("PUT", f"/during/{time.monotonic_ns()}", data=b"bytes", timeout=TIMEOUT_SECONDS)
                row = row + 1 if answer.status_code == 201 else 0
            except requests.RequestException:
                row = 0
            return row >= 10

        eventually("ten new files in a row are taken", ten_in_a_row, NOTICE_SECONDS)

    def recover(self):
        """The fault is over, and nobody does anything about it."""
        self.disk.clear()
        self.site.wait_healthy(RECOVER_SECONDS)
        for client in self.clients:
            client.statuses, client.timeout = [], 60
        eventually("files are taken again", self.put_again, RECOVER_SECONDS)
        work_together(self.clients, STEPS)
        assert not self.errors(), self.errors()
        self.judge()
        for path, data in self.kept.items():
            assert self.door.get(path) == data

    def put_again(self):
        return self.door.ask("PUT", f"/after/{time.monotonic_ns()}", data=b"bytes").status_code == 201

    def judge(self):
        marks = [record.data.decode() for record in self.disk.records() if record.kind == 1]
        judge(self.book, self.door, marks, finish=False)

    def cut(self, seed):
        """What was acknowledged amid the fault is durable as well."""
        self.site.kill()
        marks = [record.data.decode() for record in self.disk.records() if record.kind == 1]
        self.disk.cut_power(Cut.drawn(seed))
        self.disk.start()
        self.site.start()
        judge(self.book, self.door, marks)
        self.site.wait_tidy()

    def close(self):
        if self.disk.process is not None:
            self.disk.clear()
        self.site.kill()
        self.disk.stop()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(",", "").replace(" ", "-"))
def test_a_storage_element_endures(binary, tmp_path, disk_program, tier, rounds, fault):
    for seed in rounds.of("element", fault.name, tier.rounds):
        directory = tmp_path / str(seed)
        run = Round(binary, directory, disk_program, seed)
        try:
            run.prepare()
            fault.strike(run.disk)
            run.endure(fault)
            assert run.disk.hits(), "the fault struck nothing, so this proves nothing"
            run.recover()
            run.cut(seed)
        finally:
            run.close()
        shutil.rmtree(directory)


@pytest.mark.parametrize(
    "flushes, opens",
    [(1, 0), (-1, 0), (-1, -1)],
    ids=["one-flush-fails", "all-fail-from-then-on", "all-fail-and-the-database-cannot-be-opened-again"],
)
def test_an_overwrite_whose_commit_failed_leaves_one_of_both_contents(binary, tmp_path, disk_program, flushes, opens):
    """Though the record of a commit that could not be flushed may be found after a crash."""
    run = Round(binary, tmp_path, disk_program, 1)
    old, new = b"old", content("new", 20_000)
    try:
        run.start()
        for number in range(3):
            path = f"/overwritten-{number}"
            run.door.put(path, old)
            run.disk.fault("flush", path=NAMESPACE, count=flushes)
            if opens:
                run.disk.fault("open", path=NAMESPACE, count=opens)
            status = run.door.ask("PUT", path, data=new).status_code
            time.sleep(0.5)  # what is to be discarded would be
            run.site.kill()
            assert status >= 500, f"a commit that failed was answered {status}"
            run.disk.clear()
            run.site.start()
            assert run.door.get(path) in (old, new)
        run.site.wait_tidy()
    finally:
        run.close()


@pytest.mark.parametrize("path", ["/pools/second/*", "/pools/second*"], ids=["its-files", "all-of-it"])
def test_a_storage_element_starts_without_a_disk_that_is_dead(binary, tmp_path, disk_program, path):
    """It says so, serves the other one, and takes the dead one back when it is well again."""
    run = Round(binary, tmp_path, disk_program, 1)
    try:
        run.prepare()
        run.site.kill()
        run.disk.fault("read", "open", "statfs", "flush", *CHANGES, path=path)
        run.disk.forget()
        run.site.start()
        run.read(FAULTS[0])
        eventually("health says what is wrong", lambda: run.is_named("pools"), NOTICE_SECONDS)
        run.assert_takes_files()
        run.recover()
    finally:
        run.close()


def test_a_pool_that_the_element_made_itself_outlives_a_power_cut(binary, tmp_path, disk_program):
    """Its name in the directory above is as durable as what it holds."""
    disk = Disk(disk_program, tmp_path / "disk")
    site = ElementSite(binary, tmp_path / "element", "element", HOST, disk)
    (disk.backing / "pools/second").rmdir()
    disk.start()
    try:
        site.start()
        door = Door(site)
        for number in range(10):
            door.put(f"/{number}", b"bytes")
        site.kill()
        disk.cut_power(Cut(random.Random(1).randrange(100)))
        disk.start()
        site.start()
        for number in range(10):
            assert door.get(f"/{number}") == b"bytes"
    finally:
        site.kill()
        disk.stop()


def test_a_directory_log_that_could_not_be_flushed_is_made_anew(binary, tmp_path, disk_program):
    """A later flush that succeeds says nothing of what was written before: the lines may be lost with the power."""
    run = Round(binary, tmp_path, disk_program, 1)
    logs = [f"/pools/{pool}/directory.log" for pool in ("disk1", "second")]
    inodes = lambda: [(run.disk.path / log[1:]).stat().st_ino for log in logs]
    try:
        run.start()
        run.door.ask("MKCOL", "/before")
        eventually("logs are there", lambda: all((run.disk.path / log[1:]).exists() for log in logs))
        time.sleep(2)  # what is written is flushed
        first = inodes()
        for log in logs:
            run.disk.fault("flush", path=log, count=1)
        assert run.door.ask("MKCOL", "/during").status_code == 201
        eventually("both logs are made anew", lambda: all(a != b for a, b in zip(first, inodes())), NOTICE_SECONDS)
        assert run.disk.hits(), "the fault struck nothing, so this proves nothing"
        run.site.kill()
        run.disk.clear()
        run.disk.cut_power(Cut.drawn(1))
        run.disk.start()
        for file in (run.disk.path / "state").glob("namespace.sqlite*"):
            file.unlink()
        rebuilt = subprocess.run(
            [str(binary), "rebuild", "--dir", str(run.site.directory)], capture_output=True, text=True, timeout=60
        )
        assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
        run.site.start()
        found = run.door.ask("PROPFIND", "/", headers={"Depth": "1"}).text
        assert "/before" in found and "/during" in found, found
    finally:
        run.close()


def test_uploads_on_a_disk_that_does_not_remove_files_hold_up_nobody(binary, tmp_path, disk_program):
    """Who removes one waits until the disk has done it; all others go on."""
    run = Round(binary, tmp_path, disk_program, 1)
    try:
        run.prepare()
        uploads = {}
        while len(uploads) < UPLOADS_ON_HUNG_DISK:
            upload = begin_upload(run.door)
            if (run.disk.path / "pools/second/partial" / upload.rsplit("/", 1)[1]).exists():
                uploads[upload] = None
        run.disk.hang("unlink", path=POOL)
        deleting = [threading.Thread(target=delete_upload, args=(run, uploads, upload)) for upload in uploads]
        for thread in deleting:
            thread.start()
        eventually("the disk is asked to remove files", lambda: run.disk.hits(), NOTICE_SECONDS)
        for path, data in run.kept.items():
            if (answer := run.door.ask("GET", path, timeout=TIMEOUT_SECONDS)).status_code == 200:
                assert answer.content == data
        assert run.door.ask("GET", "/.penstock/health/live", timeout=TIMEOUT_SECONDS).status_code == 200
        assert not any(uploads.values()), f"a removal that did not happen was answered {uploads}"
        run.recover()
        for thread in deleting:
            thread.join(60)
        assert set(uploads.values()) == {204}, uploads
        for upload in uploads:
            assert run.door.ask("HEAD", upload).status_code == 404
            assert not list((run.disk.path / "pools/second/partial").glob(f"{upload.rsplit('/', 1)[1]}*"))
    finally:
        run.close()


def begin_upload(door):
    """Gives back its path."""
    path = f"/uploads/{time.monotonic_ns()}"
    began = door.ask("PUT", path, data=b"part", headers={"Upload-Complete": "?0"})
    assert began.status_code == 201, (began.status_code, began.text)
    return began.headers["Location"]


def delete_upload(run, answers, upload):
    answers[upload] = Door(run.site, run.token).ask("DELETE", upload, timeout=60).status_code
