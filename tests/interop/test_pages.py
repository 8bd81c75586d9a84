"""The door's pages in Chromium, driven by `playwright-core` as the live page's test is, and share links elsewhere."""

import os
import subprocess

import pytest
import requests

from .certificates import BASE
from .clients import Door, content
from .site import Site

HOST = "127.0.0.6"
HOSTILE = ['"><img src=x onerror=alert(1)>.html', "x\u202egpj.exe", "'; drop --.txt"]
RULE = f"""
[[storage.user]]
dn = "{BASE}/OU=Users/CN=Alice Lab"
path = "/"
rights = ["read", "modify"]
"""


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory, user_ca):
    site = Site(binary, tmp_path_factory.mktemp("pages") / "pages", "pages", HOST)
    user_ca.trusted_by(site)
    site.append(RULE)
    site.start()
    yield site
    site.kill()


@pytest.fixture
def door(site):
    """The door with a directory `/d` that each test finds as it is here."""
    door = Door(site)
    door.ask("DELETE", "/d")
    for name in HOSTILE:
        door.put(f"/d/{requests.utils.quote(name)}", b"<script>alert(1)</script>")
    door.put("/d/sub/f.txt", b"shared")
    return door


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What a person has to upload."""
    directory = tmp_path_factory.mktemp("files")
    (directory / "small.txt").write_bytes(content("pages", 300_000))
    (directory / "large.bin").write_bytes(content("pages", 1 << 20) * 48)
    return directory


@pytest.fixture
def browse(site, door, files, browser_tools):
    """Runs a scenario of `web/test/pages.mjs`; gives back what it printed."""

    def run(scenario, actions=None, **environment):
        line = ["node", "test/pages.mjs", site.door, str(files), scenario]
        environment = {**os.environ, "PAGES_TOKEN": site.token(), **environment}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            line, cwd=browser_tools, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )
        seen = []
        try:
            for told in process.stdout:
                seen.append(told)
                if told.startswith("please "):
                    actions[told.split()[1]]()
                    process.stdin.write("done\n")
                    process.stdin.flush()
            assert process.wait(30) == 0, "".join(seen)
        finally:
            process.kill()
        return "".join(seen)

    return run


def test_people_browse_upload_rename_delete_and_download(browse, door, files):
    browse("files")
    assert door.get("/d/new%20%26%20odd/small.txt") == (files / "small.txt").read_bytes()
    assert door.get("/d/new%20%26%20odd/%C3%A9t%C3%A9%20%231%3F.txt") == b"one"


def test_an_upload_goes_on_after_the_server_was_killed(browse, door, site, files):
    browse("resume", {"kill": site.kill, "start": site.start})
    large = (files / "large.bin").read_bytes()
    assert Door(site).get("/d/large.bin") == large
    site.wait_tidy()


def test_an_upload_goes_on_after_a_pause_and_a_reload(browse, site):
    browse("reload")
    assert not list(site.directory.glob("pools/*/partial/*[!n]")), "only the record of what has ended stays"


def test_a_link_opens_in_a_fresh_profile_with_and_without_a_script(browse, site):
    seen = browse("share")
    link = next(line.split()[1] for line in seen.splitlines() if line.startswith("link: "))
    secret = link.rpartition("/s/")[2]
    logs = "".join(path.read_text() for path in site.directory.glob("serve-*.log"))
    assert secret[1:] not in logs and "authz" not in logs, "the log has no authorisation"


def test_a_certificate_signs_in_and_another_sites_page_cannot_use_it(browse, site, user_ca):
    alice = user_ca.user("Alice Lab")
    browse("certificate", PAGES_CERT=str(alice.certificate), PAGES_KEY=str(alice.key))

    def ask(**headers):
        url = f"{site.door}/d/sub/f.txt"
        options = {"cert": alice.requests, "verify": str(site.certificates), "timeout": 30}
        return requests.delete(url, headers=headers, **options).status_code

    assert ask(Origin="https://evil.example.org") == 403
    assert ask(**{"Sec-Fetch-Site": "cross-site"}) == 403
    assert ask(Origin=site.door) == 204


def test_links_of_the_command_line_work_with_plain_http(site, door):
    anyone = requests.Session()
    anyone.trust_env, anyone.verify = False, str(site.certificates)
    link = site.command("share", f"{site.door}/d/sub", "--for", "10m").strip()
    authorisation = f"authz={link.rpartition('/s/')[2]}"
    assert anyone.get(f"{link}/f.txt", timeout=30).content == b"shared"
    assert anyone.get(f"{site.door}/d/?{authorisation}", timeout=30).status_code == 403
    assert anyone.put(f"{link}/g", data=b"x", timeout=30).status_code == 403
    site.command("mkdir", f"{site.door}/d/box")
    box = site.command("share", f"{site.door}/d/box", "--upload").strip()
    assert anyone.put(f"{box}/g", data=b"x", timeout=30).status_code == 201
    assert anyone.get(f"{box}/g", timeout=30).status_code == 403
    assert door.get("/d/box/g") == b"x"


def test_curl_uploads_in_pieces_as_the_manual_says(site, door, tmp_path):
    data = content("pieces", 3_000_000)
    (tmp_path / "first").write_bytes(data[:1_500_000])
    (tmp_path / "rest").write_bytes(data[1_500_000:])
    common = ["curl", "-sS", "--fail-with-body", "--capath", str(site.certificates), "-i"]
    common += ["-H", f"Authorization: Bearer {site.token()}"]

    def curl(*words):
        done = subprocess.run([*common, *words], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        lines = [line.partition(": ") for line in done.stdout.splitlines()]
        return {name.lower(): value for name, _, value in lines}

    begun = ["-T", "/dev/null", "-H", "Upload-Complete: ?0", "-H", "Upload-Length: 3000000"]
    upload = site.door + curl(*begun, f"{site.door}/d/f")["location"]
    piece = ["-X", "PATCH", "-H", "Content-Type: application/partial-upload"]
    first = ["--data-binary", "@first", "-H", "Upload-Offset: 0", "-H", "Upload-Complete: ?0"]
    curl(*piece, *first, upload)
    site.kill()
    site.start()
    assert curl("-I", upload)["upload-offset"] == "1500000"
    rest = ["--data-binary", "@rest", "-H", "Upload-Offset: 1500000", "-H", "Upload-Complete: ?1"]
    assert "etag" in curl(*piece, *rest, upload)
    assert door.get("/d/f") == data
