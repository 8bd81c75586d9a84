"""A disk of a test: a directory behind a file system of our own (`disk.c`), which fails as told and whose power can be cut."""

import errno
import os
import shutil
import subprocess
import threading
from pathlib import Path

from .power_cut import Replay, read_log, tree_of

SOURCE = Path(__file__).with_name("disk.c")
READS = ("read",)
WRITES = ("write", "create", "attribute")
CHANGES = (*WRITES, "rename", "unlink")
FLUSHES = ("flush", "flushdir")
HALF_A_READ = UNCACHED = -1
FOR_EVER = -1
SYNCED, UNSYNCED = "canary/synced", "canary/unsynced"


def build_disk(directory):
    """Compiles the file system; gives back its program."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True)
    program = directory / "disk"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", program, SOURCE, *flags.stdout.split()], check=True)
    return program


class DiskIsOff(Exception):
    """It was asked for something while it was not mounted."""


class Disk:
    """One disk. What is put into `backing` before `start` counts as old and durable. `path` is where it is mounted."""

    def __init__(self, program, directory):
        self.program, self.directory = program, Path(directory)
        self.path, self.backing = self.directory / "mount", self.directory / "backing-0"
        self.path.mkdir(parents=True)
        (self.backing / "canary").mkdir(parents=True)
        self.process, self.mounts = None, 0
        self.asking = threading.Lock()

    def start(self):
        """Mounts it. The log begins here."""
        self.base = self.directory / f"base-{self.mounts}"
        self.log = self.directory / f"log-{self.mounts}"
        copy_tree(self.backing, self.base)
        self.tree = tree_of(self.backing, self.base)
        self.process = subprocess.Popen(
            [self.program, self.backing, self.path, self.log], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "ready\n", "the disk cannot be mounted; is /dev/fuse there?"
        self.plant_canaries()
        return self

    def plant_canaries(self):
        """A file that is flushed as it should be, and one that is not, by which a power cut proves itself."""
        for name in (SYNCED, UNSYNCED):
            with open(self.path / name, "wb") as file:
                file.write(name.encode())
                file.flush()
                if name == SYNCED:
                    os.fsync(file.fileno())
                    flush_directory(self.path / "canary")

    def tell(self, command):
        with self.asking:
            if self.process is None:
                raise DiskIsOff(command)
            print(command, file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline().strip()
        assert answer and answer != "what?", f"{command}: {answer or 'the disk has died'}"
        return answer

    def mark(self, text):
        """Notes something between the changes."""
        self.tell(f"mark {text}")

    def fault(self, *operations, path="*", error=errno.EIO, count=FOR_EVER, wait_ms=0):
        """From now on such calls wait (-1: until `clear`), and fail with the error unless it is 0."""
        self.tell(f"fault ,{','.join(operations)}, {path} {error} {count} {wait_ms}")

    def hang(self, *operations, path="*"):
        self.fault(*operations, path=path, error=0, wait_ms=FOR_EVER)

    def clear(self):
        self.tell("clear")

    def forget(self):
        """Whatever is read next comes from the disk."""
        self.tell("forget")

    def hits(self):
        return int(self.tell("hits"))

    def stop(self):
        """Unmounts it. Whoever has files open there gets errors."""
        with self.asking:
            process, self.process = self.process, None
        if process is not None:
            process.stdin.close()
            process.wait(30)
            process.stdout.close()

    def cut_power(self, cut, until=None):
        """Once nobody works there any more: what a power cut leaves of it is what is there when it is started again.

        `until` is the number of the first record that never came to be."""
        self.stop()
        self.mounts += 1
        self.backing = self.directory / f"backing-{self.mounts}"
        self.write_remains(self.backing, cut, until)
        shutil.rmtree(self.base)

    def records(self):
        return read_log(self.log)

    def write_remains(self, target, cut, until=None, records=None):
        """Writes what a power cut leaves to a directory, and sees by the canaries that it was one."""
        replay = Replay(self.tree, cut)
        for record in (self.records() if records is None else records)[:until]:
            replay.apply(record)
        replay.write_to(target)
        unsynced = target / UNSYNCED
        assert (target / SYNCED).read_bytes() == SYNCED.encode(), "what was flushed is lost: the model is wrong"
        assert not unsynced.exists() or unsynced.stat().st_size == 0, "what was not flushed is there: no power cut"


def copy_tree(source, target):
    subprocess.run(["cp", "-a", source, target], check=True)


def flush_directory(path):
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
