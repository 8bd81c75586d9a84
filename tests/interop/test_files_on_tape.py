"""Files that go to tape and come back: a storage element with an HSM that is a directory, the transfer service and gfal2's tape
client, and what is left of it when processes are killed."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from .clients import Door, Service, content
from .site import EVERYTHING
from .waiting import eventually

PROGRAM = Path(__file__).parents[2] / "deploy/hsm/directory-hsm"
STAGING = f"{EVERYTHING} storage.stage:/"
FILES = 100
DATA = content("on tape", 30_000)


class Hsm:
    """What the HSM of a site holds."""

    def __init__(self, site):
        self.root = site.directory / "hsm"
        self.root.mkdir(exist_ok=True)

    def files(self):
        return [path for path in self.root.glob("??/*") if path.name[0] != "."]


def with_tape(site, keep_free_percent=100, program=PROGRAM):
    """Files below /tape go to a directory; their copies on disk leave as soon as they may."""
    hsm = Hsm(site)
    site.append(
        f"""
[storage.tape]
program = "{program}"
options = {{ root = "{hsm.root}" }}
collect_time = "0s"
retry_first = "1s"
retry_max = "2s"
keep_free_percent = {keep_free_percent}
[[storage.tape.class]]
path = "/tape"
family = "raw"
"""
    )
    return hsm


def quick(site):
    site.append('\n[transfer.staging]\nquiet = "100ms"\npoll_min = "200ms"\npoll_max = "1s"\n')


@pytest.fixture
def grid(own_grid):
    """Two sites; the second has tape. Not served yet."""
    quick(own_grid.here)
    own_grid.token = own_grid.here.token(STAGING)
    own_grid.there_door = Door(own_grid.there, own_grid.token)
    own_grid.service = Service(own_grid.here, own_grid.token)
    return own_grid


def locality(door, *paths):
    """By path, or what is told instead."""
    answer = door.ask("POST", "/.penstock/tape/v1/archiveinfo", json={"paths": list(paths)})
    assert answer.status_code == 200, answer.text
    return {row["path"]: row.get("locality", row.get("error")) for row in answer.json()}


def all_are(door, paths, wanted):
    return set(locality(door, *paths).values()) == {wanted}


def test_files_are_archived_by_the_transfer_service_and_brought_back(grid):
    hsm = with_tape(grid.there)
    for site in grid.sites:
        site.start()
    sources = [f"/data/f{number}" for number in range(FILES)]
    kept = [f"/tape/run1/f{number}" for number in range(FILES)]
    for number, source in enumerate(sources):
        grid.here_door.put(source, DATA + bytes([number]))
    pairs = [(grid.here_door.url(a), grid.there_door.url(b)) for a, b in zip(sources, kept)]
    job = grid.service.submit(*pairs, archive_timeout=600)
    assert grid.service.wait_finished(job, within=180)["job_state"] == "FINISHED"
    assert len(hsm.files()) == FILES, "finished means that it is on tape"
    eventually("copies leave the disk", lambda: all_are(grid.there_door, kept, "TAPE"), 60)
    refused = grid.there_door.ask("GET", kept[0])
    assert (refused.status_code, refused.headers["Penstock-Problem"]) == (409, "file-on-tape")
    back = [f"/back/f{number}" for number in range(FILES)]
    pairs = [(grid.there_door.url(a), grid.here_door.url(b)) for a, b in zip(kept, back)]
    job = grid.service.submit(*pairs, bring_online=600, copy_pin_lifetime=60)
    assert grid.service.wait_finished(job, within=180)["job_state"] == "FINISHED"
    for number, path in enumerate(back):
        assert grid.here_door.get(path) == DATA + bytes([number])
    eventually("they are let go", lambda: all_are(grid.there_door, kept, "TAPE"), 60)


@pytest.fixture
def gfal(grid, tmp_path):
    """Runs a command of gfal2 with a token; what it printed."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    environment |= {"BEARER_TOKEN": grid.there.token(STAGING), "X509_CERT_DIR": str(grid.there.certificates)}
    environment["GFAL_PYTHONBIN"] = "/usr/bin/python3"

    def run(command, *words):
        line = [f"gfal-{command}", *words]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


def test_gfal_archives_brings_reads_and_lets_go(grid, gfal, tmp_path):
    with_tape(grid.there)
    grid.there.start()
    url = grid.there_door.url("/tape/gfal/f")
    (tmp_path / "data").write_bytes(DATA)
    code, shown = gfal("copy", "-p", f"file://{tmp_path}/data", url)
    assert code == 0, shown
    code, shown = gfal("archivepoll", "--polling-timeout", "60", url)
    assert (code, "READY" in shown) == (0, True), shown

    def is_only_on_tape():
        return gfal("xattr", url, "user.status")[1].strip() == "NEARLINE"

    eventually("it is on tape only", is_only_on_tape, 60)
    assert gfal("copy", url, f"file://{tmp_path}/early")[0] != 0
    code, shown = gfal("bringonline", "--polling-timeout", "60", url)
    assert (code, "READY" in shown) == (0, True), shown
    assert gfal("xattr", url, "user.status")[1].strip() == "ONLINE_AND_NEARLINE"
    code, shown = gfal("copy", url, f"file://{tmp_path}/copy")
    assert (code, (tmp_path / "copy").read_bytes() == DATA) == (0, True), shown
    assert gfal("evict", url)[0] == 0
    eventually("it is on tape only again", is_only_on_tape, 60)


SLOW = """#!/bin/sh
# The same, but slowly, so that kills meet it at work.
sleep 0.$(($$ % 5))
exec "{program}" "$@"
"""


def test_kills_lose_no_file_and_no_request(grid, tmp_path):
    slow = tmp_path / "slow-hsm"
    slow.write_text(SLOW.format(program=PROGRAM))
    slow.chmod(0o755)
    site = grid.there
    with_tape(site, program=slow)
    site.start()
    door = Door(site, site.token(STAGING))
    paths = [f"/tape/f{number}" for number in range(40)]
    for number, path in enumerate(paths):
        door.put(path, DATA + bytes([number]))
        if number % 13 == 12:
            site.kill()
            site.start()
    eventually("all are on tape only", lambda: all_are(door, paths, "TAPE"), 120)
    wanted = {"files": [{"path": path, "diskLifetime": "PT1H"} for path in paths]}
    request = door.ask("POST", "/.penstock/tape/v1/stage", json=wanted).json()["requestId"]
    for _ in range(3):
        time.sleep(0.7)
        site.kill()
        site.start()

    def told():
        return door.ask("GET", f"/.penstock/tape/v1/stage/{request}").json()

    eventually("all are on disk", lambda: "completedAt" in told(), 120)
    assert all(file.get("onDisk") for file in told()["files"])
    for number, path in enumerate(paths):
        assert door.get(path) == DATA + bytes([number])
    code, _ = site.stop()
    assert code == 0, site.log_tail()
    line = [str(site.binary), "fsck", "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_full_hsm_is_told_once_and_writing_goes_on_when_it_works_again(grid):
    hsm = with_tape(grid.there)
    shutil.rmtree(hsm.root)
    grid.there.start()
    door = Door(grid.there, grid.there.token(STAGING))
    paths = [f"/tape/f{number}" for number in range(20)]
    for path in paths:
        door.put(path, DATA)

    def status():
        line = [str(grid.there.binary), "tape", "status", "--dir", str(grid.there.directory), "--json"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    eventually("it is an incident", lambda: "HSM is not there" in status(), 60)
    assert set(locality(door, *paths).values()) == {"DISK"}
    log = grid.there.log_text()
    assert log.count("the tape system needs somebody") <= 2, log
    hsm.root.mkdir()
    line = [str(grid.there.binary), "tape", "retry", "--dir", str(grid.there.directory)]
    subprocess.run(line, check=True, timeout=60, capture_output=True)
    eventually("all are on tape only", lambda: all_are(door, paths, "TAPE"), 120)
    assert '"incidents": []' in status() or '"incidents":[]' in status()


def test_a_check_names_a_program_that_cannot_be_run(grid, tmp_path):
    with_tape(grid.there, program=tmp_path / "missing")
    line = [str(grid.there.binary), "check", "--dir", str(grid.there.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "storage.tape.program" in done.stdout + done.stderr
