"""What may befall the tape system of a site: faults of an HSM that takes files from small pools.

As in `live_faults`, a fault acts on a resource and knows nothing of rules.
"""

import fcntl
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

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

# Each second so many files are wanted, of one tape, which takes a drive some seconds.
WANTED, DRIVES, TAPES, TAPE_FILES, TIME_FACTOR = 6, 6, 36, 12, 24
FROM_TAPE = {"active": 16, "is_source": True, "sizes": range(200_000, 600_000)}

# Each file is taken by one of the HSM's movers.
MOVED = """#!/bin/sh
[ "$1" != put ] || flock --shared "{movers}/$(( 0x${{2#"${{2%?}}"}} % {count} ))" true
exec {program} "$@"
"""


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
        others = world.hsm / "others"
        world.launch(["sh", "-c", f"while sleep 1; do truncate -s -1M {others}; sleep 0.2; cat /dev/zero >>{others}; done"])


def with_library(world):
    """Files are on many tapes of a library, some on each."""
    world.here.directory.joinpath("library").mkdir()
    kind = {"kind": "LTO-8"}
    configure_tape(
        world,
        library={
            "directory": str(world.here.directory / "library"),
            "drives": [kind | {"count": DRIVES}],
            "robot": {"moves_per_hour_max": 900},
            "tapes": [kind | {"count": TAPES + 4, "capacity": "1 GB"}],
        },
        time_factor=TIME_FACTOR,
        collect_files=TAPE_FILES,
        collect_recalls_time="0s",
        keep_free_percent=100,
        **{"class": [{"path": f"/source/{tape}", "family": f"tape-{tape}"} for tape in range(TAPES)]},
    )
    quick(world.here)
    world.stock = lambda: put_on_tape(world)


def put_on_tape(world):
    """Files of each directory get a tape of their own; then none is on disk."""
    world.tapes = [[f"/source/{tape}/{number}" for number in range(TAPE_FILES)] for tape in range(TAPES)]
    files = [path for tape in world.tapes for path in tape]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(world.put, files))
    eventually("all files are on tape alone", lambda: all_are(world.doors[world.here], files, "TAPE"), 180)
    world.parameters = {"bring_online": 3_600, "copy_pin_lifetime": 1}
    world.wanted = spread_over(world.tapes, 1)


def spread_over(tapes, count):
    """For each second files of so many tapes, of one after the other."""
    part = WANTED // count
    turns = [iter(cycle(tape)) for tape in tapes]
    order = cycle(range(len(tapes)))
    while True:
        yield [next(turns[tape]) for tape in [next(order) for _ in range(count)] for _ in range(part)]


def scatter(world, strength):
    """Whoever submits wants files that lie on many tapes from now on."""
    world.wanted = spread_over(world.tapes, {MILD: 3, STRONG: 6}[strength])


def lose_drives(world, strength):
    """Drives are down."""
    for number in range({MILD: 4, STRONG: 5}[strength]):
        world.here.command("tape", "drive", f"library-LTO-8-{number + 1}", "--down")


TAPE_FAULTS = [
    Fault("hung movers", "movers of the HSM hang", ("HSMSTUCK",), hang_movers, TO_TAPE, with_hsm, hidden_seconds=FILLING_SECONDS),
    Fault("full HSM", "the disk of the HSM is filled by others", ("HSMFULL",), fill_buffer, TO_TAPE, with_hsm, hidden_seconds=FILLING_SECONDS),
    Fault("lost drives", "tape drives are down", ("DRIVE",), lose_drives, FROM_TAPE, with_library),
    Fault("scattered files", "wanted files lie on many tapes", ("SCATTER",), scatter, FROM_TAPE, with_library),
]
