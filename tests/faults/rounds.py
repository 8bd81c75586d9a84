"""Rounds of a test, each with a seed. At the soak tier they go on where the last run stopped, and end in one table."""

import json
import os
import random
import time
from pathlib import Path

FIXED_SEED = 20261123


class Rounds:
    """What was done, kept in a file when there is one. `over_at` is when no further round begins."""

    def __init__(self, path=None, minutes=None):
        self.path = path and Path(path)
        self.over_at = time.monotonic() + minutes * 60 if minutes else float("inf")

    def of(self, target, fault, wanted):
        """A seed for each round: always the same where nothing is kept of them, else the first alone, and fresh ones after it.
        A round that was begun has passed once the next is asked for."""
        for number in range(self.passed(target, fault), wanted):
            if time.monotonic() > self.over_at:
                print(f"{target}, {fault}: {number} of {wanted} rounds; run it again to go on")
                return
            is_fresh = number > 0 and self.path is not None
            seed = random.SystemRandom().randrange(1 << 32) if is_fresh else FIXED_SEED + number
            print(f"round {number}, seed {seed}")
            row = {"target": target, "fault": fault, "wanted": wanted, "seed": seed}
            self.note(row | {"result": "begun"})
            yield seed
            self.note(row | {"result": "passed"})

    def passed(self, target, fault):
        return len(seeds_of(self.rows(), (target, fault), "passed"))

    def rows(self):
        if self.path is None or not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def note(self, row):
        """A line at once, so that several processes may write."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())


def seeds_of(rows, pair, result):
    """In their order."""
    return [row["seed"] for row in rows if (row["target"], row["fault"]) == pair and row["result"] == result]


def table(rows):
    """The results as Markdown."""
    lines = ["| target | fault | rounds wanted | passed | seeds of rounds that did not pass |", "|---|---|--:|--:|---|"]
    for pair in dict.fromkeys((row["target"], row["fault"]) for row in rows):
        passed, wanted = seeds_of(rows, pair, "passed"), [row["wanted"] for row in rows if (row["target"], row["fault"]) == pair]
        others = ", ".join(str(seed) for seed in seeds_of(rows, pair, "begun") if seed not in passed)
        lines.append(f"| {pair[0]} | {pair[1]} | {wanted[-1]} | {len(passed)} | {others} |")
    return "\n".join(lines) + "\n"
