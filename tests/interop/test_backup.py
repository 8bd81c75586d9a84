"""Backups of a running service come back, and all that was open then ends right, whatever happened since."""

import json
import subprocess
import time

import pytest

from .clients import Door, Service, content
from .postgres import Postgres
from .site import MOUNT, Site, free_port
from .waiting import eventually

HOST = "127.0.3.32"
DATA = content("backup", 100_000)
GAP = 1_000_000_000


@pytest.fixture
def site(binary, tmp_path, fault_ca):
    """A site that copies within itself."""
    site = Site(binary, tmp_path / "site", "keeper", HOST)
    site.trust(fault_ca.certificate)
    site.append('[[transfer.messages]]\nname = "archive"\nfile = "state/messages.jsonl"\n')
    try:
        yield site
    finally:
        site.kill()


def submit(site, *names, **params):
    door = Door(site)
    if not door.exists("/source"):
        door.put("/source", DATA)
    return Service(site).submit(*((door.url("/source"), door.url(f"/{name}")) for name in names), **params)


def back_up(site, to, *options):
    return json.loads(site.command("backup", "--to", str(to), *options, "--json"))


def verify(site, file):
    line = [str(site.binary), "backup", "--verify", str(file), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def restore(site, file, *options):
    site.command("restore", str(file), *options)


def numbers(site, job):
    return [file["file_id"] for file in Service(site).files(job)]


def test_what_landed_after_the_backup_counts_as_landed_and_is_not_copied_again(site, tmp_path):
    site.start()
    before = submit(site, "before")
    Service(site).wait_finished(before)
    site.command("drain", "on")
    waiting = submit(site, "one", "two")
    file = tmp_path / "keeper.backup"
    told = back_up(site, file)
    assert (told["jobs"], told["jobs_open"], told["transfers"]) == (2, 1, 3)
    assert told == verify(site, file)
    assert told["namespace_backup"]["stored_files"] == 2, "the source and what has landed"
    assert file.stat().st_mode & 0o777 == 0o600
    site.command("drain", "off")
    Service(site).wait_finished(waiting)
    after = submit(site, "after")
    Service(site).wait_finished(after)
    given = numbers(site, after)
    # Somebody has put something else in the place of one of them.
    Door(site).ask("DELETE", "/two")
    Door(site).put("/two", b"somebody else's")
    site.kill()
    restore(site, file, "--replace", "--only", "transfer")
    site.start()
    site.command("drain", "off")
    Service(site).wait(waiting)
    states = {entry["dest_surl"].rsplit("/", 1)[1]: entry["file_state"] for entry in Service(site).files(waiting)}
    assert states == {"one": "FINISHED", "two": "FAILED"}
    assert site.landed_modes(waiting) == [None], "it was found, not copied"
    assert Door(site).get("/one") == DATA and Door(site).get("/two") == b"somebody else's"
    assert Service(site).job(before)["job_state"] == "FINISHED"
    assert Service(site).ask("GET", f"/jobs/{after}").status_code == 404
    # What was lost is submitted again.
    again = submit(site, "again")
    Service(site).wait_finished(again)
    assert min(numbers(site, again)) > GAP + max(given) - 3
    messages = site.directory / "state/messages.jsonl"
    eventually("all that happened is told", lambda: again in messages.read_text())


def test_a_service_moves_files_while_it_is_backed_up_and_a_killed_backup_harms_nobody(site, tmp_path):
    site.start()
    jobs = [submit(site, *(f"first-{job}-{n}" for n in range(20))) for job in range(5)]
    file = tmp_path / "keeper.backup"
    first = back_up(site, file)
    line = [str(site.binary), "backup", "--dir", str(site.directory), "--to", str(file), "--rate", "5 kB"]
    slow = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    part = tmp_path / "keeper.backup.part"
    eventually("it is being made", part.exists)
    jobs += [submit(site, *(f"second-{job}-{n}" for n in range(20))) for job in range(5)]
    slow.kill()
    slow.wait()
    assert verify(site, file) == first, "the one before is as it was"
    for job in jobs:
        Service(site).wait_finished(job)
    last = back_up(site, file)
    assert not part.exists()
    assert last["jobs"] == 10 and last["jobs_open"] == 0 and last["transfers"] == 200
    assert site.journal("PRAGMA integrity_check") == [("ok",)]


def test_a_full_disk_is_told_and_the_service_goes_on(site, tmp_path):
    site.start()
    Service(site).wait_finished(submit(site, *(f"f{n}" for n in range(50))))
    small = tmp_path / "small"
    small.mkdir()
    backup = [str(site.binary), "backup", "--dir", str(site.directory), "--to", str(small / "f.backup")]
    # The mount is seen by this one process, and gone with it.
    line = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", "100k", str(small), *backup]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "failed" in done.stderr and "the running service is not affected" in done.stderr, done.stderr
    assert "full" in done.stderr or "space" in done.stderr, done.stderr
    Service(site).wait_finished(submit(site, "after"))


def test_a_restore_that_is_killed_can_be_repeated(site, tmp_path):
    site.start()
    job = submit(site, *(f"f{n}" for n in range(50)))
    Service(site).wait_finished(job)
    file = tmp_path / "keeper.backup"
    back_up(site, file, "--with-keys")
    site.stop()
    line = [str(site.binary), "restore", str(file), "--dir", str(site.directory), "--replace", "--only", "transfer"]
    for round_ in range(6):
        putting = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.02 * round_)
        putting.kill()
        putting.wait()
    restore(site, file, "--replace", "--only", "transfer")
    site.start()
    assert Service(site).job(job)["job_state"] == "FINISHED"
    assert len(Service(site).files(job)) == 50


def test_a_backup_with_keys_makes_a_service_in_an_empty_directory(site, tmp_path):
    site.start()
    Service(site).wait_finished(submit(site, "file"))
    with_keys, without = tmp_path / "with", tmp_path / "without"
    assert "credential-encryption" in back_up(site, with_keys, "--with-keys")["files"]
    assert "credential-encryption" not in back_up(site, without)["files"]
    for file, has_keys in ((with_keys, True), (without, False)):
        anew = tmp_path / f"anew-{has_keys}"
        line = [str(site.binary), "restore", str(file), "--dir", str(anew)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert (anew / "penstock.toml").read_text() == (site.directory / "penstock.toml").read_text()
        assert (anew / "keys/credential-encryption").exists() == has_keys
        assert ("restore the encryption keys" in done.stdout) != has_keys
        # Once more without --replace: nothing is overwritten.
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and "--replace" in done.stderr
    # Not while it is served.
    done = subprocess.run(
        [str(site.binary), "restore", str(with_keys), "--dir", str(site.directory), "--replace"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and "stop it first" in done.stderr


def test_a_service_backs_itself_up_and_keeps_as_many_as_asked(site):
    site.append('[transfer.backup]\nto = "backups"\nevery = "1h"\nkeep = 2\n')
    site.append('[storage.backup]\nto = "backups"\nevery = "1h"\n')
    backups = site.directory / "backups"
    backups.mkdir()
    # A clock that was wrong has made one; it counts neither as new nor as one of those that are kept.
    of_the_future = backups / f"transfer-{int(time.time() + 86_400) * 1000}.backup"
    of_the_future.write_bytes(b"")
    for old in (100, 200):
        (backups / f"transfer-{old}.backup").write_bytes(b"")
    site.start()

    def made():
        return [file for file in backups.glob("transfer-*.backup") if file.stat().st_size > 0]

    eventually("a backup is made", made)
    eventually("the oldest is gone", lambda: not (backups / "transfer-100.backup").exists())
    assert (backups / "transfer-200.backup").exists()
    assert verify(site, made()[0])["jobs"] == 0

    family = 'penstock_backup_age_seconds{part="transfer"}'

    def age():
        page = Service(site).ask("GET", "/metrics").text
        return [float(line.split()[1]) for line in page.splitlines() if line.startswith(family)]

    eventually("its age is told", age)
    assert 0 <= age()[0] < 300
    assert of_the_future.exists()
    eventually("the namespace has a backup", lambda: list(backups.glob("namespace-*.backup")))
    assert verify(site, next(backups.glob("namespace-*.backup")))["directories"] == 1


def test_a_service_moves_into_a_database_with_a_backup_and_is_backed_up_there(site, tmp_path):
    site.start()
    before = submit(site, "before")
    Service(site).wait_finished(before)
    site.command("link", "set", "slow", "--max", "7")
    site.command("drain", "on")
    waiting = submit(site, "one", "two")
    file = tmp_path / "of-files"
    back_up(site, file)
    site.stop()
    postgres = Postgres("keeper").start()
    try:
        site.configure("[transfer]", database=postgres.url, nodes=f"{HOST}:{free_port(HOST)}")
        restore(site, file, "--only", "transfer")
        site.start()
        assert Service(site).job(before)["job_state"] == "FINISHED"
        eventually("it leads", lambda: Service(site).ask("GET", "/health").json()["node"]["role"] == "leader")
        assert json.loads(site.command("link", "show", "slow", "--json"))["max_active"] == 7
        assert Service(site).job(waiting)["job_state"] == "SUBMITTED"
        site.command("drain", "off")
        Service(site).wait_finished(waiting)
        after = submit(site, "after")
        Service(site).wait_finished(after)
        assert min(numbers(site, after)) > GAP
        file = tmp_path / "of-database"
        told = back_up(site, file)
        assert (told["jobs"], told["jobs_open"], told["transfers"]) == (3, 0, 4)
        assert told == verify(site, file)
        refused = subprocess.run(
            [str(site.binary), "restore", str(file), "--dir", str(site.directory), "--only", "transfer"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert refused.returncode != 0 and "stop" in refused.stderr, refused.stderr
        site.stop()
        postgres.create("anew")
        site.configure("[transfer]", database=postgres.url_of("anew"))
        restore(site, file, "--only", "transfer")
        site.start()
        assert {Service(site).job(job)["job_state"] for job in (before, waiting, after)} == {"FINISHED"}
        again = submit(site, "again")
        Service(site).wait_finished(again)
        assert min(numbers(site, again)) > 2 * GAP
    finally:
        site.kill()
        postgres.close()
