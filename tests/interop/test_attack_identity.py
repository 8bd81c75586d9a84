"""Attacks on who is who: tokens that claim another VO, subjects that read like another's, attributes of VOMS that were made
for somebody else, and credentials that were revoked while a connection is open. Against running sites, from outside.
"""

import base64
import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
import uuid

import pytest
import requests

from .certificates import BASE, INHERIT_ALL, USER_EXTENSIONS, VO, Credential, UserCa, attributes_of, blocks, openssl, utc
from .clients import Endpoint, Service
from .conftest import HOSTS
from .site import Site
from .token_issuer import TokenIssuer
from .waiting import eventually

ISSUER_HOSTS = ["127.0.0.51", "127.0.0.52"]
MEMBER = f"/{VO}/Role=NULL/Capability=NULL"
PRODUCTION = f"/{VO}/Role=production/Capability=NULL"
ENDS_WITHIN = 30
RULES = f"""
[[storage.user]]
dn = "{BASE}/OU=Users/CN=Alice Lab"
path = "/alice"
rights = ["read", "modify"]

[[storage.group]]
group = "/{VO}"
path = "/{VO}"
rights = ["read", "modify"]
"""


class Lab:
    """A site with users of certificates, an issuer whose users are of the VO `b`, and one of which the site has not said of
    which VOs its users are."""

    def __init__(self, binary, directory, user_ca, fault_ca):
        self.ca = user_ca
        self.site = Site(binary, directory / "north", "north", HOSTS[0])
        self.site.trust(fault_ca.certificate)
        user_ca.trusted_by(self.site)
        self.good, self.silent = (TokenIssuer(host, fault_ca) for host in ISSUER_HOSTS)
        self.good.trusted_by(self.site, client=None, vo="b")
        self.site.append(f'\n[[trust.issuer]]\nissuer = "{self.silent.url}"\nprefix = "/ext"\n')
        self.site.append(RULES)
        self.alice = user_ca.user("Alice Lab")
        self.site.start()

    def close(self):
        self.site.kill()
        self.good.close()
        self.silent.close()

    def service(self, issuer, groups=(), **claims):
        audience = self.site.service
        token = issuer.token(scope="fts openid", audience=audience, **{"wlcg.groups": list(groups)}, **claims)
        return Service(self.site, token)

    def ask(self, method, path, who, **options):
        options.setdefault("timeout", 60)
        certificate = (str(who.pem), str(who.pem))
        return requests.request(
            method, self.site.service + path, cert=certificate, verify=str(self.site.certificates), **options
        )

    def delegate(self, who):
        """What fts-rest-delegate does."""
        name = self.ask("GET", "/whoami", who).json()["delegation_id"]
        asked = self.ask("GET", f"/delegation/{name}/request", who)
        assert asked.status_code == 200, asked.text
        at = self.ca.new_directory()
        (at / "request").write_text(asked.text)
        (at / "extensions").write_text(
            "keyUsage=critical,digitalSignature,keyEncipherment\n"
            f"proxyCertInfo=critical,language:{INHERIT_ALL}\n"
        )
        now = time.time()
        line = ["ca", "-config", self.ca.ca_config(at), "-batch", "-notext", "-preserveDN", "-md", "sha256"]
        line += ["-in", at / "request", "-out", at / "proxy", "-extfile", at / "extensions"]
        line += ["-subj", f"{who.subject}/CN={int(now)}", "-cert", who.certificate, "-keyfile", who.key]
        openssl(*line, "-startdate", utc(now), "-enddate", utc(now + 6 * 3600))
        chain = (at / "proxy").read_text() + "".join(blocks(who.pem.read_text(), "CERTIFICATE"))
        given = self.ask("PUT", f"/delegation/{name}/credential", who, data=chain)
        assert given.status_code == 201, given.text


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, user_ca, fault_ca):
    lab = Lab(binary, tmp_path_factory.mktemp("identity"), user_ca, fault_ca)
    yield lab
    lab.close()


def a_job():
    """One whose source is nowhere: only who may see it matters."""
    name = uuid.uuid4()
    files = [{"sources": [f"https://127.0.0.60:9/{name}"], "destinations": [f"https://127.0.0.61:9/{name}"]}]
    return {"files": files, "params": {"retry": 5, "retry_delay": 600}}


# VOs of tokens.


def test_a_group_of_a_token_makes_nobody_a_member_of_another_issuers_vo(lab):
    bob = lab.service(lab.good, sub="bob")
    assert bob.ask("GET", "/whoami").json()["vos"] == ["b"]
    answer = bob.ask("POST", "/jobs", json=a_job())
    assert answer.status_code == 200, answer.text
    job = answer.json()["job_id"]
    eve = lab.service(lab.silent, ["/b"], sub="eve")
    [claimed] = eve.ask("GET", "/whoami").json()["vos"]
    assert eve.ask("GET", f"/jobs/{job}").status_code == 403
    assert eve.ask("DELETE", f"/jobs/{job}").status_code == 403
    assert bob.ask("GET", f"/jobs/{job}").json()["job_state"] != "CANCELED"
    assert claimed != "b" and claimed.startswith(f"b@{ISSUER_HOSTS[1]}~"), claimed
    # Members of one group of that issuer still share their jobs.
    mallory = lab.service(lab.silent, ["/b"], sub="mallory")
    assert mallory.ask("GET", "/whoami").json()["vos"] == [claimed]


def test_no_group_of_a_token_is_the_name_of_somebody_or_of_the_sites_own_vo(lab):
    [private] = lab.ask("GET", "/whoami", lab.alice).json()["vos"]
    for victim in (private, "Alice Lab@interop.lab", "north", "b", VO, ISSUER_HOSTS[0]):
        eve = lab.service(lab.silent, [f"/{victim}"], sub="eve")
        assert eve.ask("GET", "/whoami").json()["vos"] != [victim]


def test_keys_of_a_vos_cloud_storage_are_not_for_who_claims_the_vo(lab):
    """The service would sign requests by them for any of the VO's jobs."""
    admin = Service(lab.site, lab.site.admin_token())
    name = "S3:127.0.0.62"
    assert admin.ask("POST", "/config/cloud_storage", json={"storage_name": name}).status_code == 201
    keys = {"vo_name": "b", "access_key": "AKIAVO", "secret_key": "secret-of-the-vo"}
    answer = admin.ask("POST", f"/config/cloud_storage/{name}", json=keys)
    assert answer.status_code == 201, answer.text
    files = [{"sources": ["s3://127.0.0.62:9/bucket/private"], "destinations": [f"{lab.site.door}/ext/loot"]}]
    eve = lab.service(lab.silent, ["/b"], sub="eve")
    answer = eve.ask("POST", "/jobs", json={"files": files})
    assert answer.status_code == 400 and "keys" in answer.text, f"{answer.status_code} {answer.text}"
    bob = lab.service(lab.good, sub="bob")
    answer = bob.ask("POST", "/jobs", json={"files": files})
    assert answer.status_code == 200, answer.text


def test_an_issuer_with_a_list_makes_members_of_no_other_vo(binary, tmp_path, fault_ca):
    site = Site(binary, tmp_path / "listed", "listed", HOSTS[1])
    site.trust(fault_ca.certificate)
    issuer = TokenIssuer(ISSUER_HOSTS[0], fault_ca)
    try:
        site.append(f'\n[[trust.issuer]]\nissuer = "{issuer.url}"\nvos = ["b", "c"]\n')
        site.start()

        def vo(*groups):
            token = issuer.token(scope="fts openid", **{"wlcg.groups": list(groups)})
            return Service(site, token).ask("GET", "/whoami").json()["vos"][0]

        assert (vo("/b/prod"), vo("/c"), vo("/a", "/c")) == ("b", "c", "c")
        assert "~" in vo("/a") and "~" in vo() and vo("/a") == vo()
    finally:
        site.kill()
        issuer.close()


def test_check_tells_what_an_issuer_without_vos_could_do(lab):
    told = json.loads(lab.site.command("--json", "check"))
    said = [found["text"] for found in told["findings"] if lab.silent.url in found["text"]]
    assert any("neither vo nor vos" in text for text in said), told["findings"]
    assert not any("neither vo" in found["text"] and lab.good.url in found["text"] for found in told["findings"])


# Subjects.


def test_two_people_of_one_name_share_no_jobs(lab):
    other = lab.ca.issue(f"{BASE}/OU=Other/CN=Alice Lab", USER_EXTENSIONS)
    lab.delegate(lab.alice)
    answer = lab.ask("POST", "/jobs", lab.alice, json=a_job())
    assert answer.status_code == 200, answer.text
    job = answer.json()["job_id"]
    assert lab.ask("GET", f"/jobs/{job}", other).status_code == 403
    assert lab.ask("DELETE", f"/jobs/{job}", other).status_code == 403
    listed = lab.ask("GET", "/jobs", other, params={"state_in": "SUBMITTED,ACTIVE,FAILED,CANCELED"})
    assert job not in listed.text
    seen = lab.ask("GET", f"/jobs/{job}", lab.alice).json()
    assert seen["job_state"] != "CANCELED"
    assert seen["vo_name"].startswith("Alice Lab@interop.lab~")


@pytest.mark.parametrize(
    "subject",
    [
        f"{BASE}/OU=Users+CN=Alice Lab",
        f"{BASE}/OU=Users/CN=Jos\\\\xC3\\\\xA9",
        f"{BASE}/OU=Users/CN=Eve\\/ CN=Alice Lab",
    ],
    ids=["two values in one part", "the text of an escape", "a part behind a blank"],
)
def test_a_subject_that_reads_like_another_is_refused(lab, subject):
    eve = lab.ca.issue(subject, USER_EXTENSIONS)
    answer = lab.ask("GET", "/whoami", eve)
    assert answer.status_code == 403 and "without ambiguity" in answer.text, f"{answer.status_code} {answer.text}"


def test_check_tells_of_an_authority_that_may_sign_any_name(binary, tmp_path, user_ca):
    site = Site(binary, tmp_path / "two", "two", HOSTS[1])
    user_ca.trusted_by(site)
    findings = lambda: [found["text"] for found in json.loads(site.command("--json", "check"))["findings"]]
    assert not any("may sign any name" in text for text in findings()), findings()
    (site.certificates / f"{user_ca.hash}.signing_policy").unlink()
    said = [text for text in findings() if "may sign any name" in text]
    assert len(said) == 1 and user_ca.subject in said[0], findings()


BY_AUTHORITY = """
[[storage.user]]
dn = "{alice}"
ca = "{ca}"
path = "/signed"
rights = ["read", "modify"]

[[trust.member]]
dn = "{alice}"
ca = "{ca}"
vo = "{vo}"

[[transfer.administrator]]
dn = "{alice}"
ca = "{ca}"
"""


def test_a_rule_that_names_its_authority_is_for_no_user_of_another(binary, tmp_path, user_ca):
    site = Site(binary, tmp_path / "two", "two", HOSTS[1])
    other = UserCa(tmp_path / "other", "Other Lab CA")
    for ca in (user_ca, other):
        ca.install(site.certificates)
    alice, impostor = user_ca.user("Alice Lab"), other.user("Alice Lab")
    assert alice.subject == impostor.subject
    rules = BY_AUTHORITY.format(alice=alice.subject, ca=user_ca.subject, vo=VO)
    site.append(rules)
    findings = lambda: [found["text"] for found in json.loads(site.command("--json", "check"))["findings"]]
    assert not any("several authorities" in text for text in findings()), findings()
    site.start()
    try:

        def ask(who, method, url, **options):
            certificate = (str(who.pem), str(who.pem))
            return requests.request(method, url, cert=certificate, verify=str(site.certificates), timeout=60, **options)

        assert ask(alice, "PUT", f"{site.door}/signed/f", data=b"x").status_code == 201
        for method in ("GET", "PUT", "DELETE"):
            assert ask(impostor, method, f"{site.door}/signed/f").status_code == 403, method
        whoami = {who: ask(who, "GET", f"{site.service}/whoami").json() for who in (alice, impostor)}
        assert whoami[alice]["vos"] == [VO] and VO not in whoami[impostor]["vos"], whoami
        assert ask(alice, "GET", f"{site.service}/config/global").status_code == 200
        assert ask(impostor, "GET", f"{site.service}/config/global").status_code == 403
    finally:
        site.kill()
    # Without the authority, each of the three is told.
    config = site.directory / "penstock.toml"
    config.write_text(config.read_text().replace(f'ca = "{user_ca.subject}"\n', ""))
    said = [text for text in findings() if "several authorities" in text]
    assert len(said) == 3 and all(ca.subject in text for text in said for ca in (user_ca, other)), findings()


def test_who_is_given_a_link_of_a_monitor_is_no_monitor(binary, tmp_path, user_ca):
    site = Site(binary, tmp_path / "two", "two", HOSTS[1])
    user_ca.trusted_by(site)
    operator = user_ca.user("Operator")
    site.configure("[observe]", monitor_addresses=[], monitors=[operator.subject])
    site.append(f'\n[[storage.user]]\ndn = "{operator.subject}"\npath = "/pub"\nrights = ["read", "modify"]\n')
    site.start()
    try:
        own = Endpoint(site.door, site.certificates)
        own.session.cert = operator.requests
        assert own.ask("MKCOL", "/pub").status_code == 201
        asked = {"caveats": ["activity:DOWNLOAD,LIST"], "validity": "PT1H"}
        headers = {"Content-Type": "application/macaroon-request"}
        macaroon = own.ask("POST", "/pub", json=asked, headers=headers).json()["macaroon"]
        link = Endpoint(site.door, site.certificates, macaroon)
        for path in ("/metrics", "/.penstock/metrics"):
            assert own.ask("GET", path).status_code == 200, path
            assert link.ask("GET", path).status_code == 403, path
            assert Endpoint(site.door, site.certificates).ask("GET", f"{path}?authz={macaroon}").status_code == 403, path
        assert "findings" in own.ask("GET", "/health").json()
        assert set(link.ask("GET", "/health").json()) == {"status"}
    finally:
        site.kill()


# Attributes of VOMS, replayed and forged.


def der(tag, content):
    length = len(content)
    size = length.to_bytes((length.bit_length() + 7) // 8 or 1, "big")
    return bytes([tag]) + (bytes([length]) if length < 128 else bytes([0x80 | len(size)]) + size) + content


def content_of(element):
    """The content of one DER element."""
    if element[1] < 128:
        return element[2 : 2 + element[1]]
    size = element[1] & 0x7F
    return element[2 + size : 2 + size + int.from_bytes(element[2 : 2 + size], "big")]


def reordered(lab):
    """Alice's attributes with production first, where the signature has it second."""
    fqans = [f"/{VO}/aaaa", f"/{VO}/bbbb"]
    value = attributes_of(lab.ca.voms_proxy(lab.alice, fqans=fqans))
    first, second = (fqan.encode() for fqan in fqans)
    assert value.count(first) == value.count(second) == 1
    swapped = value.replace(first, b"/" * len(first)).replace(second, first).replace(b"/" * len(first), second)
    return lab.ca.proxy_with_attributes(lab.alice, swapped)


def two_extensions(lab):
    """Two extensions of the kind in one proxy, the first of a VO server's making for somebody else."""
    bob = lab.ca.user("Bob Lab")
    stolen, own = (attributes_of(lab.ca.voms_proxy(user)) for user in (bob, lab.alice))
    at = lab.ca.new_directory()
    certificate, key, pem = at / "cert.pem", at / "key.pem", at / "proxy.pem"
    subject = f"{lab.alice.subject}/CN=77"
    openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", at / "request", "-subj", subject)
    # OpenSSL writes each extension once, so that the second is written under a name of the same length.
    oid, double = "1.3.6.1.4.1.8005.100.100.5", "1.3.6.1.4.1.8005.100.100.6"
    (at / "extensions").write_text(
        "keyUsage=critical,digitalSignature,keyEncipherment\n"
        f"proxyCertInfo=critical,language:{INHERIT_ALL}\n{double}=DER:{stolen.hex()}\n{oid}=DER:{own.hex()}\n"
    )
    line = ["x509", "-req", "-in", at / "request", "-CA", lab.alice.certificate, "-CAkey", lab.alice.key]
    openssl(*line, "-set_serial", "77", "-days", "1", "-extfile", at / "extensions", "-out", certificate)
    renamed(certificate, lab.alice.key)
    pem.touch(mode=0o600)
    above = "".join(blocks(lab.alice.pem.read_text(), "CERTIFICATE"))
    pem.write_text(certificate.read_text() + key.read_text() + above)
    return Credential(subject, certificate, key, pem)


def renamed(certificate, key):
    """The certificate with both extensions under the name of VOMS, signed again."""
    text = certificate.read_text()
    body = base64.b64decode("".join(text.splitlines()[1:-1]))
    inner = content_of(body)
    to_be_signed = inner[: len(inner) - len(content_after(inner))]
    prefix = bytes.fromhex("2b06010401be456464")
    assert to_be_signed.count(prefix + b"\x06") == 1
    changed = to_be_signed.replace(prefix + b"\x06", prefix + b"\x05")
    at = certificate.parent
    (at / "tbs").write_bytes(changed)
    openssl("dgst", "-sha256", "-sign", key, "-out", at / "signature", at / "tbs")
    algorithm = bytes.fromhex("300d06092a864886f70d01010b0500")
    again = der(0x30, changed + algorithm + der(0x03, b"\x00" + (at / "signature").read_bytes()))
    lines = base64.encodebytes(again).decode()
    certificate.write_text(f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")


def content_after(elements):
    """What follows the first of several DER elements."""
    size = elements[1] & 0x7F if elements[1] >= 128 else 0
    return elements[2 + size + len(content_of(elements)) :]


def stolen(lab):
    """Bob's attributes in Alice's proxy."""
    bob = lab.ca.user("Bob Lab")
    return lab.ca.proxy_with_attributes(lab.alice, attributes_of(lab.ca.voms_proxy(bob, fqans=[PRODUCTION])))


def meant_for_others(lab):
    """Attributes for another service. The tool reads what it has not written: with some lengths of its words it crashes."""
    for length in range(1, 41):
        try:
            return lab.ca.voms_proxy(lab.alice, options=["-target", f"{'e' * length}.example.org"])
        except AssertionError as why:
            last = why
    raise last


ATTRIBUTES = {
    "another holder's": (stolen, "made for another certificate"),
    "expired": (
        lambda lab: lab.ca.voms_proxy(lab.alice, options=["-vomslife", "1", "-pastac", "2:00"]),
        "they expired at",
    ),
    "of a server that is not listed": (
        lambda lab: lab.ca.voms_proxy(lab.alice, server=lab.ca.host("voms.elsewhere.lab")),
        "does not list",
    ),
    "of an authority that is not trusted": (
        lambda lab: lab.ca.voms_proxy(lab.alice, server=UserCa(lab.ca.new_directory() / "rogue").voms_server),
        "is not believed",
    ),
    "meant for another service": (
        meant_for_others,
        "meant for other services",
    ),
    "in another order": (reordered, "signature is not valid"),
    "shown twice": (two_extensions, "malformed"),
}


@pytest.mark.parametrize("case", ATTRIBUTES)
def test_replayed_and_forged_attributes_make_nobody_a_member(lab, case):
    make, reason = ATTRIBUTES[case]
    who = make(lab)
    [private] = lab.ask("GET", "/whoami", lab.alice).json()["vos"]
    answer = lab.ask("GET", "/whoami", who)
    if answer.status_code == 200:
        told = answer.json()
        assert (told["voms_cred"], told["vos"]) == ([], [private]), told
        eventually("the log tells why", lambda: reason in lab.site.log_text())
    else:
        assert answer.status_code == 403, answer.text
    line = ["curl", "-sS", "--capath", str(lab.site.certificates), *who.curl, "-o", "/dev/null", "-w", "%{http_code}"]
    line += ["-T", "/etc/hostname", f"{lab.site.door}/{VO}/{uuid.uuid4()}"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "403"), done.stderr
    member = lab.ca.voms_proxy(lab.alice, fqans=[MEMBER])
    assert lab.ask("GET", "/whoami", member).json()["vos"] == [VO]


# What is open when somebody is revoked or banned.


class Kept:
    """A connection that is kept, and says when it is another one."""

    def __init__(self, site, url, who):
        host, _, port = url.removeprefix("https://").partition(":")
        context = ssl.create_default_context(capath=str(site.certificates))
        context.load_cert_chain(str(who.pem), str(who.pem))
        self.http = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
        self.http.connect()
        self.socket = self.http.sock

    def get(self, path):
        """The status, or None when the connection has been closed."""
        try:
            if self.http.sock is not self.socket:
                return None
            self.http.request("GET", path)
            answer = self.http.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return None


@pytest.fixture
def own_site(binary, tmp_path, user_ca):
    site = Site(binary, tmp_path / "kept", "kept", HOSTS[1])
    user_ca.trusted_by(site)
    site.append(RULES)
    site.start()
    yield site
    site.kill()


def test_a_kept_connection_ends_with_its_certificate(own_site, tmp_path):
    ca = UserCa(tmp_path / "revoking", "Revoking CA")
    ca.install(own_site.certificates)
    alice = ca.user("Alice Lab")
    doors = [(own_site.door, "/alice/none", 404), (own_site.service, "/whoami", 200)]
    kept = [Kept(own_site, url, alice) for url, _, _ in doors]
    for connection, (_, path, status) in zip(kept, doors):
        assert [connection.get(path) for _ in range(2)] == [status, status]
    (own_site.certificates / f"{ca.hash}.r0").write_text(ca.revoke(alice))
    own_site.reload()
    for connection, (_, path, status) in zip(kept, doors):
        refused = lambda: connection.get(path) != status
        eventually(f"the certificate is refused at {path}", refused, ENDS_WITHIN)
        assert connection.get(path) is None, "the connection is closed"


class SlowUpload:
    """A PUT whose body does not end."""

    def __init__(self, site, who, path):
        host, _, port = site.door.removeprefix("https://").partition(":")
        context = ssl.create_default_context(capath=str(site.certificates))
        context.load_cert_chain(str(who.pem), str(who.pem))
        plain = socket.create_connection((host, int(port)), 30)
        self.socket = context.wrap_socket(plain, server_hostname=host)
        self.socket.settimeout(60)
        head = f"PUT {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 1000000000\r\n\r\n"
        self.socket.sendall(head.encode())
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.has_ended = threading.Event()
        self.sent = 0
        self.thread = threading.Thread(target=self.send, daemon=True)
        self.thread.start()

    def send(self):
        try:
            while self.goes_on.wait(0) and not self.has_ended.is_set():
                self.socket.sendall(b"x" * 20_000)
                self.sent += 20_000
                time.sleep(0.05)
        except OSError:
            pass
        self.has_ended.set()

    def close(self):
        self.goes_on.clear()
        self.thread.join(60)
        self.socket.close()


@pytest.mark.parametrize("by", ["ban", "revocation"])
def test_a_running_upload_ends_when_its_user_may_do_nothing_any_more(own_site, tmp_path, by):
    ca = UserCa(tmp_path / "revoking", "Revoking CA")
    ca.install(own_site.certificates)
    alice = ca.user("Alice Lab")
    upload = SlowUpload(own_site, alice, f"/alice/{uuid.uuid4()}")
    try:
        eventually("bytes are moving", lambda: upload.sent > 200_000, ENDS_WITHIN)
        if by == "ban":
            own_site.configure("[trust]", banned=[alice.subject])
        else:
            (own_site.certificates / f"{ca.hash}.r0").write_text(ca.revoke(alice))
        own_site.reload()
        eventually("the upload is given up", upload.has_ended.is_set, ENDS_WITHIN)
        eventually("the log tells why", lambda: "gave up a request" in own_site.log_text())
    finally:
        upload.close()


def test_an_upload_in_good_faith_goes_on_through_a_reload(own_site, tmp_path):
    ca = UserCa(tmp_path / "revoking", "Revoking CA")
    ca.install(own_site.certificates)
    alice, bob = ca.user("Alice Lab"), ca.user("Bob Lab")
    upload = SlowUpload(own_site, alice, f"/alice/{uuid.uuid4()}")
    try:
        eventually("bytes are moving", lambda: upload.sent > 200_000, ENDS_WITHIN)
        (own_site.certificates / f"{ca.hash}.r0").write_text(ca.revoke(bob))
        own_site.configure("[trust]", banned=[bob.subject])
        own_site.reload()
        refused = Kept(own_site, own_site.door, bob)
        eventually("the ban counts", lambda: refused.get("/alice/none") in (403, None), ENDS_WITHIN)
        before = upload.sent
        # Longer than it takes until a running request is looked at.
        eventually("bytes are moving still", lambda: upload.sent > before + 2_400_000, 60)
        assert not upload.has_ended.is_set()
    finally:
        upload.close()
