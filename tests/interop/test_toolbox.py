"""The field's toolbox on our door: gfal2, davix, curl, rclone and uproot, each with a token, a proxy and a user's
certificate, through the whole round: put, stat, list, read parts, checksum, move, delete.
"""

import os
import subprocess
import sys
import time

import pytest

from .clients import Door, adler32, content

CREDENTIALS = ["token", "proxy", "certificate"]
DATA = content("toolbox", 400_000)
MANY = 10_000
ODD = "two words/ünïcode – café"


@pytest.fixture(params=CREDENTIALS)
def credential(request):
    return request.param


@pytest.fixture
def local(tmp_path):
    path = tmp_path / "local"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def door(field):
    return field.door(field.here)


@pytest.fixture(scope="session")
def many(whole_field, tmp_path_factory):
    """A directory of ten thousand small files, put by one curl over a few connections."""
    field, directory = whole_field, tmp_path_factory.mktemp("many")
    (directory / "one").write_bytes(b"x")
    url = field.here.door + "/many"
    files = [f'upload-file = "{directory}/one"\nurl = "{url}/file-{number:05}"\n' for number in range(MANY)]
    bearer = f'header = "Authorization: Bearer {field.token}"\n'
    (directory / "config").write_text(bearer + "".join(files))
    line = ["curl", "-sS", "--fail-with-body", "--capath", field.certificates, "--parallel"]
    field.run("token", *line, "--parallel-max", "8", "--config", directory / "config")
    return "/many"


# gfal2


def test_gfal_goes_the_whole_round(field, place, door, credential, local, tmp_path):
    def gfal(command, *words, **options):
        return field.run(credential, f"gfal-{command}", *words, **options)

    url = door.url(place)
    gfal("mkdir", "-p", f"{url}/deep/er")
    gfal("copy", "-K", "ADLER32", f"file://{local}", f"{url}/deep/er/a")
    stat = gfal("stat", f"{url}/deep/er/a")
    assert f"Size: {len(DATA)}\tregular file" in stat
    assert str(time.gmtime().tm_year) in stat
    assert "directory" in gfal("stat", f"{url}/deep")
    assert gfal("sum", f"{url}/deep/er/a", "ADLER32").split()[-1] == adler32(DATA)
    assert gfal("cat", "-b", f"{url}/deep/er/a", text=False) == DATA
    gfal("copy", "-K", "ADLER32", f"{url}/deep/er/a", f"file://{tmp_path}/back")
    assert (tmp_path / "back").read_bytes() == DATA
    gfal("rename", f"{url}/deep/er/a", f"{url}/deep/b")
    listed = gfal("ls", "-l", f"{url}/deep").splitlines()
    assert [line.split()[-1] for line in listed] == ["b", "er"]
    assert str(len(DATA)) in listed[0]
    gfal("save", f"{url}/deep/saved", input="by standard input")
    assert door.get(f"{place}/deep/saved") == b"by standard input"
    gfal("rm", f"{url}/deep/b")
    missing = gfal("stat", f"{url}/deep/b", check=False)
    assert missing.returncode == 2, missing.stderr  # ENOENT
    gfal("rm", "-r", f"{url}/deep")
    assert not door.exists(f"{place}/deep")


def test_gfal_lists_many(field, many, door, credential):
    names = field.run(credential, "gfal-ls", door.url(many)).split()
    assert len(names) == len(set(names)) == MANY
    assert f"file-{MANY - 1:05}" in names


def test_gfal_copies_names_with_blanks_and_foreign_letters(field, place, door, credential, local):
    url = door.url(place) + "/two%20words/%C3%BCn%C3%AFcode"
    field.run(credential, "gfal-copy", "-p", "-K", "ADLER32", f"file://{local}", url)
    assert door.get(f"{place}/two words/ünïcode") == DATA
    # It shows names as the door writes them in URLs.
    assert field.run(credential, "gfal-ls", door.url(place)) == "two%20words\n"


def test_gfal_with_a_proxy_gets_macaroons_and_with_a_token_none(field, place, door, local):
    url = door.url(f"{place}/a")
    for credential in ("token", "proxy"):
        before = macaroons_issued(field, f"{place}/a")
        field.run(credential, "gfal-copy", "-f", "-K", "ADLER32", f"file://{local}", url)
        assert (macaroons_issued(field, f"{place}/a") > before) == (credential == "proxy")
    # It is used as well: a macaroon for reading and one for writing.
    token = field.run("proxy", "gfal-token", "-w", "--validity", "10", url).strip()
    assert Door(field.here, token).get(f"{place}/a") == DATA


def macaroons_issued(field, path):
    lines = field.here.log_text().splitlines()
    return sum("issued a macaroon" in line and field.user.subject in line and path in line for line in lines)


def test_gfal_finds_no_attributes_but_those_of_tapes(field, place, door, credential):
    """It asks for no other ones over HTTP, and this site keeps no tapes."""
    door.put(f"{place}/a", b"x")
    listed = field.run(credential, "gfal-xattr", door.url(f"{place}/a")).splitlines()
    assert len(listed) == 3 and all("(received 404)" in line for line in listed), listed
    # EINVAL, ENODATA, ENOSYS.
    for word, expected in [("user.status", 22), ("spacetoken", 61), ("user.x=1", 38)]:
        done = field.run(credential, "gfal-xattr", door.url(f"{place}/a"), word, check=False)
        assert done.returncode == expected, (word, done.stderr)


@pytest.mark.parametrize("mode", ["pull", "push", "streamed"])
def test_gfal_copies_between_two_sites_with_a_proxy_alone(field, place, door, mode):
    door.put(f"{place}/a", DATA)
    there = field.door(field.there)
    line = ["gfal-copy", "-p", "--copy-mode", mode, "-K", "ADLER32"]
    field.run("proxy", *line, door.url(f"{place}/a"), there.url(f"{place}/b"))
    assert there.get(f"{place}/b") == DATA


# davix


@pytest.fixture
def davix(field, credential):
    shown = {
        "token": ["-H", f"Authorization: Bearer {field.token}"],
        "proxy": ["--cert", field.proxy.pem],
        "certificate": ["--cert", field.user.certificate, "--key", field.user.key],
    }[credential]

    def ask(command, *words, **options):
        return field.run(credential, f"davix-{command}", "--capath", field.certificates, *shown, *words, **options)

    return ask


def test_davix_goes_the_whole_round(place, door, davix, local, tmp_path):
    url = door.url(place)
    davix("mkdir", url)
    davix("put", local, f"{url}/a")
    assert str(len(DATA)) in davix("ls", "-l", url)
    davix("get", f"{url}/a", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == DATA
    part = davix("http", "-H", "Range: bytes=1000-1999", f"{url}/a", text=False)
    assert part == DATA[1000:2000]
    # Its exit code is 255 although MOVE was answered by 201 and is done: judged by the file.
    davix("mv", f"{url}/a", f"{url}/b", check=False)
    assert door.list(place) == {place: None, f"{place}/b": len(DATA)}
    davix("rm", f"{url}/b")
    assert door.list(place) == {place: None}


def test_davix_lists_many(door, many, davix):
    assert len(davix("ls", door.url(many)).split()) == MANY
    lines = davix("ls", "-l", door.url(many)).splitlines()
    assert len(lines) == MANY
    assert lines[-1].split()[-1] == f"file-{MANY - 1:05}"


# Where davix's own tests look for authorities, and for nothing else.
WITH_AUTHORITIES = 'mount --bind "$1" /etc/ssl/certs && shift && exec "$@"'


@pytest.mark.parametrize("scheme", ["https", "davs"])
@pytest.mark.parametrize("shown", ["proxy", "certificate"])
def test_davix_passes_its_own_tests(field, place, door, scheme, shown):
    door.ask("MKCOL", place)
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    line = ["unshare", "--mount", *as_root, "sh", "-c", WITH_AUTHORITIES, "sh", field.certificates]
    # It removes only what has this in its name, and finds a certificate where proxies are found.
    url = door.url(f"{place}/davix-tests").replace("https", scheme, 1)
    line += ["davix-tester", "--auth", "proxy", "--uri", url, "--command", "fulltest"]
    pem = field.proxy.pem if shown == "proxy" else field.user.pem
    environment = field.environment("token") | {"X509_USER_PROXY": str(pem)}
    line = [str(word) for word in line]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "FAIL" not in done.stdout, done.stdout
    assert done.stdout.count("OK") >= 108, done.stdout


# curl


@pytest.fixture
def curl(field, credential):
    shown = {
        "token": ["-H", f"Authorization: Bearer {field.token}"],
        "proxy": field.proxy.curl,
        "certificate": field.user.curl,
    }[credential]

    def ask(*words, **options):
        return field.run(
            credential, "curl", "-sS", "--fail-with-body", "--capath", field.certificates, *shown, *words, **options
        )

    return ask


def test_curl_goes_the_whole_round(place, door, curl, local):
    url = door.url(place)
    curl("-X", "MKCOL", url)
    curl("-T", local, f"{url}/a")
    head = curl("-I", "-H", "Want-Digest: adler32", f"{url}/a").lower()
    assert f"content-length: {len(DATA)}" in head
    assert f"digest: adler32={adler32(DATA)}" in head
    assert curl("-r", "5-104", f"{url}/a", text=False) == DATA[5:105]
    assert curl("-r", "-7", f"{url}/a", text=False) == DATA[-7:]
    curl("-X", "MOVE", "-H", f"Destination: {url}/b", f"{url}/a")
    assert f"{place}/b" in curl("-X", "PROPFIND", "-H", "Depth: 1", url)
    curl("-X", "DELETE", url)
    assert not door.exists(place)


def test_curl_lists_many(door, many, curl):
    listed = curl("-X", "PROPFIND", "-H", "Depth: 1", door.url(many))
    assert listed.count(f"{many}/file-") >= MANY


# rclone


@pytest.fixture
def rclone(field, place, credential, tmp_path):
    shown = {
        "token": ["--webdav-bearer-token", field.token],
        "proxy": ["--client-cert", field.proxy.pem, "--client-key", field.proxy.pem],
        "certificate": ["--client-cert", field.user.certificate, "--client-key", field.user.key],
    }[credential]

    def ask(*words, at=place, **options):
        line = ["rclone", "--config", tmp_path / "rclone.conf", "--ca-cert", field.here.directory / "ca/ca.pem"]
        line += ["--webdav-vendor", "other", "--webdav-url", field.here.door + at]
        line += ["--retries", "1", "--low-level-retries", "1"]
        return field.run(credential, *line, *shown, *words, **options)

    return ask


def test_rclone_goes_the_whole_round(place, door, rclone, tmp_path):
    tree = tmp_path / "tree"
    names = ["a", "sub/b", ODD]
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(DATA)
    door.ask("MKCOL", place)
    rclone("copy", tree, ":webdav:t")
    listed = rclone("lsl", ":webdav:t").splitlines()
    assert sorted(line.split(maxsplit=3)[3] for line in listed) == sorted(names)
    assert all(line.split()[0] == str(len(DATA)) for line in listed)
    rclone("check", "--download", tree, ":webdav:t")
    assert rclone("cat", "--offset", "1000", "--count", "500", ":webdav:t/a", text=False) == DATA[1000:1500]
    rclone("moveto", ":webdav:t/sub/b", ":webdav:t/sub/c")
    (tree / "sub/b").rename(tree / "sub/c")
    (tree / "a").unlink()
    rclone("sync", tree, ":webdav:t")
    assert door.list(f"{place}/t/sub") == {f"{place}/t/sub": None, f"{place}/t/sub/c": len(DATA)}
    assert not door.exists(f"{place}/t/a")
    rclone("delete", ":webdav:t/sub")
    assert door.list(f"{place}/t/sub") == {f"{place}/t/sub": None}
    rclone("purge", ":webdav:t")
    assert not door.exists(f"{place}/t")


def test_rclone_lists_many(many, rclone):
    assert len(rclone("lsf", ":webdav:", at=many).split()) == MANY


# uproot


READ_BRANCHES = """
import ssl, sys
import aiohttp, numpy, uproot
url, authorities, token, certificate, key = sys.argv[1:]
context = ssl.create_default_context(capath=authorities)
if certificate:
    context.load_cert_chain(certificate, key)

async def get_client(**options):
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), **options)

headers = {"Authorization": "Bearer " + token} if token else {}
with uproot.open(url, get_client=get_client, headers=headers) as file:
    tree = file["events"]
    energy = tree["energy"].array(library="np", entry_start=100_000, entry_stop=100_010)
    assert numpy.array_equal(energy, numpy.arange(100_000, 100_010) * 0.5), energy
    print(tree.num_entries, tree.keys(), int(tree["hits"].array(library="np").sum()))
"""


@pytest.fixture(scope="session")
def root_file(tmp_path_factory):
    import numpy
    import uproot

    path = tmp_path_factory.mktemp("root") / "events.root"
    with uproot.recreate(path) as file:
        numbers = numpy.arange(200_000)
        file["events"] = {"energy": numbers * 0.5, "hits": numbers.astype("int32") % 7}
    return path


def test_uproot_reads_branches_by_ranges(field, place, door, credential, root_file):
    door.put(f"{place}/events.root", root_file.read_bytes())
    shown = {
        "token": [field.token, "", ""],
        "proxy": ["", field.proxy.pem, field.proxy.pem],
        "certificate": ["", field.user.certificate, field.user.key],
    }[credential]
    line = [sys.executable, "-c", READ_BRANCHES, door.url(f"{place}/events.root"), field.certificates, *shown]
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = sum(number % 7 for number in range(200_000))
    assert done.stdout == f"200000 ['energy', 'hits'] {expected}\n"
