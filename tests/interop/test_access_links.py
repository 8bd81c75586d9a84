"""Short links that give access: login links and their sessions, view links, share links; made, used, listed, revoked, and
attacked.
"""

import base64
import json
import subprocess

import pytest
import requests

from .clients import Door
from .site import Site
from .waiting import eventually

HOST = "127.0.3.71"
BROWSER = {"Accept": "text/html"}
NAME = "secret-name-of-a-file"
GUESSES = 200


class Links:
    """A site, what its owner types, and what anybody may ask it."""

    def __init__(self, site):
        self.site = site
        self.anyone = requests.Session()
        self.anyone.trust_env, self.anyone.verify = False, str(site.certificates)

    def run(self, *words):
        line = [str(self.site.binary), "--json", *map(str, words), "--dir", str(self.site.directory)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        return done.returncode, json.loads(done.stdout or done.stderr)

    def made(self, *words):
        code, told = self.run(*words)
        assert code == 0, told
        return told

    def api(self, method, path, bearer=None, **options):
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return self.anyone.request(method, self.site.service + path, headers=headers, timeout=30, **options)

    def redeem(self, secret):
        return self.api("POST", "/api/v1/access-links/redeem", json={"secret": secret})

    def session(self, *words):
        link = self.made("login-link", *words)["link"]
        told = self.redeem(link.partition("#login=")[2])
        assert told.status_code == 200, told.text
        return told.json()

    def get(self, url, **options):
        return self.anyone.get(url, timeout=30, **options)

    def failed_job(self, place="out"):
        """A job of a file that is not there, or cannot be written."""
        source, destination = f"{self.site.door}/in/{NAME}", f"{self.site.door}/{place}/{NAME}"
        subprocess.run(
            [str(self.site.binary), "submit", "--dir", str(self.site.directory), "--wait", "--retries", "0", source, destination],
            capture_output=True, timeout=90,
        )
        code, listed = self.run("list", "--state", "FAILED")
        assert code == 0 and listed, listed
        return listed[0]["job_id"]


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory):
    site = Site(binary, tmp_path_factory.mktemp("links") / "links", "links", HOST)
    site.start()
    yield site
    site.kill()


@pytest.fixture
def links(site):
    links = Links(site)
    links.run("rm", "-r", f"{site.door}/d")
    for link in [*links.made("access-link", "list"), *links.made("share", "list")]:
        kind = ["access-link"] if "kind" in link else ["share"]
        links.made(*kind, "revoke", link["id"])
    return links


def secret_of(link):
    return link.rpartition("/s/")[2] if "/s/" in link else link.rpartition("=")[2]


def test_a_login_link_signs_in_once_and_survives_a_kill(links):
    made = links.made("login-link")
    assert len(made["link"]) - len(links.site.service) <= 36 and made["expires_at"].endswith("Z")
    # A robot that fetches a preview sends nothing of what follows '#'.
    assert links.get(made["link"]).status_code == 200
    links.site.kill()
    links.site.start()
    told = links.redeem(secret_of(made["link"]))
    assert told.status_code == 200, told.text
    session = told.json()["token"]
    assert links.api("GET", "/api/v1/overview", session).status_code == 200
    assert links.api("GET", "/live/api/series", session).status_code == 200
    again = links.redeem(secret_of(made["link"]))
    assert again.status_code == 410 and "can be used only once" in again.text
    links.site.kill()
    links.site.start()
    assert links.api("GET", "/whoami", session).status_code == 200
    assert links.redeem(secret_of(made["link"])).status_code == 410


def test_links_of_a_user_are_bounded(links):
    token = links.site.token()
    answers = [links.api("POST", "/api/v1/access-links", token, json={"kind": "login"}) for _ in range(101)]
    assert [answer.status_code for answer in answers] == [201] * 100 + [429], answers[-1].text
    assert "access-links-too-many" in answers[-1].text


def test_no_user_pushes_the_changes_of_others_out_of_the_audit(links):
    ban = {"user_dn": "mallory"}
    assert links.api("POST", "/ban/dn", links.site.admin_token(), json=ban).status_code == 200
    try:
        token = links.site.token(subject="victor")
        for _ in range(60):
            made = links.api("POST", "/api/v1/access-links", token, json={"kind": "login"})
            assert made.status_code == 201, made.text
            links.api("DELETE", f"/api/v1/access-links/{made.json()['id']}", token)
        rows = links.api("GET", "/config/audit", links.site.admin_token()).json()
        actions = [row["action"] for row in rows]
        assert len(rows) <= 100 and actions.count("make access link") <= 50 and any("ban" in action for action in actions)
        assert [row["datetime"] for row in rows] == sorted((row["datetime"] for row in rows), reverse=True)
    finally:
        links.api("DELETE", "/ban/dn", links.site.admin_token(), params=ban)


def test_a_session_has_the_rights_of_its_maker_and_nothing_to_pass_on(links):
    user, admin = links.session()["token"], links.session("--admin")["token"]
    # A right would stay when the session has ended.
    granted = links.api("POST", "/config/authorize", admin, json={"dn": "mallory", "operation": "config"})
    assert granted.status_code == 403 and "session" in granted.text
    assert links.api("GET", "/config/audit", user).status_code == 403
    assert links.api("GET", "/config/audit", admin).status_code == 200
    # The overview of the dashboard asks for it.
    assert links.api("GET", "/api/v1/health", admin).status_code == 200
    for session in (user, admin):
        job = {"files": [{"sources": [f"{links.site.door}/a"], "destinations": [f"{links.site.door}/b"]}]}
        assert links.api("POST", "/jobs", session, json=job).status_code == 403
        assert links.api("POST", "/api/v1/access-links", session, json={"kind": "login"}).status_code == 403
        # The storage element knows no sessions.
        headers = {"Authorization": f"Bearer {session}"}
        assert links.get(f"{links.site.door}/", headers=headers).status_code == 401


def test_a_session_is_listed_revoked_and_audited(links):
    session = links.session()
    listed = {link["id"]: link for link in links.made("access-link", "list")}
    assert listed[session["session"]]["state"] == "valid" and session["token"] not in json.dumps(listed)
    now = [link for link in listed.values() if link["state"] != "revoked"]
    assert {"session", "login"} <= {link["kind"] for link in listed.values()} and [session["session"]] == [link["id"] for link in now if link["state"] == "valid"]
    links.made("access-link", "revoke", session["session"])
    refused = links.api("GET", "/api/v1/overview", session["token"])
    assert refused.status_code == 401 and "revoked" in refused.text
    code, told = links.run("access-link", "revoke", "000000000000")
    assert code == 4, told
    actions = [row["action"] for row in links.made("audit")]
    for action in ("make access link", "use access link", "revoke access link"):
        assert action in actions, actions


def test_a_view_link_shows_one_job_without_names_and_opens_nothing_else(links):
    job = links.failed_job()
    made = links.made("view-link", job)
    view = secret_of(made["link"])
    told = links.api("GET", "/api/v1/access-links/view", view)
    assert told.status_code == 200, told.text
    shown = told.json()
    assert shown["job_id"] == job and shown["job_state"] == "FAILED" and len(shown["files"]) == 1
    assert links.site.storage_id in shown["files"][0]["source"]
    for hidden in (NAME, "/in/", "/out/", made["user"] + '"'):
        assert hidden not in told.text, told.text
    for method, path in [
        ("GET", "/api/v1/overview"), ("GET", f"/api/v1/jobs/{job}/explain"), ("GET", f"/jobs/{job}"), ("GET", "/whoami"),
        ("GET", "/live/api/series"), ("DELETE", f"/jobs/{job}"), ("POST", "/jobs"), ("GET", "/api/v1/access-links"),
        ("POST", "/api/v1/access-links"),
    ]:
        assert links.api(method, path, view).status_code == 401, f"{method} {path}"
    for method in ("POST", "DELETE", "PUT"):
        assert links.api(method, "/api/v1/access-links/view", view).status_code in (401, 404, 405), method
    number = shown["files"][0]["file_id"]
    story = links.api("GET", "/api/v1/access-links/view", secret_of(links.made("view-link", number)["link"]))
    assert story.status_code == 200 and story.json()["steps"] and NAME not in story.text
    links.made("access-link", "revoke", made["id"])
    ended = links.api("GET", "/api/v1/access-links/view", view)
    assert ended.status_code == 401 and "revoked" in ended.text
    assert links.run("view-link", "00000000-0000-0000-0000-000000000000")[0] == 4


def test_a_view_link_tells_no_directory_activity_or_words_of_operators(links):
    door = Door(links.site)
    door.put(f"/in/{NAME}", b"data")
    door.put("/out/Project%20Oppenheimer%20B", b"a file, so nothing can be below it")
    job = links.failed_job("out/Project%20Oppenheimer%20B")
    told = links.api("GET", "/api/v1/access-links/view", secret_of(links.made("view-link", job)["link"]))
    assert told.status_code == 200 and "Oppenheimer" not in told.text, told.text
    storage, admin = links.site.storage_id, links.site.admin_token()
    ban = {"storage": storage, "status": "WAIT", "message": "broken by Bob Miller, run Manhattan"}
    files = [{"sources": [f"{links.site.door}/in/a"], "destinations": [f"{links.site.door}/out/a"], "activity": "Analysis-42"}]
    links.site.command("drain", "on")
    try:
        submitted = links.api("POST", "/jobs", links.site.token(), json={"files": files})
        assert submitted.status_code == 200, submitted.text
        job = submitted.json()["job_id"]
        assert links.api("POST", "/ban/se", admin, json=ban).status_code == 200
        links.site.command("drain", "off")
        [row] = links.api("GET", f"/jobs/{job}/files", links.site.token()).json()
        for what in (job, row["file_id"]):
            told = links.api("GET", "/api/v1/access-links/view", secret_of(links.made("view-link", what)["link"]))
            assert told.status_code == 200 and "has been banned" in told.text, told.text
            for hidden in ("Bob Miller", "Manhattan", "Analysis-42"):
                assert hidden not in told.text, told.text
    finally:
        assert links.api("DELETE", "/ban/se", admin, params={"storage": storage}).status_code in (200, 204)


def test_a_share_is_short_and_gives_a_path_and_what_is_below(links):
    door = Door(links.site)
    door.put("/d/run/f", b"shared")
    door.put("/d/other", b"not shared")
    made = links.made("share", f"{links.site.door}/d/run", "--for", "1h")
    link = made["link"]
    assert len(link) - len(links.site.door) <= 30 and made["expires_at"].endswith("Z")
    assert links.get(f"{link}/f").content == b"shared"
    page = links.get(f"{link}/", headers=BROWSER)
    assert page.status_code == 200 and page.headers["Referrer-Policy"] == "no-referrer"
    assert f"authz={secret_of(link)}" in page.text
    assert links.get(f"{links.site.door}/d/run/f?authz={secret_of(link)}").content == b"shared"
    prepared = requests.Request("GET", f"{link}/x").prepare()
    for way in ("/../other", "/%2e%2e/other", "/..%2fother"):
        prepared.url = link + way
        answer = links.anyone.send(prepared, verify=str(links.site.certificates), timeout=30)
        assert answer.status_code in (400, 403, 404) and b"not shared" not in answer.content, way
    for method in ("PUT", "DELETE", "MKCOL", "LOCK"):
        assert links.anyone.request(method, f"{link}/new", timeout=30).status_code == 403, method
    one = links.made("share", f"{links.site.door}/d/run/f")["link"]
    assert links.get(one).content == b"shared" and links.get(f"{one}/../g").status_code in (401, 403, 404)
    box = links.made("share", f"{links.site.door}/d/run", "--upload")["link"]
    assert links.anyone.put(f"{box}/new", data=b"x", timeout=30).status_code == 201
    assert links.get(f"{box}/f").status_code == 403 and door.get("/d/run/new") == b"x"


def test_a_share_tells_its_end_and_is_refused_for_what_is_not_there(links):
    Door(links.site).put("/d/f", b"x")
    url = f"{links.site.door}/d/f"
    made = links.made("share", url, "--for", "30d")
    assert made["shortened_by"] == "site"
    line = [str(links.site.binary), "share", url, "--for", "30d", "--dir", str(links.site.directory)]
    said = subprocess.run(line, capture_output=True, text=True, timeout=60).stderr
    assert "Shortened to 12 h, the maximum of this site. Expires 20" in said and said.rstrip().endswith(" UTC."), said
    code, told = links.run("share", f"{links.site.door}/d/none")
    assert code == 4 and "does not exist" in json.dumps(told)
    short = links.made("share", url, "--for", "1s")["link"]
    ended = eventually("it ends", lambda: (answer := links.get(short)).status_code == 410 and [answer])[0]
    assert "expired at 20" in ended.text and ended.text.count("UTC") == 1
    assert links.anyone.get(short, headers={"Accept": "application/problem+json"}, timeout=30).json()["code"] == "access-link-ended"


def test_a_revoked_share_ends_at_once_and_leaves_nothing_behind(links):
    Door(links.site).put("/d/f", b"x")
    made = links.made("share", f"{links.site.door}/d")
    link, secret = made["link"], secret_of(made["link"])
    assert links.get(f"{link}/f").status_code == 200
    # Nothing can be made of it that would live on.
    wanted = {"caveats": ["activity:DOWNLOAD"], "validity": "PT1H"}
    headers = {"Content-Type": "application/macaroon-request"}
    assert links.anyone.post(f"{link}/f", json=wanted, headers=headers, timeout=30).status_code == 403
    shares = f"{links.site.door}/.penstock/shares"
    bearer = {"Authorization": f"Bearer {secret}"}
    again = {"path": "/d", "access": "read"}
    assert links.anyone.post(shares, json=again, headers=bearer, timeout=30).status_code == 403
    assert links.get(shares, headers=bearer).status_code == 403
    assert links.anyone.delete(f"{shares}/{made['id']}", headers=bearer, timeout=30).status_code == 403
    listed = links.made("share", "list", "--path", "/d")
    assert listed[0]["id"] == made["id"] and listed[0]["first_used_at"] and listed[0]["state"] == "valid"
    assert links.made("share", "list", "--path", "/e") == []
    links.site.kill()
    links.site.start()
    assert links.get(f"{link}/f").status_code == 200
    links.made("share", "revoke", made["id"])
    for url in (f"{link}/f", f"{links.site.door}/d/f?authz={secret}"):
        ended = links.get(url)
        assert ended.status_code == 410 and "revoked" in ended.text
    page = links.get(link, headers=BROWSER)
    assert page.status_code == 410 and secret not in page.text
    assert links.made("share", "list")[0]["state"] == "revoked"


def test_guesses_and_secrets_of_other_kinds_open_nothing(links):
    Door(links.site).put("/d/f", b"x")
    share = secret_of(links.made("share", f"{links.site.door}/d")["link"])
    login = secret_of(links.made("login-link")["link"])
    session = links.session()["token"]
    for text in (login, session, "V" + share[1:]):
        assert links.get(f"{links.site.door}/s/{text}").status_code in (401, 404), text
        assert links.get(f"{links.site.door}/d/f?authz={text}").status_code == 401, text
    for text in (share, login, "T" + session[1:-4] + "AAAA", "T" + share[1:]):
        assert links.api("GET", "/whoami", text).status_code == 401, text
        assert links.redeem(text if text != login else "L" + "A" * 22).status_code == 404, text
    for guess in range(GUESSES):
        assert links.get(f"{links.site.door}/s/S{guess:022}").status_code == 404
    for bad in ({}, {"secret": 1}, {"secret": "x" * 5000}, {"secret": login, "more": 1}):
        assert links.api("POST", "/api/v1/access-links/redeem", json=bad).status_code in (400, 404, 413)
    assert links.redeem(login).status_code == 200, "it was not used up by any of these"


def test_a_job_cannot_have_a_shared_link_and_no_secret_is_kept_or_logged(links):
    Door(links.site).put("/d/f", b"x")
    share = links.made("share", f"{links.site.door}/d")["link"]
    login = links.made("login-link")["link"]
    session = links.session()["token"]
    assert links.get(f"{share}/f").status_code == 200 and links.get(f"{share}/none").status_code == 404
    links.get(f"{share[:-1]}_/f")
    secret = secret_of(share)
    for way in (f"/s/{secret}.", f"/s/{secret})/f", f"//s/{secret}/f", f"/s/%53{secret[1:]}/a"):
        assert links.get(f"{links.site.door}{way}").status_code in (200, 404), way
    door = Door(links.site)
    for header in ("Source", "Destination"):
        refused = door.ask("COPY", "/d/f", headers={header: f"{links.site.door}/s/{secret}/x"})
        assert refused.status_code in (400, 403) and secret not in refused.text, refused.text
    line = [str(links.site.binary), "submit", "--dir", str(links.site.directory), f"{share}/f", f"{links.site.door}/copy"]
    refused = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "shared link" in refused.stderr and secret_of(share) not in refused.stderr
    secrets = [secret_of(share), secret_of(login), session]
    looked_at = 0
    for path in [*links.site.directory.rglob("state/*"), *links.site.directory.glob("serve*.log")]:
        if path.is_file():
            content = path.read_bytes()
            looked_at += len(content)
            for secret in secrets:
                assert secret[1:-1].encode() not in content, path
    assert looked_at > 100_000, looked_at


def signed_with(token):
    head = token.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))["kid"]


def test_what_was_made_with_a_token_ends_with_the_key_that_signed_it(links):
    """As the documents tell administrators to do it when a key was stolen."""
    session, view = links.session("--admin")["token"], secret_of(links.made("view-link", links.failed_job())["link"])
    login = secret_of(links.made("login-link", "--admin")["link"])
    assert links.api("GET", "/config/audit", session).status_code == 200
    ring = links.site.directory / "keys/token-signing.json"
    old = {key["kid"] for key in json.loads(ring.read_text())["keys"]}
    links.site.command("key", "rotate", "token", "--now")
    eventually("the new key signs", lambda: signed_with(links.site.token()) not in old, 20)
    keys = json.loads(ring.read_text())
    keys["keys"] = [key for key in keys["keys"] if key["kid"] not in old]
    new = ring.with_suffix(".new")
    new.write_text(json.dumps(keys))
    new.rename(ring)
    eventually("the session has ended", lambda: links.api("GET", "/config/audit", session).status_code == 401, 20)
    assert links.api("GET", "/api/v1/access-links/view", view).status_code == 401
    assert links.redeem(login).status_code == 401
    assert links.session()["token"], "a new link opens"
