"""Fixtures of the tests with faults below the process: disks that fail and lose what was not flushed, and sites on them.

Nothing is skipped: a missing tool is an error that names the command which installs it.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from interop import conftest as interop
from interop.conftest import binary, binary_path, fault_ca, faulty, user_ca  # noqa: F401  (fixtures)

from .disk import Disk, build_disk
from .rounds import Rounds, table
from .tiers import TIERS

# Tests that take minutes and have no smaller form.
OF_SOAK = {"test_live_fixes.py"}
LONGEST_FIRST = {"test_live_faults", "test_host_samples", "test_element_power_cut"}
LIBFAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"


def pytest_addoption(parser):
    try:
        interop.pytest_addoption(parser)
    except ValueError:
        # The interop tests run in the same command, and have added theirs.
        pass
    parser.addoption("--rounds", help="file that remembers rounds, so that a later run goes on; none: start anew")
    parser.addoption("--rounds-table", help="Markdown file for the results of all rounds in that file")
    parser.addoption("--live-results", help="file to which each trial of test_live_faults.py adds a line")
    parser.addoption("--minutes", type=float, help="no round begins later than this after the start")


def pytest_ignore_collect(collection_path, config):
    """Leaves to the soak tier what belongs there alone."""
    is_left = collection_path.name in OF_SOAK and config.getoption("--tier") != "soak"
    return True if is_left else None


def pytest_collection_modifyitems(items):
    """Begins with the files that take longest, so that workers end together."""
    items.sort(key=lambda item: item.path.stem not in LONGEST_FIRST)


def pytest_configure(config):
    interop.pytest_configure(config)


def pytest_sessionstart(session):
    missing = [tool for tool in ("cc", "pkg-config", "fusermount3", "ip", "openssl") if shutil.which(tool) is None]
    missing += [] if subprocess.run(["pkg-config", "--exists", "fuse3"]).returncode == 0 else ["libfuse3-dev"]
    missing += [] if list(Path("/").glob(LIBFAKETIME[1:])) else ["libfaketime"]
    missing += [] if interop.POSTGRES.exists() else ["postgresql"]
    if not binary_path().exists():
        pytest.exit(f"{binary_path()} is missing: run 'cargo build -p penstock-cli' first", 2)
    if missing:
        pytest.exit(f"missing: {', '.join(missing)}; run 'make setup', which installs them", 2)
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.exit("these tests make file systems and network namespaces: they need root and /dev/fuse", 2)


@pytest.fixture(scope="session")
def tier(request):
    return TIERS[request.config.getoption("--tier")]


@pytest.fixture(scope="session")
def rounds(request):
    option = request.config.getoption
    return Rounds(option("--rounds"), option("--minutes"))


def pytest_sessionfinish(session):
    option = session.config.getoption
    if option("--rounds") and option("--rounds-table") and not hasattr(session.config, "workerinput"):
        Path(option("--rounds-table")).write_text(table(Rounds(option("--rounds")).rows()))


@pytest.fixture(scope="session")
def disk_program(tmp_path_factory):
    return build_disk(tmp_path_factory.mktemp("disk-program"))


@pytest.fixture
def disk(disk_program, tmp_path):
    """A disk, not yet mounted."""
    disk = Disk(disk_program, tmp_path / "disk")
    yield disk
    disk.stop()
