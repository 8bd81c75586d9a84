"""The story of a path of a storage element: asked of its service over REST and by command, and of a site's directory."""

import json
import subprocess
import threading

import pytest

from .clients import Door, Service, content
from .waiting import eventually

SIZE = 3_000_000
# More than buffers of sockets hold, so that a mover stays while nobody reads.
LARGE = 60_000_000


@pytest.fixture
def grid(own_grid):
    for site in own_grid.sites:
        site.start()
    return own_grid


def told(site, path, *words):
    return json.loads(site.command("explain", "path", path, "--json", *words))


def causes(story):
    return [reason["cause"] for reason in story["reasons"]]


def recorded(site, path, is_there, *words):
    """Movers and refusals are recorded a moment after they end."""
    return eventually("it is recorded", lambda: (story := told(site, path, *words)) and is_there(story) and story)


def test_a_copied_file_tells_where_it_lies_and_how_it_came(grid):
    grid.here_door.put("/f", content("told", SIZE))
    job = grid.service.submit((grid.here_door.url("/f"), grid.there_door.url("/d/f")))
    grid.service.wait_finished(job)
    grid.there_door.get("/d/f")
    story = recorded(grid.there, "/d/f", lambda story: story["counts"]["reads"] and story["counts"]["writes"])
    entry, written = story["entry"], story["written"]
    assert (entry["kind"], entry["file_bytes"], entry["pool"]) == ("file", SIZE, story["pool"]["name"])
    assert entry["checksums"] == [f"adler32:{grid.there_door.checksum('/d/f')}"]
    assert story["pool"]["condition"] == "sound" and story["pool"]["movers_max"] > 0
    assert written["copy"].startswith(job) and written["bytes_per_second"] > 0
    assert written["at"] == entry["created"] and written["user"]
    assert story["reasons"] == [] and story["running"] == []
    assert [row["kind"] for row in story["changes"]] == ["creation"]
    read, write = story["attempts"]
    assert (read["operation"], read["bytes_moved"]) == ("read", SIZE)
    assert (write["operation"], write["copy"]) == ("copy", written["copy"])
    shown = grid.there.command("explain", "path", grid.there_door.url("/d/f"))
    for part in ("/d/f at https://", f"copy {written['copy']}", "sound", "no reason is known why a request should fail"):
        assert part in shown, shown
    # The same without the service, but for what runs.
    offline = told(grid.there, "/d/f", "--offline")
    assert "running" not in offline
    for key in ("entry", "written", "changes", "attempts", "reasons", "counts"):
        assert offline[key] == story[key], key


def test_why_a_request_failed_is_told_until_one_goes_well(grid):
    door = grid.there_door
    door.put("/d/f", b"data")
    door.put("/d/f", b"x", expect=412, **{"If-None-Match": "*"})
    story = recorded(grid.there, "/d/f", lambda story: story["counts"]["refusals"])
    assert causes(story) == ["refused"] and "412" in story["reasons"][0]["text"]
    assert door.get("/d/f") == b"data"
    story = recorded(grid.there, "/d/f", lambda story: story["counts"]["reads"])
    assert causes(story) == []
    refused = Door(grid.there, grid.there.token(scope="storage.read:/elsewhere"))
    assert refused.ask("GET", "/d/f").status_code == 403
    story = recorded(grid.there, "/d/f", lambda story: story["counts"]["refusals"] == 2)
    assert causes(story) == ["refused"] and "403" in story["reasons"][0]["text"]


def test_a_path_that_is_no_more_tells_what_became_of_it(grid):
    door, site = grid.there_door, grid.there
    for name in ("moved", "removed"):
        door.put(f"/d/{name}", b"data")
    moved = door.ask("MOVE", "/d/moved", headers={"Destination": door.url("/d/here")})
    assert moved.status_code == 201, moved.text
    assert door.ask("DELETE", "/d/removed").status_code == 204
    story = told(site, "/d/moved")
    assert causes(story)[0] == "renamed" and "/d/here" in story["reasons"][0]["text"] and "entry" not in story
    story = told(site, "/d/removed")
    assert causes(story)[0] == "removed" and "removed at" in story["reasons"][0]["text"]
    here = told(site, "/d/here")
    assert here["entry"]["kind"] == "file" and [row["kind"] for row in here["changes"]] == ["rename"]


def test_a_request_that_waits_for_a_mover_is_told_with_what_holds_it_up(own_grid):
    grid = own_grid
    grid.there.configure("[[storage.pool]]", movers_max=1)
    for site in grid.sites:
        site.start()
    door = grid.there_door
    door.put("/d/large", content("large", LARGE))
    held = door.ask("GET", "/d/large", stream=True)
    # Another client waits on a connection of its own.
    answers = []
    other = Door(grid.there, grid.token)
    thread = threading.Thread(target=lambda: answers.append(other.ask("GET", "/d/large").status_code))
    thread.start()
    try:
        story = recorded(grid.there, "/d/large", lambda story: "pool_busy" in causes(story) and len(story["running"]) > 1)
    finally:
        held.close()
        thread.join(60)
    assert answers == [200]
    assert sorted(mover["is_running"] for mover in story["running"]) == [False, True]
    [busy] = [reason["text"] for reason in story["reasons"] if reason["cause"] == "pool_busy"]
    assert "1 of 1 run" in busy and "for this path" in busy


def test_a_story_is_for_administrators_and_of_paths(grid):
    grid.there_door.put("/d/f", b"data")
    site = grid.there
    admin = Service(site, site.admin_token())

    def ask(service=admin, **query):
        return service.ask("GET", "/api/v1/explain/path", params=query)

    answer = ask(path="/d/f", seconds=3600)
    assert answer.status_code == 200, answer.text
    assert answer.json()["to"] - answer.json()["from"] == 3_600_000
    assert ask(Service(site, site.token()), path="/d/f").status_code == 403
    for query in ({}, {"path": "d/f"}, {"path": "/d/../f"}, {"path": "/d/f", "seconds": "0"}):
        assert ask(**query).status_code == 400, query
    assert ask(path="/d/none").json()["reasons"][0]["cause"] == "absent"
    line = [str(site.binary), "explain", "path", "/d/none", "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "nothing exists at this path" in done.stderr, done
    site.remove("storage")
    site.stop()
    site.start()
    assert ask(path="/d/f").status_code == 404
