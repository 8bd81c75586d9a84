"""What tests of commands that copy share: how the commands are started, and what is copied."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager

import pytest

from .clients import content

LARGE = 64_000_000
# A command that is stopped on its way, and one that goes on to its end.
SLOW, STEADY = "8M", "16M"


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def begin(grid, binary, state):
    """Starts a command."""

    def start(*words, dir=grid.here.directory):
        line = [binary, *words, "--dir", dir]
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "XDG_STATE_HOME": str(state)}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([os.fsencode(word) for word in line], env=environment, **pipes)

    return start


@pytest.fixture
def penstock(begin):
    """Runs a command; gives back what it printed, as a value with `json_output=True`."""

    def run(*words, exit_code=0, json_output=False):
        process = begin(*words, *(["--json"] if json_output else []))
        out, err = process.communicate(timeout=120)
        assert process.returncode == exit_code, f"{words}: exit {process.returncode}\n{out}\n{err}"
        return json.loads(out) if json_output else (out + err).decode()

    return run


def make_tree(top, names):
    for name in names:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(name, 1000 + len(name)))
    return top


def files_of(top):
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def leftovers(directory):
    return sorted(path.name for path in directory.iterdir() if path.name.startswith(".penstock-"))


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(content("large", LARGE))
    return path


@contextmanager
def held(process):
    """The command goes no further meanwhile, however busy the machine is."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def parts_at(site):
    """Not their records, nor those that are being written."""
    return {path for path in site.seen.glob("pools/*/partial/*") if not path.suffix}


def unfinished_at(site):
    """Bytes of uploads that the site's pools keep."""
    return sum(path.stat().st_size for path in site.seen.glob("pools/*/partial/*") if not path.suffix)
