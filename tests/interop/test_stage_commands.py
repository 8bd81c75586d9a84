"""Files on tape for users of the command line: `penstock stage`, `release`, where files are, and jobs that bring files from tape or
move them there; and what an administrator is told when the commands of an HSM fail."""

import json
import subprocess

import pytest

from .clients import Door, content
from .site import Site
from .test_files_on_tape import STAGING, DirectoryHsm, TapeLibraries, all_are, with_tape
from .waiting import eventually

DATA = content("staged by a person", 3_000)
PATHS = [f"/tape/f{number}" for number in range(3)]
WITHIN = 120
FAILING = """#!/bin/sh
if [ "$1" = put ]; then echo "cannot open tape device: $TAPE_SECRET" >&2; echo "second line" >&2; exit 5; fi
exit 1
"""
SECRET = "hsm-secret-4711"


class Person:
    """Who types commands at a site."""

    def __init__(self, site):
        self.site = site

    def type(self, *words, code=0, dir=True):
        line = [str(self.site.binary), *map(str, words)]
        line += ["--dir", str(self.site.directory)] if dir else []
        done = subprocess.run(line, capture_output=True, text=True, timeout=WITHIN)
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def told(site, *words, code=0):
    """What a command prints for programs."""
    line = [str(site.binary), *map(str, words), "--json", "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=WITHIN)
    assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


@pytest.fixture
def site(binary, tmp_path):
    site = Site(binary, tmp_path / "site", "site", "127.0.0.48")
    with_tape(site, TapeLibraries(site))
    site.start()
    yield site
    site.kill()


@pytest.fixture
def on_tape(site):
    """The door of a site, with files on tape only."""
    door = Door(site, site.token(STAGING))
    for number, path in enumerate(PATHS):
        door.put(path, DATA + bytes([number]))
    eventually("all are on tape only", lambda: all_are(door, PATHS, "TAPE"), WITHIN)
    return door


def test_files_are_staged_looked_at_and_released(site, on_tape, tmp_path):
    person = Person(site)
    urls = [on_tape.url(path) for path in PATHS]
    assert "  locality  TAPE\n" in person.type("stat", urls[0])
    lines = person.type("ls", "-l", on_tape.url("/tape/")).splitlines()
    assert [line.split()[3] for line in lines] == ["TAPE"] * 3, lines
    [row, *_] = told(site, "ls", "-l", on_tape.url("/tape/"))
    assert row["locality"] == "TAPE"
    assert "locality" not in told(site, "ls", on_tape.url("/tape/"))[0]

    listed = tmp_path / "files.txt"
    listed.write_text("# of a run\n\n" + "\n".join(urls[1:]) + "\n")
    shown = person.type("stage", urls[0], "--from", listed, "--lifetime", "1h", "--wait")
    assert "3 of 3 files on disk" in shown
    request = shown.split()[0]
    assert told(site, "stat", urls[0])[0]["locality"] == "DISK_AND_TAPE"
    assert on_tape.get(PATHS[1]) == DATA + bytes([1])

    [status] = told(site, "stage", "status", request)
    assert [file["state"] for file in status["files"]] == ["COMPLETED"] * 3
    assert sorted(file["url"] for file in status["files"]) == sorted(urls)
    shown = person.type("stage", "status", request)
    assert shown.startswith(f"{request} {site.door}: 3 of 3 files brought to disk\n"), shown

    # What is pinned stays; what is released goes.
    person.type("release", "--request", request, urls[0])
    eventually("the released file leaves the disk", lambda: all_are(on_tape, PATHS[:1], "TAPE"), WITHIN)
    assert all_are(on_tape, PATHS[1:], "DISK_AND_TAPE")
    person.type("release", "--request", request)
    eventually("all leave the disk", lambda: all_are(on_tape, PATHS, "TAPE"), WITHIN)
    person.type("stage", urls[2], "--wait", "--lifetime", "3600")
    person.type("release", urls[2])
    eventually("it leaves without the name of its request", lambda: all_are(on_tape, PATHS, "TAPE"), WITHIN)


def test_a_file_that_does_not_come_fails_alone(site, on_tape):
    person = Person(site)
    good, missing = on_tape.url(PATHS[0]), on_tape.url("/tape/missing")
    failed = told(site, "stage", good, missing, "--wait", code=4)
    [done] = failed["report"]["done"]
    assert (done["url"], done["state"], done["on_disk"]) == (good, "COMPLETED", True)
    [file] = failed["report"]["failed"]
    assert file["name"] == missing and "it does not exist" in file["error"] and file["exit_code"] == 4
    shown = person.type("stage", missing, code=4)
    assert f"{missing}: it does not exist" in shown
    assert "expected the id of a stage request" in person.type("stage", "status", good, code=2)
    assert "no such stage request" in person.type("stage", "status", "0192d3a4", code=4)
    assert "give at least one URL, or --from FILE" in person.type("stage", code=2)


def test_a_canceled_request_is_told_as_such(site, on_tape):
    person = Person(site)
    [staged] = told(site, "stage", on_tape.url(PATHS[0]))
    assert person.type("stage", "cancel", staged["request"]) == ""
    [status] = told(site, "stage", "status", staged["request"])
    assert status["files"][0]["state"] in ("CANCELLED", "COMPLETED"), status
    eventually("nobody keeps it on disk", lambda: all_are(on_tape, PATHS, "TAPE"), WITHIN)


def test_who_may_not_stage_and_where_there_is_no_tape_is_told_so(site, on_tape, binary, tmp_path):
    person = Person(site)
    token = tmp_path / "token"
    token.write_text(site.token())
    words = ("stage", on_tape.url(PATHS[0]), "--token-file", token, "--capath", site.certificates)
    assert "storage.stage" in person.type(*words, code=3, dir=False)
    plain = Site(binary, tmp_path / "plain", "plain", "127.0.0.49")
    plain.start()
    try:
        door = Door(plain, plain.token())
        door.put("/f", DATA)
        shown = Person(plain).type("stage", door.url("/f"), code=1)
        assert "offers no tape interface (WLCG Tape REST API, version 1)" in shown
        assert "locality" not in told(plain, "stat", door.url("/f"))[0]
    finally:
        plain.kill()


def test_a_job_brings_files_from_tape_and_moves_them_there(site, on_tape):
    person = Person(site)
    person.type("mkdir", on_tape.url("/disk"))
    source, copy = on_tape.url(PATHS[0]), on_tape.url("/disk/copy")
    [job] = told(site, "submit", "--bring-online", "1h", "--copy-pin-lifetime", "60", source, copy, "--wait")
    assert job["job_state"] == "FINISHED", job
    assert on_tape.get("/disk/copy") == DATA + bytes([0])
    moved = on_tape.url("/tape/moved")
    [job] = told(site, "submit", "--archive-timeout", "1h", "--delete-source", copy, moved, "--wait")
    assert job["job_state"] == "FINISHED", job
    person.type("stat", copy, code=4)
    assert all_are(on_tape, ["/tape/moved"], "TAPE")
    assert "--archive-timeout" in person.type("submit", "--delete-source", copy, moved, code=2)


def test_the_first_failure_of_an_hsm_is_told(binary, tmp_path):
    site = Site(binary, tmp_path / "site", "site", "127.0.0.48")
    program = tmp_path / "failing-hsm"
    program.write_text(FAILING)
    program.chmod(0o755)
    hsm = DirectoryHsm(site, program)
    hsm.settings["environment"] = {"PATH": "/usr/bin:/bin", "TAPE_SECRET": SECRET}
    with_tape(site, hsm)
    site.configure("[storage.tape]", retry_first="1h", retry_max="2h")
    site.start()
    try:
        door = Door(site, site.token(STAGING))
        door.put("/tape/f", DATA)

        def failures():
            return told(site, "tape", "status").get("hsm", {}).get("failures")

        [puts] = eventually("the failure is told", failures, WITHIN)
        assert (puts["operation"], puts["count"], puts["last"]["name"], puts["last"]["code"]) == ("put", 1, "/tape/f", 5)
        assert puts["last"]["text"] == "cannot open tape device: [TAPE_SECRET] second line"
        [waiting] = told(site, "tape", "status")["hsm"]["delayed"]
        assert (waiting["name"], waiting["tries"], waiting["code"]) == ("/tape/f", 1, 5)
        assert waiting["next_try"] > puts["last"]["at"] + 1_800_000
        shown = Person(site).type("tape", "status")
        assert "put of /tape/f failed 1 time, next try " in shown and "exit code 5: cannot open tape device" in shown
        [line] = [line for line in site.log_text().splitlines() if "a command of the HSM failed" in line]
        assert "WARN" in line and "/tape/f" in line and "cannot open tape device" in line and "code=5" in line, line
        for other in ("/tape/g", "/tape/h"):
            door.put(other, DATA)
        eventually("all have failed", lambda: failures()[0]["count"] == 3, WITHIN)
        assert site.log_text().count("a command of the HSM failed") == 1, "equal failures are one line a minute"
        assert SECRET not in site.log_text()
    finally:
        site.kill()
