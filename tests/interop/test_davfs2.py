"""davfs2 on our door: a site mounted as a file system, with a token and with a user's certificate. What it
sends was recorded as well, so that its requests are also seen where nothing can be mounted.
"""

import json
import os
import shutil
import warnings

import pytest

from . import davfs, golden
from .clients import adler32, content
from .relay import Relay
from .waiting import eventually

DATA = content("davfs2", 3_000_000)
# Those that change what a request means.
TOLD = ["depth", "timeout", "if", "if-match", "lock-token", "destination", "overwrite", "content-type"]
EXECUTABLE = (
    '<propfind xmlns="DAV:"><prop><executable xmlns="http://apache.org/dav/props/"/></prop></propfind>'
)
SHARED = (
    '<lockinfo xmlns="DAV:"><lockscope><shared/></lockscope><locktype><write/></locktype>'
    "<owner>another program</owner></lockinfo>"
)


@pytest.fixture(scope="session")
def can_mount():
    why = davfs.why_not()
    if why:
        text = f"nothing can be mounted here ({why}): of davfs2 only the record is tested"
        warnings.warn(text, stacklevel=1)
    return not why


@pytest.fixture(params=["token", "certificate"])
def shown(field, tmp_path, request):
    """How davfs2 shows the user."""
    if request.param == "token":
        return f'add_header Authorization "Bearer {field.token}"'
    return f"clientcert {field.user.pkcs12(tmp_path / 'user.p12')}"


@pytest.fixture
def door(field, place):
    door = field.door(field.here)
    assert door.ask("MKCOL", place).status_code == 201
    return door


def mounted(field, place, tmp_path, shown):
    authority = field.here.directory / "ca/ca.pem"
    return davfs.Mounted(tmp_path / "davfs2", field.here.door + place, authority, shown)


def test_davfs2_goes_the_whole_round(field, can_mount, place, door, tmp_path, shown):
    if not can_mount:
        return
    with mounted(field, place, tmp_path, shown) as root:
        os.makedirs(root / "deep/er")
        put(door, f"{place}/deep/er/a", root / "deep/er/a", DATA)
        assert (root / "deep/er/a").stat().st_size == len(DATA)
        assert os.listdir(root / "deep") == ["er"]
        with open(root / "deep/er/a", "rb") as file:
            file.seek(1_000_000)
            assert file.read(1000) == DATA[1_000_000:1_001_000]
            assert os.pread(file.fileno(), 7, len(DATA) - 7) == DATA[-7:]
        put(door, f"{place}/two words", root / "two words", b"short")
        with open(root / "two words", "ab") as file:
            file.write(b", and more")
        eventually("it is appended", lambda: door.get(f"{place}/two words") == b"short, and more")
        os.rename(root / "deep/er/a", root / "deep/b")
        os.replace(root / "two words", root / "deep/b")
        assert door.list(f"{place}/deep") == {
            f"{place}/deep": None,
            f"{place}/deep/b": 15,
            f"{place}/deep/er": None,
        }
        os.chmod(root / "deep/b", 0o755)
        eventually("it is told that the file can be run", lambda: is_executable(door, f"{place}/deep/b"))
        assert os.statvfs(root).f_bavail > 0
        door.put(f"{place}/deep/b", b"by another client", expect=204)
        other = b"by another client"
        eventually("it sees the other content", lambda: (root / "deep/b").read_bytes() == other)
        os.remove(root / "deep/b")
        os.rmdir(root / "deep/er")
        assert not door.exists(f"{place}/deep/b") and not door.exists(f"{place}/deep/er")
        shutil.copytree(root / "deep", root / "copied")
        put(door, f"{place}/late", root / "late", DATA, wait=False)
    # What it had not sent yet it sends when it is unmounted; no lock stays.
    assert door.get(f"{place}/late") == DATA
    assert door.ask("DELETE", place).status_code == 204


def put(door, path, file, data, wait=True):
    """Writes a file, and waits until davfs2 has sent it, with the checksum to prove it."""
    file.write_bytes(data)
    if wait:
        eventually(f"{path} is sent", lambda: door.exists(path) and door.checksum(path) == adler32(data))


def is_executable(door, path):
    answer = door.ask("PROPFIND", path, data=EXECUTABLE, headers={"Depth": "0"})
    return b">T<" in answer.content and b"200 OK" in answer.content


def test_davfs2_keeps_others_from_what_it_writes_and_is_kept_from_theirs(
    field, can_mount, place, door, tmp_path, shown
):
    if not can_mount:
        return
    path = f"{place}/a"
    door.put(path, b"first")
    with mounted(field, place, tmp_path, shown) as root:
        with open(root / "a", "r+b") as file:
            assert door.ask("PUT", path, data=b"other").status_code == 423
            assert door.ask("DELETE", place).status_code == 207
            file.write(b"FIRST")
        eventually("it is unlocked", lambda: door.ask("PROPPATCH", path, data=NOTHING).status_code == 207)
        assert door.get(path) == b"FIRST"
        token = door.ask("LOCK", path, data=SHARED).headers["Lock-Token"]
        with pytest.raises(OSError):
            (root / "a").write_bytes(b"against a lock")
        with pytest.raises(OSError):
            os.remove(root / "a")
        assert (root / "a").read_bytes() == b"FIRST"
        assert door.ask("UNLOCK", path, headers={"Lock-Token": token}).status_code == 204
        os.remove(root / "a")
    assert not door.exists(path)


NOTHING = '<propertyupdate xmlns="DAV:"><remove><prop><x xmlns="y:"/></prop></remove></propertyupdate>'


def test_what_davfs2_sends_is_answered_as_recorded(field, place, door, request, tmp_path):
    if request.config.getoption("--write-golden"):
        record(field, place, tmp_path)
        door.ask("DELETE", place)
        door.ask("MKCOL", place)
    tokens = []
    for recorded in json.loads((golden.DIRECTORY / "davfs2.json").read_text()):
        target = place + recorded["target"]

        def real(text, target=target):
            """Names in the record, as they are called now."""
            text = text.replace("<place>", door.url(place))
            for number, token in enumerate(tokens, 1):
                text = text.replace(f"<id {number}>", token)
            return text.replace("<etag>", etag(door, target)) if "<etag>" in text else text

        headers = {name: real(value) for name, value in recorded["headers"].items()}
        answer = door.ask(recorded["method"], target, headers=headers, data=recorded["body"])
        assert answer.status_code == recorded["status"], f"{recorded}: {answer.status_code} {answer.text}"
        if recorded["method"] == "LOCK":
            tokens.append(answer.headers["Lock-Token"].strip("<>").removeprefix("opaquelocktoken:"))
    assert len(tokens) == 3
    assert list(door.list(place)) == [place]


def etag(door, path):
    return door.ask("HEAD", path).headers["ETag"]


def record(field, place, tmp_path):
    """A short round by davfs2 itself, through a relay that sees it."""
    site = field.here
    authority = site.directory / "ca/ca.pem"
    with Relay(site.host, site.base + 1, {"Authorization": f"Bearer {field.token}"}) as relay:
        with davfs.Mounted(tmp_path / "recorded", relay.url + place, authority, "") as root:
            a_short_round(root, relay.exchanges)
    normalised = golden.Normalised(place=relay.url + place)
    found = [plain(exchange, place, normalised) for exchange in relay.exchanges]
    (golden.DIRECTORY / "davfs2.json").write_text(json.dumps(found, indent=1) + "\n")


def a_short_round(root, exchanges):
    def sent(*wanted):
        eventually(f"davfs2 has sent {wanted}", lambda: ends_with(exchanges, wanted))

    os.mkdir(root / "sub")
    (root / "sub/a").write_bytes(b"some text")
    sent("PUT", "UNLOCK")
    with open(root / "sub/a", "ab") as file:
        file.write(b", and more")
    sent("PUT", "UNLOCK")
    os.rename(root / "sub/a", root / "sub/b")
    (root / "sub/c").write_bytes(b"another")
    sent("PUT", "UNLOCK")
    os.replace(root / "sub/c", root / "sub/b")
    os.chmod(root / "sub/b", 0o755)
    sent("PROPPATCH")
    os.statvfs(root)
    os.remove(root / "sub/b")
    os.rmdir(root / "sub")


def ends_with(exchanges, wanted):
    done = [exchange.method for exchange in exchanges if exchange.status]
    return done[-len(wanted) :] == list(wanted)


def plain(exchange, place, normalised):
    headers = {name: normalised.text(exchange.headers[name]) for name in TOLD if name in exchange.headers}
    if "if-match" in headers:
        headers["if-match"] = "<etag>"
    return {
        "method": exchange.method,
        "target": exchange.target.removeprefix(place),
        "headers": headers,
        "body": exchange.body.decode(),
        "status": exchange.status,
    }
