"""What a submitter, or somebody who only knows the port, may try with the transfer service's interface: credentials that
stand in URLs, control characters, answers about others' links, requests that two readers take differently.
"""

import re
import socket
import ssl
import subprocess
from urllib.parse import urlsplit

import pytest

from .clients import Service, content
from .waiting import eventually

SECRET = "eyJhbGciOiJFUzI1NiJ9.eyJwbGFudGVkIjoiaGVyZSJ9.c2VjcmV0c2VjcmV0c2VjcmV0"
SIGNED = "5f2c1e9ad0b7c1e9ad0b75f2c1e9ad0b7c1e9ad0b75f2c1e"


def cli(site, *words):
    line = [site.binary, *words, "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, timeout=60)
    return done.returncode, (done.stdout + done.stderr).decode()


def files_below(directory):
    return [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]


def test_credentials_in_urls_are_used_and_shown_to_nobody(own_grid, faulty, tmp_path):
    """A colleague of the VO, the databases, a backup, the log and the command line."""
    grid = own_grid
    for site in grid.sites:
        site.start()
    data = content("presigned", 2000)
    source = faulty.offer("/d/f", data) + f"?keep=1&authz={SECRET}&X-Amz-Signature={SIGNED}"
    destination = grid.there_door.url("/d/f") + f"?authz={grid.token}"
    job = grid.service.submit((source, destination), retry=1)
    grid.service.wait_finished(job)
    assert grid.there_door.get("/d/f") == data
    asked = [seen.path for seen in faulty.seen if seen.path.startswith("/d/f")]
    assert asked and all(f"authz={SECRET}" in path and f"X-Amz-Signature={SIGNED}" in path for path in asked)
    colleague = Service(grid.here, grid.here.token(scope="storage.read:/", subject="bob"))
    [file] = colleague.files(job)
    assert file["source_surl"] == f"{faulty.url}/d/f?keep=1"
    assert file["dest_surl"] == grid.there_door.url("/d/f")
    secrets = [SECRET, SIGNED, grid.token]
    for path in [
        f"/jobs/{job}",
        f"/jobs/{job}/files",
        f"/jobs/{job}/files/{file['file_id']}/retries",
        f"/jobs/{job}/files/{file['file_id']}/log",
        f"/api/v1/jobs/{job}/explain",
        f"/api/v1/transfers/{file['file_id']}",
        f"/fts3/ftsmon/jobs/{job}/files",
        "/files?state_in=FINISHED",
    ]:
        answer = colleague.ask("GET", path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        assert not [secret for secret in secrets if secret in answer.text], path
    code, said = cli(grid.here, "find", "d/f")
    assert code == 0 and not [secret for secret in secrets if secret in said], said
    code, said = cli(grid.here, "backup", "--to", str(tmp_path / "backup"))
    assert code == 0, said
    assert not [secret for secret in secrets if secret in grid.here.log_text()]
    state = [path for path in files_below(grid.here.directory) if "sqlite" in path.name]
    assert state
    for path in [*state, *files_below(tmp_path / "backup")]:
        held = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in held], path


def test_a_parameter_that_names_a_file_is_no_credential(grid, faulty, place):
    """Its name has letters of one; without it, all such files would look like one."""
    data = content("key", 2000)
    sources = [faulty.offer(place, data) + f"?{name}" for name in ("key=run7/a", "file-key=run7/b", "author=eve")]
    pairs = [(source, grid.there_door.url(f"{place}/{number}")) for number, source in enumerate(sources)]
    job = grid.service.submit(*pairs)
    grid.service.wait_finished(job)
    assert [file["source_surl"] for file in grid.service.files(job)] == sources


def test_a_job_with_credentials_in_its_urls_survives_a_restart(own_grid, faulty):
    grid = own_grid
    for site in grid.sites:
        site.start()
    data = content("restart", 2000)
    faulty.offer("/r", data)
    answers = dict(faulty.answers)
    refuse = lambda exchange: exchange.reply(503)
    faulty.answers["HEAD", "/r"] = refuse
    source = f"{faulty.url}/r?authz={SECRET}"
    job = grid.service.submit((source, grid.there_door.url("/r")), retry=20, retry_delay=1)
    eventually("the source was asked", lambda: faulty.seen, 20)
    grid.here.stop()
    faulty.seen.clear()
    grid.here.start()
    faulty.answers.update(answers)
    grid.service.wait_finished(job)
    assert faulty.seen and all(f"authz={SECRET}" in seen.path for seen in faulty.seen)


def test_what_an_end_repeats_of_a_credential_is_told_to_nobody(grid, faulty, place):
    """Servers tell the request that they refuse, sometimes whole and sometimes cut off."""
    body = f"no right: GET {place}?authz={SECRET} or {SECRET[:40]}".encode()
    faulty.answers["HEAD", place] = lambda exchange: exchange.reply(403, body)
    faulty.answers["GET", place] = lambda exchange: exchange.reply(403, body)
    source = f"{faulty.url}{place}?authz={SECRET}"
    job = grid.service.submit((source, grid.there_door.url(place)), strict_copy=True, retry=-1)
    reason = grid.service.wait_failed(job)
    assert SECRET[:20] not in reason, reason


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.3:1/x\r\n2026-01-01T00:00:00Z WARN forged",
        "https://127.0.0.3:1/\x1b[31mred",
        "https://127.0.0.3:1/\u009b31mred",
        "https://127.0.0.3:1/a\tb",
        "root://127.0.0.3:1//x\r\nfoo",
        "gsiftp://127.0.0.3:1//x%0d%0aDELE%20y",
        "sftp://127.0.0.3/x%00y",
    ],
)
def test_a_url_that_commands_a_terminal_or_forges_a_line_is_refused(grid, place, url):
    good = grid.there_door.url(place)
    for pair in [(url, good), (good, url)]:
        answer = grid.service.try_submit(pair)
        assert answer.status_code == 400 and "control character" in answer.json()["message"], answer.text
        assert "\x1b" not in answer.json()["message"] and "\n" not in answer.json()["message"]


def test_what_a_server_says_commands_no_terminal_and_forges_no_line(grid, faulty, place):
    said = "no\x1b[31mred\u202efdp\u009b31m"
    faulty.answers["HEAD", place] = lambda exchange: exchange.reply(403)
    faulty.answers["GET", place] = lambda exchange: exchange.reply(403, said.encode())
    job = grid.service.submit((faulty.url + place, grid.there_door.url(place)), strict_copy=True, retry=-1)
    grid.service.wait_failed(job)
    [file] = grid.service.files(job)
    for words in [("explain", str(file["file_id"])), ("status", "--files", job), ("find", place)]:
        for form in ([], ["--json"]):
            code, told = cli(grid.here, *words, *form)
            assert code == 0, told
            assert not [bad for bad in ("\x1b", "\u202e", "\u009b") if bad in told], (words, form, told)
    log = grid.service.ask("GET", f"/jobs/{job}/files/{file['file_id']}/log").text
    assert "red" in log and not [bad for bad in ("\x1b", "\u202e", "\u009b") if bad in log]
    logged = grid.here.log_text()
    assert not [bad for bad in ("\x1b", "\u202e", "\u009b") if bad in logged]


@pytest.mark.parametrize(
    "path", ["/fts3/ftsmon/optimizer", "/fts3/ftsmon/optimizer/detailed", "/fts3/ftsmon/stats/servers"]
)
def test_the_monitors_questions_need_the_right_of_the_same_question_elsewhere(grid, path):
    anybody = Service(grid.here, grid.here.token(scope="storage.read:/"))
    assert anybody.ask("GET", path).status_code == 403
    administrator = Service(grid.here, grid.here.admin_token())
    assert administrator.ask("GET", path).status_code == 200


# Who may use each route of the port. A route that is not here fails the test: say whom it answers.
ANYBODY = {"/", "/api-docs/schema/submit", "/fts3/ftsmon", "/fts3/ftsmon/", "/api/v1/access-links/redeem"}
MONITORS = {"/metrics", "/health", "/health/live", "/health/ready", "/api/v1/health"}
ADMINISTRATORS = {
    *("/config/links", "/config/links/{name}", "/config/se", "/config/authorize", "/config/global", "/config/audit"),
    *("/config/shares", "/config/activity_shares", "/config/activity_shares/{vo}", "/config/cloud_storage"),
    *("/config/cloud_storage/{name}", "/config", "/optimizer/evolution", "/optimizer/current", "/status/hosts"),
    *("/fts3/ftsmon/optimizer", "/fts3/ftsmon/optimizer/detailed", "/fts3/ftsmon/stats/servers"),
    *("/fts3/ftsmon/config/{kind}", "/fts3/ftsmon/config/activities/{vo}", "/ban/dn"),
    *("/api/v1/host", "/api/v1/mutes", "/api/v1/explain/path"),
}
# Operations without a GET, which take the right to configure, or are refused to everybody.
CHANGES = {"/config/cloud_storage/{name}/{holder}", "/config/drain", "/admin/force-start"}
# Members see what is of their VO; counts over all are theirs, too.
MEMBERS = {
    *("/whoami", "/whoami/certificate", "/ban/se", "/jobs", "/jobs/{ids}", "/jobs/all", "/jobs/vo/{vo}", "/jobs/{id}/files"),
    *("/jobs/{id}/files/{files}", "/jobs/{id}/files/{file}/retries", "/jobs/{id}/files/{file}/log", "/jobs/{id}/dm"),
    *("/jobs/{id}/{field}", "/files", "/optimizer", "/autocomplete/{kind}", "/archive", "/archive/{id}"),
    *("/archive/{id}/{field}", "/api/v1/overview", "/api/v1/nodes", "/api/v1/jobs/{id}/explain"),
    *("/api/v1/explain", "/api/v1/explain/{id}", "/api/v1/incidents", "/api/v1/incidents/{id}"),
    *("/api/v1/transfers", "/api/v1/transfers/{id}", "/delegation/{id}", "/delegation/{id}/request"),
    *("/delegation/{id}/voms", "/delegation/{id}/credential", "/fts3/ftsmon/overview"),
    *("/fts3/ftsmon/overview/activities", "/fts3/ftsmon/jobs", "/fts3/ftsmon/jobs/{id}"),
    *("/fts3/ftsmon/jobs/{id}/files", "/fts3/ftsmon/transfers", "/fts3/ftsmon/linkinfo", "/fts3/ftsmon/stats"),
    *("/fts3/ftsmon/stats/vo", "/fts3/ftsmon/errors", "/fts3/ftsmon/errors/list", "/fts3/ftsmon/unique/{what}"),
    *("/fts3/ftsmon/version", "/api/v1/access-links", "/api/v1/access-links/view", "/api/v1/access-links/{id}"),
}


def routes_of(repository):
    """The methods of each route, as the service declares them."""
    found = {}
    sources = sorted((repository / "crates/transfer-service/src/api").rglob("*.rs"))
    for source in [repository / "crates/transfer-service/src/api.rs", *sources]:
        for part in source.read_text().split(".route(")[1:]:
            path = re.match(r'\s*"([^"]+)"', part).group(1)
            handlers = part[: part.index(")\n")]
            methods = re.findall(r"\b(get|put|post|delete)\(", handlers)
            assert methods, f"{path}: no method was found"
            found.setdefault(path, set()).update(method.upper() for method in methods)
    return found


def test_each_route_says_whom_it_answers(grid, repository):
    routes = routes_of(repository)
    assert len(routes) >= 70, len(routes)
    told = [ANYBODY, MONITORS, ADMINISTRATORS, CHANGES, MEMBERS]
    assert sum(map(len, told)) == len(set().union(*told)), "a route stands in two lists"
    assert set(routes) == set().union(*told), set(routes) ^ set().union(*told)
    nobody, member = Service(grid.here), Service(grid.here, grid.here.token(scope="storage.read:/"))
    nobody.session.headers.pop("Authorization")
    # A refused request with a body may end its connection.
    for client in (nobody, member):
        client.session.headers["Connection"] = "close"
    wrong = []
    for path, methods in sorted(routes.items()):
        there = re.sub(r"\{\w+\}", "00000000-0000-0000-0000-000000000000", path.replace("{kind}", "links"))
        for method in sorted(methods):
            status = nobody.session.request(
                method, nobody.base + there, allow_redirects=False, timeout=60
            ).status_code
            if path not in ANYBODY | MONITORS and status != 401:
                wrong.append((method, path, "anonymous", status))
        if path in ADMINISTRATORS:
            for method in sorted(methods):
                answer = member.session.request(method, member.base + there, json={}, timeout=60)
                if answer.status_code not in (400, 403) or method == "GET" and answer.status_code != 403:
                    wrong.append((method, path, "member", answer.status_code))
    assert not wrong, wrong


def raw(site, request):
    """The status and the head of the answer to bytes as they are."""
    place = urlsplit(site.service)
    context = ssl.create_default_context(capath=str(site.certificates))
    with socket.create_connection((place.hostname, place.port), timeout=20) as tcp:
        with context.wrap_socket(tcp, server_hostname=place.hostname) as tls:
            tls.sendall(request)
            answer = b""
            while b"\r\n\r\n" not in answer and (more := tls.recv(65536)):
                answer += more
    head = answer.partition(b"\r\n\r\n")[0].decode()
    return int(head.split()[1]), head.lower()


def test_two_credentials_in_one_request_are_refused(grid):
    other = grid.here.token(scope="storage.read:/", subject="mallory")
    request = f"GET /whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {grid.token}\r\n"
    status, _ = raw(grid.here, (request + f"Authorization: Bearer {other}\r\n\r\n").encode())
    assert status == 400
    assert raw(grid.here, (request + "\r\n").encode())[0] == 200


def test_every_answer_tells_browsers_what_it_is_not(grid):
    for path in ["/", "/whoami", "/jobs", "/nothing-here"]:
        for words in ("", f"Authorization: Bearer {grid.token}\r\n"):
            _, head = raw(grid.here, f"GET {path} HTTP/1.1\r\nHost: x\r\n{words}\r\n".encode())
            for line in [
                "x-content-type-options: nosniff",
                "x-frame-options: deny",
                "cache-control: no-store",
                "content-security-policy: default-src 'none'",
            ]:
                assert line in head, (path, line)


def test_a_job_that_was_canceled_before_is_told_as_ended(grid, faulty, place):
    faulty.answers["HEAD", place] = lambda exchange: exchange.reply(503)
    job = grid.service.submit((faulty.url + place, grid.there_door.url(place)), retry=20, retry_delay=60)
    first = grid.service.ask("DELETE", f"/jobs/{job}").json()
    assert (first["http_status"], first["job_state"]) == ("200 Ok", "CANCELED")
    second = grid.service.ask("DELETE", f"/jobs/{job}").json()
    assert (second["http_status"], second["job_state"]) == ("304 Not Modified", "CANCELED")


@pytest.mark.parametrize("word, status", [("Y", 200), ("N", 200), (1, 200), (0, 200), ("true", 200), ("perhaps", 400)])
def test_switches_are_understood_as_fts_understands_them(grid, faulty, place, word, status):
    pair = (faulty.offer(f"{place}/f", b"x"), grid.there_door.url(f"{place}/{word}"))
    assert grid.service.try_submit(pair, overwrite=word).status_code == status


def test_a_url_without_a_host_is_refused(grid, place):
    answer = grid.service.try_submit((f"https:///data{place}", grid.there_door.url(place)))
    assert answer.status_code == 400 and "names no host" in answer.json()["message"], answer.text


def test_tokens_for_one_end_and_words_that_are_no_tokens_are_refused(grid, place):
    ends = {"sources": [grid.here_door.url(place)], "destinations": [grid.there_door.url(place)]}
    for tokens, text in [
        ({"source_tokens": [grid.token]}, "Both source_tokens and destination_tokens"),
        ({"destination_tokens": [grid.token]}, "Both source_tokens and destination_tokens"),
        ({"source_tokens": ["noise"], "destination_tokens": [grid.token]}, "JSON Web Tokens"),
    ]:
        answer = grid.service.try_submit(ends | tokens)
        assert answer.status_code == 400 and text in answer.json()["message"], answer.text


def test_a_file_for_a_tape_that_is_not_there_fails_before_it_is_copied(grid, place):
    grid.here_door.put(f"{place}/a", b"content")
    pair = (grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/b"))
    job = grid.service.submit(pair, archive_timeout=60, retry=-1)
    reason = grid.service.wait_failed(job)
    assert reason.startswith("ARCHIVING [") and "no tape interface" in reason, reason
    assert not grid.there_door.exists(f"{place}/b")


def test_the_authority_lists_of_a_site_are_not_told_to_strangers(own_grid, user_ca):
    """Whose certificate cannot be judged is told so, and the log has the file."""
    site = own_grid.here
    user_ca.trusted_by(site)
    site.start()
    broken = site.certificates / f"{user_ca.hash}.r0"
    broken.write_text("no list")
    site.reload()
    alice = user_ca.user("Alice Lab")
    line = ["curl", "-sS", "--capath", str(site.certificates), *alice.curl]
    for url in (site.service + "/whoami", site.door + "/"):
        done = subprocess.run([*line, url], capture_output=True, text=True, timeout=60)
        assert "judge" in done.stdout and str(site.directory) not in done.stdout, done.stdout
    assert str(broken) in site.log_text()
