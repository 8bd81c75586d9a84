"""The table of `docs/observe/live-faults.md`, made of the lines that `--live-results` wrote: python -m faults.live_table FILE"""

import json
import sys
from collections import Counter
from pathlib import Path

from .live_faults import FAULTS, MILD, STRONG


def table(rows):
    lines = ["| fault | what happens | right | mild | strong | told instead |", "|---|---|---|--:|--:|---|"]
    for fault in FAULTS:
        own = [row for row in rows if row["fault"] == fault.name]
        wrong = Counter(row["told"] or "nothing" for row in own if row["told"] not in fault.right)
        instead = ", ".join(f"{told} ({count})" for told, count in wrong.most_common())
        right = " or ".join(f"`{code}`" for code in fault.right)
        cells = [fault.name, fault.what, right, tried(fault, own, MILD), tried(fault, own, STRONG), instead]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tried(fault, rows, strength):
    """How many of the trials at a strength were right."""
    own = [row for row in rows if row["strength"] == strength]
    return f"{sum(row['told'] in fault.right for row in own)} of {len(own)}"


if __name__ == "__main__":
    print(table([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]), end="")
