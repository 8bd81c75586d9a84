"""`penstock sync` and `mv`: both sides are made the same, and nothing is removed or replaced that was not seen."""

import json
import os
import re
from email.utils import formatdate

import pytest

from .clients import adler32
from .copy_commands import SLOW, STEADY, files_of, held, make_tree, unfinished_at
from .copy_commands import begin, large, penstock, state  # noqa: F401: fixtures
from .folding_server import DOOR, FoldingServer
from .waiting import eventually

@pytest.mark.parametrize("way", ["up", "down", "between"])
def test_sync_makes_both_sides_the_same(penstock, grid, place, tmp_path, way):
    top = make_tree(tmp_path / "tree", ["a", "b", "d/e"])
    old = make_tree(tmp_path / "old", ["a", "gone", "old/deep/x", "old/y", "kept.log"])
    (old / "a").write_bytes(b"changed since")
    url, there = grid.here_door.url(f"{place}/here"), grid.there_door.url(f"{place}/there")
    source, target = {"up": (top, there), "down": (url, old), "between": (url, there)}[way]
    if way != "up":
        penstock("copy", top, url)
    if way != "down":
        penstock("copy", old, there)

    def now():
        if way == "down":
            return files_of(old)
        seen = tmp_path / f"seen-{len(list(tmp_path.iterdir()))}"
        penstock("copy", there, seen)
        return files_of(seen)

    before = now()
    sync = ["sync", source, target, "--exclude", "*.log"]
    told = penstock(*sync, "--dry-run", json_output=True)
    assert (told["would_copy"], told["would_replace"], told["would_remove"]) == (2, 1, 5)
    shown = penstock(*sync, exit_code=2)
    assert "3 files and 2 directories" in shown and "nothing was changed" in shown
    shown = penstock(*sync, "--yes", "--delete-max", "2", exit_code=2)
    assert "--delete-max allows removing 2" in shown and now() == before
    told = penstock(*sync, "--yes", json_output=True)
    assert (told["copied"], told["removed"], told["failed_files"]) == (3, 3, 0)
    expected = files_of(top) | {"kept.log": before["kept.log"]}
    assert now() == expected
    told = penstock(*sync, json_output=True)
    assert (told["copied"], told["skipped"], told["removed"]) == (0, 3, 0)


def test_sync_removes_nothing_when_something_could_not_be_copied(penstock, grid, place, tmp_path):
    top = make_tree(tmp_path / "tree", ["a"])
    with open(os.path.join(os.fsencode(top), b"bad\xff"), "wb") as file:
        file.write(b"x")
    url = grid.here_door.url(place)
    grid.here_door.put(f"{place}/gone", b"x")
    shown = penstock("sync", top, url, "--yes", exit_code=1)
    assert "nothing was removed, because some files could not be copied" in shown
    assert grid.here_door.exists(f"{place}/gone") and grid.here_door.exists(f"{place}/a")
    penstock("sync", top / "a", url, "--yes", exit_code=2)


def test_a_change_that_adler32_does_not_see_is_copied(penstock, grid, place, tmp_path):
    assert adler32(b"run 131") == adler32(b"run 212")
    top = tmp_path / "tree"
    top.mkdir()
    url, there = grid.here_door.url(place), grid.there_door.url(place)
    for text in ("run 131", "run 212"):
        (top / "f").write_text(text)
        for ends in ((top, url), (url, there), (there, tmp_path / "back")):
            told = penstock("sync", *ends, json_output=True)
            assert (told["copied"], told["skipped"]) == (1, 0), ends
            assert penstock("sync", *ends, json_output=True)["skipped"] == 1, ends
    assert (tmp_path / "back/f").read_text() == "run 212"


def test_a_sync_between_overlapping_directories_is_refused(penstock, grid, place):
    door = grid.here_door
    for name in ("x", "b/y"):
        door.put(f"{place}/{name}", name.encode())
    top = door.url(place)
    for words in (["sync", f"{top}/b", top], ["sync", top, f"{top}/b"], ["sync", f"{top}/%62", f"{top}//"]):
        shown = penstock(*words, "--yes", exit_code=2)
        assert "source" in shown, shown
    for words in ([top, f"{top}/b"], [f"{top}/x", top], [top, top]):
        penstock("copy", *words, "--overwrite", exit_code=2)
    assert door.get(f"{place}/x") == b"x" and door.get(f"{place}/b/y") == b"b/y"
    penstock("copy", f"{top}/b", top)
    assert door.get(f"{place}/y") == b"b/y"


def test_sync_removes_only_what_it_has_listed(begin, grid, place, tmp_path, large):
    """Others write to the destination while a sync copies."""
    door = grid.here_door
    top = tmp_path / "tree"
    top.mkdir()
    large.rename(top / "large")
    for name in ("extra", "newer", "gone", "old/a"):
        door.put(f"{place}/{name}", b"listed")
    before = unfinished_at(grid.here)
    process = begin("sync", top, door.url(place), "--yes", "--bwlimit", STEADY, "--json")
    try:
        eventually("it copies", lambda: unfinished_at(grid.here) > before)
        with held(process):
            door.ask("DELETE", f"{place}/extra")
            for name in ("extra/result1", "extra/result2", "old/b"):
                door.put(f"{place}/{name}", b"new")
            door.put(f"{place}/newer", b"NEWER!", expect=204)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, (out, err)
    report = json.loads(out)["report"]
    assert (report["removed"], report["failed_files"]) == (2, 2), report
    assert all("has changed since it was listed" in failed["error"] for failed in report["failed"])
    for name, data in (("extra/result1", b"new"), ("extra/result2", b"new"), ("old/b", b"new"), ("newer", b"NEWER!")):
        assert door.get(f"{place}/{name}") == data
    assert not door.exists(f"{place}/gone") and not door.exists(f"{place}/old/a")


def test_sync_replaces_only_what_it_has_compared(begin, grid, place, tmp_path, large):
    """Somebody else writes the file while its new content is on the way."""
    door = grid.here_door
    top = tmp_path / "tree"
    top.mkdir()
    large.rename(top / "large")
    door.put(f"{place}/large", b"compared")
    before = unfinished_at(grid.here)
    process = begin("sync", top, door.url(place), "--yes", "--bwlimit", SLOW, "--json")
    try:
        eventually("it copies", lambda: unfinished_at(grid.here) > before)
        door.put(f"{place}/large", b"NEWER!", expect=204)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, (out, err)
    assert "has changed since it was compared" in json.loads(out)["error"], out
    assert door.get(f"{place}/large") == b"NEWER!" and unfinished_at(grid.here) == before


def test_what_a_link_or_an_empty_source_hides_stays(penstock, grid, place, tmp_path):
    door = grid.here_door
    top = make_tree(tmp_path / "tree", ["run/a", "run/deep/b", "y"])
    url = door.url(place)
    penstock("sync", top, url)
    (top / "run").rename(tmp_path / "elsewhere")
    (top / "run").symlink_to(tmp_path / "elsewhere")
    told = penstock("sync", "--yes", top, url, json_output=True)
    assert told["removed"] == 0 and door.exists(f"{place}/run/deep/b")
    empty = tmp_path / "not mounted"
    empty.mkdir()
    shown = penstock("sync", "--yes", empty, url, exit_code=2)
    assert "the source has no files at all; nothing was changed" in shown and door.exists(f"{place}/y")
    told = penstock("sync", "--yes", "--allow-empty", empty, url, json_output=True)
    assert told["removed"] == 3 and not door.exists(f"{place}/run")


def test_sync_leaves_copies_to_which_the_server_gave_another_name(penstock, tmp_path):
    top = make_tree(tmp_path / "tree", ["Data.root", "b"])
    with FoldingServer() as server:
        server.files["/t/extra"] = b"old"
        for _ in range(2):
            shown = penstock("sync", top, server.url, "--yes", exit_code=1)
            assert "for example 'Data.root'" in shown, shown
            assert server.files["/t/data.root"] == (top / "Data.root").read_bytes()
        assert not server.removed
        (top / "Data.root").rename(top / "data.root")
        told = penstock("sync", top, server.url, "--yes", json_output=True)
        assert told["removed"] == 1 and server.removed == ["/t/extra"]


def test_directories_stay_at_a_server_that_would_remove_what_is_in_them(penstock, tmp_path):
    top = make_tree(tmp_path / "tree", ["b"])
    with FoldingServer() as server:
        server.files["/t/old/extra"] = b"old"
        shown = penstock("sync", top, server.url, "--yes")
        assert "1 directory that the source does not have will stay" in shown
        assert server.removed == ["/t/old/extra"]


def test_sync_leaves_files_that_a_later_look_might_mistake(penstock, tmp_path):
    top = make_tree(tmp_path / "tree", ["b"])
    with FoldingServer() as server:
        server.files["/t/extra"] = b"old"
        for modified, told in (
            (None, "neither its version nor both its size and its time"),
            (formatdate(usegmt=True), "it had changed only seconds before"),
        ):
            server.modified = modified
            shown = penstock("sync", top, server.url, "--yes", exit_code=1)
            assert told in shown and not server.removed, shown
        server.tells_etags = True
        penstock("sync", top, server.url, "--yes")
        assert server.removed == ["/t/extra"]


def test_two_names_of_a_server_are_found_out(penstock):
    with FoldingServer() as server:
        server.files |= {"/t/x": b"x", "/t/b/y": b"y"}
        before = dict(server.files)
        url = server.url
        alias = url.replace("127.0.0.1", "localhost")
        for tells_etags in (False, True):
            server.tells_etags = tells_etags
            for words in (
                ["sync", "--yes", f"{alias}/b", url],
                ["sync", "--yes", alias, f"{url}/b"],
                ["sync", "--yes", "-n", alias, url],
                ["copy", "--overwrite", alias, url],
                ["copy", "--overwrite", f"{alias}/x", url],
                ["mv", f"{alias}/x", f"{url}/z"],
            ):
                shown = penstock(*words, exit_code=2)
                assert "lead to the same server" in shown, shown
        # By another path as well.
        shown = penstock("sync", "--yes", f"{alias.replace('/t', DOOR + '/t')}/b", url, exit_code=2)
        assert "version of a file of the source" in shown
        server.options["Penstock-Storage"] = "6f4f4d4e-0f4e-4c5d-9a55-0d5cf1f4b3aa"
        penstock("sync", "--yes", f"{alias}/b", url, exit_code=2)
        assert server.files == before and not server.removed and not server.moves


@pytest.mark.parametrize("way", ["conditions", "no conditions", "no versions"])
def test_mv_replaces_what_it_has_seen_and_nothing_else(penstock, way):
    with FoldingServer() as server:
        server.tells_etags = way != "no versions"
        server.options = {"DAV": "1, 2"} if way == "conditions" else {}
        server.files |= {"/t/a": b"a", "/t/b": b"seen"}
        ends = [f"{server.url}/a", f"{server.url}/b"]

        def another(new):
            def comes():
                if server.files.pop("/t/b", None) is not None:
                    server.files |= new

            return comes

        for new in ({"/t/b/result1": b"1", "/t/b/result2": b"2"}, {"/t/b": b"NEWER"}):
            server.files = {"/t/a": b"a", "/t/b": b"seen"}
            server.before_move = another(new)
            shown = penstock("mv", "--overwrite", *ends, exit_code=1)
            assert "has changed meanwhile; nothing was moved" in shown, shown
            assert server.files == {"/t/a": b"a"} | new
        server.before_move = lambda: None
        server.moves.clear()
        server.files = {"/t/a": b"a", "/t/b": b"seen"}
        penstock("mv", "--overwrite", *ends)
        assert server.files == {"/t/b": b"a"}
        assert len(server.moves) == (1 if way == "conditions" else 2)
        if way == "conditions":
            assert re.fullmatch(r'<.*/t/b> \(\["\w+"\]\)', server.moves[0][3]), server.moves
            # A server that knows locks and no versions.
            server.files["/t/a"], server.evaluates = b"A", lambda *_: False
            server.moves.clear()
            penstock("mv", "--overwrite", *ends)
            assert server.files == {"/t/b": b"A"} and len(server.moves) == 3


def test_a_file_that_was_moved_aside_is_not_lost_with_an_answer(penstock):
    with FoldingServer() as server:
        ends = [f"{server.url}/a", f"{server.url}/b"]

        def mv(*unanswered, exit_code=1):
            server.files, server.unanswered = {"/t/a": b"a", "/t/b": b"b"}, set(unanswered)
            server.moves.clear()
            return penstock("mv", "--overwrite", *ends, exit_code=exit_code)

        mv(0, exit_code=5)
        assert server.files == {"/t/a": b"a", "/t/b": b"b"}
        # The answers to aside, and to its way back.
        shown = mv(0, 1)
        assert server.files == {"/t/a": b"a", "/t/b": b"b"}
        assert f"what was at {ends[1]} is still there, or at {server.url}/penstock-mv-" in shown, shown
        # The file has come, and the client does not know.
        shown = mv(1)
        (aside,) = set(server.files) - {"/t/b"}
        assert server.files == {"/t/b": b"a", aside: b"b"}
        assert aside in shown, shown
