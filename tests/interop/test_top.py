"""`penstock top`: what the live page shows, in a terminal and for scripts."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import pytest

from .clients import content
from .fault_server import Throttle
from .waiting import eventually

SIZE = 4_000_000


@pytest.fixture
def moving(grid, faulty, place):
    """A job whose file moves so slowly that it can be watched."""
    data = content(place, SIZE)
    source = faulty.offer("/slow", data, get=Throttle(data, 200_000))
    job = grid.service.submit((source, grid.there_door.url(f"{place}/slow")))
    grid.service.wait_state(job, "ACTIVE")
    yield job
    grid.service.ask("DELETE", f"/jobs/{job}")


def top(grid, *words, exit_code=0):
    line = [grid.here.binary, "top", *words, "--dir", grid.here.directory]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=60)
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout


def test_scripts_are_told_what_moves_and_how_long_it_takes(grid, moving):
    def on_its_way():
        told = json.loads(top(grid, "--json"))
        ours = [one for one in told["transfers"] if one["job"] == moving and one["moved_bytes"] > 0]
        return (told, ours[0]) if ours and ours[0]["rate_bytes_per_second"] else None

    told, file = eventually("the file is on its way", on_its_way)
    assert told["site"] == grid.here.name and told["totals"]["active"] >= 1
    assert (file["size_bytes"], file["destination"].endswith("/slow")) == (SIZE, True)
    assert 0 < file["moved_bytes"] < SIZE and 0 < file["remaining_seconds"] < 600
    [link] = [one for one in told["links"] if one["source"].endswith("127.0.0.4") and one["active"]]
    assert link["destination"] == grid.there.storage_id and link["limit"] >= 1
    assert eventually("the curve has a point", lambda: any(json.loads(top(grid, "--json"))["rates"]))


def test_people_see_the_same_once(grid, moving):
    shown = top(grid, "--once")
    assert "LINK" in shown and "127.0.0.4 → 127.0.0.3" in shown and "slow" in shown
    assert "\x1b" not in shown
    # What is no terminal gets no picture that moves.
    assert "LINK" in top(grid)


def test_a_terminal_shows_it_live_and_gets_its_screen_back(grid, moving):
    screen, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    line = [str(grid.here.binary), "top", "--every", "300ms", "--dir", str(grid.here.directory)]
    process = subprocess.Popen(line, stdin=there, stdout=there, stderr=subprocess.PIPE)
    os.close(there)
    os.set_blocking(screen, False)
    seen = b""
    deadline = time.monotonic() + 30
    try:
        while seen.count(b"\x1b[H") < 4:
            assert time.monotonic() < deadline and process.poll() is None, seen
            seen += read_some(screen)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        seen += read_some(screen)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(screen)
    text = seen.decode()
    assert text.startswith("\x1b[?1049h") and text.rstrip().endswith("\x1b[?1049l")
    last = re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", text.split("\x1b[H")[-1])
    assert "slow" in last and "127.0.0.4 → 127.0.0.3" in last
    assert all(len(line) <= 120 for line in last.splitlines())


def read_some(screen):
    try:
        return os.read(screen, 65536)
    except BlockingIOError:
        time.sleep(0.05)
        return b""
    except OSError:
        # The other end is closed.
        return b""


def test_a_service_that_is_not_there_is_told(grid):
    line = [grid.here.binary, "--json", "top", "--service", "https://127.0.36.31:1", "--token", "t"]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 5 and json.loads(done.stdout)["exit_code"] == 5
