"""One run of real copies out of a real XRootD, told by four: by our own record, in FTS3's messages, in dCache's billing and by
XRootD's monitoring. They give one explanation, as far as each of them holds what it needs.
"""

import json
import os
import time
from datetime import datetime, timezone

import pytest

from .clients import Service, content
from .field import issuer_of
from .shaped_line import Rate, ShapedLine
from .test_collected_records import collect
from .test_messages import FileSink, tell
from .test_records import Records, listening
from .waiting import eventually
from .xrootd import Xrootd

HOST = "127.0.3.4"
# As which clients XRootD sees the two storage elements that fetch from it.
CLIENTS = {"there": "127.0.3.5", "here": "127.0.3.6"}
FILES = 200
SLOTS, FEW_SLOTS = 8, 2
LINE_BYTES_PER_SECOND = 5_000_000
SHARED_SLOTS, SHARED_BYTES_PER_SECOND = 4, 8_000_000
# A file takes some seconds: XRootD tells when one was opened and closed by the second. On a line that all share it is larger than the
# buffers between XRootD and the line, which count as read for XRootD.
FILE_BYTES, SHARED_FILE_BYTES = 1_500_000, 6_000_000
# With an interval of a second.
USUAL_SECONDS, LOW_SECONDS, SHARED_SECONDS = 12, 10, 16
# Of eight connections that begin at once XRootD may leave some without an answer: these are given up, and tried again.
STALL_TIMEOUT = "3s"
MONITOR = "xrootd.monitor all auth flush 1s ident 1s fstat 1s lfn ops xfr 1 dest fstat info user 127.0.0.1:{port}\n"
SHARE_POINTS = 20
# By whole seconds, of files that take three, it is less certain how many were read at once.
SHARE_POINTS_OF_XROOTD = 50
# Load of others comes within seconds, slot by slot.
BEGIN_MS, LOAD_BEGIN_MS = 3_000, 6_000
RATE_PART = 0.3


class Run:
    """Copies out of an XRootD to two sites, each over a line of its own, and what everybody told of them."""

    def __init__(self, binary, grid, xrootd, lines, directory):
        self.binary, self.grid, self.xrootd, self.lines, self.directory = binary, grid, xrootd, lines, directory
        self.admin = Service(grid.here, grid.here.token("penstock.admin", subject="root"))
        self.begun, self.jobs = time.time(), []

    def allow(self, name, site, slots):
        rule = {
            "symbolicname": name,
            "source": f"https://{HOST}",
            "destination": site.storage_id,
            "max_active": slots,
            # The number is what was set, and nothing is tried.
            "optimizer_mode": 0,
        }
        answer = self.admin.ask("POST", "/config/links", json=rule)
        assert answer.ok, answer.text

    def submit(self, name, door):
        files = [(self.lines[name].url(f"/run/{number}"), door.url(f"/{name}/{number}")) for number in range(FILES)]
        # Checksums of a source are read from it, too, and that would be told as further reads.
        self.jobs.append(self.grid.service.submit(*files, verify_checksum="none"))

    def begin(self, name, line, site, door, slots_max=SLOTS):
        """One copy after the other begins: of many connections at once XRootD leaves some without an answer."""
        self.allow(name, site, 1)
        self.submit(line, door)
        finished = lambda: self.grid.service.overview()["totals"]["finished"]
        before = finished()
        eventually("copies run", lambda: finished() > before, 30)
        for slots in range(2, slots_max + 1):
            self.allow(name, site, slots)
            time.sleep(0.5)

    def wait_usual(self):
        """All slots have copied something, and go on for a while."""
        finished = lambda: self.grid.service.overview()["totals"]["finished"]
        eventually("copies run", lambda: finished() >= 2 * SLOTS, 30)
        time.sleep(USUAL_SECONDS)

    def end(self):
        """Stops what is left. From then on all of them have told what there is."""
        for job in self.jobs:
            self.grid.service.ask("DELETE", f"/jobs/{job}")
        self.grid.service.wait_idle(30)

    def window(self):
        begin = datetime.fromtimestamp(int(self.begun), timezone.utc)
        return ("--since", begin.strftime("%Y-%m-%dT%H:%M:%SZ"), "--resolution", "1s")

    def copies(self):
        """What our own record tells of the copies that arrived."""
        records, _ = collect(self.binary, self.grid.here, self.directory / "own", "--view", "vo")
        return [row for row in records.rows() if row.get("outcome") == "success"]

    def of_fts(self):
        records = Records(self.binary, self.directory / "fts")
        told = self.grid.here.directory / "state/told.jsonl"
        FileSink(told).collect(4 * len(self.copies()))
        records.ingest("fts", told)
        return records

    def of_dcache(self):
        """The same copies as a dCache at the source would have told them, in its default layout."""
        lines = []
        for row in self.copies():
            name = "there" if row["destination_host"] == self.grid.there.storage_id else "here"
            ended = datetime.fromtimestamp(row["ended"] / 1000, timezone.utc).strftime("%m.%d %H:%M:%S")
            lasted = row["ended"] - row["started"] - row.get("prepare_us", 0) // 1000
            size, path = row["bytes_moved"], row["source_path"]
            lines.append(
                f"{ended} [pool:tp01@tp01Domain:transfer] [0000{row['transfer']},{size}] [{path}] atlas:raw@osm {size} "
                f"{max(lasted, 1)} false {{Http-1.1:{CLIENTS[name]}:0}} [door:WebDAV@dav:AAYx:17] {{0:\"\"}}\n"
            )
        path = self.directory / "billing"
        path.write_text("".join(lines))
        records = Records(self.binary, self.directory / "dcache")
        year = datetime.now(timezone.utc).year
        told = records.ingest("dcache", path, "--year", year, "--zone", "Z", "--server", HOST)
        assert told["attempts"] == len(lines) > 30
        return records


@pytest.fixture
def run(request, binary, own_grid, fault_ca, tmp_path):
    grid = own_grid
    tell(grid.here, file="state/told.jsonl", optimizer_every="1s")
    for site in grid.sites:
        site.allow(HOST)
        site.configure("[limits]", stall_timeout=STALL_TIMEOUT)
        site.start()
    streamed = Records(binary, tmp_path / "xrootd")
    xrootd = Xrootd(HOST, fault_ca, grid.here.certificates, issuer=issuer_of(grid.here))
    lines = {}
    try:
        with listening(streamed) as (_, monitor_port):
            with open(xrootd.directory / "xrootd.cfg", "a") as configuration:
                configuration.write(MONITOR.format(port=monitor_port))
            directory = xrootd.files / "run"
            directory.mkdir()
            line, file_bytes = request.param
            (directory / "0").write_bytes(content("run", file_bytes))
            for number in range(1, FILES):
                os.link(directory / "0", directory / str(number))
            xrootd.start()
            rate_of = line()
            for name, client in CLIENTS.items():
                lines[name] = ShapedLine(HOST, xrootd.port, client, rate_of)
            made = Run(binary, grid, xrootd, lines, tmp_path)
            made.streamed = streamed
            yield made
    finally:
        for line in lines.values():
            line.close()
        xrootd.close()


def own_lines():
    """As much for each connection."""
    return lambda: Rate(LINE_BYTES_PER_SECOND / SLOTS)


def wait_streamed(run):
    """XRootD tells of files once a second."""
    reads = lambda: len([row for row in run.streamed.rows() if row.get("outcome") and row["operation"] == "read"])
    eventually("XRootD has told of all files", lambda: reads() >= len(run.copies()), 30)


def ends_of(drop):
    link = drop["population"]["link"]
    return f"{link['source']} {link['destination']}"


def own_drop(run):
    """What our own record tells of the line to `there`."""
    told = json.loads(run.grid.here.command("explain", "--json", *run.window()))
    [drop] = [drop for drop in told["drops"] if run.grid.there.storage_id in ends_of(drop)]
    return json.loads(run.grid.here.command("explain", "drop", drop["id"], "--json", *run.window()))


def same_drop(run, records, destination, own, begin_ms):
    """The drop on that line by another source: it begins when ours does, and is as deep."""
    told = json.loads(records.run("explain", "--records", records.directory, *run.window()))
    [found] = [drop for drop in told["drops"] if ends_of(drop).endswith(destination)]
    words = ("explain", "--records", records.directory, "drop", found["id"], *run.window())
    drop = json.loads(records.run(*words))
    assert abs(drop["from"] - own["from"]) <= begin_ms, (drop, own)
    for rate in ("usual_bytes_per_second", "low_bytes_per_second"):
        assert abs(drop[rate] - own[rate]) <= RATE_PART * own["usual_bytes_per_second"], (rate, drop, own)
    return drop


def assert_same_cause(drop, own, points=SHARE_POINTS):
    assert drop["causes"], (drop, own)
    first, expected = drop["causes"][0], own["causes"][0]
    assert first["code"] == expected["code"], (drop, own)
    assert abs(first["share_percent"] - expected["share_percent"]) <= points, (drop, own)


def told_by_others(run, own, begin_ms=BEGIN_MS):
    """Of each other source the drop that it tells."""
    wait_streamed(run)
    seen_by_site = CLIENTS["there"]
    return {
        "fts": same_drop(run, run.of_fts(), run.grid.there.storage_id, own, begin_ms),
        "dcache": same_drop(run, run.of_dcache(), seen_by_site, own, begin_ms),
        "xrootd": same_drop(run, run.streamed, seen_by_site, own, begin_ms),
    }


@pytest.mark.parametrize("run", [(own_lines, FILE_BYTES)], indirect=True)
def test_a_lowered_limit_is_told_by_those_who_know_limits_and_the_others_say_that_they_do_not(run):
    run.begin("watched", "there", run.grid.there, run.grid.there_door)
    run.wait_usual()
    run.allow("watched", run.grid.there, FEW_SLOTS)
    time.sleep(LOW_SECONDS)
    run.end()
    own = own_drop(run)
    assert own["causes"][0]["code"] == "SLOTS", own
    told = told_by_others(run, own)
    assert_same_cause(told["fts"], own)
    for name in ("dcache", "xrootd"):
        drop = told[name]
        assert drop["causes"] == [] and drop["unexplained_percent"] > 80, drop
        missing = {missing["text"] for missing in drop["missing"]}
        assert {"limit of concurrent transfers", "files queued"} <= missing, drop


def shared_line():
    """One line for all, whoever fetches."""
    rate = Rate(SHARED_BYTES_PER_SECOND)
    return lambda: rate


@pytest.mark.parametrize("run", [(shared_line, SHARED_FILE_BYTES)], indirect=True)
def test_load_of_other_clients_is_told_by_all_four(run):
    run.begin("watched", "there", run.grid.there, run.grid.there_door, SHARED_SLOTS)
    run.wait_usual()
    run.begin("other", "here", run.grid.here, run.grid.here_door, SHARED_SLOTS)
    time.sleep(SHARED_SECONDS)
    run.end()
    own = own_drop(run)
    assert own["causes"][0]["code"] == "LOAD", own
    for name, drop in told_by_others(run, own, LOAD_BEGIN_MS).items():
        assert_same_cause(drop, own, SHARE_POINTS_OF_XROOTD if name == "xrootd" else SHARE_POINTS)
