"""What a site has recorded itself: collected while it runs, joined with the other end's, and accounted for."""

import json

import pyarrow.parquet
import pytest

from .clients import Door, content
from .test_records import Records
from .waiting import eventually

SIZES = [0, 70_000, 3_000_000]


@pytest.fixture
def copied(own_grid):
    """Three files that were copied from one site to the other, and one that could not be."""
    grid = own_grid
    for site in grid.sites:
        site.start()
    files = {f"/f{size}": content(str(size), size) for size in SIZES}
    for path, data in files.items():
        grid.here_door.put(path, data)
    pairs = [(grid.here_door.url(path), grid.there_door.url(path)) for path in files]
    grid.service.wait_finished(grid.service.submit(*pairs))
    missing = grid.service.submit((grid.here_door.url("/missing"), grid.there_door.url("/missing")))
    grid.service.wait_failed(missing)
    return grid


def collect(binary, site, directory, *words):
    records = Records(binary, directory)
    told = json.loads(records.run("records", "collect", "--dir", site.directory, "--into", directory, *words))
    assert told["invalid"] == 0
    return records, told


def wait_recorded(binary, site, directory, least):
    """Movers are recorded a moment after they end."""
    records = Records(binary, directory)

    def recorded():
        collect(binary, site, directory, "--view", "site")
        rows = records.rows()
        return rows if len([row for row in rows if "copy" in row]) >= least else None

    return eventually("the copies are recorded", recorded)


def test_both_ends_of_a_copy_record_it_by_one_name(binary, copied, tmp_path):
    ours, told = collect(binary, copied.here, tmp_path / "seen-vo", "--view", "vo")
    assert told["attempts"] == len(ours.rows()) >= len(SIZES) + 1
    landed = {row["copy"]: row for row in ours.rows() if row["outcome"] == "success"}
    assert sorted(row["bytes_moved"] for row in landed.values()) == SIZES
    failed = [row for row in ours.rows() if row["outcome"] == "failure"]
    assert failed and all(row["side"] == "source" and row["started"] <= row["ended"] for row in failed)

    receiving = wait_recorded(binary, copied.there, tmp_path / "seen-there", len(SIZES))
    sending = wait_recorded(binary, copied.here, tmp_path / "seen-here", len(SIZES))
    received = {row["copy"]: row for row in receiving if row["operation"] == "copy"}
    assert received.keys() == landed.keys()
    for name, row in received.items():
        assert row["bytes_moved"] == row["file_bytes"] == landed[name]["bytes_moved"]
        assert (row["view"], row["outcome"]) == ("site", "success")
    sent = {}
    for row in sending:
        if row["operation"] == "read":
            sent[row["copy"]] = sent.get(row["copy"], 0) + row["bytes_moved"]
    # Of an empty file there is nothing to fetch.
    expected = {name: row["bytes_moved"] for name, row in landed.items() if row["bytes_moved"]}
    assert {name: count for name, count in sent.items() if count} == expected


def test_what_was_collected_is_not_taken_twice_and_reconciles_exactly(binary, copied, tmp_path):
    ours, _ = collect(binary, copied.here, tmp_path / "seen-vo", "--view", "vo")
    wait_recorded(binary, copied.there, tmp_path / "seen-there", len(SIZES))
    for site, directory, view in ((copied.here, "seen-vo", "vo"), (copied.there, "seen-there", "site")):
        _, again = collect(binary, site, tmp_path / directory, "--view", view)
        assert again["attempts"] == 0
    told = json.loads(ours.run("account", "reconcile", tmp_path / "seen-vo", tmp_path / "seen-there"))
    assert told["all"]["matched"] == len(SIZES)
    assert told["all"]["first"] == told["all"]["second"] == sum(SIZES)
    assert told["all"]["terms"]["residue"] == 0


def test_changes_and_refusals_are_collected_by_the_name_of_their_copy(binary, copied, tmp_path):
    door = copied.there_door
    name = {"X-Request-ID": "by-hand-1", "SciTag": "66"}
    door.put("/own/f", b"data", **name)
    door.put("/own/f", b"x", expect=412, **{"If-None-Match": "*"}, **name)
    assert door.ask("DELETE", "/own", headers=name).status_code == 204
    directory = tmp_path / "seen-there"

    def refused():
        records, _ = collect(binary, copied.there, directory, "--view", "site")
        return [row for row in records.rows() if (row["operation"], row.get("copy")) == ("request", "by-hand-1")]

    [refusal] = eventually("the refusal is recorded", refused)
    assert (refusal["error_code"], refusal["outcome"]) == (412, "failure")
    records = Records(binary, directory)
    changes = records.rows("namespace_change")
    own = [row for row in changes if row.get("copy") == "by-hand-1"]
    assert [(row["kind"], row["path"], row.get("reason")) for row in own] == [
        ("directory_creation", "/own", "parent_missing"),
        ("creation", "/own/f", None),
        ("removal", "/own/f", "directory_removed"),
        ("directory_removal", "/own", None),
    ]
    assert all(row["challenge"] == "scitag:66" and row["client"] and row["user"] for row in own)
    assert own[1]["file_bytes"] == own[2]["file_bytes"] == 4 and own[1]["file"] == own[2]["file"]
    # Both ledgers name the copies that the service made.
    ours, _ = collect(binary, copied.here, tmp_path / "seen-vo", "--view", "vo")
    landed = {row["copy"] for row in ours.rows() if row["outcome"] == "success"}
    assert len(landed) == len(SIZES)
    assert landed <= {row.get("copy") for row in changes if row["kind"] == "creation"}
    _, again = collect(binary, copied.there, directory, "--view", "site")
    assert again["namespace_changes"] == again["incidents"] == 0


def test_a_killed_storage_element_tells_a_gap_and_each_change_that_it_answered(binary, own_grid, tmp_path):
    site, door = own_grid.there, own_grid.there_door
    for each in own_grid.sites:
        each.start()
    paths = [f"/d/f{number}" for number in range(20)]
    for path in paths:
        door.put(path, b"data")
    site.kill()
    site.start()
    records, _ = collect(binary, site, tmp_path / "records", "--view", "site")
    created = [row["path"] for row in records.rows("namespace_change") if row["kind"] == "creation"]
    assert created == paths
    [gap] = records.rows("incident")
    assert (gap["kind"], gap["code"]) == ("gap", "crash")
    assert gap["at"] <= gap["until"]


def test_what_clients_do_is_exported_with_who_asked_and_without_their_tokens(binary, own_grid, tmp_path):
    for each in own_grid.sites:
        each.start()
    site, door = own_grid.there, own_grid.there_door
    own = door.session.headers["Authorization"].removeprefix("Bearer ")
    data = content("whole", 70_000)
    door.put("/d/f", data)
    assert door.get("/d/f") == data
    assert door.get("/d/f", expect=206, Range="bytes=0-99") == data[:100]
    moved = door.ask("MOVE", "/d/f", headers={"Destination": door.url("/d/g")})
    assert moved.status_code == 201, moved.text
    assert door.ask("DELETE", "/d/g").status_code == 204
    token = own_grid.here.token(scope="storage.read:/")
    refused = Door(site, token).ask("PUT", f"/d/h?authz={token}", data=b"x")
    assert refused.status_code == 403, refused.text
    directory = tmp_path / "records"

    def recorded():
        records, _ = collect(binary, site, directory, "--view", "site")
        attempts = records.rows()
        done = {row["operation"] for row in attempts} >= {"read", "write", "request"}
        return (records, attempts) if done and sum(row["operation"] == "read" for row in attempts) == 2 else None

    records, attempts = eventually("all is recorded", recorded)
    reads = sorted((row["bytes_read"], row["file_bytes"]) for row in attempts if row["operation"] == "read")
    assert reads == [(100, 70_000), (70_000, 70_000)]
    [refusal] = [row for row in attempts if row["operation"] == "request"]
    assert (refusal["error_code"], refusal["source_path"]) == (403, "/d/h")
    lines, tables = tmp_path / "rows.jsonl", tmp_path / "rows"
    records.run("records", "export", directory, "--to", lines)
    records.run("records", "export", directory, "--to", tables, "--format", "parquet")
    told = pyarrow.parquet.read_table(tables / "namespace_change.parquet").to_pylist()
    kinds = [(row["kind"], row["path"], row["new_path"]) for row in told]
    assert kinds == [
        ("directory_creation", "/d", None),
        ("creation", "/d/f", None),
        ("rename", "/d/f", "/d/g"),
        ("removal", "/d/g", None),
    ]
    assert all(row["user"] and row["client"] for row in told)
    exported = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len([row for row in exported if row.get("new_path") == "/d/g"]) == 1
    # Users are named there, so nobody but their owner reads what is kept and what is exported; tokens are nowhere.
    kept = [path for path in directory.rglob("*") if path.is_file()]
    namespace = [path for path in site.directory.rglob("namespace.sqlite*") if path.suffix != ".lock"]
    assert kept and namespace
    for path in [*kept, *namespace, lines, *tables.iterdir()]:
        assert path.stat().st_mode & 0o077 == 0, path
        text = path.read_bytes()
        assert token.encode() not in text and own.encode() not in text, path


def test_a_file_that_finds_no_room_is_a_refusal_with_who_asked(binary, own_grid, tmp_path):
    own_grid.there.configure("[[storage.pool]]", capacity="8 MiB")
    for each in own_grid.sites:
        each.start()
    own_grid.there_door.put("/big", content("big", 12_000_000), expect=507)
    directory = tmp_path / "records"

    def refused():
        records, _ = collect(binary, own_grid.there, directory, "--view", "site")
        return [row for row in records.rows() if row["operation"] == "request"]

    [refusal] = eventually("the refusal is recorded", refused)
    assert (refusal["error_code"], refusal["source_path"], refusal["outcome"]) == (507, "/big", "failure")
    assert refusal["user"] and refusal["client"]


def test_a_name_that_is_none_is_not_recorded(binary, own_grid, tmp_path):
    for site in own_grid.sites:
        site.start()
    door = own_grid.there_door
    for name, path in (("x" * 129, "/longer"), ("a b", "/spaced"), ("x" * 128, "/long")):
        door.put(path, b"data", **{"X-Request-ID": name})
    rows = wait_recorded(binary, own_grid.there, tmp_path / "records", 1)
    told = {row["destination_path"]: row.get("copy") for row in rows}
    assert told == {"/longer": None, "/spaced": None, "/long": "x" * 128}


def test_without_anything_to_collect_the_remedy_is_told(binary, tmp_path):
    records = Records(binary, tmp_path / "records")
    records.run("records", "collect", "--dir", tmp_path / "none", "--into", tmp_path / "records", code=2)
    records.run("records", "collect", "--dir", tmp_path, "--into", tmp_path / "x", "--view", "network", code=2)


def test_minutes_of_pools_tell_what_passed_by_work_and_vo(binary, copied, tmp_path):
    copied.here_door.get("/f70000")
    # The minute that has begun is recorded at the end.
    for site in copied.sites:
        site.stop()

    def samples(site, name):
        records, told = collect(binary, site, tmp_path / f"records-{name}", "--view", "site")
        again, _ = collect(binary, site, tmp_path / f"records-{name}", "--view", "site")
        rows = [row for row in records.rows("sample") if row["subject_kind"] == "pool"]
        assert rows and len(again.rows("sample")) == len(records.rows("sample")), told
        return rows

    def bytes_of(rows, operation, way):
        return sum(row[way] for row in rows if row.get("operation") == operation)

    ours, theirs = samples(copied.here, "here"), samples(copied.there, "there")
    whole = sum(SIZES)
    assert bytes_of(ours, "write", "bytes_in") == bytes_of(ours, "copy", "bytes_out") == whole
    assert bytes_of(ours, "read", "bytes_out") == 70_000
    assert bytes_of(theirs, "copy", "bytes_in") == whole == bytes_of(theirs, None, "bytes_in")
    for row in (row for row in ours + theirs if "operation" not in row):
        assert row["bytes_free"] > 0 and row["reachable_permille"] == row["accepting_permille"] == 1000, row
        assert row["limit"] > 0 and row["server"], row
    assert {row["vo"] for row in theirs if row.get("operation") == "copy"} == {row["vo"] for row in ours if "vo" in row}
    tables = tmp_path / "tables"
    directory = tmp_path / "records-there"
    Records(binary, directory).run("records", "export", directory, "--to", tables, "--format", "parquet")
    told = pyarrow.parquet.read_table(tables / "sample.parquet").to_pylist()
    assert sum(row["bytes_in"] for row in told if row["operation"] == "copy") == whole
