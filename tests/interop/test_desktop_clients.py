"""The requests of desktop clients, as they send them: Finder, Windows, Nautilus, Cyberduck; and rclone with
the settings that people use. None of them may need anything that the door does not say.
"""

import re
import xml.etree.ElementTree as ElementTree

import pytest
import requests

from .clients import DAV, content

DATA = content("desktop", 200_000)
FINDER = {"User-Agent": "WebDAVFS/3.0.0 (03008000) Darwin/22.6.0 (x86_64)", "Accept": "*/*"}
FINDER_LOCK = (
    '<?xml version="1.0" encoding="utf-8"?>\n<D:lockinfo xmlns:D="DAV:">\n'
    "<D:lockscope><D:exclusive/></D:lockscope>\n<D:locktype><D:write/></D:locktype>\n<D:owner>\n"
    "<D:href>http://www.apple.com/webdav_fs/</D:href>\n</D:owner>\n</D:lockinfo>\n"
)
FINDER_STAT = (
    '<?xml version="1.0" encoding="utf-8"?>\n<D:propfind xmlns:D="DAV:">\n<D:prop>\n<D:getlastmodified/>\n'
    "<D:getcontentlength/>\n<D:creationdate/>\n<D:resourcetype/>\n</D:prop>\n</D:propfind>\n"
)
FINDER_LIST = FINDER_STAT.replace(
    "<D:resourcetype/>",
    '<D:resourcetype/>\n<A:appledoubleheader xmlns:A="http://www.apple.com/webdav_fs/props/"/>',
)
FINDER_QUOTA = (
    '<?xml version="1.0" encoding="utf-8"?>\n<D:propfind xmlns:D="DAV:">\n<D:prop>\n'
    "<D:quota-available-bytes/>\n<D:quota-used-bytes/>\n<D:quota/>\n<D:quotaused/>\n</D:prop>\n"
    "</D:propfind>\n"
)
WINDOWS = {"User-Agent": "Microsoft-WebDAV-MiniRedir/10.0.19045", "translate": "f"}
WINDOWS_LOCK = (
    '<?xml version="1.0" encoding="utf-8" ?><D:lockinfo xmlns:D="DAV:">'
    "<D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype>"
    "<D:owner><D:href>LAB\\alice</D:href></D:owner></D:lockinfo>"
)
WINDOWS_TIMES = {
    "Win32CreationTime": "Sat, 21 Nov 2026 12:00:00 GMT",
    "Win32LastAccessTime": "Sat, 21 Nov 2026 12:00:01 GMT",
    "Win32LastModifiedTime": "Sat, 21 Nov 2026 12:00:02 GMT",
    "Win32FileAttributes": "00000020",
}
MICROSOFT = "{urn:schemas-microsoft-com:}"
GVFS = {"User-Agent": "gvfs/1.50.3", "Accept-Language": "en-gb, en;q=0.9"}
GVFS_STAT = (
    '<?xml version="1.0" encoding="utf-8" ?>\n <D:propfind xmlns:D="DAV:">\n <D:prop>\n<D:creationdate/>\n'
    "<D:displayname/>\n<D:getcontentlength/>\n<D:getcontenttype/>\n<D:getetag/>\n<D:getlastmodified/>\n"
    "<D:resourcetype/>\n</D:prop>\n</D:propfind>"
)
CYBERDUCK = {"User-Agent": "Cyberduck/8.7.1.40770 (Mac OS X/13.5) (x86_64)"}
DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")


@pytest.fixture
def door(field, place):
    door = field.door(field.here)
    assert door.ask("MKCOL", place).status_code == 201
    return door


@pytest.fixture
def ask(door):
    """Sends a request of a client, and sees that it is answered so."""

    def send(expected, client, method, path, data=None, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = door.ask(method, path, data=data, headers=client | named)
        assert answer.status_code == expected, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    return send


def entries(answer):
    """What a PROPFIND found: for each href its properties by name, as elements."""
    found = {}
    for response in ElementTree.fromstring(answer.content):
        for propstat in response.findall(f"{DAV}propstat"):
            if " 200 " in propstat.findtext(f"{DAV}status"):
                properties = found.setdefault(response.findtext(f"{DAV}href"), {})
                properties |= {element.tag: element for element in propstat.find(f"{DAV}prop")}
    return found


def taken(answer):
    token = answer.headers["Lock-Token"]
    assert token.startswith("<opaquelocktoken:")
    # Finder and Windows read the token in the body, not in the header.
    assert f"<D:href>{token[1:-1]}</D:href>" in answer.text
    return token


# Finder


def test_finder_mounts_to_read_and_write(ask, place):
    options = ask(200, FINDER, "OPTIONS", f"{place}/")
    # Without class 2 it mounts for reading only.
    assert re.split(r",\s*", options.headers["DAV"])[:2] == ["1", "2"]
    assert {"LOCK", "PUT", "PROPFIND", "MOVE"} <= set(re.split(r",\s*", options.headers["Allow"]))
    (root,) = entries(ask(207, FINDER, "PROPFIND", f"{place}/", FINDER_STAT, Depth="0")).values()
    assert root[f"{DAV}resourcetype"].find(f"{DAV}collection") is not None
    (quota,) = entries(ask(207, FINDER, "PROPFIND", f"{place}/", FINDER_QUOTA, Depth="0")).values()
    assert int(quota[f"{DAV}quota-available-bytes"].text) > 0
    for name in (".metadata_never_index", ".Spotlight-V100", ".hidden", "._.", "Contents"):
        ask(404, FINDER, "PROPFIND", f"{place}/{name}", FINDER_STAT, Depth="0")


@pytest.mark.parametrize("name", ["new", "._new", ".DS_Store", "with%20blank%20%C3%A9"])
def test_finder_writes_a_file(ask, door, place, name):
    path = f"{place}/{name}"
    ask(404, FINDER, "PROPFIND", path, FINDER_STAT, Depth="0")
    ask(201, FINDER, "PUT", path, b"")
    token = taken(ask(200, FINDER, "LOCK", path, FINDER_LOCK, Depth="0", Timeout="Second-600"))
    held = f"({token})"
    ask(207, FINDER, "PROPFIND", path, FINDER_STAT, Depth="0")
    # It does not know the length of what it sends, but says what it expects.
    length = str(len(DATA))
    pieces = (DATA[at : at + 65536] for at in range(0, len(DATA), 65536))
    ask(204, FINDER, "PUT", path, pieces, If=held, X_Expected_Entity_Length=length)
    ask(200, FINDER, "LOCK", path, If=held, Timeout="Second-600")
    ask(204, FINDER, "UNLOCK", path, Lock_Token=token)
    (stat,) = entries(ask(207, FINDER, "PROPFIND", path, FINDER_STAT, Depth="0")).values()
    assert stat[f"{DAV}getcontentlength"].text == length
    assert DATE.fullmatch(stat[f"{DAV}getlastmodified"].text)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stat[f"{DAV}creationdate"].text)
    listed = entries(ask(207, FINDER, "PROPFIND", f"{place}/", FINDER_LIST, Depth="1"))
    assert set(listed) == {f"{place}/", path}
    tag = ask(200, FINDER, "HEAD", path).headers["ETag"]
    part = ask(206, FINDER, "GET", path, Range="bytes=100000-", If_Range=tag)
    assert part.content == DATA[100_000:]


def test_finder_renames_and_throws_away(ask, door, place):
    for name in ("a", "._a"):
        door.put(f"{place}/{name}", b"x")
    for name in ("a", "._a"):
        ask(201, FINDER, "MOVE", f"{place}/{name}", Destination=door.url(f"{place}/{name}b"), Overwrite="F")
    ask(412, FINDER, "MOVE", f"{place}/ab", Destination=door.url(f"{place}/._ab"), Overwrite="F")
    ask(201, FINDER, "MKCOL", f"{place}/d/")
    ask(201, FINDER, "MOVE", f"{place}/d/", Destination=door.url(f"{place}/e/"))
    ask(204, FINDER, "DELETE", f"{place}/e/")
    for name in ("ab", "._ab"):
        ask(204, FINDER, "DELETE", f"{place}/{name}")
    assert list(door.list(place)) == [place]


# Windows


def test_windows_finds_a_share(field, ask, place):
    # The first requests come without credentials, to the root.
    trusting = {"verify": str(field.certificates), "timeout": 60}
    first = requests.options(field.here.door + "/", headers=WINDOWS, **trusting)
    assert first.status_code == 200
    assert first.headers["MS-Author-Via"] == "DAV"
    assert first.headers["DAV"].startswith("1, 2")
    anonymous = requests.request(
        "PROPFIND",
        field.here.door + "/",
        headers=WINDOWS | {"Depth": "0", "Content-Length": "0"},
        **trusting,
    )
    assert anonymous.status_code == 401
    for path in ("/", place, f"{place}/"):
        (found,) = entries(ask(207, WINDOWS, "PROPFIND", path, Depth="0", Content_Length="0")).values()
        assert found[f"{DAV}resourcetype"].find(f"{DAV}collection") is not None
        assert DATE.fullmatch(found[f"{DAV}getlastmodified"].text)
    for name in ("desktop.ini", "Thumbs.db", "autorun.inf"):
        ask(404, WINDOWS, "PROPFIND", f"{place}/{name}", Depth="0", Content_Length="0")


def test_windows_writes_a_file_with_its_times(ask, door, place):
    path = f"{place}/Neues%20Dokument.txt"
    ask(404, WINDOWS, "PROPFIND", path, Depth="0", Content_Length="0")
    ask(201, WINDOWS, "PUT", path, b"")
    # It sends no Depth, which means infinity, of a file the same.
    token = taken(ask(200, WINDOWS, "LOCK", path, WINDOWS_LOCK, Timeout="Second-3600"))
    held = f"({token})"
    ask(207, WINDOWS, "PROPPATCH", path, win32(WINDOWS_TIMES), If=held)
    ask(200, WINDOWS, "HEAD", path, If=held)
    ask(204, WINDOWS, "PUT", path, DATA, If=held)
    times = WINDOWS_TIMES | {"Win32FileAttributes": "00000021"}
    ask(207, WINDOWS, "PROPPATCH", path, win32(times), If=held)
    assert ask(423, {}, "PUT", path, b"another").status_code
    ask(204, WINDOWS, "UNLOCK", path, Lock_Token=token)
    listed = entries(ask(207, WINDOWS, "PROPFIND", place, Depth="1", Content_Length="0"))
    assert set(listed) == {f"{place}/", path}
    properties = listed[path]
    assert properties[f"{DAV}getcontentlength"].text == str(len(DATA))
    assert {name: properties[MICROSOFT + name].text for name in times} == times
    ask(201, WINDOWS, "MOVE", path, Destination=door.url(f"{place}/renamed.txt"), Overwrite="F")
    assert ask(200, WINDOWS, "GET", f"{place}/renamed.txt").content == DATA


def win32(times):
    properties = "".join(f"<Z:{name}>{value}</Z:{name}>" for name, value in times.items())
    return (
        '<?xml version="1.0" encoding="utf-8" ?><D:propertyupdate xmlns:D="DAV:" '
        f'xmlns:Z="urn:schemas-microsoft-com:"><D:set><D:prop>{properties}</D:prop></D:set>'
        "</D:propertyupdate>"
    )


# Nautilus


def test_nautilus_copies_moves_and_saves(ask, door, place):
    assert "PROPFIND" in ask(200, GVFS, "OPTIONS", place).headers["Allow"]
    ask(207, GVFS, "PROPFIND", place, GVFS_STAT, Depth="0")
    saved = ask(201, GVFS, "PUT", f"{place}/a", b"first", If_None_Match="*")
    ask(412, GVFS, "PUT", f"{place}/a", b"second", If_None_Match="*")
    ask(204, GVFS, "PUT", f"{place}/a", b"second", If_Match=saved.headers["ETag"])
    ask(412, GVFS, "PUT", f"{place}/a", b"third", If_Match=saved.headers["ETag"])
    listed = entries(ask(207, GVFS, "PROPFIND", f"{place}/", GVFS_STAT, Depth="1"))
    assert listed[f"{place}/a"][f"{DAV}getcontenttype"].text == "application/octet-stream"
    assert listed[f"{place}/a"][f"{DAV}getetag"].text != saved.headers["ETag"]
    ask(201, GVFS, "MKCOL", f"{place}/d")
    to = {"Depth": "infinity", "Overwrite": "F"}
    ask(201, GVFS, "COPY", f"{place}/a", Destination=door.url(f"{place}/d/a"), **to)
    ask(412, GVFS, "COPY", f"{place}/a", Destination=door.url(f"{place}/d/a"), **to)
    ask(201, GVFS, "COPY", f"{place}/d", Destination=door.url(f"{place}/e"), **to)
    ask(201, GVFS, "MOVE", f"{place}/d/a", Destination=door.url(f"{place}/b"), Overwrite="F")
    assert door.get(f"{place}/e/a") == door.get(f"{place}/b") == b"second"


# Cyberduck


def test_cyberduck_keeps_the_time_of_a_file(ask, door, place):
    path = f"{place}/a"
    ask(201, CYBERDUCK, "PUT", path, DATA, Content_Type="application/octet-stream")
    time = "Sat, 21 Nov 2026 12:00:00 GMT"
    update = (
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?><D:propertyupdate xmlns:D="DAV:">'
        f'<D:set><D:prop><lastmodified xmlns="http://sardine.example/">{time}</lastmodified>'
        f'<Win32LastModifiedTime xmlns="urn:schemas-microsoft-com:">{time}</Win32LastModifiedTime>'
        '</D:prop></D:set><D:remove><D:prop><old xmlns="SAR:"/></D:prop></D:remove></D:propertyupdate>'
    )
    patched = ask(207, CYBERDUCK, "PROPPATCH", path, update)
    assert " 200 " in patched.text and " 403 " not in patched.text
    everything = '<?xml version="1.0"?><D:propfind xmlns:D="DAV:"><D:allprop/></D:propfind>'
    found = entries(ask(207, CYBERDUCK, "PROPFIND", place, everything, Depth="1"))[path]
    assert found["{http://sardine.example/}lastmodified"].text == time
    # What the server tells itself is not for clients to set; then nothing of the request is done.
    wrong = update.replace("<lastmodified ", '<getlastmodified xmlns="DAV:">x</getlastmodified><new ')
    wrong = wrong.replace("</lastmodified>", "</new>")
    refused = ask(207, CYBERDUCK, "PROPPATCH", path, wrong)
    assert " 403 " in refused.text and " 424 " in refused.text
    assert entries(ask(207, CYBERDUCK, "PROPFIND", path, everything, Depth="0"))[path].keys() == found.keys()


# rclone, with the settings of servers that can more


@pytest.mark.parametrize("vendor", ["other", "nextcloud", "owncloud"])
def test_rclone_syncs_whatever_it_takes_us_for(field, door, place, tmp_path, vendor):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/a").write_bytes(DATA)
    authority = field.here.directory / "ca/ca.pem"
    line = ["rclone", "-v", "--config", tmp_path / "rclone.conf", "--ca-cert", authority]
    line += ["--webdav-vendor", vendor, "--webdav-url", door.url(place), "--webdav-bearer-token", field.token]
    line += ["--retries", "1", "--low-level-retries", "1"]

    def sync(*options):
        done = field.run("token", *line, *options, "sync", tree, ":webdav:", check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr.count(": Copied (")

    assert sync() == 1
    assert door.get(f"{place}/sub/a") == DATA
    # The others send a file's time in a header of theirs, and compare with it later.
    assert sync(*([] if vendor == "other" else ["--size-only"])) == 0
    (tree / "sub/a").write_bytes(DATA[:-1])
    assert sync() == 1
    assert door.get(f"{place}/sub/a") == DATA[:-1]
