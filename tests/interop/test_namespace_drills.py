"""What an operator does when the namespace of a storage element is lost, old, or differs from its pools: each drill of
docs/admin/recovery.md, on a site that was killed in the middle of its work."""

import json
import random
import shutil
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from .clients import Door, content
from .site import Site
from .waiting import eventually

HOST = "127.0.3.61"
# Everything that must be equal after a rebuild.
ROWS = (
    "SELECT id, parent, name, kind, size_bytes, modified_ms, created_ms, owner, pool, properties FROM entry ORDER BY id",
    "SELECT * FROM checksum ORDER BY 1, 2",
    "SELECT * FROM property ORDER BY 1, 2, 3",
    "SELECT name, pool, value FROM counter WHERE pool <> '' AND value > 0 ORDER BY 1, 2",
)
PROPERTY = (
    '<?xml version="1.0"?><D:propertyupdate xmlns:D="DAV:"><D:set><D:prop><note xmlns="urn:drill">{}</note></D:prop></D:set>'
    "</D:propertyupdate>"
)


@pytest.fixture
def site(binary, tmp_path):
    """A site with two pools and no transfer service."""
    site = Site(binary, tmp_path / "site", "keeper", HOST)
    second = site.directory / "pools/disk2"
    second.mkdir(mode=0o700)
    site.append('[[storage.pool]]\nname = "disk2"\npath = "pools/disk2"\n')
    try:
        yield site
    finally:
        site.kill()


def database(site):
    return site.directory / "state/namespace.sqlite"


def rows(site):
    with closing(sqlite3.connect(database(site))) as opened:
        return [row for sql in ROWS for row in opened.execute(sql).fetchall()]


def lose(site):
    """The disk of the database is gone."""
    for file in database(site).parent.glob("namespace.sqlite*"):
        file.unlink()


def tool(site, *words):
    """Exit code and what was printed as JSON."""
    line = [str(site.binary), *words, "--dir", str(site.directory), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600)
    told = json.loads(done.stdout)
    return done.returncode, told.get("report", told)


def refused_to_start(site):
    """It does not serve with a namespace that does not know all files, removes none of them, and says what to do."""
    before = sorted(site.directory.glob("pools/*/data/*/*"))
    site.launch()
    site.process.wait(60)
    site.kill()
    said = site.output.read_text() + site.log_text()
    assert "penstock fsck --repair" in said, said
    assert sorted(site.directory.glob("pools/*/data/*/*")) == before


def work(site, seed, changes):
    """Changes of all kinds to the tree, on few paths, so that they meet."""
    door, draw = Door(site), random.Random(seed)
    path = lambda: "".join(f"/{level}{draw.randrange(3)}" for level in "abc"[: draw.randint(1, 3)])
    for number in range(changes):
        to = door.url(path())
        match draw.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                door.ask("PUT", path() + f"/f{draw.randrange(9)}", data=f"{number}" * draw.randrange(50))
            case 5:
                door.ask("MKCOL", path())
            case 6:
                door.ask("MOVE", path(), headers={"Destination": to})
            case 7:
                door.ask("MOVE", path() + f"/f{draw.randrange(9)}", headers={"Destination": f"{to}/f{draw.randrange(9)}"})
            case 8:
                door.ask("DELETE", path() + f"/f{draw.randrange(9)}")
            case _:
                door.ask("PROPPATCH", path(), data=PROPERTY.format(number))


def test_a_lost_namespace_is_made_again_from_the_pools_as_it_was(site):
    site.start()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda seed: work(site, seed, 120), range(4)))
    Door(site).put("/kept", b"kept")
    etag = Door(site).ask("HEAD", "/kept").headers["ETag"]
    site.kill()
    before = rows(site)
    assert len(before) > 100
    lose(site)
    code, told = tool(site, "rebuild", "--dry-run")
    assert code == 0 and told["dry_run"] and not database(site).exists()
    code, told = tool(site, "rebuild")
    assert (code, told["lost"], told["wrong_size"], told["unreadable"]) == (0, 0, [], [])
    after = rows(site)
    assert [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]] == []
    assert len(before) == len(after)
    site.start()
    assert Door(site).get("/kept") == b"kept"
    assert Door(site).ask("HEAD", "/kept").headers["ETag"] == etag
    Door(site).put("/new", b"new")
    site.stop()
    code, told = tool(site, "fsck")
    assert code == 0, told
    # A namespace that is there is not overwritten.
    done = subprocess.run(
        [str(site.binary), "rebuild", "--dir", str(site.directory)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "--replace" in done.stderr, done.stderr
    code, told = tool(site, "rebuild", "--replace")
    assert code == 0 and told["set_aside"]
    site.start()
    assert Door(site).get("/new") == b"new"


def test_a_large_namespace_is_made_again_in_the_time_that_reading_its_labels_takes(site, tier, tmp_path):
    site.start()
    directories = 100
    tree = tmp_path / "tree"
    for number in range(directories):
        (tree / f"d{number}").mkdir(parents=True)
    for number in range(tier.rebuilt_files):
        (tree / f"d{number % directories}/f{number}").write_bytes(b"x" * (number % 100))
    begun = time.monotonic()
    line = [str(site.binary), "copy", f"{tree}/", f"{site.door}/old/", "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=560)
    assert done.returncode == 0, done.stdout + done.stderr
    written = time.monotonic() - begun
    answer = Door(site).ask("MOVE", "/old", headers={"Destination": Door(site).url("/renamed")})
    assert answer.status_code == 201
    site.kill()
    before = rows(site)
    lose(site)
    code, told = tool(site, "rebuild")
    assert (code, told["files"], told["lost"]) == (0, tier.rebuilt_files, 0)
    assert rows(site) == before
    log = (site.directory / "pools/disk1/directory.log").stat().st_size
    print(f"{told['files']} files written in {written:.0f} s, rebuilt in {told['seconds']:.1f} s, directory log of {log} B")
    assert log < 200_000, "a directory that is renamed is one line, however much is in it"


def test_what_was_stored_since_the_backup_is_found_and_entered_again(site, tmp_path):
    site.configure("[storage]", trash="0s")
    site.start()
    door = Door(site)
    door.put("/old/file", b"old")
    door.put("/old/removed later", b"removed")
    file = tmp_path / "names"
    told = json.loads(site.command("backup", "--to", str(file), "--only", "namespace", "--json"))
    assert told["stored_files"] == 2
    stored = {f"/new/f{number}": content(str(number), 1000 + number) for number in range(20)}
    for path, data in stored.items():
        door.put(path, data)
    door.put("/old/file", b"replaced since", expect=204)
    door.ask("DELETE", "/old/removed later")
    door.put("/gone", b"gone")
    door.ask("DELETE", "/gone")
    eventually("what was removed is gone from the disk", lambda: not site.trash_files())
    site.wait_tidy()
    site.kill()
    site.command("restore", str(file), "--replace", "--only", "namespace")
    refused_to_start(site)
    code, told = tool(site, "fsck")
    assert code == 6
    assert {data["path"] for data in told["unknown"]["named"]} == {*stored, "/old/file"}
    assert {entry["path"] for entry in told["outdated"]["named"]} == {"/old/file", "/old/removed later"}
    assert not told["missing"]["count"]
    # Nothing is changed by whoever does not say so.
    refused = subprocess.run(
        [str(site.binary), "fsck", "--repair", "--dir", str(site.directory)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert refused.returncode == 2 and "at the paths in their labels" in refused.stdout, refused.stdout + refused.stderr
    code, told = tool(site, "fsck", "--repair", "--yes")
    assert code == 0 and told["unknown"]["mended"] == len(stored) + 1, told
    site.start()
    for path, data in stored.items():
        assert Door(site).get(path) == data
    assert not Door(site).exists("/old/removed later") and not Door(site).exists("/gone")
    assert Door(site).get("/old/file") == b"replaced since"
    site.stop()
    code, told = tool(site, "fsck")
    assert code == 0, told


def test_fsck_names_damage_and_mends_what_can_be_mended(site):
    site.start()
    door = Door(site)
    for number in range(6):
        door.put(f"/d/f{number}", content(str(number), 100))
    site.stop()
    data = {}
    for path in site.directory.glob("pools/*/data/*/*"):
        data[int(path.name, 16)] = path
    with closing(sqlite3.connect(database(site))) as opened:
        ids = dict(opened.execute("SELECT name, id FROM entry WHERE kind = 1").fetchall())
        opened.execute("UPDATE counter SET value = value + 5 WHERE name = 'files'")
        opened.commit()
    missing, short, aside = (data[ids[name]] for name in ("f0", "f1", "f2"))
    missing.unlink()
    short.write_bytes(b"short")
    quarantine = aside.parents[2] / "quarantine"
    quarantine.mkdir(exist_ok=True)
    shutil.move(aside, quarantine / f"{ids['f2']:x}-{int(time.time())}")
    code, told = tool(site, "fsck")
    assert code == 6
    assert [entry["path"] for entry in told["wrong_size"]["named"]] == ["/d/f1"]
    assert {entry["path"] for entry in told["missing"]["named"]} == {"/d/f0", "/d/f2"}
    assert [entry["path"] for entry in told["unknown"]["named"]] == ["/d/f2"]
    assert told["counters"]
    code, told = tool(site, "fsck", "--repair", "--yes")
    assert code == 6, "what is lost stays lost"
    assert [entry["path"] for entry in told["missing"]["named"]] == ["/d/f0"]
    assert told["unknown"]["mended"] == 1 and all(counter["is_mended"] for counter in told["counters"])
    code, told = tool(site, "fsck")
    assert not told["counters"] and not told["unknown"]["count"]
    site.start()
    assert Door(site).get("/d/f2") == content("2", 100)


@pytest.mark.parametrize("grace", ["0s", "1h"])
@pytest.mark.parametrize("later", ["disk1", "disk2"])
def test_what_was_overwritten_since_the_backup_is_at_its_path_whichever_pool_has_it(site, tmp_path, later, grace):
    """Pools are compared one after the other: the new file may be met before or after the entry that it replaced."""
    configuration = site.directory / "penstock.toml"
    plain = configuration.read_text()

    def only(pool):
        other = {"disk1": "disk2", "disk2": "disk1"}[pool]
        name = f'name = "{other}"\n'
        assert name in plain
        configuration.write_text(plain.replace(name, name + 'mode = "drained"\n'))
        site.configure("[storage]", trash=grace)

    only({"disk1": "disk2", "disk2": "disk1"}[later])
    site.start()
    door = Door(site)
    for name in ("once", "twice", "removed"):
        door.put(f"/d/{name}", b"version 1")
    file = tmp_path / "names"
    site.command("backup", "--to", str(file), "--only", "namespace")
    site.stop()
    only(later)
    site.start()
    door = Door(site)
    door.put("/d/once", b"version 2", expect=204)
    door.put("/d/twice", b"version 2", expect=204)
    door.put("/d/twice", b"version 3", expect=204)
    assert door.ask("DELETE", "/d/removed").status_code == 204
    if grace == "0s":
        eventually("what was removed is gone from the disk", lambda: not site.trash_files())
    # They are written while the client is answered.
    logs = list(site.directory.glob("pools/*/directory.log"))
    eventually("the logs tell of the removal", lambda: all("/d/removed" in log.read_text() for log in logs))
    site.wait_tidy()
    site.kill()
    site.command("restore", str(file), "--replace", "--only", "namespace")
    refused_to_start(site)
    code, told = tool(site, "fsck", "--repair", "--yes")
    assert code == 0, told
    site.start()
    door = Door(site)
    assert door.get("/d/once") == b"version 2" and door.get("/d/twice") == b"version 3"
    assert not door.exists("/d/removed") and not door.exists("/lost+found")
    kept = json.loads(site.command("trash", "list", "--json", "/d"))["files"]
    expected = [] if grace == "0s" else ["/d/once", "/d/removed", "/d/twice", "/d/twice"]
    assert sorted(one["path"] for one in kept) == expected, kept
    site.stop()
    code, told = tool(site, "fsck")
    assert code == 0, told


def test_a_file_takes_the_place_of_an_older_one_without_data_also_when_no_log_tells_of_it(site, tmp_path):
    site.configure("[storage]", trash="0s")
    site.start()
    Door(site).put("/d/f", b"version 1")
    file = tmp_path / "names"
    site.command("backup", "--to", str(file), "--only", "namespace")
    Door(site).put("/d/f", b"version 2", expect=204)
    Door(site).put("/d/g", b"kept")
    eventually("what was replaced is gone from the disk", lambda: not site.trash_files())
    site.wait_tidy()
    site.kill()
    site.command("restore", str(file), "--replace", "--only", "namespace")
    for log in site.directory.glob("pools/*/directory.log*"):
        log.unlink()
    code, told = tool(site, "fsck", "--repair", "--yes")
    assert code == 0, told
    assert [one["path"] for one in told["outdated"]["named"]] == ["/d/f"], told
    site.start()
    assert Door(site).get("/d/f") == b"version 2" and Door(site).get("/d/g") == b"kept"


def test_files_of_a_pool_that_is_lost_are_named_and_removed_only_with_its_name(site):
    site.start()
    door = Door(site)
    paths = [f"/d/f{number}" for number in range(40)]
    for path in paths:
        door.put(path, path.encode())
    site.stop()
    with closing(sqlite3.connect(database(site))) as opened:
        pools = dict(opened.execute("SELECT '/d/' || name, pool FROM entry WHERE kind = 1").fetchall())
    lost = {path for path in paths if pools[path] == "disk2"}
    kept = set(paths) - lost
    assert lost and kept
    shutil.rmtree(site.directory / "pools/disk2")
    site.start()
    for path in lost:
        answer = Door(site).ask("GET", path)
        assert answer.status_code == 503 and "disk2" in answer.text, answer.text
    site.stop()
    for state in ("away", "not-configured"):
        if state == "not-configured":
            toml = site.directory / "penstock.toml"
            toml.write_text(toml.read_text().replace('[[storage.pool]]\nname = "disk2"\npath = "pools/disk2"\n', ""))
            site.start()
            answer = Door(site).ask("GET", min(lost))
            assert answer.status_code == 503 and "disk2" in answer.text, answer.text
            health = Door(site).ask("GET", "/.penstock/health").text
            assert f"{len(lost)} files are in pool disk2" in health, health
            site.stop()
        for words in ((), ("--remove-missing", "--yes")):
            code, told = tool(site, "fsck", *words)
            assert code == 6 and told["missing"]["mended"] == 0
            found = {(one["path"], one["pool"], one["pool_state"]) for one in told["missing"]["named"]}
            assert found == {(path, "disk2", state) for path in lost}
            away = told["pools_away" if state == "away" else "pools_unknown"]
            assert away == {"disk2": len(lost)}
    code, told = tool(site, "fsck", "--remove-missing", "--pool", "disk2", "--yes")
    assert code == 0 and told["missing"]["mended"] == len(lost), told
    code, told = tool(site, "fsck")
    assert code == 0 and told["files"] == len(kept) and not told["counters"], told
    site.start()
    for path in kept:
        assert Door(site).get(path) == path.encode()
    for path in lost:
        assert not Door(site).exists(path)
        Door(site).put(path, b"again")
