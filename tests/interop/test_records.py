"""Records of what happened: from our own messages, from a real XRootD, and out again to a Python reader of Parquet."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from .clients import Door, Service, content
from .site import Site, free_port
from .test_messages import FileSink, tell
from .waiting import eventually
from .xrootd import ACCOUNT, SHIM, START_SECONDS, answers, run

HOST = "127.0.3.2"
XROOTD_HOST = "127.0.3.3"
SIZES = [0, 1, 70_000, 3_000_000]
KILLS = 5
PAGE_BYTES, CHECKSUM_BYTES = 4096, 4


class Records:
    """A directory of records, and the commands about it."""

    def __init__(self, binary, directory):
        self.binary, self.directory = binary, directory

    def run(self, *words, code=0):
        line = [str(self.binary), "--json", *(str(word) for word in words)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, f"{line}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def ingest(self, *words, code=0):
        told = json.loads(self.run("ingest", *words, "--into", self.directory, code=code))
        return told["report"] if code else told

    def rows(self, family="attempt"):
        words = ("--family", family, "--limit", 100_000)
        return json.loads(self.run("records", "show", self.directory, *words))["rows"]


@pytest.fixture
def records(binary, tmp_path):
    return Records(binary, tmp_path / "records")


@pytest.fixture
def messages(binary, tmp_path):
    """What a site told of three copies, and one that failed."""
    site = Site(binary, tmp_path / "site", "teller", HOST)
    site.configure("[transfer]", retries=0)
    tell(site, file="state/told.jsonl")
    site.start()
    try:
        door, service = Door(site), Service(site)
        door.put("/records/f", content("records", 10_000))
        files = [(door.url("/records/f"), door.url(f"/copies/{number}")) for number in range(3)]
        job = service.submit(*files, (door.url("/records/none"), door.url("/copies/none")), retry=-1)
        service.wait(job)
        FileSink(site.directory / "state/told.jsonl").collect(20)
    finally:
        site.kill()
    return site.directory / "state/told.jsonl", job


def test_our_own_messages_are_taken_once_and_accounted_for(records, messages):
    path, job = messages
    assert records.ingest("fts", path)["attempts"] >= 20
    assert records.ingest("fts", path)["attempts"] == 0, "a file that was taken is gone on with at its end"
    ended = [row for row in records.rows() if row.get("outcome") and row["job"] == job]
    assert sorted(row["outcome"] for row in ended) == ["failure", "success", "success", "success"]
    for row in ended:
        assert row["view"] == "vo" and row["source"] == "fts:told.jsonl" and row["line"] > 0
        assert row["started"] <= row["ended"] == row["at"]
    [failure] = [row for row in ended if row["outcome"] == "failure"]
    assert (failure["side"], failure["error_code"]) == ("source", 2)
    assert "file_bytes" not in failure
    account = json.loads(records.run("account", records.directory, "--by", "vo"))
    [line] = account["lines"]
    assert (line["name"], line["succeeded"], line["failed"], line["incidents"]) == ("teller", 3, 1, 1)
    assert line["arrived"] == 30_000 and line["efficiency_percent"] == 75.0
    for key in ("population", "window", "event", "unit", "success_rule", "view"):
        assert line["rate"][key]
    bridge = json.loads(records.run("account", "reconcile", records.directory, records.directory))["all"]
    assert bridge["terms"]["residue"] == 0 and bridge["first"] == bridge["second"] == 30_000


def test_what_is_exported_and_imported_is_the_same_and_python_reads_it(records, messages, tmp_path):
    path, _ = messages
    records.ingest("fts", path)
    rows = records.rows()
    records.run("records", "export", records.directory, "--to", tmp_path / "rows.jsonl")
    records.run("records", "export", records.directory, "--to", tmp_path / "rows", "--format", "parquet")
    table = pyarrow.parquet.read_table(tmp_path / "rows/attempt.parquet")
    assert table.schema.field("at").type == pyarrow.timestamp("ms", tz="UTC")
    assert table.schema.field("bytes_moved").type == pyarrow.uint64()
    assert table.schema.metadata[b"penstock.rows"] == b"attempt 1"
    plain = table.set_column(0, "at", table["at"].cast(pyarrow.int64())).to_pylist()
    times = [name for name in table.column_names if table.schema.field(name).type == pyarrow.timestamp("ms", tz="UTC")]
    assert len(plain) == len(rows)
    for read, row in zip(plain, rows, strict=True):
        known = {name: value for name, value in read.items() if value is not None and name not in times}
        assert known == {name: value for name, value in row.items() if name not in [*times, "row"]}
        assert read["at"] == row["at"]
    # What Python writes, with dictionaries, is read as well.
    pyarrow.parquet.write_table(table, tmp_path / "python.parquet", compression="none")
    ways = {"lines": "rows.jsonl", "parquet": "rows/attempt.parquet", "python": "python.parquet"}
    for way, file in ways.items():
        copy = Records(records.binary, tmp_path / way)
        copy.run("records", "import", tmp_path / file, "--into", copy.directory)
        assert copy.rows() == rows, way
    pyarrow.parquet.write_table(table, tmp_path / "pressed.parquet", compression="snappy")
    refused = records.run("records", "import", tmp_path / "pressed.parquet", "--into", tmp_path / "none", code=2)
    assert "write it without compression" in json.loads(refused)["error"]


def test_lines_that_are_not_understood_are_told_with_their_numbers(records, tmp_path):
    path = tmp_path / "billing-2026.11.22"
    good = "11.22 19:04:51 [pool:tp07:transfer] [A1,21] [/d/f] atlas:r@h 21 41 false {Http-1.1:192.0.2.17:0} [door:D:17]"
    good += ' {0:""}'
    path.write_text(f"{good}\nthis is none\n{good}\n")
    summary = records.ingest("dcache", path, "--year", 2026, "--zone", "+01:00", code=1)
    assert (summary["attempts"], summary["invalid"]) == (2, 1)
    assert summary["first_invalid"] == ["line 2: no '[cell]' after the date"]
    assert [row["at"] for row in records.rows()] == [1_795_370_691_000] * 2


def test_a_published_table_is_checked(records, tmp_path):
    """The migration table of the tape challenge of 2021: a mean size is ten times too small, rates have other windows."""

    def row(name, files, terabytes, gigabytes_per_second, mean_gigabytes):
        figures = {"volume_bytes": int(terabytes * 1e12), "bytes_per_second": gigabytes_per_second * 1e9}
        return {"name": name, "files": files, "mean_file_bytes": mean_gigabytes * 1e9} | figures

    total, cms = row("ALL", 277_035, 1068, 2.31, 3.85), row("CMS", 21_947, 235, 1.8, 1.074)
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"seconds": 1068e12 / 2.31e9, "total": total, "parts": [cms]}))
    told = json.loads(records.run("account", "published", path, code=6))["report"]
    assert told[0] == ["CMS", "235.0 TB / 21947 files = 10.708 GB, not 1.074 GB (factor 10.0)"]
    assert told[1] == ["CMS", "1.800 GB/s × 128.4 h = 832 TB, not 235 TB: the rate is over 36.3 h"]
    path.write_text(json.dumps({"seconds": 1068e12 / 2.31e9, "total": total, "parts": []}))
    assert json.loads(records.run("account", "published", path)) == []


def test_what_was_flushed_survives_kills(records, tmp_path):
    """Killed at any moment, and started again: no line is missing, none comes more often than once for each kill."""
    path = tmp_path / "messages.jsonl"
    message = {"transfer_id": "t", "job_id": "j", "vo": "v", "src_url": "https://a/x", "dst_url": "https://b/x"}
    line = [str(records.binary), "ingest", "fts", str(path), "--into", str(records.directory), "--follow"]
    path.write_text("")
    written = 0
    for _ in range(KILLS):
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        positions = records.directory / "positions.json"
        with path.open("a") as file:
            for _ in range(2_000):
                written += 1
                file.write(json.dumps(message | {"timestamp": 1_795_000_000_000, "file_id": written}) + "\n")
            file.flush()

        def saved():
            places = json.loads(positions.read_text()).values() if positions.exists() else []
            return any(place["line"] >= written - 1_000 for place in places)

        eventually("lines are durable", saved)
        acknowledged = max(place["line"] for place in json.loads(positions.read_text()).values())
        process.send_signal(signal.SIGKILL)
        process.wait()
        lines = [row["line"] for row in records.rows()]
        assert set(range(1, acknowledged + 1)) <= set(lines)
    records.ingest("fts", path)
    lines = [row["line"] for row in records.rows()]
    assert set(lines) == set(range(1, written + 1))
    assert max(lines.count(line) for line in {lines[0], lines[-1], *lines[::997]}) <= KILLS + 1


@contextmanager
def monitored_xrootd(monitor_port):
    """An XRootD of anybody's, whose monitoring goes to us."""
    here = Path(tempfile.mkdtemp(prefix="interop-records-"))
    here.chmod(0o755)
    for part in ("files", "admin", "run"):
        (here / part).mkdir()
    port = free_port(XROOTD_HOST)
    (here / "xrootd.cfg").write_text(
        f"all.role server\nall.export /\nall.sitename INTEROP\nall.adminpath {here}/admin\nall.pidpath {here}/run\n"
        f"oss.localroot {here}/files\nxrd.port {port}\nxrd.network nodnr\n"
        "xrootd.monitor all auth flush 1s ident 1s fstat 1s lfn ops xfr 1 "
        f"dest fstat info user 127.0.0.1:{monitor_port}\n"
    )
    run("cc", "-shared", "-fPIC", "-O1", "-o", here / "loopback.so", SHIM, "-ldl")
    line = ["xrootd", "-n", "interop", "-I", "v4", "-c", here / "xrootd.cfg", "-l", here / "xrootd.log"]
    if os.geteuid() == 0:
        run("chown", "-R", "-h", ACCOUNT, here)
        line += ["-R", ACCOUNT]
    environment = {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": str(here / "loopback.so"),
        "LOOPBACK_ADDRESS": XROOTD_HOST,
    }
    with open(here / "output", "wb") as output:
        words = [str(word) for word in line]
        process = subprocess.Popen(words, cwd=here, env=environment, stdout=output, stderr=output)
    try:
        eventually("xrootd listens", lambda: answers(XROOTD_HOST, port), START_SECONDS)
        yield f"root://{XROOTD_HOST}:{port}/"
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(here, ignore_errors=True)


def listener(records, *options):
    line = ["ingest", "xrootd", "--listen", "127.0.0.1:0", "--into", records.directory, *options]
    return [str(records.binary), *map(str, line)]


@contextmanager
def listening(records, *options, **streams):
    process = subprocess.Popen(listener(records, *options), stdout=subprocess.PIPE, text=True, **streams)
    try:
        yield process, int(process.stdout.readline().rsplit(":", 1)[1])
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(20)


def test_one_datagram_makes_no_files_of_many_days(records):
    """Each row tells its time itself; a listener takes those near the arrival only."""
    now = int(time.time())
    days = [*range(-400, 0), *range(1, 400)]
    head = {"src": {"host": "se7"}, "gs": {"type": "C", "tend": now}}
    lines = [head, *({"lfn": "/f", "detach_t": now + day * 86_400} for day in [0, *days])]
    with listening(records) as (collector, port):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(json.dumps(line) for line in lines).encode(), ("127.0.0.1", port))
        eventually("the near rows are kept", lambda: len(records.rows()) >= 2, 20)
        collector.send_signal(signal.SIGTERM)
        told = collector.stdout.read()
        assert collector.wait(20) == 1
    assert len(records.rows()) == 2
    assert f"skipped {len(days) - 1} rows" in told, told
    assert len(list(records.directory.rglob("attempt-*"))) == 2


def test_a_listener_takes_only_datagrams_of_those_who_were_named(records):
    datagram = json.dumps({"gs": {"type": "C", "tend": int(time.time())}}) + '\n{"lfn": "/f"}'
    others = ("--from", "192.0.2.0/24", "--from", "2001:db8::/32")
    with listening(records, *others, stderr=subprocess.PIPE) as (collector, port):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(datagram.encode(), ("127.0.0.1", port))
        told = collector.stderr.readline()
        assert "left out 1 datagram of" in told and "add --from 127.0.0.1" in told, told
        collector.send_signal(signal.SIGTERM)
        told = collector.stdout.read()
        assert collector.wait(20) == 1
    assert "skipped 1 datagram because --from does not name the sender" in told, told
    assert records.rows() == []


def test_a_listener_stops_before_the_disk_is_full(records):
    line = listener(records, "--free-min", "1000000 TB")
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 7 and "--free-min is" in done.stderr, f"{done.returncode} {done.stdout} {done.stderr}"


@pytest.mark.parametrize("pages", [False, True], ids=["plain", "pages with checksums"])
def test_what_a_real_xrootd_tells_is_what_was_copied(records, tmp_path, pages):
    """XRootD counts the checksums of pages as bytes that were written, four for each page."""
    xrdcp = ("env", f"XRD_CPUSEPGWRTRD={int(pages)}", "xrdcp", "-s")
    with listening(records) as (collector, monitor_port), monitored_xrootd(monitor_port) as root:
        for number, size in enumerate(SIZES):
            local = tmp_path / f"file{number}"
            local.write_bytes(content(number, size))
            run(*xrdcp, local, f"{root}/in/{number}")
            run(*xrdcp, f"{root}/in/{number}", tmp_path / f"back{number}")
            assert (tmp_path / f"back{number}").read_bytes() == local.read_bytes()

        def all_told():
            ended = [row for row in records.rows() if row.get("outcome")]
            return len(ended) >= 2 * len(SIZES) and ended

        ended = eventually("all files were told", all_told, 60)
        collector.send_signal(signal.SIGTERM)
        assert collector.wait(20) == 0
    written = {row["destination_path"]: row["bytes_written"] for row in ended if row["operation"] == "write"}
    read = {row["source_path"]: row["bytes_read"] for row in ended if row["operation"] == "read"}
    expected = {f"/in/{number}": size for number, size in enumerate(SIZES)}
    assert read == expected
    checksums = CHECKSUM_BYTES if pages else 0
    assert written == {path: size + checksums * -(-size // PAGE_BYTES) for path, size in expected.items()}
    assert len(ended) == 2 * len(SIZES)
    assert all(row["view"] == "site" and row["outcome"] == "success" for row in ended)
    assert [row for row in records.rows("incident") if row["kind"] == "gap"] == []


def test_a_drop_that_another_system_has_recorded_is_explained(records, tmp_path):
    """Two hours of a transfer service in which most attempts fail for forty minutes."""
    begin, rows = 1_143_849_600_000, []
    for number in range(2400):
        started = begin + number * 3000
        is_bad = 50 <= number // 20 < 90 and number % 4
        row = {
            "row": "attempt", "at": started + 40_000, "source": "elsewhere", "line": number + 1, "view": "vo",
            "operation": "copy", "source_host": "https://cern.ch", "destination_host": "https://in2p3.fr",
            "vo": "dteam", "bytes_moved": 0 if is_bad else 10**9 + number % 97 * 10**6, "submitted": started - 30_000,
            "started": started, "outcome": "failure" if is_bad else "success",
        }  # fmt: skip
        if is_bad:
            row |= {"side": "destination", "phase": "transfer", "error_code": 5, "fingerprint": "input/output error"}
        rows.append(row)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    records.run("records", "import", path, "--into", records.directory)
    told = json.loads(records.run("explain", "--records", records.directory))
    [drop] = told["drops"]
    assert drop["causes"][0]["code"] == "DSTERR", drop
    assert abs(drop["from"] - (begin + 50 * 60_000)) <= 3 * 60_000, drop
    whole = json.loads(records.run("explain", "--records", records.directory, "drop", drop["id"]))
    assert "input/output error" in whole["text"], whole["text"]
    assert json.loads(records.run("explain", "--records", records.directory, "--link", "in2p3.fr-*"))["drops"] == []
    records.run("explain", "--records", records.directory, "drop", "00000000-00000000", code=4)
    records.run("explain", "--records", tmp_path / "none", code=7)
    # The drop and all failed attempts are one incident.
    told = json.loads(records.run("incidents", "--records", records.directory))
    [incident] = told["incidents"]
    assert incident["failed_attempts"] == sum(row["outcome"] == "failure" for row in rows), incident
    assert (incident["code"], incident["drops"]) == ("DSTERR", 1) and incident["bytes_lost"] > 0, incident
    assert incident["place"] == {"storage": "https://in2p3.fr"} and not incident["is_open"], incident
    [month] = told["months"]
    assert (month["month"], month["classes"][0]["share_percent"]) == ("2006-04", 100.0), month
    same = json.loads(records.run("incidents", "--records", records.directory, "--month", "2006-04"))
    assert [row["failed_attempts"] for row in same["incidents"]] == [incident["failed_attempts"]], same
    ticket = json.loads(records.run("incidents", "ticket", incident["id"], "--records", records.directory))["ticket"]
    assert "less moved" in ticket and "input/output error" in ticket, ticket
    records.run("incidents", "show", "00000000-00000000", "--records", records.directory, code=4)
