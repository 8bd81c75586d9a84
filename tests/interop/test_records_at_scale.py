"""Two hundred thousand events: all are there, what is exported and imported again is the same, and reports of them need no more
memory than those of few. `penstock-bench --only records` measures this with twenty million.
"""

import json
import subprocess
import time

EVENTS = 200_000
DAYS = 5
BEGIN = 1_795_046_400_000
DAY_MS = 86_400_000
FAILURE_EVERY = 20


def event(number, count):
    """As `penstock records export` writes it, column by column."""
    at = BEGIN + DAYS * DAY_MS * number // count
    source, destination = number % 50, (number * 7 + 1) % 50
    path = f"/atlas/datadisk/{number % 251:02x}/{number % 241:02x}/AOD.{number // 50:08d}._{number:09d}.pool.root.1"
    failed = number % FAILURE_EVERY == 0
    row = {
        "row": "attempt", "at": at, "source": "fts:complete", "line": number + 1, "view": "vo", "operation": "copy",
        "job": f"{number // 50 * 2654435761 % 2**32:08x}-0000-7000-8000-000000000000", "transfer": str(number),
        "attempt": f"2026-11-22-0619__a__b__{number}", "source_host": f"https://se{source:02}.source.example.org",
        "destination_host": f"https://se{destination:02}.destination.example.org", "source_path": f"/eos{path}",
        "destination_path": f"/pnfs{path}", "vo": ["atlas", "cms", "lhcb"][number % 3], "activity": "Production Output",
        "user": f"/DC=ch/CN=robot{number % 40}", "protocol": "https", "bytes_moved": 0 if failed else 1_000_000 + number,
        "started": at - 30_000, "ended": at, "outcome": "failure" if failed else "success",
    }  # fmt: skip
    if failed:
        row |= {"side": "destination", "phase": "transfer", "error_code": 28, "fingerprint": "DESTINATION [28] full"}
        row["detail"] = f"no space left for file {number}"
    return row


def read(number, count):
    """A read by a client within one day, as a storage element tells it. Each file has many clients, and no two failures are alike."""
    at = BEGIN + DAY_MS * number // count
    size = 1_000_000 + number
    row = event(number, count) | {
        "at": at, "started": at - 30_000, "ended": at, "view": "site", "operation": "read", "file_bytes": size,
        "bytes_read": size // 2, "source_path": f"/data/{number % 5_000}", "client": f"node{number % 997}",
        "server": f"pool{number % 25}", "outcome": "success",
    }  # fmt: skip
    if number % 7 == 0:
        row |= {"outcome": "failure", "side": "source", "fingerprint": f"failure {number}"}
    return row


def written(path, count, row=event):
    with open(path, "w") as file:
        file.write('{"penstock_records":1}\n')
        for number in range(count):
            file.write(json.dumps(row(number, count), separators=(",", ":")) + "\n")
    return path


class Commands:
    """Runs commands."""

    def __init__(self, binary):
        self.binary = binary

    def run(self, *words):
        line = [str(self.binary), "--json", *map(str, words)]
        done = subprocess.run(line, stdout=subprocess.PIPE, check=False)
        assert done.returncode == 0, f"{line}: exit {done.returncode} {done.stdout}"
        return json.loads(done.stdout)

    def most_memory_bytes(self, *words):
        """The most that a command has resident, looked at while it runs."""
        line = [str(self.binary), "--json", *map(str, words)]
        with subprocess.Popen(line, stdout=subprocess.DEVNULL) as process:
            most = 0
            while process.poll() is None:
                with open(f"/proc/{process.pid}/status") as status:
                    told = [line.split()[1] for line in status if line.startswith("VmHWM:")]
                most = max([most, *(int(kibibytes) * 1024 for kibibytes in told)])
                time.sleep(0.002)
        assert process.returncode == 0, line
        return most


def round_trip(binary, directory, count):
    """From lines into a store, as Parquet into another, and as lines again."""
    directory.mkdir()
    commands = Commands(binary)
    lines = written(directory / "events.jsonl", count)
    first, second = directory / "first", directory / "second"
    tables, again = directory / "tables", directory / "again.jsonl"
    told = commands.run("records", "import", lines, "--into", first)
    assert (told["attempts"], told["invalid"]) == (count, 0)
    account = commands.run("account", first, "--by", "day")
    ended = [(line["succeeded"], line["failed"]) for line in account["lines"]]
    of_day = count // DAYS
    assert ended == [(of_day - of_day // FAILURE_EVERY, of_day // FAILURE_EVERY)] * DAYS
    assert sum(line["arrived"] for line in account["lines"]) == sum(
        event(number, count)["bytes_moved"] for number in range(count)
    )
    commands.run("records", "export", first, "--to", tables, "--format", "parquet")
    told = commands.run("records", "import", tables / "attempt.parquet", "--into", second)
    assert (told["attempts"], told["invalid"]) == (count, 0)
    told = commands.run("records", "export", second, "--to", again)
    assert told["rows"] == count
    assert again.read_bytes() == lines.read_bytes()
    commands.run("explain", "--records", second)


def test_all_events_come_back_the_same(binary, tmp_path):
    round_trip(binary, tmp_path / "many", EVENTS)


def test_memory_of_reports_does_not_grow_with_events(binary, tmp_path):
    commands = Commands(binary)
    stores = []
    for count in (EVENTS // 16, EVENTS // 4):
        lines = written(tmp_path / f"{count}.jsonl", count, read)
        stores.append(tmp_path / str(count))
        commands.run("records", "import", lines, "--into", stores[-1])
    for words in (["account"], ["explain", "--records"]):
        few, many = (commands.most_memory_bytes(*words, store) for store in stores)
        assert many < few * 1.25 + 16 * 2**20, f"{words}: {few} and {many} bytes"
