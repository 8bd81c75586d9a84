"""What a site has sampled of its host goes with its records: collected, exported and imported elsewhere, it explains a drop there
as it does at the site.
"""

import json
import time

import pytest

from .test_records import Records

MINUTE = 60_000
MINUTES, FAULT = 180, range(110, 150)
FILE_BYTES, RUNNING = 1_000_000_000, 5
USUAL_MS, SLOW_MS = 50_000, 125_000
TICKS = 12_000


@pytest.fixture
def begin():
    return (int(time.time() * 1000) // MINUTE - MINUTES - 5) * MINUTE


def host_minute(begin, number):
    """A host that has little to do, but for the time in which its processors are full."""
    used = TICKS - 100 if number in FAULT else 1000 * (1 + number % 7)
    stalled = {"some_us": 600_000, "full_us": 300_000}
    database = {"operations": 60, "operation_us": 120_000, "transactions": 50, "transaction_us": 75_000}
    return {
        "from": begin + number * MINUTE,
        "covered_us": 60_000_000,
        "processor": {"user": used, "system": 0, "idle": TICKS - used, "waiting": 0, "stolen": 0},
        "pressure": {"memory": {"some_us": 0, "full_us": 0}, "io": stalled},
        "process": {"processor_us": 1, "resident_bytes": 1, "threads": 1, "open_files": 200, "open_files_max": 1000},
        "databases": [{"kind": kind, "activity": database | {"queued_us": 0, "running_us": 0}} for kind in ("journal", "namespace")],
    }


def attempts(begin, site):
    """Files that come in on as many slots as ever, and take longer while the host is busy."""
    rows = []
    for slot in range(RUNNING):
        at = begin + slot * USUAL_MS // RUNNING
        while at < begin + MINUTES * MINUTE:
            is_slow = (at - begin) // MINUTE in FAULT
            end = at + (SLOW_MS if is_slow else USUAL_MS) + len(rows) * 7919 % 997
            rows.append(
                {
                    "row": "attempt",
                    "at": end,
                    "source": "test",
                    "line": len(rows),
                    "view": "vo",
                    "operation": "copy",
                    "source_host": "https://far.example.org",
                    "destination_host": site.storage_id,
                    "vo": "dteam",
                    "bytes_moved": FILE_BYTES,
                    "file_bytes": FILE_BYTES,
                    "submitted": at - 600_000,
                    "started": at,
                    "ended": end,
                    "outcome": "success",
                }
            )
            at = end
    return sorted(rows, key=lambda row: row["at"])


@pytest.fixture
def sampled(own_grid, begin, tmp_path):
    """A site whose host was sampled for three hours, and what was copied into it as lines."""
    site = own_grid.there
    site.start()
    site.stop()
    samples = site.directory / "host-samples"
    samples.mkdir(exist_ok=True)
    for number in range(MINUTES):
        minute = host_minute(begin, number)
        day = time.strftime("%Y-%m-%d", time.gmtime(minute["from"] / 1000))
        with open(samples / f"minutes-{day}.jsonl", "a") as file:
            file.write(json.dumps(minute) + "\n")
    change = {"at": begin + FAULT[0] * MINUTE, "name": "net.ipv4.tcp_sack", "before": "1", "after": "0"}
    with open(samples / "changes.jsonl", "a") as file:
        file.write(json.dumps(change) + "\n")
    lines = [{"penstock_records": 1}, *attempts(begin, site)]
    (tmp_path / "copies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return site


def first_causes(records):
    told = json.loads(records.run("explain", "--records", records.directory))
    return [(drop["causes"] or [{"code": None}])[0]["code"] for drop in told["drops"]]


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_samples_of_a_host_explain_a_drop_where_they_are_imported(binary, sampled, tmp_path, begin, form):
    site, copies = sampled, tmp_path / "copies.jsonl"
    alone = Records(binary, tmp_path / "rows-alone")
    alone.run("records", "import", copies, "--into", alone.directory)
    assert first_causes(alone) != ["HOST"], "without samples of the host nothing tells of its processors"

    own = Records(binary, tmp_path / "rows-own")
    collected = json.loads(own.run("records", "collect", "--dir", site.directory, "--into", own.directory))
    assert collected["samples"] >= 3 * MINUTES and collected["changes"] >= 1
    again = json.loads(own.run("records", "collect", "--dir", site.directory, "--into", own.directory))
    assert (again["samples"], again["changes"]) == (0, 0)
    rows = own.rows("sample")
    [busy] = [row for row in rows if row["subject_kind"] == "server" and row["at"] == begin + (FAULT[0] + 1) * MINUTE]
    assert (busy["subject"], busy["busy_permille"], busy["open_files"]) == (site.host, 991, 200)
    assert {row["subject"] for row in rows if row["subject_kind"] == "database"} == {"journal", "namespace"}

    exported = tmp_path / "exported"
    own.run("records", "export", own.directory, "--to", exported, "--format", form)
    files = sorted(exported.iterdir()) if exported.is_dir() else [exported]
    there = Records(binary, tmp_path / "rows-there")
    for file in [*files, copies]:
        there.run("records", "import", file, "--into", there.directory)
    assert first_causes(there) == ["HOST"]
    again = tmp_path / "again"
    back = Records(binary, tmp_path / "rows-back")
    for file in files:
        back.run("records", "import", file, "--into", back.directory)
    back.run("records", "export", back.directory, "--to", again, "--format", form)
    assert [file.read_bytes() for file in (sorted(again.iterdir()) if again.is_dir() else [again])] == [
        file.read_bytes() for file in files
    ]
    [drop] = json.loads(there.run("explain", "--records", there.directory))["drops"]
    detail = there.run("explain", "drop", drop["id"], "--records", there.directory)
    assert "tcp_sack" in detail
