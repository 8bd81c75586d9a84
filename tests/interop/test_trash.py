"""What was deleted or overwritten comes back: the drill "Trash" of docs/admin/recovery.md, with the real command against a
real site, also one that was killed, whose pool is full, or whose namespace was lost."""

import json
import os
import pty
import re
import subprocess
import time
from datetime import UTC, datetime

import pytest
import requests

from .clients import Door, content
from .site import Site
from .waiting import eventually

HOST = "127.0.3.62"


@pytest.fixture
def site(binary, tmp_path):
    """A site without a transfer service."""
    site = Site(binary, tmp_path / "site", "keeper", HOST)
    site.remove("transfer")
    try:
        yield site
    finally:
        site.kill()


def trash(site, *words):
    """Exit code and what was printed as JSON; where some of it failed, the answer."""
    line = [str(site.binary), "trash", *words, "--dir", str(site.directory), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    return done.returncode, told.get("report", told)


def listed(site, *words):
    """Paths in the trash, those that were removed first before others."""
    code, told = trash(site, "list", *words)
    assert code == 0, told
    return [file["path"] for file in told["files"]]


def restored(site, *words):
    code, told = trash(site, "restore", *words)
    assert code == 0, told
    return told


def metrics(site):
    text = requests.get(f"{site.door}/.penstock/metrics", verify=str(site.certificates), timeout=60).text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def shown(site, *words, stdin=subprocess.DEVNULL):
    """Exit code and what people read."""
    line = [str(site.binary), "trash", *words, "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, stdin=stdin)
    return done.returncode, done.stdout + done.stderr


def test_a_deleted_file_comes_back_as_it_was(site):
    site.start()
    door, data = Door(site), content("f", 300_000)
    door.put("/run42/f", data)
    before = door.ask("HEAD", "/run42/f").headers
    door.ask("DELETE", "/run42/f")
    assert not door.exists("/run42/f") and door.list("/run42") == {"/run42": None}
    code, told = trash(site, "list", "/run42")
    assert code == 0, told
    assert told["kept_seconds"] == 24 * 3600 and not told["is_more"]
    [file] = told["files"]
    assert (file["path"], file["size_bytes"], file["pool"]) == ("/run42/f", len(data), "disk1")
    assert file["removed_by"].endswith(" alice") and file["owner"].endswith(" alice")
    assert file["created"] <= file["removed"]
    assert listed(site, "/run4") == [] and listed(site) == ["/run42/f"]
    code, text = shown(site, "list")
    assert re.search(r"REMOVED \(UTC\) .*\n.*T\d\d:\d\d:\d\dZ .* alice  +/run42/f\n1 file \(", text), text
    [back] = restored(site, "/run42/f")["restored"]
    assert (back["path"], back["parent_made"], back["size_bytes"]) == ("/run42/f", False, len(data))
    assert back["restored"] >= file["removed"]
    assert door.get("/run42/f") == data
    after = door.ask("HEAD", "/run42/f").headers
    assert (after["ETag"], after["Last-Modified"]) == (before["ETag"], before["Last-Modified"])
    assert listed(site) == []
    code, told = trash(site, "restore", "/run42/f")
    assert code == 4 and "penstock trash list" in told["error"], told


def test_an_overwritten_file_comes_back_beside_the_one_that_replaced_it(site):
    site.start()
    door = Door(site)
    door.put("/f", b"first")
    door.put("/f", b"second", expect=204)
    door.put("/f", b"third", expect=204)
    code, told = trash(site, "restore", "/f")
    assert code == 1 and "/f exists" in told["error"] and "another place" in told["error"], told
    told = restored(site, "/f", "--to", "/f.old")
    assert told["older_versions"] == 1
    assert (door.get("/f"), door.get("/f.old")) == (b"third", b"second")
    code, told = trash(site, "list", "/f")
    restored(site, told["files"][0]["id"], "--to", "/old/er/f")
    assert door.get("/old/er/f") == b"first"
    code, text = shown(site, "restore", "/f", "--to", "/")
    assert code == 2 and "root directory" in text, text
    # What is restored is a file like any other.
    door.ask("MOVE", "/f.old", headers={"Destination": door.url("/f")})
    assert door.get("/f") == b"second" and listed(site) == ["/f"]
    [number] = [file["id"] for file in trash(site, "list")[1]["files"]]
    restored(site, number, "--to", "/in/")
    assert door.get("/in/f") == b"third"


def test_a_list_is_as_long_as_it_is_asked_for(site):
    site.start()
    door = Door(site)
    for name in ("/a", "/b", "/c"):
        door.put(name, b"x")
        door.ask("DELETE", name)
    for limit, is_more in ((2, True), (3, False), (4, False)):
        code, told = trash(site, "list", "--limit", str(limit))
        assert (len(told["files"]), told["is_more"]) == (min(limit, 3), is_more)
    assert shown(site, "list", "--limit", "0")[0] == 2
    # What is emptied is not a part of what is meant.
    answer = Door(site, site.admin_token()).ask("DELETE", "/.penstock/trash?limit=1")
    assert answer.status_code == 400 and "limit=1" in answer.text and len(listed(site)) == 3


def test_a_removed_directory_comes_back_with_its_files(site):
    site.start()
    door = Door(site)
    for number in range(5):
        door.put(f"/run/d{number % 2}/f{number}", f"{number}".encode())
    assert door.ask("DELETE", "/run").status_code == 204
    code, told = trash(site, "restore", "/run")
    assert code == 4 and "--recursive" in told["error"], told
    told = restored(site, "/run/d0/f0")
    assert [(back["path"], back["parent_made"]) for back in told["restored"]] == [("/run/d0/f0", True)]
    door.put("/run/d1/f1", b"in the way")
    code, told = trash(site, "restore", "/run", "--recursive")
    assert code == 1 and listed(site) == ["/run/d1/f1"], told
    assert [door.get(f"/run/d{number % 2}/f{number}") for number in range(5)] == [b"0", b"in the way", b"2", b"3", b"4"]
    restored(site, "/run", "--recursive", "--to", "/again")
    assert door.get("/again/d1/f1") == b"1"


def test_a_directory_comes_back_without_what_was_deleted_before_it(site):
    site.start()
    door = Door(site)
    for name in ("before", "with", "twice"):
        door.put(f"/run/{name}", name.encode())
    door.put("/run/twice", b"again", expect=204)
    door.ask("DELETE", "/run/before")
    # Moments are told to the second.
    begun = int(time.time())
    eventually("another second", lambda: time.time() >= begun + 1, 10)
    Door(site, site.token(subject="bob")).ask("DELETE", "/run")
    code, told = trash(site, "list")
    since = datetime.fromtimestamp(told["files"][2]["removed"] / 1000, UTC).isoformat()
    who = ("restore", "/run", "-r", "--removed-by", "bob")
    for words in (who, ("restore", "/run", "-r", "--since", since), (*who, "--since", "1h")):
        code, told = trash(site, *words, "--dry-run", "--to", "/new/")
        assert code == 0 and told["older_versions"] == 1, told
        assert [file["to"] for file in told["would_restore"]] == ["/new/run/twice", "/new/run/with"]
    code, text = shown(site, *who, "--dry-run")
    assert code == 0 and "to restore: /run/with (4 B, file " in text and "Z by bob)\n1 older version is" in text, text
    assert not door.exists("/run") and len(listed(site)) == 4
    told = restored(site, *who[1:])
    assert told["older_versions"] == 1 and len(told["restored"]) == 2
    assert set(door.list("/run")) == {"/run", "/run/with", "/run/twice"} and door.get("/run/twice") == b"again"
    code, told = trash(site, *who)
    assert code == 4 and "shows when and by whom" in told["error"], told


def test_the_oldest_trash_gives_way_when_a_pool_is_full(site):
    size = 1_000_000
    site.configure("[[storage.pool]]", capacity=f"{10 * size} B")
    site.start()
    door = Door(site)
    for number in range(6):
        door.put(f"/f{number}", content(str(number), size))
    for number in (3, 1, 2):
        door.ask("DELETE", f"/f{number}")
    counted = metrics(site)
    assert counted['penstock_pool_used_bytes{pool="disk1"}'] == 6 * size
    assert counted['penstock_pool_trash_bytes{pool="disk1"}'] == 3 * size
    assert counted['penstock_pool_trash_files{pool="disk1"}'] == 3
    assert counted['penstock_pool_free_bytes{pool="disk1"}'] == 7 * size
    names = "<D:quota-used-bytes/><D:quota-available-bytes/>"
    body = f'<D:propfind xmlns:D="DAV:"><D:prop>{names}</D:prop></D:propfind>'
    quota = door.ask("PROPFIND", "/", headers={"Depth": "0"}, data=body).text
    assert f">{3 * size}</D:quota-used-bytes>" in quota and f">{7 * size}</D:quota-available-bytes>" in quota
    # Room without the trash is used first.
    door.put("/g", content("g", 4 * size))
    assert listed(site) == ["/f3", "/f1", "/f2"]
    door.put("/h", content("h", size))
    assert listed(site) == ["/f1", "/f2"]
    assert metrics(site)['penstock_pool_trash_removed_total{pool="disk1",why="evicted"}'] == 1
    # What could not fit in any case costs no trash.
    door.put("/too large", content("l", 3 * size), expect=507)
    assert listed(site) == ["/f1", "/f2"]
    door.put("/i", content("i", 2 * size))
    assert listed(site) == []
    door.put("/full", b"x", expect=507)
    assert door.get("/i") == content("i", 2 * size)


def test_a_kill_between_removal_and_restoring_loses_nothing(site):
    site.start()
    door, data = Door(site), content("f", 2_000_000)
    door.put("/d/f", data)
    door.put("/d/g", b"old")
    door.ask("DELETE", "/d/f")
    door.put("/d/g", b"new", expect=204)
    site.kill()
    site.start()
    assert listed(site) == ["/d/f", "/d/g"] and not Door(site).exists("/d/f")
    restored(site, "/d/f")
    restored(site, "/d/g", "--to", "/d/g.old")
    site.kill()
    site.start()
    door = Door(site)
    assert (door.get("/d/f"), door.get("/d/g"), door.get("/d/g.old")) == (data, b"new", b"old")
    assert listed(site) == []
    site.wait_tidy()
    site.stop()
    site.command("fsck")


def test_after_a_rebuild_from_the_pools_trash_is_trash(site):
    site.start()
    door = Door(site)
    door.put("/d/kept", b"kept")
    door.put("/d/removed", b"removed")
    door.put("/d/replaced", b"before")
    door.put("/d/replaced", b"after", expect=204)
    door.ask("DELETE", "/d/removed")
    restored(site, "/d/replaced", "--to", "/d/before")
    site.stop()
    # Trash is nothing without an entry, nor an entry without data.
    site.command("fsck")
    for file in (site.directory / "state").glob("namespace.sqlite*"):
        file.unlink()
    told = json.loads(site.command("rebuild", "--json"))
    assert (told["files"], told["trash"], told["lost"]) == (3, 1, 0)
    site.command("fsck")
    site.start()
    door = Door(site)
    assert set(door.list("/d")) == {"/d", "/d/kept", "/d/replaced", "/d/before"}
    code, told = trash(site, "list")
    assert [file["path"] for file in told["files"]] == ["/d/removed"]
    assert told["files"][0]["removed_by"].endswith(" alice")
    restored(site, "/d/removed")
    assert (door.get("/d/removed"), door.get("/d/replaced")) == (b"removed", b"after")


def test_after_the_restore_of_an_old_namespace_what_was_removed_since_is_trash(site, tmp_path):
    site.start()
    door, backup = Door(site), tmp_path / "names"
    door.put("/f", b"before")
    site.command("backup", "--to", str(backup), "--only", "namespace")
    door.put("/new", b"new")
    door.put("/gone", b"gone")
    door.ask("DELETE", "/gone")
    # Logs are written while clients are answered.
    logs = list(site.directory.glob("pools/*/directory.log"))
    assert logs
    eventually("the logs tell of the removal", lambda: all("/gone" in log.read_text() for log in logs))
    site.kill()
    site.command("restore", str(backup), "--replace", "--only", "namespace")
    told = site.command("fsck", "--repair", "--yes")
    assert "put 1 deleted file back into the trash" in told, told
    site.command("fsck")
    site.start()
    door = Door(site)
    assert set(door.list("/")) == {"", "/f", "/new"} and listed(site) == ["/gone"]
    restored(site, "/gone")
    assert door.get("/gone") == b"gone"


def test_trash_goes_when_its_time_is_over_or_an_administrator_says_so(site):
    site.start()
    door = Door(site)
    for name in ("/a/f", "/b/f", "/c"):
        door.put(name, b"x")
        door.ask("DELETE", name)
    code, told = trash(site, "empty", "/a")
    assert code == 2 and "--yes" in told["error"] and len(listed(site)) == 3
    for answer, left in (("no", ["/a/f", "/b/f", "/c"]), ("y", ["/a/f", "/b/f"])):
        ours, theirs = pty.openpty()
        os.write(ours, f"{answer}\n".encode())
        code, text = shown(site, "empty", "/c", stdin=theirs)
        assert "1 file in the trash (1 B), which was at /c or below it, will be permanently deleted" in text, text
        assert listed(site) == left and code == (2 if answer == "no" else 0)
    assert shown(site, "empty", "--older-than", "900ms", "--yes")[0] == 2
    code, told = trash(site, "empty", "/a", "--yes")
    assert (code, told["files"], told["bytes"]) == (0, 1, 1)
    code, told = trash(site, "empty", "--older-than", "1h", "--yes")
    assert (code, told["files"]) == (0, 0) and listed(site) == ["/b/f"]
    site.configure("[storage]", trash="0s")
    site.reload()
    eventually("nothing is kept any more", lambda: listed(site) == [], 30)
    eventually("its data is gone", lambda: not site.data(), 30)
    door.put("/d", b"x")
    door.ask("DELETE", "/d")
    eventually("its data is gone", lambda: not site.data() and not site.trash_files(), 30)


def test_what_cannot_be_emptied_is_told_with_its_pool(site, tmp_path):
    site.start()
    Door(site).put("/first", b"123")
    Door(site).ask("DELETE", "/first")
    site.stop()
    site.configure("[[storage.pool]]", name="disk2", path="pools/disk2")
    site.start()
    Door(site).put("/second", b"1234")
    Door(site).ask("DELETE", "/second")
    code, text = shown(site, "empty")
    assert code == 2 and "1 file in the trash (4 B) will be permanently deleted" in text and len(listed(site)) == 2, text
    code, told = trash(site, "empty", "--yes")
    stays = {"pool": "disk1", "files": 1, "bytes": 3, "why": "is not configured"}
    assert (code, told["files"], told["stays"]) == (1, 1, [stays]), told
    code, text = shown(site, "empty")
    assert code == 1 and "1 file (3 B) stays in the trash of pool disk1, which is not configured" in text, text
    assert trash(site, "empty", "--yes", "/second") == (0, {"files": 0, "bytes": 0, "stays": []})
    site.stop()
    site.append('[[storage.pool]]\nname = "disk1"\npath = "pools/disk1"\nmode = "disabled"\n')
    site.start()
    code, told = trash(site, "empty", "--yes")
    assert code == 1 and told["stays"][0]["why"] == "is disabled", told
    Door(site).put("/third", b"1")
    Door(site).ask("DELETE", "/third")
    (site.directory / "pools/disk2").rename(tmp_path / "unmounted")
    code, told = trash(site, "empty", "--yes")
    assert code == 1 and [stay["pool"] for stay in told["stays"]] == ["disk1", "disk2"], told
    assert listed(site) == ["/first", "/third"]


def test_whoever_asks_the_transfer_service_for_the_trash_is_told_where_it_is(binary, tmp_path):
    site = Site(binary, tmp_path / "site", "whole", HOST)
    code, text = shown(site, "list", "--door", site.service)
    assert code == 2 and f"the door of its storage element is {site.door}" in text, text
    site.start()
    try:
        token = ("--door", site.service, "--token-file", str(site.directory / "admin.token"))
        for words in (["list"], ["empty", "--yes"], ["restore", "1f"]):
            line = [str(binary), "trash", *words, *token, "--capath", str(site.certificates)]
            done = subprocess.run(line, capture_output=True, text=True, timeout=60)
            assert done.returncode == 2 and "a transfer service has no trash" in done.stderr, (words, done.stderr)
    finally:
        site.kill()


def test_what_does_not_come_back_is_told_with_the_reason(site):
    site.start()
    door = Door(site)
    door.put("/f", b"bytes")
    [data] = site.directory.glob("pools/*/data/*/*")
    door.ask("DELETE", "/f")
    data.unlink()
    code, told = trash(site, "restore", "/f")
    assert code == 1 and "are gone from pool disk1" in told["error"], told
    code, told = trash(site, "restore", "ffff")
    assert code == 4 and "penstock trash list" in told["error"], told
    door.put("/file", b"")
    code, told = trash(site, "restore", "/f", "--to", "/file/f")
    assert code == 1, told
    code, told = trash(site, "restore", "/f", "--to", "/.penstock/f")
    assert code == 3 and "belongs to the door" in told["error"], told


def test_nobody_but_an_administrator_sees_the_trash(site):
    site.start()
    Door(site).put("/f", b"bytes")
    Door(site).ask("DELETE", "/f")
    place = "/.penstock/trash"
    for method, path in (("GET", place), ("DELETE", place), ("POST", f"{place}/2")):
        assert Door(site).ask(method, path).status_code == 403
        nobody = requests.request(method, site.door + path, verify=str(site.certificates), timeout=60)
        assert nobody.status_code == 401
    admin = Door(site, site.admin_token())
    assert len(admin.ask("GET", place).json()["files"]) == 1
    # A macaroon that was made of the administrator's token is none.
    asked = {"caveats": ["activity:DOWNLOAD,LIST,DELETE"], "validity": "PT1H"}
    made = admin.ask("POST", "/", json=asked, headers={"Content-Type": "application/macaroon-request"})
    assert made.status_code == 200, made.text
    assert Door(site, made.json()["macaroon"]).ask("GET", place).status_code == 403
    assert Door(site).ask("PROPFIND", place, headers={"Depth": "1"}).status_code in (403, 405)
    assert len(listed(site)) == 1
