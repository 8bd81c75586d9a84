"""Pools whose file system is full, to its last byte or to the last file that it can hold: trash gives way, and where there is
none, deleting files is all that anybody has to do. On a real file system, and over restarts.
"""

import subprocess
from itertools import count

import pytest
from interop.clients import Door, content
from interop.site import Site
from interop.waiting import eventually

from .element import HEALTH, assert_runs

HOST = "127.0.9.25"
# Of the bytes 64 MiB are kept free, of the files one in a hundred.
SIZE_MB, FILES = 200, 600
GIVEN_UP, DATA = content("given up", 8_000_000), content("kept", 100_000)
RECOVER_SECONDS = 30


class Lab:
    """A storage element with one pool, which has a small file system of its own."""

    def __init__(self, binary, directory):
        self.site = Site(binary, directory / "element", "element", HOST)
        self.site.remove("transfer")
        [self.pool] = (self.site.directory / "pools").iterdir()
        options = f"size={SIZE_MB}m,nr_inodes={FILES}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "pool", self.pool], check=True)
        self.site.start()
        self.door = Door(self.site)
        self.names = count()

    def put(self, data=b""):
        """Whether a new file is taken."""
        return self.door.ask("PUT", f"/new/{next(self.names)}", data=data).status_code == 201

    def health(self):
        return self.door.ask("GET", HEALTH).text

    def restart(self):
        self.site.kill()
        self.site.start()

    def close(self):
        self.site.kill()
        subprocess.run(["umount", "-l", self.pool], check=True)


@pytest.fixture
def lab(binary, tmp_path):
    lab = Lab(binary, tmp_path)
    yield lab
    lab.close()


def fill_with_bytes(directory):
    """Takes all the space for a file that is not the pool's own."""
    with open(directory / "others", "ab", buffering=0) as file:
        take(lambda: file.write(bytes(1 << 20)))
        take(lambda: file.write(bytes(1 << 10)))


def fill_with_files(directory):
    """Takes all files that there can be."""
    names = count()
    (directory / "others").mkdir()
    take(lambda: (directory / "others" / str(next(names))).touch())


def take(more):
    try:
        while True:
            more()
    except OSError:
        pass


def test_an_empty_file_can_be_replaced_more_often_than_there_are_inodes(lab):
    """Each version is trash that takes no byte."""
    for _ in range(2 * FILES):
        answer = lab.door.ask("PUT", "/f", data=b"")
        assert answer.status_code in (201, 204), answer.text
    lab.restart()
    assert lab.door.get("/f") == b""
    eventually("it takes files", lambda: lab.put(DATA), RECOVER_SECONDS)
    assert_runs(lab.site)


@pytest.mark.parametrize("fill", [fill_with_bytes, fill_with_files])
def test_a_pool_that_is_full_at_a_start_makes_room_of_its_trash(lab, fill):
    for number in range(12):
        lab.door.put(f"/trash/{number}", GIVEN_UP)
    lab.door.ask("DELETE", "/trash")
    lab.door.put("/kept", DATA)
    lab.site.kill()
    fill(lab.pool)
    lab.site.start()
    eventually("it takes files", lambda: lab.put(b""), RECOVER_SECONDS)
    assert lab.door.get("/kept") == DATA


@pytest.mark.parametrize("fill", [fill_with_bytes, fill_with_files])
def test_of_a_pool_that_is_full_and_has_no_trash_files_can_be_deleted_for_good(lab, fill):
    for number in range(12):
        lab.door.put(f"/given-up/{number}", GIVEN_UP)
    lab.door.put("/kept", DATA)
    lab.site.kill()
    fill(lab.pool)
    lab.site.start()
    assert not lab.put(b"")
    assert "pool" in lab.health()
    assert lab.door.ask("DELETE", "/given-up").status_code == 204
    eventually("it takes files", lambda: lab.put(b""), RECOVER_SECONDS)
    assert lab.door.get("/kept") == DATA
