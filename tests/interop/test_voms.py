"""Proxies with attributes of a VO, made by Debian's `voms-proxy-fake`, shown by curl to both ports of a site: what
they give, and that what is forged, stolen, late or unknown gives nothing.
"""

import json
import subprocess
import uuid

import pytest

from .certificates import BASE, VO, UserCa, attributes_of, identity_digest, private_vo
from .clients import Service
from .conftest import HOSTS
from .site import Site
from .waiting import eventually

MEMBER, PRODUCTION = f"/{VO}/Role=NULL/Capability=NULL", f"/{VO}/Role=production/Capability=NULL"
RULES = f"""
[[trust.member]]
dn = "{BASE}/OU=Users/CN=Member"
vo = "north"

[[storage.group]]
group = "/{VO}"
path = "/{VO}"
rights = ["read"]

[[storage.group]]
group = "/{VO}/Role=production"
path = "/{VO}"
rights = ["read", "modify"]
"""


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory, user_ca):
    """A site that knows the VOMS server of one VO."""
    site = Site(binary, tmp_path_factory.mktemp("voms") / "north", "north", HOSTS[0])
    user_ca.trusted_by(site)
    site.configure("[trust]", gridmap="grid-mapfile")
    site.append(RULES)
    (site.directory / "grid-mapfile").write_text(f'"{BASE}/OU=Users/CN=Pool" .north\n')
    site.start()
    yield site
    site.kill()


@pytest.fixture(scope="module")
def alice(user_ca):
    return user_ca.user("Alice Lab")


@pytest.fixture(scope="module")
def producer(user_ca, alice):
    return user_ca.voms_proxy(alice, fqans=[MEMBER, PRODUCTION])


def curl(site, credential, url, *words):
    """The status and the body of the answer to curl."""
    line = ["curl", "-sS", "--capath", str(site.certificates), *credential.curl, "-w", "\n%{http_code}"]
    done = subprocess.run([*line, *words, url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{words} {url}: {done.stderr}"
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def whoami(site, credential):
    status, body = curl(site, credential, f"{site.service}/whoami")
    assert status == 200, body
    return json.loads(body)


def refusals(site, text):
    """Lines of the log that say so."""
    return [line for line in site.log_text().splitlines() if text in line]


def assert_without_vo(site, credential, reason):
    """The user is known, the attributes do not count, and the log says why."""
    known = len(refusals(site, reason))
    told = whoami(site, credential)
    assert (told["voms_cred"], told["vos"]) == ([], [private_vo(told["user_dn"])])
    eventually("the reason is logged", lambda: len(refusals(site, reason)) == known + 1)
    status, body = curl(site, credential, f"{site.door}/{VO}/", "-X", "PROPFIND", "-H", "Depth: 0")
    assert status == 403, body


def test_whoami_tells_the_vo_and_the_attributes_as_they_came(site, producer, alice):
    told = whoami(site, producer)
    assert told["user_dn"] == alice.subject and told["dn"] == [alice.subject]
    assert told["vos"] == [VO]
    assert told["vos_id"] == [str(uuid.uuid5(uuid.UUID(told["base_id"]), VO))]
    assert told["voms_cred"] == [MEMBER, PRODUCTION]
    assert told["delegation_id"] == identity_digest(alice.subject, MEMBER, PRODUCTION)[:16]
    assert told["method"] == "certificate"


def test_without_attributes_a_user_is_a_vo_alone(site, alice, user_ca):
    for credential in (alice, user_ca.proxy(alice)):
        told = whoami(site, credential)
        assert (told["vos"], told["voms_cred"]) == ([private_vo(alice.subject)], [])
        assert told["delegation_id"] == identity_digest(alice.subject)[:16]


def test_rights_of_groups_and_roles_hold_at_the_door(site, producer, alice, user_ca, tmp_path):
    file = tmp_path / "file"
    file.write_text("of the VO")
    url = f"{site.door}/{VO}/{uuid.uuid4()}"
    assert curl(site, producer, url, "-T", str(file))[0] == 201
    member = user_ca.voms_proxy(alice, fqans=[MEMBER])
    assert curl(site, member, url) == (200, "of the VO")
    status, body = curl(site, member, f"{url}x", "-T", str(file))
    assert status == 403 and f"lets a member of /{VO} do so" in body
    assert curl(site, user_ca.proxy(alice), url)[0] == 403


def test_the_command_line_tells_what_the_door_answers(site, producer, alice, user_ca):
    """`penstock authz test` on the same credentials."""

    def tells(credential, *words):
        line = [str(site.binary), "--json", "authz", "test", f"/{VO}/f", "--dir", str(site.directory)]
        done = subprocess.run([*line, "--as", str(credential.pem), *words], capture_output=True, text=True, timeout=60)
        told = json.loads(done.stdout)
        return done.returncode, told.get("report", told)

    member = user_ca.voms_proxy(alice, fqans=[MEMBER])
    code, told = tells(producer, "--operation", "create")
    assert (code, told["by"], told["vo"], told["user"]) == (0, "a proxy", VO, alice.subject)
    assert told["groups"] == [f"/{VO}", f"/{VO}/Role=production"]
    code, told = tells(member, "--operation", "create")
    [judged] = told["operations"]
    assert (code, judged["verdict"]) == (3, "refused")
    _, body = curl(site, member, f"{site.door}/{VO}/f", "-X", "PUT", "-d", "x")
    assert "; ".join(judged["because"]) in body
    code, told = tells(user_ca.voms_proxy(alice, vo="atlas"), "--operation", "read")
    assert code == 3 and "the VO 'atlas' is not known here" in told["discounted"]


def test_a_limited_proxy_and_one_below_it_may_move_data(site, producer, user_ca, tmp_path):
    file = tmp_path / "file"
    file.write_text("limited")
    limited = user_ca.proxy(producer, limited=True)
    below = user_ca.proxy(limited)
    for credential in (limited, below):
        url = f"{site.door}/{VO}/{uuid.uuid4()}"
        assert curl(site, credential, url, "-T", str(file))[0] == 201
        assert curl(site, credential, url) == (200, "limited")
        assert whoami(site, credential)["voms_cred"] == [MEMBER, PRODUCTION]


def test_a_refusal_at_the_door_is_logged_once_with_its_reason(site, alice, user_ca):
    proxy = user_ca.proxy(alice)
    name = str(uuid.uuid4())
    assert curl(site, proxy, f"{site.door}/{VO}/{name}")[0] == 403
    logged = refusals(site, name)
    assert len(logged) == 1, logged
    assert "WARN" in logged[0] and f"no rule of the site lets {alice.subject} do so" in logged[0]


def test_every_refused_method_is_logged_once(site, alice, user_ca, tmp_path):
    proxy = user_ca.proxy(alice)
    file = tmp_path / "file"
    file.write_text("x")
    elsewhere = f"{site.door}/elsewhere"
    for words in (
        ["-T", str(file)],
        ["-I"],
        ["-X", "DELETE"],
        ["-X", "MKCOL"],
        ["-X", "PROPFIND", "-H", "Depth: 0"],
        ["-X", "MOVE", "-H", f"Destination: {elsewhere}"],
        ["-X", "COPY", "-H", f"Source: {site.door}/{VO}/source"],
        ["-X", "COPY", "-H", f"Destination: {elsewhere}"],
    ):
        name = str(uuid.uuid4())
        status, body = curl(site, proxy, f"{site.door}/{VO}/{name}", *words)
        logged = refusals(site, name)
        assert (status, len(logged)) == (403, 1), f"{words}: {body} {logged}"
        assert "no rule of the site lets" in logged[0]


def test_attributes_that_do_not_count_are_logged_once_per_connection(site, user_ca):
    carol = user_ca.user("Carol Lab")
    unknown = user_ca.voms_proxy(carol, vo="atlas")
    for count in (1, 2):
        url = f"{site.service}/whoami"
        status, body = curl(site, unknown, url, url, url)
        assert status == 200 and body.count(carol.subject) >= 3, body
        assert len([line for line in refusals(site, "Carol Lab") if "do not count" in line]) == count


def test_a_macaroon_of_a_proxy_carries_the_rights_of_its_groups(site, producer, alice, user_ca, tmp_path):
    """As gfal2 does it before each operation."""
    file = tmp_path / "file"
    file.write_text("by macaroon")
    url = f"{site.door}/{VO}/{uuid.uuid4()}"
    ask = ["-X", "POST", "-H", "Content-Type: application/macaroon-request"]
    ask += ["-d", '{"caveats": ["activity:DOWNLOAD,UPLOAD,MANAGE"], "validity": "PT10M"}']
    status, body = curl(site, producer, url, *ask)
    assert status == 200, body
    bearer = ["-H", f"Authorization: Bearer {json.loads(body)['macaroon']}"]
    # It counts before the certificate, which would not be enough.
    nobody = user_ca.proxy(alice)
    assert curl(site, nobody, url, *bearer, "-T", str(file))[0] == 201
    assert curl(site, nobody, url, *bearer) == (200, "by macaroon")


def test_attributes_in_the_newer_format_count_too(site, alice, user_ca):
    newer = user_ca.voms_proxy(alice, options=["-newformat"])
    assert whoami(site, newer)["voms_cred"] == [MEMBER]


def test_attributes_of_an_unknown_vo_or_server_do_not_count(site, alice, user_ca):
    unknown = user_ca.voms_proxy(alice, vo="atlas")
    assert_without_vo(site, unknown, "the VO 'atlas' is not known here")
    other = user_ca.voms_proxy(alice, server=user_ca.host("voms.elsewhere.lab"))
    assert_without_vo(site, other, "does not list")
    user = user_ca.voms_proxy(alice, server=alice)
    assert_without_vo(site, user, "does not list")


def test_a_server_of_one_vo_makes_no_members_of_another(site, alice, user_ca):
    foreign = user_ca.voms_proxy(alice, fqans=[MEMBER, "/atlas/Role=production/Capability=NULL"])
    assert_without_vo(site, foreign, "is not a group of the VO")


def test_a_rogue_authority_of_the_same_name_gives_nothing(site, alice, user_ca, tmp_path):
    rogue = UserCa(tmp_path / "rogue")
    # Its VOMS server has the name that the site lists.
    forged = user_ca.voms_proxy(alice, server=rogue.voms_server)
    assert_without_vo(site, forged, "certificate is not believed")
    mallory = rogue.user("Alice Lab")
    assert mallory.subject == alice.subject
    status, body = curl(site, mallory, f"{site.service}/whoami")
    assert status == 403 and "is not accepted" in body


def test_attributes_end_with_their_time(site, alice, user_ca):
    late = user_ca.voms_proxy(alice, options=["-vomslife", "1", "-pastac", "2:00"])
    assert_without_vo(site, late, "they expired at")


def test_stolen_attributes_do_not_count(site, user_ca, alice, producer):
    """Alice's extension in a proxy that somebody else has signed."""
    bob = user_ca.user("Bob Lab")
    stolen = user_ca.proxy_with_attributes(bob, attributes_of(producer))
    reason = "made for another certificate"
    known = len(refusals(site, reason))
    told = whoami(site, stolen)
    assert (told["user_dn"], told["voms_cred"]) == (bob.subject, [])
    eventually("the reason is logged", lambda: len(refusals(site, reason)) == known + 1)
    own = user_ca.proxy_with_attributes(alice, attributes_of(producer))
    assert whoami(site, own)["voms_cred"] == [MEMBER, PRODUCTION]


def test_what_is_out_of_date_or_too_long_a_chain_is_refused(site, alice, user_ca):
    over = user_ca.proxy(alice, hours=-1)
    short = user_ca.proxy(alice, path_length=0)
    beyond = user_ca.proxy(short)
    for credential, reason in ((over, "certificate has expired"), (beyond, "path length")):
        for url in (f"{site.service}/whoami", f"{site.door}/{VO}/x"):
            status, body = curl(site, credential, url)
            assert status == 403 and reason in body, body
    assert whoami(site, short)["user_dn"] == alice.subject


def test_a_token_s_job_is_seen_by_a_certificate_of_its_vo(site, user_ca, alice):
    """As with Rucio, which submits with a token and may poll with a proxy."""
    here = Service(site)
    source, destination = (f"{site.door}/{uuid.uuid4()}" for _ in range(2))
    job = here.submit((source, destination))
    for name in ("Member", "Pool"):
        member = user_ca.proxy(user_ca.user(name))
        assert whoami(site, member)["vos"] == ["north"]
        status, body = curl(site, member, f"{site.service}/jobs/{job}")
        assert (status, json.loads(body)["job_id"]) == (200, job)
        assert job in curl(site, member, f"{site.service}/jobs/{job}/files")[1]
    stranger = user_ca.proxy(alice)
    assert curl(site, stranger, f"{site.service}/jobs/{job}")[0] in (403, 404)
    status, body = curl(site, member, f"{site.service}/jobs/{job}", "-X", "DELETE")
    assert status == 200, body


def test_a_changed_list_of_servers_counts_at_once(site, alice, user_ca, producer):
    vomsdir = site.directory / "vomsdir"
    user_ca.write_lsc(vomsdir, names=[f"{user_ca.voms_server.subject} 2", user_ca.subject])
    try:
        assert_without_vo(site, producer, "does not list")
    finally:
        user_ca.write_lsc(vomsdir)
    assert whoami(site, producer)["vos"] == [VO]


def test_revoked_certificates_end_attributes_and_identity(binary, tmp_path, user_ca):
    """On a site of its own, because the list stays."""
    own = UserCa(tmp_path / "ca", "Revoking CA")
    site = Site(binary, tmp_path / "site", "north", HOSTS[1])
    own.trusted_by(site)
    bob, proxy = (user := own.user("Bob Lab")), own.voms_proxy(user)
    crl = site.certificates / f"{own.hash}.r0"
    crl.write_text(own.revoke(own.voms_server))
    try:
        site.start()
        assert whoami(site, proxy)["voms_cred"] == []
        assert refusals(site, "was revoked by its authority")
        crl.write_text(own.revoke(bob))
        site.reload()

        def refused():
            status, body = curl(site, proxy, f"{site.service}/whoami")
            return status == 403 and "was revoked" in body

        eventually("a revoked user is refused", refused)
    finally:
        site.kill()
