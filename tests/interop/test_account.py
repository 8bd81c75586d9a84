"""Accounts of records of strangers: as tables, as JSON, and as a page that stands alone."""

import json
import subprocess

import pytest

from .test_records import Records

HOUR = 3_600_000
# 15 October 2021, 0:00 UTC.
BEGIN = 1_634_256_000_000
DAYS = 3
WINDOW = ("--since", "2021-10-15T00:00:00Z", "--until", "2021-10-18T00:00:00Z")
HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert('2')>\u202e\u001b[31m"
SITES = ["cern.example.org", "in2p3.example.org", "gridka.example.org", "fnal.example.org"]
GB = 10**9


def attempt(number, **others):
    at = BEGIN + number % (DAYS * 24) * HOUR + HOUR // 2
    row = {
        "row": "attempt",
        "at": at,
        "source": "challenge",
        "line": number + 1,
        "view": "vo",
        "operation": "copy",
        "started": at - HOUR // 4,
        "ended": at,
        "outcome": "success",
    }
    return row | others


def copies():
    """All pairs of sites, every hour; one of them fails more often than not, each for one of two reasons."""
    pairs = [(one, other) for one in SITES for other in SITES if one != other]
    for number in range(DAYS * 24 * len(pairs)):
        source, destination = pairs[number % len(pairs)]
        row = attempt(
            number // len(pairs),
            line=number + 1,
            vo=["atlas", "cms", "lhcb"][number % 3],
            activity=["T0 Export", "Data Consolidation"][number % 2],
            source_host=f"https://{source}",
            destination_host=f"https://{destination}",
            bytes_moved=4 * GB,
            file_bytes=4 * GB,
        )
        is_bad = (source, destination) == (SITES[3], SITES[1]) and number % 5
        if is_bad or number % 97 == 0:
            reason = "DESTINATION [28] no space left" if is_bad else HOSTILE
            row |= {"outcome": "failure", "side": "destination", "fingerprint": reason, "bytes_moved": GB}
        yield row


def site_rows():
    """What servers saw: reads of files, copies between pools, and counters of an interface."""
    common = {"view": "site", "source": "billing", "vo": "atlas"}
    for number in range(48):
        read = {"operation": "read", "file_bytes": 10 * GB, "client": f"wn{number % 8}"}
        part = {"bytes_moved": GB, "bytes_read": GB, "source_path": f"/data/little-{HOSTILE}"}
        whole = {"bytes_moved": 10 * GB, "bytes_read": 10 * GB, "source_path": "/data/much"}
        server = {"server": f"pool{number % 3}", "is_local": number % 4 == 0}
        yield attempt(number, **common | read | server | (part if number % 2 else whole))
    yield attempt(1, **common | {"operation": "pool_copy", "server": HOSTILE, "bytes_moved": GB})
    yield attempt(1, **{"started": BEGIN + 9 * HOUR, "view": "site", "operation": "write", "bytes_moved": 1})
    # A counter that only rises, of which every seventh reading was lost; its line became faster.
    for minute in range(DAYS * 24 * 60):
        if minute % 7:
            yield {
                "row": "sample",
                "at": BEGIN + minute * 60_000,
                "source": "snmp",
                "line": minute + 1,
                "view": "network",
                "subject_kind": "interface",
                "subject": "eth0",
                "server": "pool0",
                "bytes_in": 10**15 + minute * 3 * GB,
                "bytes_out": 10**14 + minute * GB,
                "capacity_bytes_per_second": 10**8 if minute < 24 * 60 else 4 * 10**8,
            }


@pytest.fixture
def records(binary, tmp_path):
    records = Records(binary, tmp_path / "records")
    lines = [{"penstock_records": 1}, *copies(), *site_rows()]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    records.run("records", "import", path, "--into", records.directory)
    return records


def test_a_complete_account_adds_up_and_each_rate_says_what_it_counts(records):
    account = json.loads(records.run("account", records.directory, *WINDOW))
    tables = {table["by"]: table for table in [account, *account["others"]]}
    assert sorted(tables) == ["activity", "destination", "link", "server", "source", "vo"]
    rows = list(copies())
    arrived = sum(row["file_bytes"] for row in rows if row["outcome"] == "success")
    for table in tables.values():
        lines = [line for line in table["lines"] if (line["view"], line["operation"]) == ("vo", "copy")]
        assert sum(line["arrived"] for line in lines) == arrived
        assert sum(line["succeeded"] + line["failed"] for line in lines) == len(rows)
        days = [day for day in table["days"] if (day["view"], day["operation"]) == ("vo", "copy")]
        assert sum(day["arrived"] for day in days) == arrived
        assert {day["day"] for day in days} == {"2021-10-15", "2021-10-16", "2021-10-17"}
        for rated in [*lines, *days]:
            for key in ("population", "window", "event", "unit", "success_rule", "view", "seconds"):
                assert rated["rate"][key], rated
        for over_time in table["over_time"]:
            for key in ("population", "window", "event", "unit", "success_rule", "view"):
                assert over_time["statement"][key]
        [over_time] = [each for each in table["over_time"] if (each["view"], each["operation"]) == ("vo", "copy")]
        assert over_time["bin_seconds"] == 3600
        assert sum(curve["cumulative"][-1] for curve in over_time["curves"]) == arrived
        megabits = sum(sum(curve["megabits_per_second"]) for curve in over_time["curves"])
        assert megabits * 3600 == pytest.approx(arrived * 8 / 1e6)
    [matrix] = [of for of in account["efficiency"] if of["view"] == "vo"]
    cells = {(cell["source"], cell["destination"]): cell for cell in matrix["cells"]}
    assert len(cells) == 12 and sum(cell["arrived"] for cell in cells.values()) == arrived
    bad = cells[f"https://{SITES[3]}", f"https://{SITES[1]}"]
    assert bad["efficiency_percent"] < 30 < 90 < cells[f"https://{SITES[0]}", f"https://{SITES[1]}"]["efficiency_percent"]
    [quality] = [of for of in account["quality"] if of["view"] == "vo"]
    assert (quality["incidents"], quality["ended"]) == (2, len(rows))
    assert quality["error_percent"] > 5 > 2 > quality["error_percent_without_largest"]
    # Of the counter that lost readings no byte is lost.
    [pool] = [of for of in account["servers"] if (of["server"], of["view"]) == ("pool0", "site")]
    # The first reading that was taken, and the last.
    first, last = 1, DAYS * 24 * 60 - 2
    assert pool["interfaces_in"] == (last - first) * 3 * GB
    assert pool["relay_ratio"] == pytest.approx(40 / 48)
    [line] = [of for of in account["utilisation"] if of["name"] == "pool0 eth0"]
    assert line["percent"] == pytest.approx(100 * 3 * GB / 60 / (10**8 / 3 + 4 * 10**8 * 2 / 3), rel=0.01)
    capacities = [each for each in line["capacity_megabits_per_second"] if each]
    assert capacities[0] == pytest.approx(800) and capacities[-1] == pytest.approx(3200)
    advice = {file["file"]: (file["advice"], file["read_percent"]) for file in account["readings"]}
    assert advice["/data/much"] == ("copy", 100)
    assert advice[f"/data/little-{HOSTILE}"] == ("direct", 10)
    [wrong] = account["impossible"]
    assert wrong["what"] == "an attempt ended before it began"


def test_clouds_are_named_by_the_operator(records, tmp_path):
    clouds = tmp_path / "clouds.toml"
    clouds.write_text("Europe = ['cern.example.org', 'https://in2p3.example.org', '*.gridka.example.org']\n")
    account = json.loads(records.run("account", records.directory, *WINDOW, "--clouds", clouds))
    [matrix] = [of for of in account["efficiency"] if of["view"] == "vo"]
    ends = {cell["source"] for cell in matrix["cells"]}
    assert ends == {"Europe", f"https://{SITES[2]}", f"https://{SITES[3]}"}
    assert "clouds" in matrix["statement"]["population"]
    clouds.write_text("A = ['a']\nB = ['https://a:443']\n")
    refused = json.loads(records.run("account", records.directory, "--clouds", clouds, code=2))
    assert "is in 'A' and in 'B'" in refused["error"]


def text_of(records, *words):
    line = [str(records.binary), "account", str(records.directory), *WINDOW, *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_text_has_the_tables_that_fit_a_terminal(records):
    text = text_of(records, "--by", "activity")
    for part in ("T0 Export", "Efficiency in percent", "Errors and incidents", "Utilisation", "copy it", "Cannot be true"):
        assert part in text, text
    assert "\u001b" not in text and "\u202e" not in text


def test_the_page_stands_alone_in_a_browser(records, tmp_path, browser_tools):
    page = tmp_path / "account.html"
    told = text_of(records, "--html", page)
    assert str(page) in told
    html = page.read_text()
    assert "<script" not in html and "\u202e" not in html and "&lt;script&gt;" in html
    for part in ("Rate by VO", "Rate by activity", "Rate by destination", "Cumulative volume", "relay ratio", "copy it"):
        assert part in html, part
    # With --json the same data, and the page as well.
    page.unlink()
    account = json.loads(records.run("account", records.directory, *WINDOW, "--html", page))
    assert account["others"] and page.read_text() == html
    line = ["node", "test/account.mjs", str(page), str(tmp_path)]
    done = subprocess.run(line, cwd=browser_tools, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.png")) == [
        "dark-1280.png",
        "dark-390.png",
        "light-1280.png",
        "light-390.png",
    ]


def test_a_page_that_cannot_be_written_is_an_error_that_names_it(records, tmp_path):
    nowhere = tmp_path / "none" / "account.html"
    refused = json.loads(records.run("account", records.directory, "--html", nowhere, code=7))
    assert str(nowhere) in refused["error"]
