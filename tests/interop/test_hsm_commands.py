"""The two HSMs that are worked examples, `deploy/hsm`: a directory and an S3 bucket. What they keep survives a kill at any
moment, and each command can be repeated.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .clients import content
from .cloud_servers import ACCESS_KEY, BUCKET, SECRET_KEY

PROGRAMS = Path(__file__).parents[2] / "deploy/hsm"
INFO = "-si=size=1;new=true;stored=false;sClass=atlas:raw;cClass=-;hsm=osm;"
KINDS = ["directory", "moto", "s3s-fs"]


class Hsm:
    """A program with its options, run as the storage element runs it."""

    def __init__(self, program, options, environment, stored=None):
        self.program = PROGRAMS / program
        self.options = options
        self.environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **environment}
        # What it has stored, by name, as seen without it.
        self.stored = stored

    def kept(self):
        return list(self.stored())

    def start(self, *arguments):
        line = [self.program, *arguments, f"-command={self.program}", *self.options]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=self.environment, process_group=0, text=True
        )

    def run(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def put(self, pnfsid, path):
        code, out, err = self.run("put", pnfsid, path, INFO)
        assert code == 0, err
        (uri,) = out.split()
        assert "://" in uri
        return uri

    def get(self, pnfsid, path, uri):
        return self.run("get", pnfsid, path, INFO, f"-uri={uri}")

    def remove(self, uri):
        return self.run("remove", f"-uri={uri}")


@pytest.fixture
def hsm(request, tmp_path, clouds):
    kind = request.param
    if kind == "directory":
        root = tmp_path / "hsm"
        root.mkdir()
        files = lambda: [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return Hsm("directory-hsm", [f"-root={root}"], {}, lambda: {path.name: path.read_bytes() for path in files()})
    cloud = clouds[kind]
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    prefix = f"{tmp_path.name}/"
    options = [f"-endpoint=http://{cloud.host}:{cloud.port}", f"-bucket={BUCKET}", f"-prefix={prefix}", "-part-mb=5"]
    stored = lambda: {key.removeprefix(prefix): cloud.get(key) for key in cloud.keys() if key.startswith(prefix)}
    return Hsm("s3-hsm", options, keys, stored)


def file_of(tmp_path, size, name="a file; $HOME"):
    path = tmp_path / name
    path.write_bytes(content(name, size))
    return path


@pytest.mark.parametrize("hsm", KINDS, indirect=True)
@pytest.mark.parametrize("size", [1, 12_000_000])
def test_a_file_is_put_fetched_and_removed_and_each_may_be_repeated(hsm, tmp_path, size):
    path, back = file_of(tmp_path, size), tmp_path / "back"
    uri = hsm.put("0000000AB", path)
    assert hsm.put("0000000AB", path) == uri
    assert hsm.kept() == ["0000000AB"]
    for _ in range(2):
        code, out, err = hsm.get("0000000AB", back, uri)
        assert (code, out) == (0, ""), err
        assert back.read_bytes() == path.read_bytes()
    for _ in range(2):
        code, _, err = hsm.remove(uri)
        assert code == 0, err
    assert hsm.kept() == []
    code, _, err = hsm.get("0000000AB", back, uri)
    assert code == 31, err


@pytest.mark.parametrize("hsm", KINDS, indirect=True)
def test_a_command_that_is_killed_leaves_no_half_file(hsm, tmp_path):
    """Killed at any moment, a put has stored all of the file or nothing, and the next one stores it."""
    # A bucket gets it in three parts; a directory is faster.
    size = 30_000_000 if hsm.program.name == "directory-hsm" else 12_000_000
    path, back = file_of(tmp_path, size), tmp_path / "back"
    begun = time.monotonic()
    assert hsm.run("fly")[0] == 33
    # As long as it takes to begin, nothing is done that a kill could leave half.
    idle = time.monotonic() - begun
    uri = hsm.put("00FF", path)
    usual = max(time.monotonic() - begun - 2 * idle, idle)
    assert hsm.remove(uri)[0] == 0
    chance = random.Random(5)
    moment = lambda: 0.8 * idle + chance.random() * usual
    killed = 0
    while killed < 5:
        process, begun = hsm.start("put", "00FF", path, INFO), time.monotonic()
        try:
            process.wait(moment())
            # It was faster than the first one.
            usual = max(time.monotonic() - begun - 0.8 * idle, 0.1 * idle)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL if killed % 2 else signal.SIGTERM)
            killed += 1
        out, _ = process.communicate(timeout=60)
        stored = hsm.stored()
        assert stored in ({}, {"00FF": path.read_bytes()}), "half a file"
        assert stored or (process.returncode != 0 and out == ""), "told, and not stored"
    assert hsm.put("00FF", path) == uri
    for _ in range(3):
        process = hsm.start("get", "00FF", back, INFO, f"-uri={uri}")
        time.sleep(moment())
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    code, _, err = hsm.get("00FF", back, uri)
    assert code == 0 and back.read_bytes() == path.read_bytes(), err
    assert hsm.remove(uri)[0] == 0
    assert hsm.kept() == []


@pytest.mark.parametrize("hsm", KINDS, indirect=True)
def test_wrong_arguments_are_refused(hsm, tmp_path):
    path = file_of(tmp_path, 10)
    for arguments in [(), ("fly",), ("remove", "-uri=hsm://elsewhere/?bfid=1")]:
        code, out, err = hsm.run(*arguments)
        assert (code, out) == (33, ""), (arguments, err)
        assert err
    code, out, _ = hsm.run("put", "00AB", tmp_path / "missing", INFO)
    assert (code, out) == (42, "")
    uri = hsm.put("00AB", path)
    code, _, err = hsm.get("00AB", tmp_path / "no/such/directory", uri)
    assert code == 43, err
    assert hsm.remove(uri)[0] == 0


def test_an_hsm_that_is_not_there_is_told_by_its_code(tmp_path):
    path = file_of(tmp_path, 10)
    directory = Hsm("directory-hsm", [f"-root={tmp_path}/none"], {})
    assert directory.run("put", "00AB", path, INFO)[0] == 61
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    bucket = Hsm("s3-hsm", ["-endpoint=http://127.0.0.1:9", f"-bucket={BUCKET}"], keys)
    code, _, err = bucket.run("put", "00AB", path, INFO)
    assert code == 61, err


def test_a_wrong_key_and_a_wrong_bucket_are_told_by_their_code(tmp_path, clouds):
    path = file_of(tmp_path, 10)
    # The one does not look for the bucket, the other not at signatures.
    for kind, key, bucket in [("s3s-fs", "wrong", BUCKET), ("moto", SECRET_KEY, "no-such-bucket")]:
        endpoint = f"-endpoint=http://{clouds[kind].host}:{clouds[kind].port}"
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": key}
        hsm = Hsm("s3-hsm", [endpoint, f"-bucket={bucket}"], keys)
        code, _, err = hsm.run("put", "00AB", path, INFO)
        assert code == 62, err
