"""Certificates that are delegated to the service: the fts3 client from PyPI with proxies, and jobs that run by them.

Each site knows the users by `[[storage.user]]`; nothing here has a token, unless a test says so.
"""

import re
import secrets
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import pytest
import requests

from . import golden
from .certificates import INHERIT_ALL, blocks, openssl, utc
from .clients import TERMINAL, Door, Service, adler32, content
from .conftest import make_grid
from .waiting import eventually

JOB_ID = re.compile(r"Job id: ([0-9a-f-]{36})")
TOOLS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, fault_ca, user_ca):
    """Two sites that believe the users' authority and let Alice read and write below /lab."""
    grid = make_grid(binary, tmp_path_factory.mktemp("delegation"), fault_ca)
    alice, bob = user_ca.user("Alice Lab"), user_ca.user("Bob Lab")
    for site in grid.sites:
        user_ca.trusted_by(site)
        allow_user(site, alice.subject, "/lab")
        site.start()
    lab = Lab(grid, user_ca, alice, bob)
    yield lab
    codes = [site.stop()[0] for site in grid.sites]
    assert codes == [0, 0], f"sites ended with {codes}"


def allow_user(site, subject, path):
    with open(site.directory / "penstock.toml", "a") as config:
        config.write(f'\n[[storage.user]]\ndn = "{subject}"\npath = "{path}"\nrights = ["read", "modify"]\n')


class Lab:
    """The sites, the users, and what is asked of the service with a certificate."""

    def __init__(self, grid, ca, alice, bob):
        self.grid, self.ca, self.alice, self.bob = grid, ca, alice, bob
        self.here, self.there = grid.here, grid.there
        self.proxy = ca.proxy(alice)
        self.bob_proxy = ca.proxy(bob)
        self.voms_proxy = ca.voms_proxy(alice)

    def ask(self, method, path, who=None, **options):
        credential = who or self.proxy
        options.setdefault("timeout", 60)
        return requests.request(
            method,
            self.here.service + path,
            cert=(str(credential.pem), str(credential.pem)),
            verify=str(self.here.certificates),
            **options,
        )

    def delegation_id(self, who=None):
        return self.ask("GET", "/whoami", who).json()["delegation_id"]

    def fts(self, command, *words, who=None, exit_code=0):
        """Runs a command of the fts3 client with a proxy."""
        credential = who or self.proxy
        line = [str(TOOLS / f"fts-rest-{command}"), "-s", self.here.service, *words]
        environment = {
            "PATH": "/usr/bin:/bin",
            "X509_CERT_DIR": str(self.here.certificates),
            "X509_USER_PROXY": str(credential.pem),
        }
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == exit_code, (
            f"{command} {words}: exit {done.returncode}\n{done.stdout}{done.stderr}\n{self.here.log_tail()}"
        )
        return done.stdout + done.stderr

    def put(self, path, data):
        Door(self.here).put(path, data)

    def submit(self, files, who=None, **params):
        answer = self.ask("POST", "/jobs", who, json={"files": files, "params": params})
        assert answer.status_code == 200, answer.text
        return answer.json()["job_id"]

    def wait(self, job, who=None):
        def ended():
            seen = self.ask("GET", f"/jobs/{job}", who).json()
            return seen if seen["job_state"] in TERMINAL else None

        return eventually(f"job {job} ends", ended, 60)

    def files(self, job, who=None):
        return self.ask("GET", f"/jobs/{job}/files", who).json()

    def forget(self, who=None):
        self.ask("DELETE", f"/delegation/{self.delegation_id(who)}", who)


@pytest.fixture
def fresh(lab):
    """The lab, with nothing delegated."""
    lab.forget()
    lab.forget(lab.voms_proxy)
    return lab


@pytest.fixture
def at(place):
    return f"/lab{place}"


class Signing:
    """Requests fetched from the service and signed by hand, well or badly."""

    def __init__(self, lab, directory):
        self.lab, self.directory = lab, directory

    def fetch(self, who=None):
        answer = self.lab.ask("GET", f"//delegation/{self.lab.delegation_id(who)}/request", who)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith("text/plain")
        return answer.text

    def sign(self, request, signer, hours=6.0, ahead=0.0, language=INHERIT_ALL, subject=None):
        """A proxy for a request, dated from this moment on as clients do, with the signer's chain."""
        at = self.directory / f"signed-{time.monotonic_ns()}"
        at.mkdir()
        (at / "request").write_text(request)
        now = time.time() + ahead
        (at / "extensions").write_text(
            "keyUsage=critical,digitalSignature,keyEncipherment\n"
            f"proxyCertInfo=critical,language:{language}\n"
        )
        line = ["ca", "-config", self.lab.ca.ca_config(at), "-batch", "-notext", "-preserveDN", "-md", "sha256"]
        line += ["-in", at / "request", "-out", at / "proxy", "-extfile", at / "extensions"]
        line += ["-subj", f"{subject or signer.subject}/CN={int(now)}"]
        line += ["-cert", signer.certificate, "-keyfile", signer.key]
        openssl(*line, "-startdate", utc(now), "-enddate", utc(time.time() + hours * 3600))
        return (at / "proxy").read_text() + "".join(blocks(signer.pem.read_text(), "CERTIFICATE"))

    def deliver(self, credential, who=None, method="PUT"):
        path = f"//delegation/{self.lab.delegation_id(who)}/credential"
        return self.lab.ask(method, path, who, data=credential)

    def assert_refused(self, credential, why, who=None):
        answer = self.deliver(credential, who)
        assert (answer.status_code, answer.json()["status"]) == (400, "400 Bad Request")
        assert why in answer.json()["message"], answer.json()["message"]

    def own_request(self):
        """A request for a key that is not the service's."""
        key, request = self.directory / "own.key", self.directory / "own.request"
        openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/O=x")
        return request.read_text()


@pytest.fixture
def signing(fresh, tmp_path):
    return Signing(fresh, tmp_path)


def termination_time(lab, who=None):
    told = lab.ask("GET", f"//delegation/{lab.delegation_id(who)}", who).json()
    return told and told["termination_time"]


def seconds_left(time_text):
    ends = datetime.strptime(time_text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return (ends - datetime.now(timezone.utc)).total_seconds()


def test_the_client_delegates_once_and_again_when_forced(fresh):
    assert "No previous delegation found" in fresh.fts("delegate", "-v")
    first = termination_time(fresh)
    assert 6 * 3600 < seconds_left(first) < 13 * 3600
    assert "Not bothering doing the delegation" in fresh.fts("delegate", "-v")
    assert termination_time(fresh) == first
    assert "Delegating" in fresh.fts("delegate", "-v", "-f")


def test_a_delegation_with_attributes_is_another_one_and_shows_them(fresh):
    fresh.fts("delegate", who=fresh.voms_proxy)
    told = fresh.ask("GET", f"//delegation/{fresh.delegation_id(fresh.voms_proxy)}", fresh.voms_proxy).json()
    assert told["voms_attrs"] and all("dteam" in attribute for attribute in told["voms_attrs"])
    assert termination_time(fresh) is None


def test_a_renewal_takes_the_place_of_the_delegation_before(signing):
    lab = signing.lab
    for hours in (3.0, 9.0):
        delivered = signing.deliver(signing.sign(signing.fetch(), lab.proxy, hours))
        assert (delivered.status_code, delivered.content) == (201, b"")
        assert abs(seconds_left(termination_time(lab)) - hours * 3600) < 120


def test_a_request_is_the_same_until_it_is_answered(signing):
    request = signing.fetch()
    assert signing.fetch() == request or key_of(signing.fetch()) == key_of(request)
    assert signing.deliver(signing.sign(request, signing.lab.proxy), method="POST").status_code == 201
    late = signing.sign(request, signing.lab.proxy)
    assert signing.deliver(late).status_code == 201, "a second client that asked at the same time"
    assert key_of(signing.fetch()) != key_of(request)


def key_of(request):
    done = subprocess.run(
        ["openssl", "req", "-noout", "-pubkey"], input=request, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_credentials_that_are_not_what_was_asked_for_are_refused(signing):
    lab = signing.lab
    signing.assert_refused("x", "No credential cache found")
    request = signing.fetch()
    good = signing.sign(request, lab.proxy)
    signing.assert_refused("x", "must hold the new proxy")
    signing.assert_refused(blocks(good, "CERTIFICATE")[0], "it holds 1 certificates")
    signing.assert_refused(signing.sign(signing.own_request(), lab.proxy), "key is not the one of the request")
    signing.assert_refused(signing.sign(request, lab.proxy, hours=-0.5, ahead=-3600), "expired")
    signing.assert_refused(signing.sign(request, lab.proxy, ahead=3000), "not yet valid")
    signing.assert_refused(signing.sign(request, lab.proxy, language="id-ppl-independent"), "inherits no rights")
    signing.assert_refused(signing.sign(request, lab.bob), f"the proxy belongs to {lab.bob.subject}")
    signing.assert_refused(signing.sign(request, lab.bob, subject=lab.alice.subject), "is not accepted")
    signing.assert_refused(signing.sign(request, lab.voms_proxy), "does not have the attributes")
    assert termination_time(lab) is None
    assert signing.deliver(good).status_code == 201


def test_the_exchanges_of_a_delegation_are_those_of_fts(signing, request):
    """In the order in which the client asks, and what else there is; compared with a golden file."""
    lab, exchanges = signing.lab, []
    own = lab.delegation_id()
    normalised = golden.Normalised()

    def record(method, path, told=None, **options):
        answer = lab.ask(method, path.replace("ID", own), **options)
        body = answer.json() if "json" in answer.headers.get("Content-Type", "") else told
        exchanges.append(
            normalised.value(
                {
                    "request": f"{method} {path}",
                    "status": answer.status_code,
                    "type": answer.headers.get("Content-Type", "").split(";")[0],
                    "answer": body,
                }
            )
        )
        return answer

    record("GET", "//whoami")
    record("GET", "//delegation/ID")
    record("PUT", "//delegation/ID/credential", data="nothing was asked for")
    asked = record("GET", "//delegation/ID/request", told="<PKCS#10>")
    assert asked.headers["X-Delegation-ID"] == own
    record("PUT", "//delegation/ID/credential", data="not a proxy")
    record("PUT", "//delegation/ID/credential", data=signing.sign(asked.text, lab.proxy))
    record("GET", "//delegation/ID")
    record("POST", "/delegation/ID/voms", json=["dteam:/dteam"])
    record("POST", "/delegation/ID/voms", json={"dteam": 1})
    record("GET", "/delegation/0123456789abcdef")
    record("DELETE", "/delegation/ID")
    record("DELETE", "/delegation/ID")
    record("POST", "/delegation/ID/voms", json=["dteam"])
    golden.check("delegate", exchanges, request.config.getoption("--write-golden"))


def test_a_renewed_proxy_is_used_by_what_starts_next(signing, at):
    """The job waits for the end of a ban; meanwhile its owner delegates again."""
    lab = signing.lab
    lab.put(f"{at}/source", b"x" * 1000)
    assert signing.deliver(signing.sign(signing.fetch(), lab.proxy, hours=2)).status_code == 201
    lab.here.command("ban", "se", lab.there.storage_id, "--wait", "--allow-submit")
    try:
        ends = {"sources": [f"{lab.here.door}{at}/source"], "destinations": [f"{lab.there.door}{at}/d"]}
        job = lab.submit([ends])
        assert signing.deliver(signing.sign(signing.fetch(), lab.proxy, hours=9)).status_code == 201
    finally:
        lab.here.command("ban", "remove", lab.there.storage_id)
    assert lab.wait(job)["job_state"] == "FINISHED", lab.files(job)
    [line] = [line for line in log_of(lab.there).splitlines() if "issued a macaroon" in line and at in line]
    seconds = int(re.search(r"seconds=(\d+)", line).group(1))
    assert 8.9 * 3600 < seconds <= 9 * 3600, "as long as the proxy that was delegated last"


def test_a_storage_with_a_token_endpoint_gives_the_service_a_token(delegated, at, faulty):
    """As StoRM does: no macaroons, but OAuth; the other end gets the token, and not the proxy."""
    data = content(at, 50_000)
    source = faulty.offer(f"{at}/source", data)
    asked = []

    def token(exchange):
        asked.append(exchange.read_body().decode())
        exchange.reply(200, b'{"access_token": "of-the-endpoint", "token_type": "bearer", "expires_in": 3600}')

    document = f'{{"issuer": "{faulty.url}", "token_endpoint": "{faulty.url}/oauth/token"}}'.encode()
    faulty.answers["GET", "/.well-known/openid-configuration"] = lambda exchange: exchange.reply(200, document)
    faulty.answers["GET", "/.well-known/oauth-authorization-server"] = lambda exchange: exchange.reply(404)
    faulty.answers["POST", "/oauth/token"] = token
    destination = f"{delegated.there.door}{at}/d"
    job = delegated.submit([{"sources": [source], "destinations": [destination]}])
    assert delegated.wait(job)["job_state"] == "FINISHED", delegated.files(job)
    assert Door(delegated.there).get(f"{at}/d") == data
    assert delegated.here.landed_modes(job) == ["pull"]
    [form] = asked
    assert "grant_type=client_credentials" in form and "scope=LIST%3A" in form and "DOWNLOAD%3A" in form
    [read] = faulty.requests("GET", f"{at}/source")
    assert read.headers["Authorization"] == "Bearer of-the-endpoint"


def test_a_clock_that_is_two_minutes_ahead_is_forgiven(signing):
    assert signing.deliver(signing.sign(signing.fetch(), signing.lab.proxy, ahead=120)).status_code == 201


def test_nobody_sees_or_replaces_another_s_delegation(fresh, signing):
    fresh.fts("delegate")
    alices = fresh.delegation_id()
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/request"), ("PUT", "/credential")]:
        answer = fresh.ask(method, f"/delegation/{alices}{path}", fresh.bob)
        assert answer.status_code == 403, f"{method} {path}: {answer.text}"
    assert termination_time(fresh) is not None


def test_delegations_are_for_certificates(fresh):
    service = fresh.grid.service
    own = service.ask("GET", "/whoami").json()["delegation_id"]
    assert service.ask("GET", f"/delegation/{own}").json() is None
    answer = service.ask("GET", f"/delegation/{own}/request")
    assert (answer.status_code, answer.json()["message"]) == (403, "Certificate required")


def test_a_withdrawn_delegation_is_gone(fresh):
    fresh.fts("delegate")
    path = f"/delegation/{fresh.delegation_id()}"
    assert [fresh.ask("DELETE", path).status_code for _ in range(2)] == [204, 404]
    assert fresh.ask("GET", path).json() is None


def test_a_request_survives_a_kill_and_a_delegation_a_restart(signing):
    lab = signing.lab
    credential = signing.sign(signing.fetch(), lab.proxy)
    lab.here.kill()
    lab.here.start()
    assert signing.deliver(credential).status_code == 201
    ends = termination_time(lab)
    lab.here.kill()
    lab.here.start()
    assert termination_time(lab) == ends is not None


def test_a_job_of_a_certificate_needs_a_delegation_with_an_hour_left(signing, at):
    lab = signing.lab

    def refused():
        pair = {"sources": [lab.here.door + at], "destinations": [lab.there.door + at]}
        answer = lab.ask("POST", "/jobs", json={"files": [pair]})
        assert answer.status_code == 419, answer.text
        return answer.json()["message"]

    assert "No delegation found" in refused()
    signing.deliver(signing.sign(signing.fetch(), lab.proxy, hours=0.5))
    assert "less than one hour left" in refused()


@pytest.fixture
def who(fresh, request):
    """Alice with a proxy, or with one that names her VO. Each has a delegation of its own."""
    return fresh.voms_proxy if getattr(request, "param", "proxy") == "VOMS proxy" else fresh.proxy


both = pytest.mark.parametrize("who", ["proxy", "VOMS proxy"], indirect=True)


@pytest.fixture
def delegated(fresh, who):
    fresh.fts("delegate", who=who)
    return fresh


@both
def test_a_job_of_a_proxy_is_submitted_polled_and_arrives(delegated, who, at):
    data = content(at, 300_000)
    delegated.put(f"{at}/source", data)
    ends = [f"{delegated.here.door}{at}/source", f"{delegated.there.door}{at}/sub/destination"]
    job = JOB_ID.search(delegated.fts("transfer-submit", "-K", *ends, who=who)).group(1)

    def finished():
        shown = delegated.fts("transfer-status", job, who=who)
        assert not re.search("Status: (FAILED|CANCELED)", shown), delegated.files(job)
        return "Status: FINISHED" in shown

    eventually("the client sees FINISHED", finished, 60)
    assert Door(delegated.there).get(f"{at}/sub/destination") == data
    assert delegated.here.landed_modes(job) == ["pull"]
    shown = delegated.ask("GET", f"/jobs/{job}", who).json()
    assert shown["user_dn"] == delegated.alice.subject
    assert shown["cred_id"] == delegated.delegation_id(who)
    assert shown["job_metadata"] == {"auth_method": "certificate"}
    [file] = delegated.ask("GET", f"/jobs/{job}/files", who).json()
    assert (file["src_token_id"], file["dst_token_id"]) == (None, None)
    assert job in delegated.fts("transfer-status", "-j", job, who=who)


def test_a_directory_of_files_takes_few_macaroons(delegated, who, at):
    files = []
    for number in range(40):
        data = content((at, number), 1000 + number)
        delegated.put(f"{at}/{number}", data)
        source, destination = f"{delegated.here.door}{at}/{number}", f"{delegated.there.door}{at}/{number}"
        checksum = f"ADLER32:{adler32(data)}"
        files.append({"sources": [source], "destinations": [destination], "checksum": checksum})
    job = delegated.submit(files, who)
    assert delegated.wait(job, who)["job_state"] == "FINISHED", delegated.files(job, who)
    issued = [line for line in log_of(delegated.there).splitlines() if "issued a macaroon" in line and at in line]
    assert len(issued) == 1, "all of them began together"


def log_of(site):
    return (site.directory / f"serve-{site.starts}.log").read_text(errors="replace")


@both
def test_the_client_lists_and_cancels_jobs_of_a_proxy(delegated, who, at):
    source = f"{delegated.here.door}{at}/source"
    delegated.put(f"{at}/source", b"x" * 1000)
    # Nobody listens there, so the job waits for its retries.
    job = JOB_ID.search(
        delegated.fts("transfer-submit", "--retry", "30", source, "https://127.0.0.9:9/lab/x", who=who)
    ).group(1)
    assert job in delegated.fts("transfer-list", who=who)
    assert "CANCELED" in delegated.fts("transfer-cancel", job, who=who)
    assert delegated.wait(job, who)["job_state"] == "CANCELED"


@both
def test_deletion_jobs_are_refused_as_fts_refuses_them(delegated, who, at):
    shown = delegated.fts("delete-submit", f"{delegated.here.door}{at}/x", who=who, exit_code=1)
    assert "Deletion jobs are no longer supported by FTS" in shown


def test_who_has_no_right_is_not_helped_by_another_s_macaroons_or_connections(delegated, at):
    """Alice's copies are done; Bob's of the same files by the same service are refused at the doors."""
    delegated.fts("delegate")
    delegated.put(f"{at}/source", b"x" * 1000)
    pair = {"sources": [f"{delegated.here.door}{at}/source"]}
    job = delegated.submit([pair | {"destinations": [f"{delegated.there.door}{at}/alice"]}])
    assert delegated.wait(job)["job_state"] == "FINISHED", delegated.files(job)
    delegated.fts("delegate", who=delegated.bob_proxy)
    job = delegated.submit([pair | {"destinations": [f"{delegated.there.door}{at}/bob"]}], delegated.bob_proxy)
    assert delegated.wait(job, delegated.bob_proxy)["job_state"] == "FAILED"
    [file] = delegated.files(job, delegated.bob_proxy)
    assert "403" in file["reason"], file["reason"]
    assert not Door(delegated.there).exists(f"{at}/bob")


def test_a_transfer_whose_proxy_has_ended_fails_and_says_so(delegated, who, at):
    """The proxy ends while its job waits: here by changing the record of its end while nothing runs."""
    delegated.put(f"{at}/source", b"x" * 1000)
    pair = {"sources": [f"{delegated.here.door}{at}/source"], "destinations": ["https://127.0.0.9:9/lab/x"]}
    job = delegated.submit([pair], who, retry=1000, retry_delay=3)
    delegated.here.stop()
    end_delegations(delegated.here)
    delegated.here.start()
    assert delegated.wait(job, who)["job_state"] == "FAILED"
    [file] = delegated.files(job, who)
    assert "proxy expired" in file["reason"] and "delegate again" in file["reason"], file["reason"]


def end_delegations(site):
    with closing(sqlite3.connect(site.directory / "state/delegations.sqlite")) as database:
        database.execute("UPDATE delegation SET expires_ms = ?", [int(time.time() * 1000) - 60_000])
        database.commit()


def test_no_secret_is_in_the_state_of_a_site(delegated, who, at):
    """Neither while a job with a token and a delegation are there, nor is the token kept when the job has ended."""
    delegated.put(f"{at}/source", b"x" * 1000)
    source = f"{delegated.here.door}{at}/source"
    service = Service(delegated.here)
    waiting = service.submit((source, "https://127.0.0.9:9/lab/x"), retry=3, retry_delay=600)
    token = service.session.headers["Authorization"].split()[1]
    assert sealed_tokens(delegated.here)
    for path in (delegated.here.directory / "state").glob("[td]*.sqlite*"):
        found = path.read_bytes()
        assert token.split(".")[1].encode() not in found and b"PRIVATE KEY" not in found, path
        assert path.stat().st_mode & 0o077 == 0, path
    service.ask("DELETE", f"/jobs/{waiting}")
    service.wait(waiting)
    eventually("the token is gone", lambda: not sealed_tokens(delegated.here), 10)
    assert (delegated.here.directory / "keys/credential-encryption").stat().st_mode & 0o777 == 0o600


def sealed_tokens(site):
    return site.journal("SELECT credential_id FROM sealed_credential")


def test_the_sealing_key_changes_without_an_outage(delegated, who, at):
    keys = delegated.here.directory / "keys/credential-encryption"
    newest = secrets.token_hex(32)
    keys.write_text(f"{newest}\n{keys.read_text()}")
    eventually("the new key is taken over", lambda: "loaded changed keys" in log_of(delegated.here), 20)
    assert termination_time(delegated, who)
    delegated.here.stop()
    delegated.here.start()
    keys.write_text(f"{newest}\n")
    delegated.here.stop()
    delegated.here.start()
    delegated.put(f"{at}/source", b"x" * 1000)
    ends = {"sources": [f"{delegated.here.door}{at}/source"], "destinations": [f"{delegated.there.door}{at}/d"]}
    job = delegated.submit([ends], who)
    assert delegated.wait(job, who)["job_state"] == "FINISHED", delegated.files(job, who)


@pytest.mark.parametrize("without, expected", [(["there"], "pull"), (["here"], "push"), (["here", "there"], "streamed")])
def test_a_storage_without_macaroons_is_reached_by_the_proxy(lab, at, without, expected):
    sites = [getattr(lab, name) for name in without]
    for site in sites:
        (site.directory / "keys/macaroon-root").rename(site.directory / "keys/kept")
        site.stop()
        site.start()
    try:
        lab.fts("delegate")
        data = content(at, 100_000)
        lab.put(f"{at}/source", data)
        ends = {"sources": [f"{lab.here.door}{at}/source"], "destinations": [f"{lab.there.door}{at}/d"]}
        job = lab.submit([ends])
        assert lab.wait(job)["job_state"] == "FINISHED", lab.files(job)
        assert Door(lab.there).get(f"{at}/d") == data
        [landed] = [event for event in lab.here.ledger(job) if event["event"] == "landed"]
        assert landed["mode"] == expected
        before = {"pull": [], "push": ["pull"], "streamed": ["pull", "push"]}[expected]
        not_offered = landed["report"].get("not_offered", [])
        assert [way["mode"] for way in not_offered] == before
        for way in not_offered:
            expected_why = "cannot be opened to the other end: it answered 405 when asked for a macaroon"
            assert expected_why in way["why"], way
    finally:
        for site in sites:
            (site.directory / "keys/kept").rename(site.directory / "keys/macaroon-root")
            site.stop()
            site.start()


def test_the_certificate_that_was_shown_is_told_back(fresh):
    told = fresh.ask("GET", "/whoami/certificate")
    assert told.status_code == 200 and told.headers["Content-Type"] == "application/x-pem-file"
    assert told.text.strip() in Path(fresh.proxy.pem).read_text()
    by_token = Service(fresh.here).ask("GET", "/whoami/certificate")
    assert (by_token.status_code, by_token.json()["message"]) == (403, "Certificate required")
