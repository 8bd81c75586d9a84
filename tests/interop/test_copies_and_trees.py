"""`penstock copy`, `mv`, `du`, `df` and commands about several files: what goes wrong with one of them stops no other,
and what was cut off goes on.
"""

import hashlib
import json
import mmap
import os
import signal
import socket
import threading

import pytest

from .clients import content
from .copy_commands import LARGE, SLOW, STEADY, files_of, held, leftovers, make_tree, parts_at, unfinished_at
from .copy_commands import begin, large, penstock, state  # noqa: F401: fixtures
from .fault_server import Throttle
from .waiting import eventually

# Names and links


def test_bad_names_and_links_are_told_and_stop_nothing(penstock, grid, place, tmp_path):
    top = make_tree(tmp_path / "tree", ["a", "b c", "d/e", "ünïcode – café", "d/%41 %2e#?&+;=", "'quo\"te'"])
    expected = files_of(top)
    for bad in (b"bad\xff", b"d/new\nline", b"d/\xe4dir/inside"):
        path = os.path.join(os.fsencode(top), bad)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"x")
    (top / "link").symlink_to("a")
    os.mkfifo(top / "pipe")
    url = grid.here_door.url(place)
    shown = penstock("copy", top, url, exit_code=1)
    assert f"failed: {top}/bad\\xff: the name is not UTF-8" in shown
    assert f"failed: {top}/d/\\xe4dir: the name is not UTF-8" in shown
    assert "line: the path contains a character that no file name may have" in shown
    assert f"skipped symbolic link: {top}/link" in shown and f"skipped named pipe: {top}/pipe" in shown
    assert "3 of 9 files failed" in shown
    told = penstock("copy", top, url, exit_code=1, json_output=True)
    report = told["report"]
    assert (report["skipped"], report["copied"], report["failed_files"]) == (6, 0, 3)
    assert [left["kind"] for left in report["left_out"]] == ["symbolic link", "named pipe"]
    back = tmp_path / "back"
    penstock("copy", url, back)
    assert files_of(back) == expected


def test_a_file_that_is_refused_stops_no_other(penstock, grid, place, tmp_path):
    names = [f"f{number:02}" for number in range(40)]
    top = make_tree(tmp_path / "tree", names)
    for name in names[:25]:
        grid.here_door.put(f"{place}/{name}", b"other content")
    url = grid.here_door.url(place)
    shown = penstock("copy", top, url, exit_code=1)
    assert shown.count("exists with different content") == 20, "the list is bounded"
    assert "failed: 5 more (--json lists them)" in shown and "25 of 40 files failed" in shown
    assert grid.here_door.get(f"{place}/f30") == (top / "f30").read_bytes()
    told = penstock("copy", top, url, exit_code=1, json_output=True)
    assert (told["exit_code"], told["report"]["failed_files"], len(told["report"]["failed"])) == (1, 25, 25)


# What others do meanwhile


def ended(process):
    """Its exit code, and what it printed."""
    try:
        out, err = process.communicate(timeout=120)
        return process.returncode, (out + err).decode()
    finally:
        process.kill()
        process.wait()


def test_what_takes_the_place_of_a_file_after_it_was_listed_is_not_copied(begin, penstock, grid, place, tmp_path):
    names = ["a-large", "dir/inside", "link", "other", "pipe", "plain"]
    top = make_tree(tmp_path / "tree", names)
    (top / "a-large").write_bytes(content("large", 24_000_000))
    secrets = make_tree(tmp_path / "secrets", names)
    url, before = grid.here_door.url(place), parts_at(grid.here)
    process = begin("copy", top, url, "--parallel", "1", "--bwlimit", SLOW)
    eventually("the first is on its way", lambda: parts_at(grid.here) - before)
    for name in ("link", "other", "pipe"):
        (top / name).unlink()
    (top / "link").symlink_to(secrets / "link")
    (secrets / "other").rename(top / "other")
    os.mkfifo(top / "pipe")
    (top / "dir").rename(tmp_path / "aside")
    (top / "dir").symlink_to(secrets / "dir")
    code, shown = ended(process)
    assert code == 1 and "4 of 6 files failed" in shown, shown
    assert "another file has taken its place since it was listed" in shown
    back = tmp_path / "back"
    penstock("copy", url, back)
    assert sorted(files_of(back)) == ["a-large", "plain"]


def test_a_file_that_is_changed_in_memory_while_it_is_copied_fails(begin, grid, place, tmp_path):
    path, url, size = tmp_path / "mapped", grid.here_door.url(f"{place}/mapped"), 24_000_000
    path.write_bytes(bytes(size))
    before = parts_at(grid.here)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as pages:
        # From then on the pages differ from those on the disk, and further changes of them leave no trace.
        pages[:] = b"a" * size
        process = begin("copy", path, url, "--bwlimit", SLOW)
        eventually("it is on its way", lambda: parts_at(grid.here) - before)
        pages[:] = b"b" * size
        code, shown = ended(process)
    assert code == 7 and "the file changed while it was copied" in shown, shown
    grid.here_door.get(f"{place}/mapped", expect=404)


def test_a_local_file_that_is_saved_while_sync_replaces_it_stays(begin, penstock, grid, place, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    for name in ("f", "g"):
        grid.here_door.put(f"{place}/{name}", content(name, 8_000_000))
        (target / name).write_bytes(b"old")
    process = begin("sync", grid.here_door.url(place), target, "--yes", "--bwlimit", "4M")
    eventually("both are on their way", lambda: len(leftovers(target)) == 2)
    (target / "mine").write_bytes(b"new work")
    (target / "mine").rename(target / "f")
    code, shown = ended(process)
    assert code == 1 and "1 of 2 files failed" in shown, shown
    assert "was changed after it had been compared with the source" in shown
    assert (target / "f").read_bytes() == b"new work"
    assert (target / "g").read_bytes() == content("g", 8_000_000) and leftovers(target) == []


# Going on


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_upload_goes_on_after_its_command_was_stopped(begin, penstock, grid, place, large, state, ending):
    url = grid.here_door.url(f"{place}/large")
    before = unfinished_at(grid.here)
    process = begin("copy", large, url, "--bwlimit", SLOW)
    try:
        eventually("a part has arrived", lambda: unfinished_at(grid.here) > before + LARGE // 8)
        process.send_signal(ending)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    if ending == signal.SIGINT:
        assert process.returncode == 130
        assert b"the received part of 1 more large file is kept; run the same command again to continue" in err
    assert not grid.here_door.exists(f"{place}/large")
    [note] = list((state / "penstock/uploads").iterdir())
    assert note.stat().st_mode & 0o077 == 0 and grid.here.token() not in note.read_text()
    told = penstock("copy", large, url, json_output=True)
    assert told["copied"] == 1 and told["bytes"] == LARGE
    assert told["continued_bytes"] >= LARGE // 16, "it went on and did not begin anew"
    assert grid.here_door.get(f"{place}/large") == large.read_bytes()
    assert not list((state / "penstock/uploads").iterdir())


def test_an_upload_of_a_changed_file_begins_anew(begin, penstock, grid, place, large):
    url = grid.here_door.url(f"{place}/large")
    before = unfinished_at(grid.here)
    process = begin("copy", large, url, "--bwlimit", SLOW)
    try:
        eventually("a part has arrived", lambda: unfinished_at(grid.here) > before + LARGE // 16)
    finally:
        process.kill()
        process.wait()
    large.write_bytes(content("changed", LARGE))
    told = penstock("copy", large, url, json_output=True)
    assert (told["copied"], told["continued_bytes"]) == (1, 0)
    assert grid.here_door.get(f"{place}/large") == large.read_bytes()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_download_goes_on_after_its_command_was_stopped(begin, penstock, grid, place, tmp_path, state, ending):
    data = content("large", LARGE)
    grid.here_door.put(f"{place}/large", data)
    url, target = grid.here_door.url(f"{place}/large"), tmp_path / "target"
    target.mkdir()
    part_of(begin("copy", url, target / "large", "--bwlimit", SLOW), target, ending)
    assert len(leftovers(target)) == 1 and not (target / "large").exists()
    [note] = list((state / "penstock/downloads").iterdir())
    assert note.stat().st_mode & 0o077 == 0
    told = penstock("copy", url, target / "large", json_output=True)
    assert told["copied"] == 1 and told["bytes"] == LARGE
    assert told["continued_bytes"] >= LARGE // 16, "it went on and did not begin anew"
    assert (target / "large").read_bytes() == data and leftovers(target) == []
    assert not list((state / "penstock/downloads").iterdir())


def part_of(process, target, ending):
    """Stops a download when a part of it is there."""

    def arrived():
        return sum(path.stat().st_size for path in target.glob(".penstock-*.part")) > LARGE // 8

    try:
        eventually("a part has arrived", arrived)
        process.send_signal(ending)
        _, err = process.communicate(timeout=20)
        if ending == signal.SIGINT:
            assert process.returncode == 130 and b"run the same command again to continue" in err
    finally:
        process.kill()
        process.wait()


def test_a_download_of_a_changed_file_begins_anew(begin, penstock, grid, place, tmp_path):
    grid.here_door.put(f"{place}/large", content("large", LARGE))
    url, target = grid.here_door.url(f"{place}/large"), tmp_path / "target"
    target.mkdir()
    part_of(begin("copy", url, target / "large", "--bwlimit", SLOW), target, signal.SIGKILL)
    changed = content("changed", LARGE)
    grid.here_door.put(f"{place}/large", changed, expect=204)
    told = penstock("copy", url, target / "large", json_output=True)
    assert (told["copied"], told["continued_bytes"]) == (1, 0)
    assert (target / "large").read_bytes() == changed and leftovers(target) == []


def test_a_damaged_part_is_found_and_copied_anew(begin, penstock, grid, place, tmp_path):
    data = content("large", LARGE)
    grid.here_door.put(f"{place}/large", data)
    url, target = grid.here_door.url(f"{place}/large"), tmp_path / "target"
    target.mkdir()
    part_of(begin("copy", url, target / "large", "--bwlimit", SLOW), target, signal.SIGKILL)
    [part] = target.glob(".penstock-*.part")
    with part.open("r+b") as file:
        file.seek(1000)
        file.write(b"not what was sent")
    penstock("copy", url, target / "large")
    assert (target / "large").read_bytes() == data and leftovers(target) == []


def test_an_upload_that_had_arrived_is_looked_at_again(begin, penstock, grid, place, large, state):
    url, notes = grid.here_door.url(f"{place}/large"), state / "penstock/uploads"

    def arrive():
        """Copies, and leaves the note as a kill before its removal would."""
        process = begin("copy", large, url, "--overwrite", "--bwlimit", "32M")
        try:
            eventually("it is noted", lambda: list(notes.glob("*.json")))
            [note] = notes.glob("*.json")
            text = note.read_bytes()
            _, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
        finally:
            process.kill()
            process.wait()
        note.write_bytes(text)

    arrive()
    told = penstock("copy", large, url, "--overwrite", json_output=True)
    assert told["continued_bytes"] == LARGE, "all of it was there"
    arrive()
    penstock("rm", url)
    assert penstock("copy", large, url, "--overwrite", json_output=True)["copied"] == 1
    arrive()
    grid.here_door.put(f"{place}/large", b"of another", expect=204)
    told = penstock("copy", large, url, exit_code=1)
    assert "exists with different content" in told and grid.here_door.get(f"{place}/large") == b"of another"
    assert penstock("copy", large, url, "--overwrite", json_output=True)["copied"] == 1
    assert grid.here_door.get(f"{place}/large") == large.read_bytes()


def test_an_upload_that_may_replace_is_not_gone_on_with_by_one_that_may_not(begin, penstock, grid, place, large):
    url, door = grid.here_door.url(f"{place}/large"), grid.here_door
    before = unfinished_at(grid.here)
    process = begin("copy", large, url, "--overwrite", "--bwlimit", SLOW)
    try:
        eventually("a part has arrived", lambda: unfinished_at(grid.here) > before + LARGE // 8)
    finally:
        process.kill()
        process.wait()
    old = parts_at(grid.here)
    process = begin("copy", large, url, "--bwlimit", STEADY)
    try:
        eventually("another upload has begun", lambda: parts_at(grid.here) - old)
        with held(process):
            door.put(f"{place}/large", b"of another")
        _, err = process.communicate(timeout=60)
        assert process.returncode == 1 and b"exists with different content" in err, err
        eventually("the old part was given up", lambda: old - parts_at(grid.here))
    finally:
        process.kill()
        process.wait()
    assert door.get(f"{place}/large") == b"of another"


class Cutter:
    """In front of a door: cuts the first connections that carry much, in the middle."""

    def __init__(self, host, port, cuts, after):
        self.target, self.cuts, self.after = (host, port), cuts, after
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        self.guard = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self.carry, args=pair, daemon=True).start()

    def carry(self, source, sink):
        carried = 0
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
                carried += len(data)
                if carried > self.after and self.may_cut():
                    break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def may_cut(self):
        with self.guard:
            self.cuts -= 1
            return self.cuts >= 0


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_line_that_breaks_costs_only_what_was_on_it(penstock, grid, place, large, tmp_path, way):
    host, port = grid.here.door.removeprefix("https://").split(":")
    with Cutter(host, int(port), cuts=5, after=LARGE // 8) as cutter:
        url = f"https://{host}:{cutter.port}{place}/large"
        ends = (large, url) if way == "up" else (url, tmp_path / "back")
        if way == "down":
            grid.here_door.put(f"{place}/large", large.read_bytes())
        told = penstock("copy", *ends, json_output=True)
        # More cuts than attempts without progress are allowed.
        assert cutter.cuts <= 0 and told["copied"] == 1 and told["continued_bytes"] > LARGE // 2
    got = grid.here_door.get(f"{place}/large") if way == "up" else (tmp_path / "back").read_bytes()
    assert got == large.read_bytes()


def test_a_server_that_takes_no_pieces_gets_the_whole_file(penstock, faulty, place, large):
    told = penstock("copy", large, f"{faulty.url}{place}/large", json_output=True)
    assert told["copied"] == 1 and faulty.files[f"{place}/large"] == large.read_bytes()
    assert not faulty.requests("PATCH", f"{place}/large")


# What others do meanwhile


def part_name(name):
    return f".penstock-{hashlib.sha256(name.encode()).hexdigest()[:32]}.part"


def wait_for_part(process, site_or_target, before=0):
    """Until a part of a copy is there: at a site of an upload, in a directory of a download."""

    def size():
        if hasattr(site_or_target, "seen"):
            return unfinished_at(site_or_target)
        return sum(path.stat().st_size for path in site_or_target.glob(".penstock-*.part"))

    eventually("a part has arrived", lambda: size() > before + LARGE // 16)


def test_a_file_that_changes_while_it_is_sent_replaces_nothing(begin, penstock, grid, place, large):
    url, good = grid.here_door.url(f"{place}/large"), content("good", 1000)
    grid.here_door.put(f"{place}/large", good)
    before = unfinished_at(grid.here)
    process = begin("copy", "--overwrite", large, url, "--bwlimit", STEADY)
    try:
        wait_for_part(process, grid.here, before)
        with held(process), large.open("r+b") as file:
            file.write(b"another version")
            file.seek(0, os.SEEK_END)
            file.write(b"and more of it")
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 7, err
    assert b"the file changed while it was copied" in err, err
    assert grid.here_door.get(f"{place}/large") == good
    penstock("copy", "--overwrite", large, url)
    assert grid.here_door.get(f"{place}/large") == large.read_bytes()


def test_an_upload_of_a_file_that_was_rewritten_with_its_old_times_begins_anew(begin, penstock, grid, place, large):
    url = grid.here_door.url(f"{place}/large")
    cut_off(begin("copy", large, url, "--bwlimit", SLOW), grid.here)
    times, changed = large.stat(), content("changed", LARGE)
    with large.open("r+b") as file:
        file.write(changed)
    os.utime(large, ns=(times.st_atime_ns, times.st_mtime_ns))
    told = penstock("copy", large, url, json_output=True)
    assert (told["copied"], told["continued_bytes"]) == (1, 0)
    assert grid.here_door.get(f"{place}/large") == changed


def cut_off(process, site):
    """Kills an upload when a part of it is there."""
    try:
        wait_for_part(process, site, unfinished_at(site))
    finally:
        process.kill()
        process.wait()


def test_a_mixture_of_two_versions_is_refused_before_it_replaces_anything(begin, penstock, grid, place, large, state):
    url, good = grid.here_door.url(f"{place}/large"), content("good", 1000)
    grid.here_door.put(f"{place}/large", good)
    cut_off(begin("copy", "--overwrite", large, url, "--bwlimit", SLOW), grid.here)
    large.write_bytes(content("changed", LARGE))
    # As on a file system that does not keep times well.
    [note] = (state / "penstock/uploads").iterdir()
    now = large.stat()
    times = {"modified_nanos": now.st_mtime_ns, "changed_nanos": now.st_ctime_ns, "inode": now.st_ino}
    note.write_text(json.dumps(json.loads(note.read_text()) | times))
    penstock("copy", "--overwrite", large, url, exit_code=6)
    assert grid.here_door.get(f"{place}/large") == good
    told = penstock("copy", "--overwrite", large, url, json_output=True)
    assert (told["copied"], told["continued_bytes"]) == (1, 0)
    assert grid.here_door.get(f"{place}/large") == large.read_bytes()


@pytest.mark.parametrize("appeared", ["file", "link"])
def test_a_download_replaces_nothing_that_appeared_meanwhile(begin, grid, place, tmp_path, appeared):
    grid.here_door.put(f"{place}/large", content("large", LARGE))
    target = tmp_path / "target"
    target.mkdir()
    here = target / "here"
    process = begin("copy", grid.here_door.url(f"{place}/large"), here, "--bwlimit", STEADY)
    try:
        wait_for_part(process, target)
        with held(process):
            here.write_bytes(b"precious") if appeared == "file" else here.symlink_to("nowhere")
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1 and b"exists with different content; use --overwrite" in err, err
    assert here.is_symlink() if appeared == "link" else here.read_bytes() == b"precious"


def test_a_download_that_replaces_a_file_keeps_its_mode_and_replaces_a_link_itself(penstock, grid, place, tmp_path):
    grid.here_door.put(f"{place}/f", b"new")
    url = grid.here_door.url(f"{place}/f")
    private, victim, link = tmp_path / "private", tmp_path / "victim", tmp_path / "link"
    for path in (private, victim):
        path.write_bytes(b"old")
    private.chmod(0o600)
    penstock("copy", "--overwrite", url, private)
    assert private.read_bytes() == b"new" and private.stat().st_mode & 0o777 == 0o600
    link.symlink_to(victim)
    shown = penstock("copy", url, link, exit_code=1)
    assert "exists with different content" in shown
    penstock("copy", "--overwrite", url, link)
    assert not link.is_symlink() and link.read_bytes() == b"new" and victim.read_bytes() == b"old"


def test_what_has_the_name_of_a_part_is_neither_copied_nor_believed(penstock, grid, place, tmp_path):
    data, url = content("large", 20_000_000), grid.here_door.url(place)
    part, note = part_name("f"), part_name("f").replace(".part", ".json")
    forged = {"version": 1, "source": f"{url}/f", "etag": None, "size": len(data)}
    beside = {part: b"forged" + data[6:1000], note: json.dumps(forged).encode(), f"{part}/x": b"x"}
    grid.here_door.put(f"{place}/f", data)
    for name in (part, note):
        grid.here_door.put(f"{place}/{name}", beside[name])
    grid.here_door.put(f"{place}/d/{part}/x", b"x")
    back = tmp_path / "back"
    for command in (["copy"], ["sync", "--yes"]):
        report = penstock(*command, url, back, json_output=True)
        assert files_of(back) == {"f": data} and not list((back / "d").iterdir())
        kinds = {left["name"].removeprefix(f"{url}/"): left["kind"] for left in report["left_out"]}
        assert kinds == dict.fromkeys([part, note, f"d/{part}/x"], "part of a download")
    (back / "f").unlink()
    for name in (part, note):
        (back / name).write_bytes(beside[name])
    told = penstock("copy", url, back, json_output=True)
    assert (told["copied"], told["continued_bytes"]) == (1, 0) and (back / "f").read_bytes() == data
    # On the way up they are no files of the tree either, and sync leaves them where they are.
    (back / part).write_bytes(beside[part])
    there = grid.there_door.url(place)
    report = penstock("copy", back, there, json_output=True)
    assert (report["copied"], len(report["left_out"])) == (1, 2)
    assert not grid.there_door.exists(f"{place}/{part}")
    penstock("sync", "--yes", there, back)
    assert (back / part).exists()


def test_no_link_below_the_destination_is_followed(penstock, grid, place, tmp_path):
    for name in ("sub/job", "f"):
        grid.here_door.put(f"{place}/{name}", name.encode())
    url, elsewhere, mirror = grid.here_door.url(place), tmp_path / "elsewhere", tmp_path / "mirror"
    victim = elsewhere / "victim"
    elsewhere.mkdir()
    mirror.mkdir()
    victim.write_bytes(b"precious")
    (mirror / "sub").symlink_to(elsewhere)
    for command in (["copy"], ["copy", "-n"], ["copy", "--overwrite"], ["sync", "--yes"]):
        shown = penstock(*command, url, mirror, exit_code=7)
        assert f"{mirror}/sub is a symbolic link, and the source has a directory of that name" in shown
    assert [path.name for path in elsewhere.iterdir()] == ["victim"]
    assert [path.name for path in mirror.iterdir()] == ["sub"] and (mirror / "sub").is_symlink()
    # What is typed may be a link.
    penstock("copy", f"{url}/sub", mirror / "sub")
    assert (elsewhere / "job").read_bytes() == b"sub/job"
    (mirror / "sub").unlink()
    (mirror / part_name("f")).symlink_to(victim)
    penstock("sync", "--yes", url, mirror)
    assert files_of(mirror) == {"sub/job": b"sub/job", "f": b"f"} and not (mirror / "f").is_symlink()
    assert victim.read_bytes() == b"precious"


def test_a_server_does_not_choose_the_local_name(penstock, faulty, place, tmp_path):
    faulty.offer(f"{place}/readme", b"export PATH=/evil\n")
    target = tmp_path / "target"
    target.mkdir()

    def lists(name):
        properties = "<D:propstat><D:prop><D:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>"
        entry = f"<D:response><D:href>{place}/{name}</D:href>{properties}</D:response>"
        body = f'<D:multistatus xmlns:D="DAV:">{entry}</D:multistatus>'.encode()
        faulty.answers["PROPFIND", f"{place}/readme"] = lambda exchange: exchange.reply(207, body)

    lists(".bash_profile")
    shown = penstock("copy", f"{faulty.url}{place}/readme", target, exit_code=5)
    assert f"the listing names '{place}/.bash_profile' and not what was asked for" in shown
    assert list(target.iterdir()) == []
    lists("readme")
    penstock("copy", f"{faulty.url}{place}/readme", target)
    assert files_of(target) == {"readme": b"export PATH=/evil\n"}


# What is meant


def test_patterns_choose_and_a_dry_run_changes_nothing(penstock, grid, place, tmp_path):
    names = ["a.root", "b.txt", "run/c.root", "run/tmp/d.root", "run/x.tmp", "other/e.txt"]
    top = make_tree(tmp_path / "tree", names)
    url = grid.here_door.url(place)
    words = ["copy", top, url, "--include", "*.root", "--exclude", "tmp/"]
    told = penstock(*words, "--dry-run", json_output=True)
    assert (told["would_copy"], told["skipped"], told["files"]) == (2, 0, 2)
    assert not grid.here_door.exists(place)
    shown = penstock(*words, "--dry-run")
    assert "would copy" in shown and "nothing was changed" in shown
    penstock(*words)
    assert set(grid.here_door.list(place)) == {place, f"{place}/a.root", f"{place}/run"}
    assert set(grid.here_door.list(f"{place}/run")) == {f"{place}/run", f"{place}/run/c.root"}
    back = tmp_path / "back"
    assert penstock("copy", url, back, "--exclude", "/run/", "-n", json_output=True)["would_copy"] == 1
    assert not back.exists()
    penstock("copy", url, back, "--exclude", "/run/")
    assert set(files_of(back)) == {"a.root"}
    there = grid.there_door.url(place)
    told = penstock("copy", url, there, "--include", "/run/*", "-n", json_output=True)
    assert told["would_copy"] == 1 and not grid.there_door.exists(place)
    for pattern in ("a[b", "../x", ""):
        penstock("copy", top, url, "--include", pattern, exit_code=2)


def test_a_bandwidth_limit_holds_for_all_files_together(penstock, grid, place, tmp_path):
    top = tmp_path / "tree"
    top.mkdir()
    for number in range(6):
        (top / str(number)).write_bytes(content(number, 500_000))
    url = grid.here_door.url(place)
    told = penstock("copy", top, url, "--bwlimit", "1.5 MB/s", json_output=True)
    assert 1.5 <= told["seconds"] < 10, told
    told = penstock("copy", url, tmp_path / "back", "--bwlimit", "1500k", json_output=True)
    assert 1.5 <= told["seconds"] < 10, told
    shown = penstock("copy", url, grid.there_door.url(place), "--bwlimit", "1M", exit_code=2)
    assert "penstock se set" in shown
    penstock("copy", top, url, "--bwlimit", "fast", exit_code=2)


def test_a_copy_below_a_file_ends(penstock, grid, place, tmp_path):
    grid.here_door.put(f"{place}/file", b"x")
    top = make_tree(tmp_path / "tree", ["d/a"])
    (top / "empty").mkdir()
    for below in ("/file", "/file/sub", "/file/sub/deeper"):
        shown = penstock("copy", top, grid.here_door.url(place + below), exit_code=1)
        assert "is a file" in shown, shown
    penstock("copy", top / "d", grid.here_door.url(f"{place}/other"))
    grid.here_door.put(f"{place}/other/empty", b"x")
    shown = penstock("sync", "--yes", top, grid.here_door.url(f"{place}/other"), exit_code=1)
    assert "is a file" in shown and grid.here_door.get(f"{place}/other/empty") == b"x"


# Names and room


def test_files_and_directories_are_moved_within_a_site(penstock, grid, place):
    door = grid.here_door
    for name in ("a", "taken", "d/x"):
        door.put(f"{place}/{name}", name.encode())
    url = door.url
    penstock("mv", url(f"{place}/a"), url(f"{place}/b"))
    assert door.get(f"{place}/b") == b"a" and not door.exists(f"{place}/a")
    shown = penstock("mv", url(f"{place}/b"), url(f"{place}/taken"), exit_code=1)
    assert "already exists; use --overwrite to replace it" in shown and door.get(f"{place}/taken") == b"taken"
    told = penstock("mv", url(f"{place}/b"), url(f"{place}/taken"), "--overwrite", json_output=True)
    assert told["destination"] == url(f"{place}/taken") and door.get(f"{place}/taken") == b"a"
    penstock("mv", url(f"{place}/taken"), url(f"{place}/d"))
    penstock("mv", url(f"{place}/d"), url(f"{place}/e"))
    assert set(door.list(f"{place}/e")) == {f"{place}/e", f"{place}/e/taken", f"{place}/e/x"}
    for name in ("x", "t/x/1", "t/x/2", "y/z"):
        door.put(f"{place}/{name}", name.encode())
    for words, told in (
        (["x", "t"], "directories are not replaced"),
        (["y", "t/x/1"], "a directory does not replace it"),
    ):
        shown = penstock("mv", "--overwrite", *(url(f"{place}/{name}") for name in words), exit_code=1)
        assert told in shown, shown
    assert door.get(f"{place}/t/x/2") == b"t/x/2" and door.get(f"{place}/x") == b"x" and door.exists(f"{place}/y/z")
    penstock("mv", url(f"{place}/nothing"), url(f"{place}/f"), exit_code=4)
    shown = penstock("mv", url(f"{place}/e/x"), grid.there_door.url(f"{place}/x"), exit_code=2)
    assert "penstock copy" in shown and "penstock rm" in shown


def test_what_is_there_and_what_room_is_left_are_told(penstock, grid, place):
    door = grid.here_door
    for name, size in (("run/a/x", 1000), ("run/a/y", 2000), ("run/z", 4000), ("top", 8000)):
        door.put(f"{place}/{name}", content(name, size))
    url = door.url(place)
    [told] = penstock("du", url, json_output=True)
    assert (told["files"], told["bytes"]) == (4, 15_000)
    assert told["directories"] == [{"path": "run", "files": 3, "bytes": 7000}]
    [told] = penstock("du", url, "-d", "2", "--include", "x", json_output=True)
    assert told["bytes"] == 1000 and {"path": "run/a", "files": 1, "bytes": 1000} in told["directories"]
    shown = penstock("du", url, door.url(f"{place}/nothing"), exit_code=4)
    assert "15.0 kB" in shown and "does not exist" in shown
    [room] = penstock("df", json_output=True)
    assert room["available_bytes"] > 0 and room["used_bytes"] >= 15_000
    assert room["pools"] and all(pool["free_bytes"] > 0 for pool in room["pools"])
    assert sum(pool["used_bytes"] for pool in room["pools"]) >= room["used_bytes"]
    assert "FREE" in penstock("df", url) and "pool " in penstock("df")


# Several at once


def test_of_several_what_can_be_done_is_done_and_the_gravest_decides(penstock, grid, place):
    door = grid.here_door
    for name in ("a", "b"):
        door.put(f"{place}/{name}", name.encode())
    door.put(f"{place}/d/e/f", b"deep")
    door.ask("MKCOL", f"{place}/empty")
    a, b, missing = (door.url(f"{place}/{name}") for name in ("a", "b", "missing"))
    shown = penstock("cat", a, missing, b, exit_code=4)
    assert shown.startswith("ab") and f"{missing} does not exist" in shown and "1 of 3 failed" in shown
    shown = penstock("cat", a, door.url(f"{place}/d"), missing, exit_code=4)
    assert "is a directory" in shown and "2 of 3 failed" in shown
    shown = penstock("ls", door.url(f"{place}/d"), missing, door.url(f"{place}/empty"), exit_code=4)
    assert "e/" in shown and "does not exist" in shown
    rows = penstock("ls", "-r", door.url(place), json_output=True)
    kinds = {row["url"].removeprefix(door.url(place)): row["is_directory"] for row in rows}
    assert kinds == {"/a": False, "/b": False, "/d": True, "/d/e": True, "/d/e/f": False, "/empty": True}
    refused = "http://127.0.0.2:9/x"
    penstock("stat", a, missing, refused, "--token-over-http", exit_code=5)
    penstock("rm", missing, a, exit_code=4)
    assert not door.exists(f"{place}/a")


# Jobs of trees, and what moves


def test_a_tree_is_submitted_as_jobs_of_bounded_size(penstock, grid, place, tmp_path):
    names = [f"run/{number}.root" for number in range(5)] + ["b c/x.root", "left/out.txt"]
    penstock("copy", make_tree(tmp_path / "tree", names), grid.here_door.url(place))
    ends = [grid.here_door.url(f"{place}/"), grid.there_door.url(f"{place}/there/")]
    words = ["submit", "-r", *ends, "--include", "*.root", "--files-per-job", "4", "--wait"]
    told = penstock(*words, json_output=True)
    assert len(told) == 2 and sum(job["totals"]["arrived"] for job in told) == 6
    penstock("copy", ends[1], tmp_path / "back")
    assert files_of(tmp_path / "back") == {name: content(name, 1000 + len(name)) for name in names[:-1]}
    penstock("submit", "-r", grid.here_door.url(f"{place}/run/0.root"), ends[1], exit_code=2)
    penstock("submit", "-r", grid.here_door.url(f"{place}/nothing"), ends[1], exit_code=4)


def test_bytes_that_move_are_told_everywhere_alike(begin, penstock, grid, faulty, place):
    size = 4_000_000
    data = content(place, size)
    throttle = Throttle(data, bytes_per_second=150_000)
    source = faulty.offer(f"{place}/a", data, get=throttle)
    waiting = begin("submit", "--wait", source, grid.there_door.url(f"{place}/b"))
    try:
        job = waiting.stdout.readline().decode().strip()

        def moving():
            [told] = penstock("status", job, json_output=True)
            seen = told.get("moving")
            return seen if seen and seen["moved_bytes"] > size // 20 else None

        seen = eventually("bytes of it are told", moving)
        assert seen["files"] == 1 and seen["size_bytes"] == size
        assert 0 < seen["moved_bytes"] <= size and 10_000 < seen["bytes_per_second"] < 4_000_000
        for words in (["status", job], ["list"], ["explain", job]):
            assert "1 file moving: " in (shown := penstock(*words)) and "of 4.0 MB, " in shown, shown
        for words in (["status", "--files", job], ["find", job]):
            assert " of 4.0 MB, " in (shown := penstock(*words)), shown
        throttle.open()
        _, err = waiting.communicate(timeout=60)
        assert waiting.returncode == 0, err
    finally:
        throttle.open()
        waiting.kill()
        waiting.wait()
    assert " of 4.0 MB" not in penstock("list")
