"""Data sets on tape, and what drives did for whom: what clients say of files, kept by the storage element, waited for by its tape
libraries, and told by commands and by the document that WLCG collects."""

import json
import os
import subprocess
from base64 import b64encode

import fts3.rest.client.easy as fts3
import pytest
import requests

from .clients import content
from .test_files_on_tape import TapeLibraries, all_are, grid, locality, with_tape  # noqa: F401
from .waiting import eventually

SIZE = 200_000
HINTS = {
    "collocation_hints": {"0": "data23", "1": "RAW", "2": "data23.00452799.RAW"},
    "additional_hints": {"activity": "T0 Tape", "2": {"length": "3", "size": 3 * SIZE}},
}
SET = HINTS["collocation_hints"]["2"]
WITHIN = 120


@pytest.fixture
def lab(grid):  # noqa: F811
    """The second site has a library whose time runs fast, and waits very long for what was announced."""
    hsm = TapeLibraries(grid.there)
    hsm.settings |= {"data_set_wait": "2000d", "public_metrics": True}
    with_tape(grid.there, hsm)
    for site in grid.sites:
        site.start()
    return grid


def tape(site, *words):
    line = [str(site.binary), "tape", *words, "--dir", str(site.directory), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def data_sets(lab, *words):
    return {row["levels"][-1]: row for row in tape(lab.there, "data-sets", *words)["data_sets"]}


def hints(lab):
    """Files by what was said of them, whoever sent them."""
    counts = {}
    for row in tape(lab.there, "data-sets")["hints"]:
        counts[row["hint"]] = counts.get(row["hint"], 0) + row["files"]
    return counts


def submit(lab, names, **of_file):
    """With the unmodified client. Files go from the first site to tape at the second."""
    context = fts3.Context(lab.here.service, fts_access_token=lab.token, verify=True, no_creds=False)
    transfers = []
    for name in names:
        lab.here_door.put(f"/data/{name}", content(name, SIZE))
        source, destination = lab.here_door.url(f"/data/{name}"), lab.there_door.url(f"/tape/{name}")
        transfers.append(fts3.new_transfer(source, destination, filesize=SIZE, **of_file))
    return fts3.submit(context, fts3.new_job(transfers, archive_timeout=86_400))


def test_files_of_an_announced_data_set_wait_for_each_other_and_lie_together(lab, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(lab.here.certificates))
    first = submit(lab, ["a/f1", "b/f2"], archive_metadata=HINTS)
    lab.there_door.put("/tape/plain/f", content("plain", SIZE))
    eventually("a file of no data set goes to tape", lambda: all_are(lab.there_door, ["/tape/plain/f"], "TAPE"), WITHIN)
    eventually("both are known", lambda: data_sets(lab).get(SET, {}).get("files") == 2, WITHIN)
    # A restart in the middle changes nothing.
    lab.there.kill()
    lab.there.start()
    row = data_sets(lab, SET)[SET]
    assert row["levels"] == list(HINTS["collocation_hints"].values())
    assert (row["source"], row["expected_files"], row["expected_bytes"]) == ("client_metadata", 3, 3 * SIZE)
    assert (row["files"], row["on_tape_files"], row["is_complete"], row["archived"]) == (2, 0, False, None)
    assert set(locality(lab.there_door, "/tape/a/f1", "/tape/b/f2").values()) == {"DISK"}
    second = submit(lab, ["c/f3"], archive_metadata=HINTS)
    for job in first, second:
        lab.service.wait_finished(job, WITHIN)
    row = data_sets(lab, SET)[SET]
    assert (row["files"], row["bytes"], row["on_tape_files"], row["on_tape_bytes"]) == (3, 3 * SIZE, 3, 3 * SIZE)
    assert row["is_complete"] and row["archived"] >= row["first"]
    plain = data_sets(lab)["/tape/plain"]
    assert (plain["source"], plain["is_complete"], plain["on_tape_files"]) == ("path", None, 1)
    assert hints(lab) == {"named": 3, "absent": 1}
    account = tape(lab.there, "account")
    written = {row["activity"]: row["written_bytes"] for row in account["drive_times"]}
    assert written == {"T0 Tape": 3 * SIZE, None: SIZE}
    assert sum(row["occupied_ns"] for row in account["drive_times"]) > 0
    [verdict] = [row for row in account["hints"] if row["source"] == "client_metadata"]
    assert (verdict["verdict"], verdict["data_sets"]) == ("held", 1)
    text = lab.there.command("tape", "data-sets", SET)
    assert f"data23 / RAW / {SET} (named by its client, family raw)" in text, text
    assert "3 files" in text and "of 3 (" in text and "all on tape since" in text, text


def test_what_gfal2_sends_of_a_file_decides_its_data_set(lab, tmp_path):
    """gfal2 2.21 has no call for archive metadata; it sends them as a header of its configuration, with PUT and COPY alike."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "BEARER_TOKEN": lab.token}
    environment |= {"X509_CERT_DIR": str(lab.here.certificates), "GFAL_PYTHONBIN": "/usr/bin/python3"}
    note = b64encode(json.dumps(HINTS).encode()).decode()
    header = ["-D", f"HTTP PLUGIN:HEADERS=ArchiveMetadata:{note}"]

    def copy(source, name, *words):
        line = ["gfal-copy", "-p", *words, source, lab.there_door.url(f"/tape/{name}")]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    for name in ("f1", "f2", "f3", "g1", "g2"):
        (tmp_path / name).write_bytes(content(name, SIZE))
    copy(f"file://{tmp_path}/f1", "a/f1", *header)
    copy(f"file://{tmp_path}/f2", "b/f2", *header)
    eventually("both are known", lambda: data_sets(lab).get(SET, {}).get("files") == 2, WITHIN)
    assert set(locality(lab.there_door, "/tape/a/f1", "/tape/b/f2").values()) == {"DISK"}
    # The third one is pulled from the other site.
    lab.here_door.put("/data/f3", content("f3", SIZE))
    copy(lab.here_door.url("/data/f3"), "c/f3", "--copy-mode", "pull", *header)
    paths = ["/tape/a/f1", "/tape/b/f2", "/tape/c/f3"]
    eventually("all three are on tape", lambda: all_are(lab.there_door, paths, "TAPE"), WITHIN)
    row = data_sets(lab, SET)[SET]
    assert row["levels"] == list(HINTS["collocation_hints"].values())
    assert (row["source"], row["files"], row["is_complete"]) == ("client_metadata", 3, True)
    # The job of its client information is one for files without such a header.
    for name in ("g1", "g2"):
        copy(f"file://{tmp_path}/{name}", f"{name}/f", "-C", "job-id=gfal-run-7", "-C", "file-id=1")
    eventually("all are decided", lambda: sum(hints(lab).values()) == 5, WITHIN)
    assert hints(lab) == {"named": 3, "absent": 2}
    assert data_sets(lab)["gfal-run-7"]["source"] == "submission"


def test_a_job_without_hints_is_a_data_set_and_empty_hints_are_counted(lab, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(lab.here.certificates))
    job = submit(lab, [f"run{number}/f" for number in range(5)])
    lab.service.wait_finished(job, WITHIN)
    said = {"named": HINTS | {"additional_hints": {}}, "blank": {"collocation_hints": {"0": " "}}}
    for name, note in said.items():
        header = b64encode(json.dumps(note).encode()).decode()
        lab.there_door.put(f"/tape/{name}/f", content(name, SIZE), ArchiveMetadata=header)
    lab.there_door.put("/tape/odd/f", content("odd", SIZE), ArchiveMetadata="not base64 at all")
    eventually("all are decided", lambda: sum(hints(lab).values()) == 8, WITHIN)
    assert hints(lab) == {"absent": 5, "named": 1, "blank": 1, "unreadable": 1}
    rows = data_sets(lab)
    # The first file of a job cannot know that others follow.
    of_job = rows[job]
    assert of_job["source"] == "submission" and of_job["files"] >= 4
    assert {rows[f"/tape/{name}"]["source"] for name in ("blank", "odd")} == {"path"}
    text = lab.there.command("tape", "data-sets")
    assert "1 named a data set, 1 were empty, 1 could not be read; 5 files came without" in text, text


def test_recalls_are_accounted_to_activities_and_told_by_data_set(lab, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(lab.here.certificates))
    names = ["r/f1", "r/f2", "r/f3"]
    lab.service.wait_finished(submit(lab, names, archive_metadata=HINTS), WITHIN)
    paths = [f"/tape/{name}" for name in names]
    eventually("copies leave the disk", lambda: all_are(lab.there_door, paths, "TAPE"), WITHIN)
    # While no drive works nothing comes.
    drives = [row["name"] for row in tape(lab.there, "status")["libraries"]["drives"]]
    for name in drives:
        lab.there.command("tape", "disable", name)
    pairs = [(lab.there_door.url(path), lab.here_door.url(f"/back{path}")) for path in paths]
    note = {"default": {"activity": "Staging"}}
    files = [{"sources": [a], "destinations": [b], "staging_metadata": note} for a, b in pairs]
    job = lab.service.submit(*files, bring_online=86_400)
    eventually("they are asked for", lambda: data_sets(lab)[SET]["awaited_files"] == 3, WITHIN)
    assert data_sets(lab)[SET]["on_disk_files"] == 0
    for name in drives:
        lab.there.command("tape", "enable", name)
    lab.service.wait_finished(job, WITHIN)
    row = data_sets(lab)[SET]
    assert (row["awaited_files"], row["expected_on_disk"]) == (0, None)

    def read():
        rows = tape(lab.there, "account", "--since", "1h")["drive_times"]
        return {row["activity"]: row["read_bytes"] for row in rows if row["read_bytes"]}

    eventually("the mount has ended", lambda: read() == {"Staging": 3 * SIZE}, WITHIN)
    account = tape(lab.there, "account")
    [mount] = [mount for mount in account["mounts"] if mount["family"] is None and mount["files"]]
    assert mount["payload_bytes"] == mount["moved_bytes"] == 3 * SIZE and mount["amplification"] == 1
    assert 0 < mount["payload_rate"] < mount["drive_rate"]
    assert mount["mounts_before"] >= 1, "it was written to on the same day"
    [vo] = account["vos"]
    assert (vo["vo"], vo["live"]) == ("raw", {"files": 3, "bytes": 3 * SIZE})

    # As WLCG collects it, from anybody.
    answer = requests.get(lab.there_door.url("/.penstock/tape/metrics"), verify=lab.there_door.session.verify)
    assert answer.status_code == 200
    service = answer.json()["storageservice"]
    assert service["implementation"] == "Penstock" and service["name"].endswith("-Tape")
    shares = {share["vos"][0]: share for share in service["storageshares"]}
    # Files count to the VO of their class, reading to that of whoever asks.
    kept = shares.pop("raw")
    [reader] = shares.values()
    assert (kept["name"], kept["writebytes24h"], kept["readbytes24h"]) == ("RAW", 3 * SIZE, 0)
    assert (reader["writebytes24h"], reader["readbytes24h"]) == (0, 3 * SIZE)
    assert kept["usedsize"] == 0, "rounded to gigabytes"
    assert kept["occupiedsize"] == 2_000_000_000 * vo["tapes"]
    assert kept["totalmounts24h"] >= kept["uniquemounts24h"] >= 1
    assert kept["avgtaperemounts"] == round(kept["totalmounts24h"] / kept["uniquemounts24h"], 2)
    assert (reader["totalmounts24h"], reader["uniquemounts24h"], reader["avgtaperemounts"]) == (1, 1, 1.0)
