"""Tables of who may do what, as people review them: for each request the outcomes, and who gets each of them.

An outcome is the status of the answer. A `*` behind it says that the answer holds something that only its owner may know,
a `!` that the request changed something.
"""

from pathlib import Path

DIRECTORY = Path(__file__).parent / "golden"
WIDTH = 120
INDENT = " " * 10


class AccessTable:
    """One table: outcomes by request and caller."""

    def __init__(self, name):
        self.path = DIRECTORY / f"access-{name}.txt"

    def read(self):
        rows, row, outcome = {}, None, None
        for line in self.path.read_text().splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            if not line.startswith(" "):
                assert line not in rows, f"{self.path}: two rows are called {line!r}"
                row = rows[line] = {}
                continue
            words = line.split()
            if not line.startswith(INDENT):
                outcome = words.pop(0)
            for caller in words:
                assert caller not in row, f"{self.path}: {caller} stands twice at the row that ends with {line!r}"
                row[caller] = outcome
        return rows

    def write(self, rows):
        head = [line for line in self.path.read_text().splitlines() if line.startswith("#")] if self.path.exists() else []
        self.path.write_text("\n".join([*head, "", *(text(name, cells) for name, cells in rows.items())]))


def text(name, cells):
    lines = [name]
    for outcome in sorted(set(cells.values())):
        line = f"    {outcome}".ljust(len(INDENT) - 1)
        for caller in sorted(caller for caller, got in cells.items() if got == outcome):
            if len(line) + len(caller) >= WIDTH:
                lines.append(line)
                line = INDENT[:-1]
            line += f" {caller}"
        lines.append(line)
    return "\n".join(lines) + "\n"
