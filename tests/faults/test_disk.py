"""The disk of these tests itself: what is flushed outlives a power cut, what is not does not, and faults strike as told."""

import errno
import os
import random
import sqlite3
from contextlib import closing

import pytest

from .disk import FLUSHES, HALF_A_READ, flush_directory
from .power_cut import MARK, Cut

ROWS, CUTS = 60, 25


def commit_rows(disk, synchronous):
    """Commits row after row, each with a mark once SQLite has said that it is durable."""
    with closing(sqlite3.connect(disk.path / "rows.sqlite", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.execute("CREATE TABLE row (number INTEGER)")
        for number in range(ROWS):
            database.execute("INSERT INTO row VALUES (?)", (number,))
            disk.mark(f"row {number}")


def lost_rows(disk, tmp_path):
    """How many committed rows are lost, over many cuts. A database that cannot be read has lost them all."""
    records, draw, lost = disk.records(), random.Random(1), 0
    for seed in range(CUTS):
        until = draw.randint(len(records) // 3, len(records))
        committed = sum(record.kind == MARK for record in records[:until])
        disk.write_remains(tmp_path / f"remains-{seed}", Cut.drawn(seed), until, records)
        with closing(sqlite3.connect(tmp_path / f"remains-{seed}" / "rows.sqlite")) as database:
            try:
                kept = [number for (number,) in database.execute("SELECT number FROM row ORDER BY number")]
            except sqlite3.DatabaseError:
                kept = []
        assert kept == list(range(len(kept))), "rows are lost between others"
        lost += max(0, committed - len(kept))
    return lost


def test_a_database_that_flushes_keeps_every_commit(disk, tmp_path):
    commit_rows(disk.start(), "FULL")
    assert lost_rows(disk, tmp_path) == 0


def test_a_database_that_does_not_flush_is_found_out(disk, tmp_path):
    commit_rows(disk.start(), "OFF")
    assert lost_rows(disk, tmp_path) > 0


@pytest.mark.parametrize("journal", [False, True])
def test_a_name_is_durable_after_the_flush_of_its_directory(disk, tmp_path, journal):
    disk.start()
    for name, directory_too in (("loose", False), ("kept", True)):
        (disk.path / name).mkdir()
        flush_directory(disk.path)
        with open(disk.path / name / "new", "wb") as file:
            file.write(b"bytes")
            os.fsync(file.fileno())
        os.rename(disk.path / name / "new", disk.path / name / "file")
        if directory_too:
            flush_directory(disk.path / name)
    (disk.path / "kept/file").rename(disk.path / "kept/later")
    disk.write_remains(tmp_path / "remains", Cut(journal=journal))
    assert os.listdir(tmp_path / "remains/kept") == ["file"]
    # A journal takes the name along that the file had at its flush, and the second flush of a directory takes all of it.
    assert os.listdir(tmp_path / "remains/loose") == (["file"] if journal else [])


def test_no_power_cut_leaves_what_was_never_flushed(disk):
    for seed in range(20):
        disk.start()
        disk.cut_power(Cut(seed, by_chance=True, journal=True))


def test_a_file_that_is_open_has_its_bytes_also_without_a_name(disk):
    disk.start()
    with open(disk.path / "open", "w+b") as file:
        os.unlink(disk.path / "open")
        file.write(b"bytes")
        file.flush()
        file.seek(0)
        assert (file.read(), os.fstat(file.fileno()).st_nlink) == (b"bytes", 0)


def test_faults_strike_as_told(disk):
    disk.start()
    path = disk.path / "file"
    path.write_bytes(bytes(10_000))
    disk.fault("read", path="/fi*")
    disk.forget()
    with pytest.raises(OSError) as raised:
        path.read_bytes()
    assert raised.value.errno == errno.EIO
    disk.clear()
    assert path.read_bytes() == bytes(10_000)
    disk.fault("direct", "read", error=HALF_A_READ)
    with open(path, "rb", buffering=0) as file:
        assert [len(file.read(10_000)), len(file.read(5000))] == [5000, 2500]
    disk.clear()
    disk.fault("write", error=errno.ENOSPC, count=1)
    with open(path, "r+b", buffering=0) as file:
        with pytest.raises(OSError) as raised:
            file.write(b"x")
        assert raised.value.errno == errno.ENOSPC
        assert file.write(b"x") == 1
        disk.fault(*FLUSHES, count=1)
        with pytest.raises(OSError):
            os.fsync(file.fileno())
        os.fsync(file.fileno())
    # The kernel may ask twice for what it could not read.
    assert disk.hits() >= 4
