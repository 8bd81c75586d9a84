"""The power of a storage element's disk is cut at any instant: what was acknowledged is there, what was not is whole or absent.

Clients work for a while on a disk whose log is kept. Then, for many records of it, a disk is made as a power cut there could
have left it, and a storage element is started on that.
"""

import random
import shutil
import threading
import time

import pytest
from interop.clients import Door
from interop.test_files_on_tape import STAGING
from interop.waiting import eventually, files_for_tape

from .disk import Disk
from .element import Book, Client, ElementSite, judge, work_together
from .power_cut import FLUSH, FLUSH_DIRECTORY, MARK, Cut
from .tapes import TapeDoor, tape_command, tape_status

HOST = "127.0.9.1"
CLIENTS, STEPS = 3, 25


class Recording:
    """A run of clients on a storage element, from its very first start on, with the log of its disk."""

    def __init__(self, binary, directory, disk, fault_ca, source, seed):
        self.disk = disk
        self.site = ElementSite(binary, directory / "element", "element", HOST, disk)
        self.site.trust(fault_ca.certificate)
        self.site.allow(source.host)
        self.book, self.source, self.seed = Book(disk), source, seed

    def record(self):
        self.disk.start()
        self.site.start()
        token = self.site.token()
        clients = [
            Client(f"client-{number}", Door(self.site, token), self.book, self.seed, self.source)
            for number in range(CLIENTS)
        ]
        work_together(clients, STEPS)
        self.go_on()
        self.close()
        self.records = self.disk.records()
        statuses = [status for client in clients for status in client.statuses]
        wrong = [status for status in statuses if not isinstance(status[2], int) or status[2] >= 500]
        assert not wrong, f"on a disk without faults: {wrong[:5]}"

    def go_on(self):
        """What has to happen after the work of the clients."""

    def close(self):
        self.site.kill()
        self.disk.stop()

    def positions(self, draw, count):
        """Where to cut: half of them just before or after a flush or an answer, where it matters most."""
        kinds = (MARK, FLUSH, FLUSH_DIRECTORY)
        edges = [record.number + after for record in self.records if record.kind in kinds for after in (0, 1)]
        first = next(record.number for record in self.records if record.kind == MARK)
        for _ in range(count):
            yield draw.choice(edges) if draw.random() < 0.5 else draw.randint(first // 2, len(self.records))

    def marks(self, until):
        return [record.data.decode() for record in self.records[:until] if record.kind == MARK]

    def judge(self, remains, cut, until):
        self.disk.write_remains(remains, cut, until, self.records)
        self.site.use(remains)
        try:
            self.site.start()
            door = Door(self.site)
            files = judge(self.book, door, self.marks(until))
            door.put("/after", b"it takes files again")
            assert door.get("/after") == b"it takes files again"
            self.site.wait_healthy()
            self.site.wait_tidy()
        finally:
            self.site.kill()
        return files


def test_a_power_cut_loses_nothing_that_a_storage_element_acknowledged(
    binary, tmp_path, disk_program, fault_ca, faulty, tier, rounds
):
    for seed in rounds.of("element", f"power cut, {tier.cuts_per_run} times", tier.recorded_runs):
        draw = random.Random(seed)
        directory = tmp_path / str(seed)
        run = Recording(binary, directory, Disk(disk_program, directory / "disk"), fault_ca, faulty, seed)
        try:
            run.record()
        finally:
            run.close()
        found = 0
        for number, until in enumerate(run.positions(draw, tier.cuts_per_run)):
            cut = Cut.drawn(draw.randrange(1 << 32))
            print(f"cut before record {until} of {len(run.records)}: {cut}")
            found += run.judge(directory / f"remains-{number}", cut, until)
        assert found, "at no cut a file was there, so this proves nothing"
        shutil.rmtree(directory)


LIBRARY = (
    '{{ name = "{name}", directory = "state/{name}", drives = [{{ kind = "LTO-8", count = 2 }}], '
    'tapes = [{{ kind = "LTO-8", count = 4, capacity = "1 GB" }}] }}'
)
TAPE = """
[storage.tape]
library = [{libraries}]
replace_copies_after = "0s"
time_factor = {factor}
collect_time = "0s"
collect_recalls_time = "0s"
retry_first = "1s"
retry_max = "2s"
keep_free_percent = 100
[[storage.tape.class]]
path = "/"
family = "all"
aggregate = "10 kB"
copies = {copies}
"""


class TapeRecording(Recording):
    """The same, with all files on their way to tapes, which lie on the same disk."""

    FAULT = "power cut with tapes"
    LIBRARIES = ["tape"]

    def __init__(self, *given):
        super().__init__(*given)
        libraries = ", ".join(LIBRARY.format(name=name) for name in self.LIBRARIES)
        # Slow enough that cuts meet mounts, writes and syncs.
        self.site.append(TAPE.format(libraries=libraries, copies=len(self.LIBRARIES), factor=200))

    def judge(self, remains, cut, until):
        self.disk.write_remains(remains, cut, until, self.records)
        self.site.use(remains)
        try:
            self.site.start()
            door = TapeDoor(self.site, self.site.token(STAGING))
            files = judge(self.book, door, self.marks(until))
            door.put("/after", b"it goes to tape again")
            eventually("it is on tape", lambda: door.is_on_tape("/after"), 120)
            eventually("nothing is asked for any more", lambda: files_for_tape(tape_status(self.site)) == 0, 120)
            assert door.get("/after") == b"it goes to tape again"
        finally:
            self.site.kill()
        return files


class OperatedRecording(TapeRecording):
    """The same, while an operator is at work."""

    def record(self):
        is_over = threading.Event()
        operator = threading.Thread(target=self.operate, args=(is_over,))
        # Tapes about which something was ordered.
        self.ordered = set()
        operator.start()
        try:
            super().record()
        finally:
            is_over.set()
            operator.join()

    def go_on(self):
        # Clients are faster than tapes.
        eventually("two tapes are worked on", lambda: len(self.ordered) >= 2, 120)

    def operate(self, is_over):
        while not is_over.wait(0.3):
            try:
                libraries = tape_status(self.site)["libraries"]
            except (AssertionError, KeyError):
                # It has not begun, or has ended.
                continue
            self.look(libraries)

    def order(self, name, *orders):
        self.ordered.add(name)
        for order in orders:
            tape_command(self.site, order, name)


class CaredForRecording(OperatedRecording):
    """One tape after the other is emptied, written anew where nothing of removed files keeps it from that, and verified."""

    FAULT = "power cut while tapes are emptied"

    def look(self, libraries):
        repacks = libraries["care"]["repacks"]
        # One that is empty may wait long for the time of files that were removed from it.
        waiting = [one["tape"] for one in repacks if one["waits_for"]]
        full = [tape["name"] for tape in libraries["tapes"] if tape["live"]["files"] and tape["name"] not in waiting]
        # Two that wait leave two to write to.
        if full and len(waiting) == len(repacks) and len(waiting) < 2:
            self.order(min(full, key=lambda name: name in self.ordered), "repack", "verify")


class CopiedRecording(OperatedRecording):
    """Each file has two copies, and one tape after the other is out of use until other tapes have copies of all its files."""

    FAULT = "power cut while copies are made again"
    LIBRARIES = ["tape", "annex"]

    def look(self, libraries):
        lost = [tape for tape in libraries["tapes"] if tape["state"] == "disabled"]
        full = [tape["name"] for tape in libraries["tapes"] if tape["live"]["files"] and tape["name"] not in self.ordered]
        # Files in the trash keep the copies that they have, so that not each tape becomes empty.
        if lost and (not lost[0]["live"]["files"] or time.monotonic() > self.lost_until):
            self.order(lost[0]["name"], "enable")
        elif full and not lost:
            self.lost_until = time.monotonic() + 10
            self.order(full[0], "disable")


@pytest.mark.parametrize("kind", [TapeRecording, CaredForRecording, CopiedRecording])
def test_a_power_cut_loses_no_file_on_its_way_to_tape_and_back(
    kind, binary, tmp_path, disk_program, fault_ca, faulty, tier, rounds
):
    for seed in rounds.of("element", f"{kind.FAULT}, {tier.cuts_per_run} times", tier.recorded_runs):
        draw = random.Random(seed)
        directory = tmp_path / str(seed)
        run = kind(binary, directory, Disk(disk_program, directory / "disk"), fault_ca, faulty, seed)
        try:
            run.record()
        finally:
            run.close()
        found = 0
        for number, until in enumerate(run.positions(draw, tier.cuts_per_run)):
            cut = Cut.drawn(draw.randrange(1 << 32))
            print(f"cut before record {until} of {len(run.records)}: {cut}")
            found += run.judge(directory / f"remains-{number}", cut, until)
        assert found, "at no cut a file was there, so this proves nothing"
        shutil.rmtree(directory)
