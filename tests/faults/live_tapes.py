"""What may befall the tape system of a site: an HSM to which files go through small pools, or tapes from which files are copied.

As in `live_faults`, a fault acts on a resource and knows nothing of rules.
"""

import fcntl
import os
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle, islice, repeat

from interop.test_files_on_tape import PROGRAM, all_are, inline, quick
from interop.waiting import eventually

from .fault import MILD, STRONG, Fault, fill

# Of pools that hold what is copied until it is on tape: of a small file system 64 MiB stay free, and copies of files that are on
# tape leave it every ten seconds.
POOL_MB = 64 + 32
HSM_MB = 600
TO_TAPE = {"active": 6, "pools": 2}
# Until pools are full of what does not get to tape.
FILLING_SECONDS = 16
MOVERS = 4

# Files that are wanted in a second: a few more than the link carries.
WANTED = 8
# While files are put on tapes.
STOCK_TIME_FACTOR = 1_000
FROM_TAPE = {"active": 14, "is_source": True}


@dataclass
class Library:
    """A library with so many files on each tape, usually wanted together. Its time runs fast: of it a mount takes two minutes."""

    tapes: int
    files: int
    drives: int
    time_factor: int


SHORT_MOUNTS = Library(tapes=160, files=2, drives=9, time_factor=56)
LONG_MOUNTS = Library(tapes=96, files=8, drives=12, time_factor=12)
# Files of a run, and others that are mixed with larger ones; until all of them are on tape.
RUN_FILES, MIXED_FILES, OTHERS_BYTES, AGGREGATE_SECONDS = 400, 80, 9_000_000, 40
# Until files have come that were asked for before.
ASKED_SECONDS = 10

# Each file is taken by one of the HSM's movers.
MOVED = """#!/bin/sh
[ "$1" != put ] || flock --shared "{movers}/$(( 0x${{2#"${{2%?}}"}} % {count} ))" true
exec {program} "$@"
"""
# What brings a file is a job of a batch system, which takes a moment.
SLOTS, BATCH_FILES = 10, 440
BATCH = """#!/bin/sh
[ "$1" = get ] || exec {program} "$@"
job={queue}/$2
mkfifo "$job" && read -r begin <"$job" && sleep 0.6
{program} "$@"
code=$?
rm -f "$job"
exit $code
"""


class BatchSystem(threading.Thread):
    """Begins jobs in the order in which they came, as many at once as there are slots that others leave free. A job is a pipe
    in a directory: it waits until something is written there, and removes it in the end."""

    def __init__(self, site):
        super().__init__(daemon=True)
        self.site, self.queue = site, site.directory / "batch"
        self.others, self.over = 0, threading.Event()
        self.queue.mkdir()

    def run(self):
        begun = set()
        while not self.over.wait(0.05):
            jobs = {}
            for job in self.queue.iterdir():
                # It may end meanwhile.
                with suppress(FileNotFoundError):
                    jobs[job.name] = job.stat().st_ctime_ns
            begun &= jobs.keys()
            free = SLOTS - self.others - len(begun)
            waiting = sorted(jobs.keys() - begun, key=jobs.get)
            begun |= {name for name in waiting[: max(0, free)] if self.begins(name)}

    def begins(self, name):
        """One that does not listen yet has its turn in a moment."""
        with suppress(OSError), open(self.queue / name, "w", opener=without_waiting) as job:
            return bool(job.write("begin\n"))

    def end(self):
        """Jobs that wait outlive their site, and would wait for ever."""
        self.over.set()
        self.join()
        self.site.kill()
        for job in self.queue.iterdir():
            self.begins(job.name)


def without_waiting(path, flags):
    return os.open(path, flags | os.O_NONBLOCK)


def with_hsm(world):
    """Files go to the tapes of an HSM, through a disk buffer of its own, from pools that hold the copies of some seconds."""
    for pool in world.pools:
        world.mount(pool, POOL_MB)
    world.hsm, world.movers = world.here.directory / "hsm", world.here.directory / "movers"
    for directory in (world.hsm, world.movers):
        directory.mkdir()
    world.mount(world.hsm, HSM_MB)
    (world.hsm / "data").mkdir()
    for number in range(MOVERS):
        (world.movers / str(number)).touch()
    program = world.here.directory / "moved-hsm"
    program.write_text(MOVED.format(movers=world.movers, count=MOVERS, program=PROGRAM))
    program.chmod(0o755)
    configure_tape(
        world,
        program=str(program),
        options={"root": str(world.hsm / "data")},
        buffer=str(world.hsm),
        puts_max=6,
        hsm_wide=[{"codes": [60, 61]}],
        collect_time="1s",
        keep_free_percent=100,
        **{"class": [{"path": "/copies", "family": "raw"}]},
    )


def configure_tape(world, **keys):
    lines = [f"{key} = {inline(value)}\n" for key, value in keys.items()]
    world.here.append("\n[storage.tape]\n" + "".join(lines))


def with_batch_system(world):
    """Files are on the tapes of an HSM, and jobs of the site's batch system bring them."""
    world.batch = BatchSystem(world.here)
    world.batch.start()
    world.stack.callback(world.batch.end)
    hsm = world.here.directory / "hsm"
    hsm.mkdir()
    program = world.here.directory / "batch-hsm"
    program.write_text(BATCH.format(queue=world.batch.queue, program=PROGRAM))
    program.chmod(0o755)
    configure_tape(
        world,
        program=str(program),
        options={"root": str(hsm)},
        collect_time="0s",
        gets_max=500,
        keep_free_percent=100,
        **{"class": [{"path": "/source", "family": "raw"}]},
    )
    quick(world.here)
    world.stock = lambda: put_in_hsm(world)


def put_in_hsm(world):
    files = [f"/source/{number}" for number in range(BATCH_FILES)]
    put_all(world, files)
    world.wanted = spread_over(cycle([cycle(files)]), 1)


def fill_batch_system(world, strength):
    """Long jobs of others take all slots but two, or but one."""
    world.batch.others = SLOTS - {MILD: 2, STRONG: 1}[strength]


def hang_movers(world, strength):
    """Movers of the HSM hang: one of four, in which more and more commands wait, or all."""
    for number in range({MILD: 1, STRONG: MOVERS}[strength]):
        mover = open(world.movers / str(number))
        world.stack.callback(mover.close)
        fcntl.flock(mover, fcntl.LOCK_EX)


def fill_buffer(world, strength):
    """Others fill the disk of the HSM. What it puts on tape meanwhile others take, too, or it puts nothing there."""
    fill([world.hsm])
    if strength == MILD:
        others = shlex.quote(str(world.hsm / "others"))
        world.launch(["sh", "-c", f"while sleep 1; do truncate -s -1M {others}; sleep 0.2; cat /dev/zero >>{others}; done"])


def with_library(world, library):
    """Files are on many tapes of a library, some on each."""
    world.library = library
    world.here.directory.joinpath("library").mkdir()
    kind = {"kind": "LTO-8"}
    configure_tape(
        world,
        library={
            "directory": str(world.here.directory / "library"),
            "drives": [kind | {"count": library.drives}],
            "robot": {"arms": 8, "moves_per_hour_max": 3_600},
            "tapes": [kind | {"count": library.tapes + 4, "capacity": "1 GB"}],
        },
        time_factor=STOCK_TIME_FACTOR,
        collect_files=library.files,
        collect_recalls_time="0s",
        keep_free_percent=100,
        **{"class": [{"path": f"/source/{tape}", "family": f"tape-{tape}"} for tape in range(library.tapes)]},
    )
    quick(world.here)
    world.stock = lambda: put_on_tape(world)


def with_aggregates(world):
    """Small files lie behind one another on a tape of an old drive, as one object; between some of them lie files of others."""
    world.here.directory.joinpath("library").mkdir()
    kind = {"kind": "9940B", "count": 1}
    configure_tape(
        world,
        library={
            "directory": str(world.here.directory / "library"),
            "drives": [kind],
            "tapes": [kind | {"capacity": "100 GB"}],
        },
        time_factor=STOCK_TIME_FACTOR,
        collect_time=f"{AGGREGATE_SECONDS * STOCK_TIME_FACTOR}s",
        collect_recalls_time="0s",
        keep_free_percent=100,
        **{"class": [{"path": "/source", "family": "raw", "aggregate": "20 MB"}]},
    )
    quick(world.here)
    world.stock = lambda: put_in_aggregates(world)


def put_in_aggregates(world):
    run = [f"/source/run/{number}" for number in range(RUN_FILES)]
    world.mixed = [f"/source/mixed/{number}" for number in range(MIXED_FILES)]
    for path in run:
        world.put(path)
    for path in world.mixed:
        world.put(path)
        world.put(f"{path}-of-others", OTHERS_BYTES)
    be_on_tape(world, run + world.mixed)
    run_slower(world, 1)
    # A mount of this drive takes a minute.
    door, first = world.doors[world.here], run[0]
    asked = door.ask("POST", "/.penstock/tape/v1/stage", json={"files": [{"path": first}]})
    assert asked.status_code == 201, asked.text
    eventually("the tape is mounted", lambda: all_are(door, [first], "DISK_AND_TAPE"), 120)
    world.wanted = spread_over(cycle([cycle(run)]), 1)


def want_single_members(world, strength):
    """From now on files are wanted between which others lie on the tape, ten or twenty times as large as they are."""
    step = {MILD: 1, STRONG: 2}[strength]
    world.wanted = chain([world.mixed[::step]], repeat([]))


def put_all(world, files):
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(world.put, files))
    be_on_tape(world, files)


def be_on_tape(world, files):
    """Waits until none of them is on disk. They are brought when they are wanted."""
    eventually("all files are on tape alone", lambda: all_are(world.doors[world.here], files, "TAPE"), 180)
    world.parameters = {"bring_online": 3_600, "copy_pin_lifetime": 300}


def put_on_tape(world):
    """Files of each directory get a tape of their own; then none is on disk, and time runs slower."""
    of_tape = range(world.library.files)
    world.tapes = [[f"/source/{tape}/{number}" for number in of_tape] for tape in range(world.library.tapes)]
    files = [path for tape in world.tapes for path in tape]
    put_all(world, files)
    run_slower(world, world.library.time_factor)
    # Tapes come in turn, and so do the files of each, however they are asked for: none is wanted twice in a short time.
    world.order = cycle([cycle(tape) for tape in world.tapes])
    world.wanted = spread_over(world.order, WANTED // world.library.files)


def run_slower(world, time_factor):
    world.here.stop()
    world.here.configure("[storage.tape]", time_factor=time_factor)
    world.here.start()


def spread_over(order, count):
    """For each second files of so many tapes."""
    while True:
        yield [next(turn) for turn in islice(order, count) for _ in range(WANTED // count)]


def scatter(world, strength):
    """Whoever submits wants files that lie on many tapes from now on."""
    world.wanted = spread_over(world.order, {MILD: 4, STRONG: 8}[strength])


def lose_drives(world, strength):
    """Drives are down, all but two or but one."""
    for number in range(world.library.drives - {MILD: 2, STRONG: 1}[strength]):
        world.here.command("tape", "disable", f"library-LTO-8-{number + 1}")


HSM = {"world": TO_TAPE, "prepare": with_hsm, "hidden_seconds": FILLING_SECONDS}
RECALLS = {"world": FROM_TAPE, "hidden_seconds": ASKED_SECONDS}
SHORT, LONG = (RECALLS | {"prepare": partial(with_library, library=library)} for library in (SHORT_MOUNTS, LONG_MOUNTS))
BATCH_SYSTEM = RECALLS | {"prepare": with_batch_system}
AGGREGATES = RECALLS | {"prepare": with_aggregates}

TAPE_FAULTS = [
    Fault("hung movers", "movers of the HSM hang", ("HSMSTUCK",), hang_movers, **HSM),
    Fault("full HSM", "the disk of the HSM is filled by others", ("HSMFULL",), fill_buffer, **HSM),
    Fault("batch system", "jobs of others fill the batch system of the HSM", ("BATCHQ",), fill_batch_system, **BATCH_SYSTEM),
    Fault("lost drives", "tape drives are down", ("DRIVE",), lose_drives, **SHORT),
    Fault("scattered files", "wanted files lie on many tapes", ("SCATTER",), scatter, needs_quiet=True, **LONG),
    Fault("single members", "wanted files are few of those that lie together", ("AGGREAD",), want_single_members, **AGGREGATES),
]
