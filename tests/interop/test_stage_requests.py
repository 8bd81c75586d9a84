"""Many stage requests at once, from several users, while pools come and go: every request comes to its end, and what is counted is
what a listing counts."""

import json
import random
import sqlite3
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from .clients import Door, content
from .site import EVERYTHING, Site
from .test_files_on_tape import all_are, with_tape
from .waiting import eventually, files_for_tape

HOST = "127.0.0.37"
STAGING = f"{EVERYTHING} storage.stage:/"
# A user may have 5,000 requests.
USERS, WORKERS, FILES = 4, 16, 60
REQUESTS = {"guard": 300, "soak": 10_000}
# One request of so many files.
FILES_OF_ONE = {"guard": 300, "soak": 10_000}
DATA = content("asked for by many", 3_000)
PATHS = [f"/tape/f{number}" for number in range(FILES)]
TAPE = "/.penstock/tape/v1"
SECOND_POOL = """
[[storage.pool]]
name = "second"
path = "{path}"
mode = "enabled"
"""
HELD = """
SELECT {kind}, {holder}, count(*), sum(size_bytes) FROM (
    SELECT DISTINCT {holder}, stage_file.entry, size_bytes FROM stage_file
    JOIN stage_request ON stage_request.id = request JOIN entry ON entry.id = stage_file.entry
    WHERE {holder} IS NOT NULL AND (state < 2 OR pin_until_ms IS NOT NULL)
) GROUP BY {holder}
"""
HOLDERS = ["user", "vo", "''"]
BY_LISTING = " UNION ALL ".join(HELD.format(kind=kind, holder=holder) for kind, holder in enumerate(HOLDERS)) + " ORDER BY 1, 2"
BY_COUNTER = "SELECT kind, holder, files, size_bytes FROM held_sum ORDER BY kind, holder"


@pytest.fixture
def site(binary, tmp_path):
    site = Site(binary, tmp_path / "site", "site", HOST)
    with_tape(site)
    site.configure("[storage.tape]", pool_away_wait="1s", collect_time="0s")
    site.append(SECOND_POOL.format(path=site.directory / "pools/second"))
    site.start()
    yield site
    site.kill()


def set_mode(site, mode):
    """Of the second pool."""
    path = site.directory / "penstock.toml"
    before, name, after = path.read_text().partition('name = "second"')
    lines = after.splitlines(keepends=True)
    lines = [f'mode = "{mode}"\n' if line.startswith("mode = ") else line for line in lines]
    path.write_text(before + name + "".join(lines))
    site.reload()


def asked(site, sql):
    database = sqlite3.connect(f"file:{site.directory}/state/namespace.sqlite?mode=ro", uri=True, timeout=30)
    try:
        return database.execute(sql).fetchall()
    finally:
        database.close()


def status(site):
    line = [str(site.binary), "tape", "status", "--dir", str(site.directory), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def check_counts(site):
    listed = asked(site, BY_LISTING)
    assert asked(site, BY_COUNTER) == listed
    pools = "SELECT pool, count(*), sum(size_bytes) FROM entry WHERE kind = 1 AND pool IS NOT NULL GROUP BY pool"
    files = {row[0]: row[1:] for row in asked(site, pools)}
    counted = "SELECT f.pool, f.value, b.value FROM counter f JOIN counter b USING (pool) WHERE f.name='files' AND b.name='bytes'"
    assert {row[0]: row[1:] for row in asked(site, counted) if row[1]} == files
    return listed


def test_each_of_many_stage_requests_ends_while_pools_come_and_go(site, tier):
    owner = Door(site, site.token(STAGING))
    for number, path in enumerate(PATHS):
        owner.put(path, DATA + bytes([number]))
    eventually("all are on tape only", lambda: all_are(owner, PATHS, "TAPE"), 120)
    doors = [Door(site, site.token(STAGING, subject=f"user{number}")) for number in range(USERS)]
    is_over, requests = threading.Event(), []

    def come_and_go():
        while not is_over.wait(1.5):
            set_mode(site, "disabled")
            is_over.wait(2.5)
            set_mode(site, "enabled")

    def ask(number):
        chance = random.Random(number)
        files = [{"path": path, "diskLifetime": "PT1H"} for path in chance.sample(PATHS, chance.randint(1, 3))]
        door = doors[number % USERS]
        answer = door.ask("POST", f"{TAPE}/stage", json={"files": files})
        assert answer.status_code == 201, answer.text
        id = answer.json()["requestId"]
        # Some are not wanted for long.
        if chance.random() < 0.2:
            assert door.ask("DELETE", f"{TAPE}/stage/{id}").status_code == 200
            return None
        if chance.random() < 0.2:
            body = {"paths": [files[0]["path"]]}
            assert door.ask("POST", f"{TAPE}/release/{id}", json=body).status_code == 200
        return door, id

    toggler = threading.Thread(target=come_and_go)
    toggler.start()
    begun = time.monotonic()
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            requests = [one for one in pool.map(ask, range(REQUESTS[tier.name])) if one]
        took = time.monotonic() - begun
    finally:
        is_over.set()
        toggler.join()
    print(f"{REQUESTS[tier.name]} stage requests in {took:.1f} s")

    def open_files():
        return asked(site, "SELECT count(*) FROM stage_file WHERE state < 2")[0][0] == 0

    eventually("nobody waits for a file", open_files, 300)
    for door, id in requests:
        told = door.ask("GET", f"{TAPE}/stage/{id}").json()
        assert "completedAt" in told, told
        assert all(file.get("onDisk") or file["state"] == "CANCELLED" for file in told["files"]), told
    eventually("no command is left", lambda: files_for_tape(status(site)) == 0, 120)
    assert len(check_counts(site)) >= USERS
    for door, id in requests:
        assert door.ask("DELETE", f"{TAPE}/stage/{id}").status_code == 200
    assert check_counts(site) == []
    eventually("all are on tape only again", lambda: all_are(owner, PATHS, "TAPE"), 120)
    for number, path in enumerate(PATHS[:5]):
        [id] = [owner.ask("POST", f"{TAPE}/stage", json={"files": [{"path": path}]}).json()["requestId"]]
        eventually("it is back", lambda: "completedAt" in owner.ask("GET", f"{TAPE}/stage/{id}").json(), 60)
        assert owner.get(path) == DATA + bytes([number])
    code, _ = site.stop()
    assert code == 0 and "panicked" not in site.log_text(), site.log_tail()
    line = [str(site.binary), "fsck", "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_request_of_many_files_is_answered_soon(site, tier):
    """Most of its files do not exist: what is looked at is what a request costs."""
    owner = Door(site, site.token(STAGING))
    owner.put(PATHS[0], DATA)
    eventually("it is on tape only", lambda: all_are(owner, PATHS[:1], "TAPE"), 120)
    count = FILES_OF_ONE[tier.name]
    files = [{"path": path} for path in [PATHS[0], *(f"/tape/none{number}" for number in range(count - 1))]]
    begun = time.monotonic()
    answer = owner.ask("POST", f"{TAPE}/stage", json={"files": files})
    assert answer.status_code == 201, answer.text
    took = time.monotonic() - begun
    print(f"{count} files in {took:.2f} s")
    assert took < 20
    told = owner.ask("GET", answer.headers["Location"]).json()
    assert len(told["files"]) == count and told["files"][1]["code"] == "path-not-found"


def test_a_user_has_only_so_many_requests_until_some_are_forgotten(site):
    owner = Door(site, site.token(STAGING))
    owner.put(PATHS[0], DATA)
    wanted = {"files": [{"path": PATHS[0]}]}
    first = owner.ask("POST", f"{TAPE}/stage", json=wanted)
    assert first.status_code == 201, first.text
    site.stop()
    with sqlite3.connect(site.directory / "state/namespace.sqlite") as database:
        [(user, vo, created)] = database.execute("SELECT user, vo, created_ms FROM stage_request").fetchall()
        # All of them hold a file, so that none may be forgotten.
        rows = [(f"older-{number}", user, vo, created) for number in range(4_999)]
        database.executemany("INSERT INTO stage_request (id, user, vo, created_ms, held) VALUES (?, ?, ?, ?, 1)", rows)
        database.execute("UPDATE stage_kept SET requests = requests + ? WHERE user = ?", (len(rows), user))
    database.close()
    site.start()
    refused = owner.ask("POST", f"{TAPE}/stage", json=wanted)
    assert (refused.status_code, refused.json()["code"]) == (429, "stage-requests-too-many"), refused.text
    assert owner.ask("DELETE", first.headers["Location"]).status_code == 200
    assert owner.ask("POST", f"{TAPE}/stage", json=wanted).status_code == 201
