"""Whoever is shown a token tries what else it is good for: servers that record what commands and jobs show them and use
it elsewhere, lines on which others can listen, tokens made for too long or for everybody, and signing keys while they
are replaced.
"""

import base64
import json
import shutil
import subprocess
import time
import uuid

import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from .clients import Door, Service, content
from .conftest import HOSTS
from .fault_server import FaultCa, FaultServer, refused
from .site import Site
from .token_issuer import ANY, KEY_NAME, TokenIssuer, plain
from .waiting import eventually

PLAIN_HOST, ISSUER_HOST, OTHER_ISSUER_HOST = "127.0.0.6", "127.0.0.7", "127.0.0.8"
HOUR, DAY = 3600, 86_400
# The service looks at key files every two seconds.
KEYS_SECONDS = 20


@pytest.fixture
def listener():
    """A storage element without TLS, such as anybody on the way could be."""
    server = FaultServer(PLAIN_HOST)
    yield server
    server.close()


def tried(site, *words):
    """Exit code and what was said, of a command on a site's directory."""
    line = [str(site.binary), *words, "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def tokens_shown(server):
    """Every token that a server was shown, in any header."""
    words = [word for seen in server.seen for value in seen.headers.values() for word in value.split()]
    return sorted({word for word in words if word.startswith("eyJ")})


def claims_of(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def head_of(token):
    part = token.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def signed(key, kid, claims):
    """A token by a key that somebody holds."""
    head = {"alg": "ES256", "kid": kid, "typ": "JWT"}
    text = ".".join(plain(json.dumps(part).encode()) for part in (head, claims))
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(SHA256())))
    return f"{text}.{plain(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def claims(site, scope="storage.read:/ storage.modify:/", audience=None, life=HOUR, **more):
    now = int(time.time())
    return {
        "wlcg.ver": "1.0",
        "iss": site.door,
        "sub": "mallory",
        "aud": audience or [site.door, site.service],
        "iat": now,
        "nbf": now,
        "exp": now + life,
        "jti": str(uuid.uuid4()),
        "scope": scope,
        **more,
    }


def signing_key(site):
    """The site's private key, as somebody has copied it, and its name."""
    key = load_pem_private_key((site.directory / "keys/token-signing.pem").read_bytes(), None)
    kid = head_of(site.command("token"))["kid"]
    return key, kid


def asked(site, token, path="/"):
    """Status and text of the door and of the service."""
    head = {"Authorization": f"Bearer {token}"}
    door = requests.request("PROPFIND", site.door + path, headers=head | {"Depth": "0"}, verify=site.certificates)
    service = requests.get(site.service + "/whoami", headers=head, verify=site.certificates)
    return (door.status_code, service.status_code), door.text + service.text


def assert_useless(site, token, path="/stolen"):
    """Nothing can be read, written or administered with it."""
    head = {"Authorization": f"Bearer {token}"}

    def status(method, url):
        return requests.request(method, url, headers=head, data=b"x", verify=site.certificates).status_code

    assert status("PUT", site.door + path) in (401, 403), f"it writes at {site.name}: {claims_of(token)}"
    assert status("GET", site.door + "/secret") in (401, 403), f"it reads at {site.name}: {claims_of(token)}"
    assert status("GET", site.service + "/config/audit") in (401, 403), f"it administers {site.name}"


# What commands and jobs show.


def test_a_job_shows_each_end_a_token_for_that_end_and_its_files_alone(grid, faulty, place):
    faulty.offer("/data/x", content(place, 1000))
    grid.here_door.put("/secret", b"secret", expect=requests.codes.created)
    destination = grid.there_door.url(f"{place}/y")
    job = grid.here.command("submit", faulty.url + "/data/x", destination).strip()
    grid.service.wait_finished(job)
    [token] = tokens_shown(faulty)
    told = claims_of(token)
    assert told["scope"] == "storage.read:/data/x"
    assert set(told["aud"]) == {faulty.url, f"https://{faulty.host}", faulty.host}
    assert told["exp"] - told["iat"] <= 12 * HOUR
    for site in grid.sites:
        assert_useless(site, token)
    grid.here_door.ask("DELETE", "/secret")


def test_a_destination_is_shown_what_it_needs_and_no_more(grid, faulty, place):
    grid.here_door.put(f"{place}/x", content(place, 1000))
    job = grid.here.command("submit", grid.here_door.url(f"{place}/x"), faulty.url + "/in/y").strip()
    grid.service.wait(job)
    scopes = {claims_of(token)["scope"] for token in tokens_shown(faulty) if "in/y" in claims_of(token)["scope"]}
    assert scopes == {"storage.read:/in/y storage.modify:/in/y"}
    for token in tokens_shown(faulty):
        assert claims_of(token)["scope"] in scopes | {f"storage.read:{place}/x"}
        assert ANY not in claims_of(token)["aud"]


def test_commands_show_a_server_a_short_token_for_what_they_do_there(grid, elsewhere):
    elsewhere.offer("/data/x", b"x")
    code, said = tried(grid.here, "checksum", elsewhere.url + "/data/x")
    assert code == 0, said
    [token] = tokens_shown(elsewhere)
    told = claims_of(token)
    assert (told["scope"], told["exp"] - told["iat"] <= HOUR) == ("storage.read:/data/x", True)
    for site in grid.sites:
        assert_useless(site, token)


@pytest.mark.parametrize("words", [("list",), ("ban", "list"), ("audit",), ("link", "list"), ("drain", "on")])
def test_no_stranger_is_shown_a_token_that_administers(grid, elsewhere, words):
    code, said = tried(grid.here, *words, "--service", elsewhere.url)
    assert code != 0
    for token in tokens_shown(elsewhere):
        assert "penstock.admin" not in claims_of(token)["scope"].split(), f"{words}: {claims_of(token)}"
        assert_useless(grid.here, token)
    if words != ("list",):
        assert "is not the transfer service of the site in" in said and "transfer.audience" in said, said
        assert elsewhere.seen == []


def test_the_sites_own_service_is_still_administered(grid):
    for words in (("list",), ("ban", "list"), ("audit",), ("list", "--service", grid.here.service)):
        code, said = tried(grid.here, *words)
        assert code == 0, f"{words}: {said}"


# Lines on which others can listen.


def test_no_token_crosses_an_unencrypted_line(grid, listener, place):
    listener.offer("/data/x", content(place, 1000))
    destination = grid.there_door.url(f"{place}/y")
    job = grid.here.command("submit", listener.url + "/data/x", destination).strip()
    grid.service.wait(job)
    token = grid.here.token(audience=grid.here.service)
    given = {"sources": [listener.url + "/data/x"], "destinations": [destination + "-2"]}
    tokens = {"source_tokens": [token], "destination_tokens": [grid.there.token()]}
    brought = Service(grid.here, token).submit({**given, **tokens})
    grid.service.wait(brought)
    tried(grid.here, "checksum", listener.url + "/data/x")
    tried(grid.here, "copy", listener.url + "/data/x", destination + "-3")
    assert listener.seen and tokens_shown(listener) == []
    # What anybody may read is brought all the same.
    assert grid.service.job(job)["job_state"] == "FINISHED"
    assert grid.service.job(brought)["job_state"] == "FINISHED"


def test_a_refusal_for_want_of_a_withheld_token_names_the_remedy(grid, listener, place):
    for method in ("HEAD", "GET", "PROPFIND"):
        listener.answers[method, "/data/x"] = refused(401)
    job = grid.service.submit((listener.url + "/data/x", grid.there_door.url(f"{place}/y")))
    reason = grid.service.wait_failed(job)
    assert "no token was shown to" in reason and "transfer.tokens_unencrypted" in reason, reason
    code, said = tried(grid.here, "stat", listener.url + "/data/x")
    assert code == 3 and "--token-over-http" in said, said
    assert tokens_shown(listener) == []


def test_an_operator_can_have_tokens_shown_on_an_unencrypted_line(own_grid, listener, place):
    own_grid.here.configure("[transfer]", tokens_unencrypted=[PLAIN_HOST])
    for site in own_grid.sites:
        site.start()
    listener.offer("/data/x", content(place, 1000))
    job = own_grid.service.submit((listener.url + "/data/x", own_grid.there_door.url(f"{place}/y")))
    own_grid.service.wait_finished(job)
    assert tokens_shown(listener) == [own_grid.token]
    tried(own_grid.here, "checksum", listener.url + "/data/x", "--token-over-http")
    assert len(tokens_shown(listener)) == 2
    assert "transfer.tokens_unencrypted: anybody who can read the traffic" in tried(own_grid.here, "check")[1]


# Tokens for everybody, and for ever.


def test_the_owners_token_is_for_its_own_site_and_ends(grid):
    token = grid.here.admin_token()
    told = claims_of(token)
    assert told["aud"] == [grid.here.door, grid.here.service]
    assert told["exp"] - told["iat"] <= 90 * DAY
    assert asked(grid.here, token)[0] == (207, 200)
    assert Service(grid.here, token).ask("GET", "/config/audit").status_code == 200
    assert_useless(grid.there, token)


def test_an_administrators_token_for_any_service_is_refused_and_the_remedy_works(own_grid):
    here, there = own_grid.sites
    for site in own_grid.sites:
        site.start()
    key, kid = signing_key(here)
    scope = "storage.read:/ storage.modify:/ storage.stage:/ penstock.admin"
    former = signed(key, kid, claims(here, scope, audience=[ANY], life=20 * DAY, sub="admin"))
    for site in (here, there):
        statuses, said = asked(site, former)
        assert statuses == (401, 401), site.name
        assert "penstock token --admin" in said, said
    (here.directory / "admin.token").write_text(former + "\n")
    assert "admin.token is for any service" in tried(here, "check")[1]
    renewed = here.command("token", "--admin").strip()
    assert here.admin_token() == renewed
    assert (here.directory / "admin.token").stat().st_mode & 0o777 == 0o600
    assert Service(here, renewed).ask("GET", "/config/audit").status_code == 200
    assert "admin.token" not in tried(here, "check")[1]


def test_the_command_line_makes_no_administrators_token_for_any_service(grid):
    code, said = tried(grid.here, "token", "--scope", "penstock.admin", "--audience", ANY)
    assert code == 2 and "cannot be for any service" in said, said


def test_a_token_is_for_the_sites_own_servers_unless_it_says_otherwise(grid):
    token = grid.here.command("token").strip()
    assert claims_of(token)["aud"] == [grid.here.door, grid.here.service]
    assert asked(grid.here, token)[0] == (207, 200)
    statuses, said = asked(grid.there, token)
    assert statuses == (401, 401)
    # The error says what would have been accepted.
    assert grid.there.door in said and grid.there.service in said, said


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--scope", "storage.write:/"), "storage.modify"),
        (("--scope", "storage.read"), "storage.read:/path"),
        (("--scope", "penstock.root"), "penstock.admin"),
        (("--lifetime", "3650d"), "issuer.token_life_max"),
    ],
)
def test_a_token_that_cannot_work_is_not_made(grid, words, remedy):
    before = tried(grid.here, "key", "list")
    code, said = tried(grid.here, "token", *words)
    assert code == 2 and remedy in said, said
    assert tried(grid.here, "key", "list") == before


def test_an_issuer_cannot_make_tokens_for_ever(own_grid, fault_ca):
    here = own_grid.here
    issuer = TokenIssuer(ISSUER_HOST, fault_ca)
    try:
        issuer.trusted_by(here, client=None)
        here.start()
        assert asked(here, issuer.token(life=20 * DAY))[0] == (207, 200)
        own_key, kid = signing_key(here)
        for token in (
            issuer.token(life=3000 * 365 * DAY),
            issuer.token(life=40 * DAY),
            signed(own_key, kid, claims(here, life=3000 * 365 * DAY)),
        ):
            statuses, said = asked(here, token)
            assert statuses == (401, 401) and "token_life_max" in said, said
        path = here.directory / "penstock.toml"
        path.write_text(path.read_text().replace('vo = "dteam"', 'vo = "dteam"\ntoken_life_max = "60d"'))
        here.reload()
        long = issuer.token(life=40 * DAY)
        eventually("the longer life is allowed", lambda: asked(here, long)[0] == (207, 200), KEYS_SECONDS)
    finally:
        issuer.close()


# Signing keys while they are replaced.


@pytest.fixture
def lonely(binary, tmp_path, fault_ca):
    """A site of its own."""
    site = Site(binary, tmp_path / "lonely", "lonely", HOSTS[0])
    site.trust(fault_ca.certificate)
    yield site
    site.kill()


def test_a_key_counts_only_while_it_is_published(lonely):
    lonely.start()
    old, old_kid = signing_key(lonely)
    stolen = signed(old, old_kid, claims(lonely))
    assert asked(lonely, stolen)[0] == (207, 200)
    # One that is to come, made by somebody who knows its name and not its key, and before anybody knows it.
    forged = ec.generate_private_key(ec.SECP256R1())
    assert asked(lonely, signed(forged, "the-next-key", claims(lonely)))[0] == (401, 401)
    lonely.command("key", "rotate", "token", "--now")
    rows = json.loads(lonely.command("--json", "key", "list"))
    [coming] = [row["id"] for row in rows if row["kind"] == "token" and row["id"] != old_kid]
    for kid in (coming, old_kid):
        assert asked(lonely, signed(forged, kid, claims(lonely)))[0] == (401, 401)
    signs = lambda: head_of(lonely.command("token"))["kid"] == coming  # noqa: E731
    eventually("the new key signs", signs, KEYS_SECONDS)
    # Retired, it counts until its last token has ended; then a copy of it is worth nothing.
    path = lonely.directory / "keys/token-signing.json"
    ring = json.loads(path.read_text())
    for key in ring["keys"]:
        if key["kid"] == old_kid:
            key["tokens_until"] = int((time.time() - 2 * HOUR) * 1000)
    beside = path.with_suffix(".edited")
    beside.write_text(json.dumps(ring))
    beside.rename(path)
    for token in (stolen, signed(old, old_kid, claims(lonely))):
        gone = lambda token=token: asked(lonely, token)[0] == (401, 401)  # noqa: E731
        eventually("the retired key has ended", gone, KEYS_SECONDS)
    assert asked(lonely, lonely.command("token").strip())[0] == (207, 200)


def test_one_token_for_years_does_not_keep_a_retired_key(lonely):
    """As a site has it whose owner has mistyped a lifetime before lifetimes were bounded."""
    path = lonely.directory / "keys/token-signing.json"
    ring = json.loads(path.read_text())
    ring["keys"][0]["tokens_until"] = int((time.time() + 3650 * DAY) * 1000)
    path.write_text(json.dumps(ring))
    lonely.command("key", "rotate", "token", "--now")
    rows = [row for row in json.loads(lonely.command("--json", "key", "list")) if row["kind"] == "token"]
    year = int(rows[0]["until"].removeprefix("until ")[:4])
    assert year <= time.gmtime(time.time() + 31 * DAY).tm_year, rows


def test_a_key_of_the_same_name_signs_for_its_own_issuer_only(lonely, fault_ca):
    issuer, other = TokenIssuer(ISSUER_HOST, fault_ca), TokenIssuer(OTHER_ISSUER_HOST, fault_ca)
    try:
        for stranger in (issuer, other):
            stranger.trusted_by(lonely, client=None)
        lonely.start()
        _, own_kid = signing_key(lonely)
        # Both have a key of one name by chance; each speaks for itself.
        assert asked(lonely, issuer.token())[0] == asked(lonely, other.token())[0] == (207, 200)
        for key, speaks_for in ((issuer.key, other.url), (other.key, issuer.url), (issuer.key, lonely.door)):
            crossed = signed(key, KEY_NAME, claims(lonely, iss=speaks_for, audience=ANY))
            assert asked(lonely, crossed)[0] == (401, 401), speaks_for
        # An issuer that publishes its key by the name of ours does not sign for us.
        publish = issuer.keys
        issuer.keys = lambda: {"keys": [{**publish()["keys"][0], "kid": own_kid}, *publish()["keys"]]}
        for scope in ("storage.modify:/", "penstock.admin"):
            assert asked(lonely, signed(issuer.key, own_kid, claims(lonely, scope)))[0] == (401, 401)
        assert asked(lonely, lonely.command("token").strip())[0] == (207, 200)
    finally:
        issuer.close()
        other.close()


def test_a_key_set_of_yesterday_is_believed_of_its_issuer_only(lonely, fault_ca, tmp_path):
    """Somebody on the way answers in the issuer's place, with keys that it had once: without its certificate in vain."""
    issuer = TokenIssuer(ISSUER_HOST, fault_ca)
    port, yesterday, url = issuer.http.server_port, issuer.key, issuer.url
    issuer.key = ec.generate_private_key(ec.SECP256R1())
    issuer.trusted_by(lonely, client=None)
    lonely.start()
    try:
        assert asked(lonely, issuer.token())[0] == (207, 200)
        assert asked(lonely, signed(yesterday, KEY_NAME, claims(lonely, iss=url)))[0] == (401, 401)
        good = issuer.token()
    finally:
        issuer.close()
    rogue = TokenIssuer(ISSUER_HOST, FaultCa(tmp_path / "stranger"), port=port)
    rogue.key = yesterday
    try:
        # A restarted site remembers no keys and has to ask.
        lonely.stop()
        lonely.start()
        for token in (signed(yesterday, KEY_NAME, claims(lonely, iss=url)), good):
            statuses, said = asked(lonely, token)
            assert statuses == (503, 503), said
        assert asked(lonely, lonely.command("token").strip())[0] == (207, 200)
    finally:
        rogue.close()


def test_a_key_file_that_vanishes_neither_stops_nor_opens_the_site(lonely):
    lonely.start()
    token = lonely.command("token").strip()
    path = lonely.directory / "keys/token-signing.pem"
    shutil.move(path, path.with_suffix(".away"))
    (lonely.directory / "keys/token-signing.json").touch()
    code, said = tried(lonely, "token")
    assert code != 0 and "token-signing.pem" in said, said
    assert not path.exists()

    def noticed():
        return "token-signing" in lonely.log_text() or None

    eventually("the site says that the key is gone", noticed, KEYS_SECONDS)
    assert asked(lonely, token)[0] == (207, 200)
    forged = ec.generate_private_key(ec.SECP256R1())
    assert asked(lonely, signed(forged, head_of(token)["kid"], claims(lonely)))[0] == (401, 401)
    shutil.move(path.with_suffix(".away"), path)
    assert asked(lonely, lonely.command("token").strip())[0] == (207, 200)


def test_a_shared_link_ends_with_what_the_site_allows(grid, place):
    grid.here_door.put(f"{place}/x", b"x")
    link = grid.here.command("share", grid.here_door.url(f"{place}/x"), "--for", "400d").strip()
    assert requests.get(link, verify=grid.here.certificates).content == b"x"


def test_an_honest_copy_between_sites_works_by_tokens_of_their_own(grid, place):
    grid.here_door.put(f"{place}/x", content(place, 2000))
    source, copy = grid.here_door.url(f"{place}/x"), grid.there_door.url(f"{place}/deep/down/y")
    assert tried(grid.here, "copy", source, copy)[0] == 0
    assert Door(grid.there, grid.token).get(f"{place}/deep/down/y") == content(place, 2000)
    ended, said = tried(grid.here, "submit", "--wait", source, copy + "-2")
    assert ended == 0, said
    overwritten, said = tried(grid.here, "submit", "--wait", "--overwrite", source, copy + "-2")
    assert overwritten == 0, said
