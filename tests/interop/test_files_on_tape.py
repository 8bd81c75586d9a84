"""Files that go to tape and come back: a storage element with an HSM that is a directory, the transfer service and gfal2's tape
client, and what is left of it when processes are killed."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .clients import Door, Service, content
from .cloud_servers import ACCESS_KEY, BUCKET, SECRET_KEY
from .site import EVERYTHING, Site
from .waiting import eventually, files_for_tape

DEPLOYED = Path(__file__).parents[2] / "deploy/hsm"
PROGRAM = DEPLOYED / "directory-hsm"
STAGING = f"{EVERYTHING} storage.stage:/"
DATA = content("on tape", 3_000)
# Of one question.
PATHS_AT_ONCE = 1_000
# For each file, on a busy machine; where each command is a Python process.
SECONDS_PER_FILE, SECONDS_PER_OBJECT = 0.3, 4


class DirectoryHsm:
    """An HSM that is a directory. A program of the test's own may stand before the one that is deployed."""

    def __init__(self, site, program=PROGRAM):
        self.root = site.directory / "hsm"
        self.root.mkdir(exist_ok=True)
        self.settings = {"program": str(program), "options": {"root": str(self.root)}}

    def files(self):
        return [path for path in self.root.glob("??/*") if path.name[0] != "."]


class BucketHsm:
    """An HSM that is a bucket of an S3 storage. Its program needs the Python that has boto3."""

    def __init__(self, site, cloud):
        self.cloud, self.prefix = cloud, f"{site.directory.parent.name}/"
        endpoint = f"http://{cloud.host}:{cloud.port}"
        self.settings = {
            "program": str(DEPLOYED / "s3-hsm"),
            "options": {"endpoint": endpoint, "bucket": BUCKET, "prefix": self.prefix},
            "environment": {
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            },
            # Each command is a Python process.
            "puts_max": 4,
            "gets_max": 4,
        }

    def files(self):
        pages = self.cloud.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self.prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


class TapeLibraries:
    """Two tape libraries of the site's own, each in a directory; their time runs fast."""

    def __init__(self, site, time_factor=2_000, libraries=1, place="tape"):
        self.site = site
        kind = {"kind": "LTO-8", "count": 2}
        one = {"drives": [kind], "tapes": [kind | {"count": 5, "capacity": "2 GB"}]}
        names = [f"silo-{number}" for number in range(1, libraries + 1)]
        self.settings = {
            "time_factor": time_factor,
            "collect_recalls_time": "0s",
            "library": [{"name": name, "directory": f"{place}/{name}", **one} for name in names],
        }
        (site.directory / place).mkdir(exist_ok=True)

    def status(self):
        line = [str(self.site.binary), "tape", "status", "--dir", str(self.site.directory), "--json"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def files(self):
        """One item for each copy of a file that is needed."""
        tapes = self.status()["libraries"]["tapes"]
        return [tape["name"] for tape in tapes for _ in range(tape["live"]["files"])]


FAILING = """#!/bin/sh
# Fails in the middle of the first put and the first get of every eighth file: killed at work, or with half of the file written
# and a code.
seen={seen}/$1-$2
case $2 in
*[08])
    if [ "$1" != remove ] && ! [ -e "$seen" ]; then
        : >"$seen"
        case $1 in
        put) mkdir -p {root}/half && head -c 1000 "$3" >"{root}/half/.$2.begun" ;;
        get) head -c 1000 /dev/zero >"$3" ;;
        esac
        case $2 in
        *0) kill -9 $$ ;;
        *8) echo "drive 3 lost its tape" >&2; exit 17 ;;
        esac
    fi
    ;;
esac
exec {program} "$@"
"""


def failing_program(directory, root):
    """A program for an HSM that is a directory; it fails in the middle of many of its commands."""
    seen, program = directory / "failed", directory / "failing-hsm"
    seen.mkdir()
    program.write_text(FAILING.format(seen=seen, root=root, program=PROGRAM))
    program.chmod(0o755)
    return program, seen


def with_tape(site, hsm=None, keep_free_percent=100, paths=("/tape",)):
    """Files below some paths go to an HSM; their copies on disk leave as soon as they may."""
    hsm = hsm or DirectoryHsm(site)
    lines = [f"{key} = {inline(value)}" for key, value in hsm.settings.items()]
    site.append("\n[storage.tape]\n" + "\n".join(lines))
    site.append(
        f"""
collect_time = "0s"
retry_first = "1s"
retry_max = "2s"
keep_free_percent = {keep_free_percent}
"""
    )
    for path in paths:
        site.append(f'[[storage.tape.class]]\npath = "{path}"\nfamily = "raw"\n')
    return hsm


def inline(value):
    """A value as TOML has it on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value)


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
    told = {}
    for begin in range(0, len(paths), PATHS_AT_ONCE):
        asked = {"paths": list(paths[begin : begin + PATHS_AT_ONCE])}
        answer = door.ask("POST", "/.penstock/tape/v1/archiveinfo", json=asked)
        assert answer.status_code == 200, answer.text
        told |= {row["path"]: row.get("locality", row.get("error")) for row in answer.json()}
    return told


def all_are(door, paths, wanted):
    return set(locality(door, *paths).values()) == {wanted}


def numbered(number):
    """The content of one of many files."""
    return DATA + number.to_bytes(4)


@pytest.fixture(params=["directory", "bucket", "failing", "libraries"])
def archive(request, grid, tier, clouds, tmp_path):
    """The second site with an HSM, how many files go there, and in how many seconds."""
    site, count, seconds = grid.there, tier.tape_files, SECONDS_PER_FILE
    match request.param:
        case "directory":
            hsm = DirectoryHsm(site)
        case "bucket":
            hsm = BucketHsm(site, clouds["moto"])
            count, seconds = tier.bucket_files, SECONDS_PER_OBJECT
        case "libraries":
            hsm = TapeLibraries(site)
        case "failing":
            program, seen = failing_program(tmp_path, site.directory / "hsm")
            hsm = DirectoryHsm(site, program)
            # So that others succeed between two that fail: what fails for all at once is a fault of the whole HSM.
            hsm.settings |= {"puts_max": 4, "gets_max": 4}
    with_tape(site, hsm)
    for site in grid.sites:
        site.start()
    yield hsm, count, 120 + count * seconds
    if request.param == "failing":
        failed = [name.name.split("-")[0] for name in seen.iterdir()]
        assert failed.count("put") > count / 10 and failed.count("get") > count / 10, "it failed in the middle"


def test_files_are_moved_to_tape_by_the_transfer_service_and_brought_back(grid, archive):
    """Sources are gone when their transfers have ended, and come back from tape with each of their bytes."""
    hsm, count, within = archive
    sources = [f"/data/f{number}" for number in range(count)]
    kept = [f"/tape/run1/f{number}" for number in range(count)]
    for number, source in enumerate(sources):
        grid.here_door.put(source, numbered(number))
    pairs = [(grid.here_door.url(a), grid.there_door.url(b)) for a, b in zip(sources, kept)]
    begun = time.monotonic()
    job = grid.service.submit(*pairs, archive_timeout=86_400, delete_source=True)
    assert grid.service.wait_finished(job, within)["job_state"] == "FINISHED"
    archived = time.monotonic()
    assert len(hsm.files()) == count, "finished means that it is on tape"
    assert grid.here_door.list("/data").keys() <= {"/data"}, "sources are gone"
    eventually("copies leave the disk", lambda: all_are(grid.there_door, kept, "TAPE"), within)
    refused = grid.there_door.ask("GET", kept[0])
    assert (refused.status_code, refused.headers["Penstock-Problem"]) == (409, "file-on-tape")
    back = [f"/back/f{number}" for number in range(count)]
    pairs = [(grid.there_door.url(a), grid.here_door.url(b)) for a, b in zip(kept, back)]
    asked = time.monotonic()
    job = grid.service.submit(*pairs, bring_online=86_400, copy_pin_lifetime=60)
    assert grid.service.wait_finished(job, within)["job_state"] == "FINISHED"
    print(f"{count} files: to tape in {archived - begun:.0f} s, back in {time.monotonic() - asked:.0f} s")
    for number, path in enumerate(back):
        assert grid.here_door.get(path) == numbered(number)
    eventually("they are let go", lambda: all_are(grid.there_door, kept, "TAPE"), within)


GATED = """#!/bin/sh
# Nothing is put while the gate is closed.
[ "$1" != put ] || [ -e {gate} ] || exit 1
exec {program} "$@"
"""


def gated_program(directory):
    """A program for an HSM that is a directory, and the file without which it puts nothing."""
    gate, program = directory / "gate", directory / "gated-hsm"
    program.write_text(GATED.format(gate=gate, program=PROGRAM))
    program.chmod(0o755)
    return program, gate


def test_a_source_is_deleted_when_its_copy_is_on_tape_and_not_when_it_has_changed_or_may_not_be(grid, tmp_path):
    program, gate = gated_program(tmp_path)
    with_tape(grid.there, DirectoryHsm(grid.there, program))
    for site in grid.sites:
        site.start()
    names = ["moved", "changed", "forbidden"]
    for name in names:
        grid.here_door.put(f"/data/{name}", DATA)
    # Who may write at the destination only.
    reader = grid.here.token("storage.read:/ storage.modify:/tape storage.stage:/")

    def submit(name, service):
        pair = grid.here_door.url(f"/data/{name}"), grid.there_door.url(f"/tape/{name}")
        return service.submit(pair, archive_timeout=600, delete_source=True)

    services = dict.fromkeys(names, grid.service) | {"forbidden": Service(grid.here, reader)}
    jobs = {name: submit(name, services[name]) for name in names}
    for job in jobs.values():
        eventually("it waits for tape", lambda: grid.service.job(job)["job_state"] == "ARCHIVING")
    grid.here_door.put("/data/changed", DATA[::-1], expect=204)
    # The tape system was asked where they are, and they are not on tape.
    told = lambda: grid.service.ask("GET", f"/api/v1/jobs/{jobs['moved']}/explain").json()["files"][0]["text"]
    eventually("it says why", lambda: "to write it to tape" in told())
    assert all(grid.here_door.exists(f"/data/{name}") for name in names), "nothing is on tape yet"
    # A restart in between changes nothing.
    grid.here.kill()
    grid.here.start()
    assert all(grid.here_door.exists(f"/data/{name}") for name in names)
    gate.touch()
    for job in jobs.values():
        grid.service.wait_finished(job, 120)
    left = {name for name in names if grid.here_door.exists(f"/data/{name}")}
    assert left == {"changed", "forbidden"}
    assert grid.here_door.get("/data/changed") == DATA[::-1]

    def story(name):
        [file] = grid.service.files(jobs[name])
        return grid.here.command("explain", str(file["file_id"]))

    assert "the copy is on tape; its source was removed" in story("moved")
    changed, forbidden = story("changed"), story("forbidden")
    assert "its source was not removed" in changed and "is not known to be the file that is on tape" in changed, changed
    assert "its source was not removed" in forbidden and "403" in forbidden, forbidden


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


POLLING = """
import errno, gfal2, json, sys, time
context, (urls, *given, within) = gfal2.creat_context(), json.load(sys.stdin)
until = time.monotonic() + within

def wait(what, poll):
    while True:
        errors = [error for error in poll() if error]
        bad = [error.message for error in errors if error.code != errno.EAGAIN]
        assert not bad, bad[:3]
        if not errors:
            return
        assert time.monotonic() < until, (what, len(errors))
        time.sleep(1)
"""
ARCHIVED = POLLING + """
wait("on tape", lambda: context.archive_poll(urls))
"""
BROUGHT = POLLING + """
errors, token = context.bring_online(urls, 3600, int(within), True)
assert token and not [error for error in errors if error and error.code != errno.EAGAIN], errors[:3]
wait("on disk", lambda: context.bring_online_poll(urls, token))
for number, url in enumerate(urls):
    context.filecopy(url, f"file://{given[0]}/{number}")
assert not [error for error in context.release(urls, token) if error]
"""


def gfal_bindings(grid, tmp_path, script, *given):
    """Runs a script by the Python that has gfal2's bindings."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    environment |= {"BEARER_TOKEN": grid.there.token(STAGING), "X509_CERT_DIR": str(grid.there.certificates)}
    line = ["/usr/bin/python3", "-c", script]
    text = json.dumps(given)
    done = subprocess.run(line, env=environment, input=text, capture_output=True, text=True, timeout=given[-1] + 60)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_gfals_bindings_archive_bring_back_and_let_go_many_files(grid, tier, tmp_path):
    with_tape(grid.there)
    grid.there.start()
    door = Door(grid.there, grid.there.token(STAGING))
    count = tier.tape_files
    within = 120 + count * SECONDS_PER_FILE
    paths = [f"/tape/gfal/f{number}" for number in range(count)]
    for number, path in enumerate(paths):
        door.put(path, numbered(number))
    urls = [door.url(path) for path in paths]
    begun = time.monotonic()
    gfal_bindings(grid, tmp_path, ARCHIVED, urls, within)
    archived = time.monotonic()
    eventually("they are on tape only", lambda: all_are(door, paths, "TAPE"), within)
    asked = time.monotonic()
    copies = tmp_path / "copies"
    copies.mkdir()
    gfal_bindings(grid, tmp_path, BROUGHT, urls, str(copies), within)
    print(f"{count} files: on tape after {archived - begun:.0f} s, brought and copied in {time.monotonic() - asked:.0f} s")
    for number in range(count):
        assert (copies / str(number)).read_bytes() == numbered(number)
    eventually("they are on tape only again", lambda: all_are(door, paths, "TAPE"), within)


@pytest.mark.parametrize("system", [DirectoryHsm, TapeLibraries])
def test_gfal_archives_brings_reads_and_lets_go(grid, gfal, tmp_path, system):
    with_tape(grid.there, system(grid.there))
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


def slow_hsm(site):
    slow = site.directory / "slow-hsm"
    slow.write_text(SLOW.format(program=PROGRAM))
    slow.chmod(0o755)
    return DirectoryHsm(site, slow)


def slow_libraries(site):
    """A mount takes half a second, so that kills meet mounts, writes, syncs and reads; each file is in two libraries."""
    return TapeLibraries(site, time_factor=80, libraries=2)


@pytest.mark.parametrize("system", [slow_hsm, slow_libraries])
def test_kills_lose_no_file_and_no_request(grid, system):
    site = grid.there
    tapes = with_tape(site, system(site))
    copies = 2 if isinstance(tapes, TapeLibraries) else 1
    if copies == 2:
        site.append(f'copies = {copies}\naggregate = "{len(DATA) + 1} B"\n')
    site.start()
    door = Door(site, site.token(STAGING))
    paths = [f"/tape/f{number}" for number in range(40)]
    # Some lie in aggregates, others by themselves.
    contents = [DATA * (1 + number % 2) + bytes([number]) for number in range(len(paths))]
    for number, path in enumerate(paths):
        door.put(path, contents[number])
        if number % 13 == 12:
            time.sleep(0.2 * (number % 5))
            site.kill()
            site.start()
    eventually("all are on tape only", lambda: all_are(door, paths, "TAPE"), 180)
    assert len(tapes.files()) == copies * len(paths), "counts are those of the listing"
    wanted = {"files": [{"path": path, "diskLifetime": "PT1H"} for path in paths]}
    request = door.ask("POST", "/.penstock/tape/v1/stage", json=wanted).json()["requestId"]
    for _ in range(3):
        time.sleep(0.7)
        site.kill()
        site.start()

    def told():
        return door.ask("GET", f"/.penstock/tape/v1/stage/{request}").json()

    eventually("all are on disk", lambda: "completedAt" in told(), 180)
    assert all(file.get("onDisk") for file in told()["files"])
    for path, data in zip(paths, contents):
        assert door.get(path) == data
    if isinstance(tapes, TapeLibraries):
        eventually("nothing is asked for any more", lambda: files_for_tape(tapes.status()) == 0, 60)
        for mount in tapes.status()["libraries"]["mounts"]:
            assert sum(mount["phases_ns"].values()) == mount["wall_ns"], mount
    code, _ = site.stop()
    assert code == 0, site.log_tail()
    line = [str(site.binary), "fsck", "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_operators_stop_drives_and_tapes_of_libraries_and_ask_before(grid):
    """A library, a tape and a drive by turns; files with a copy elsewhere come from there."""
    site = grid.there
    tapes = with_tape(site, TapeLibraries(site, libraries=2))
    site.append('[[storage.tape.class]]\npath = "/tape/twice"\nfamily = "twice"\ncopies = 2\n')
    site.start()
    door = Door(site, site.token(STAGING))

    def run(*words):
        line = [str(site.binary), "tape", *words, "--dir", str(site.directory)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    for path in ("/tape/twice/f", "/tape/once"):
        door.put(path, DATA)
    eventually("both are on tape", lambda: all_are(door, ["/tape/twice/f", "/tape/once"], "TAPE"), 60)
    held = {tape["name"]: tape for tape in tapes.status()["libraries"]["tapes"] if tape["live"]["files"]}
    assert sum(tape["live"]["bytes"] for tape in held.values()) == 3 * len(DATA)
    [once] = [name for name, tape in held.items() if tape["family"] == "raw"]
    twice = [name for name, tape in held.items() if tape["family"] == "twice"]
    assert len({held[name]["library"] for name in twice}) == 2, "copies are in distinct libraries"
    code, shown = run("ok-to-stop", once)
    assert (code, "1 file" in shown, "no other copy" in shown) == (1, True, True), shown
    code, shown = run("ok-to-stop", twice[0])
    assert (code, "may be stopped" in shown) == (0, True), shown
    assert run("ok-to-stop", held[once]["library"])[0] == 1
    code, shown = run("ok-to-stop", "nothing")
    assert (code, "no drive, tape or library named 'nothing'" in shown) == (4, True), shown
    # The one that would be read is out of use: the other one is read.
    assert run("disable", twice[0])[0] == 0
    wanted = {"files": [{"path": "/tape/twice/f", "diskLifetime": "PT1H"}]}
    request = door.ask("POST", "/.penstock/tape/v1/stage", json=wanted).json()["requestId"]
    told = lambda: door.ask("GET", f"/.penstock/tape/v1/stage/{request}").json()
    eventually("it came from the other library", lambda: "completedAt" in told(), 60)
    assert told()["files"][0]["onDisk"] and door.get("/tape/twice/f") == DATA
    assert run("enable", twice[0])[0] == 0
    drives = [drive["name"] for drive in tapes.status()["libraries"]["drives"]]
    assert len(drives) == 4
    assert run("disable", drives[0]) == (0, f"drive {drives[0]} is down\n")
    state = lambda: {drive["name"]: drive["state"] for drive in tapes.status()["libraries"]["drives"]}
    eventually("it is down", lambda: state()[drives[0]] == "down")
    assert re.search(rf"drive {drives[0]} +down", run("status")[1])
    assert tapes.status()["incidents"] == [], "who takes a drive out of use knows that"
    assert run("enable", drives[0])[0] == 0
    eventually("it is free", lambda: state()[drives[0]] == "free")
    eventually("no incident is left", lambda: tapes.status()["incidents"] == [])
    # A site whose tape system is exchanged under its files says so, and changes nothing.
    site.stop()
    settings = site.directory / "penstock.toml"
    text = settings.read_text()
    other = f'[storage.tape]\nprogram = "{PROGRAM}"\n[[storage.tape.class]]\npath = "/tape"\nfamily = "raw"\n'
    settings.write_text(text.partition("\n[storage.tape]\n")[0] + "\n" + other)
    line = [str(site.binary), "serve", "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "a file is on tape as penstock-tape://" in done.stderr, done.stderr[-2000:]
    settings.write_text(text)
    site.start()
    assert door.get("/tape/twice/f") == DATA


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
    # 20 files, and one error in the log.
    assert log.count("tape incident begins") == 1, log
    assert "the HSM is out of service" in log, log
    hsm.root.mkdir()
    line = [str(grid.there.binary), "tape", "retry", "--dir", str(grid.there.directory)]
    subprocess.run(line, check=True, timeout=60, capture_output=True)
    eventually("all are on tape only", lambda: all_are(door, paths, "TAPE"), 120)
    assert '"incidents": []' in status() or '"incidents":[]' in status()


def test_the_example_of_the_page_works_as_it_is_typed(binary, repository, tmp_path):
    """Only places and addresses are other ones here, and the site is started by the test."""
    site = Site(binary, tmp_path / "north", "north", "127.0.0.2")
    page = (repository / "docs/tape/files-on-tape.md").read_text()
    section = page.partition("\n## Try it\n")[2].partition("\n## ")[0]
    setup, archive, bring = re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
    back = tmp_path / "services"
    for text, at in {"127.0.0.2:8443": f"{site.host}:{site.base}", "/tmp/services": str(back)}.items():
        archive, bring = archive.replace(text, at), bring.replace(text, at)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/penstock").symlink_to(site.binary.absolute())
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}

    def type_in(lines):
        done = subprocess.run(
            ["bash", "-c", lines], env=environment, cwd=repository, capture_output=True, text=True, timeout=60
        )
        return done.stdout + done.stderr

    assert setup.count("penstock serve --dir ~/north &\n") == 1
    type_in(setup.replace("penstock serve --dir ~/north &\n", ""))
    assert "storage.tape" in site.command("check", "--values")
    try:
        site.start()
        shown = type_in(archive)
        assert '"locality":"DISK"' in shown and "archives " in shown, shown
        # What defines the question, for the shells that follow.
        question = archive[archive.index("TOKEN=") : archive.index("find ")]
        eventually("it is on tape only", lambda: '"locality":"TAPE"' in type_in(question), 60)
        assert type_in(archive[archive.index("find ") :]).count(f"{tmp_path}/hsm/") == 1
        define = question[: question.rindex("tape archiveinfo")]
        refused, *others = bring.splitlines(keepends=True)
        assert "is on tape only" in type_in(refused) and not back.exists()
        asked = others[0]
        assert "requestId" in type_in(define + asked)
        eventually("it is on disk", lambda: "DISK_AND_TAPE" in type_in(define + others[1]), 60)
        type_in(others[2])
        assert back.read_bytes() == Path("/etc/services").read_bytes()
        site.stop()
    finally:
        site.kill()


def test_a_check_names_a_program_that_cannot_be_run(grid, tmp_path):
    with_tape(grid.there, DirectoryHsm(grid.there, tmp_path / "missing"))
    line = [str(grid.there.binary), "check", "--dir", str(grid.there.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "storage.tape.program" in done.stdout + done.stderr
