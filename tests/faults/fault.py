"""What is said of a fault of real services, and what several of them do."""

import errno
from dataclasses import dataclass, field

MILD, STRONG = "mild", "strong"


@dataclass(eq=False)
class Fault:
    """`prepare` is done before the sites start, `strike` while copies go on."""

    name: str
    what: str
    right: tuple
    strike: object
    world: dict = field(default_factory=dict)
    prepare: object = None
    # Ends it before the site is asked, where it could not answer otherwise.
    relieve: object = None
    # For so long what was in store hides it.
    hidden_seconds: int = 0
    # It needs a machine without other work, so that only the soak tries it.
    needs_quiet: bool = False


def fill(directories):
    """With a file of somebody else, to the last byte."""
    for directory in directories:
        with open(directory / "others", "wb", buffering=0) as file:
            for size in (1 << 22, 1 << 12):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError as full:
                    assert full.errno == errno.ENOSPC, full
