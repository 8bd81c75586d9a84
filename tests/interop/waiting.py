"""Waiting for a condition with a deadline. No test sleeps for a fixed time."""

import time


def eventually(what, probe, within=20.0):
    """Asks `probe` until it gives something true, and gives that back. Fails with what was seen last."""
    deadline = time.monotonic() + within
    pause = 0.01
    while True:
        seen = probe()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}; last seen: {seen!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def files_for_tape(status):
    """How many files a tape system has to do with, by what `penstock tape status --json` says."""
    works = [work for work in status["counts"].values() if isinstance(work, dict)]
    return sum(amount["files"] for work in works for amount in work.values() if isinstance(amount, dict))
