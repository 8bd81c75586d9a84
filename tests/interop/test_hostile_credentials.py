"""Certificates, proxies and attributes that somebody forged, stole or kept too long, shown by curl to both ports of a
site: each is refused with the right status, the log says why in one line, and who comes in good faith is served.
"""

import json
import subprocess
import uuid

import pytest

from .certificates import BASE, VO, UserCa, attributes_of, private_vo
from .conftest import HOSTS
from .site import Site
from .waiting import eventually

MEMBER, FOREIGN = f"/{VO}/Role=NULL/Capability=NULL", "/atlas/Role=production/Capability=NULL"
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
    """A site, the authorities that it believes, one that it does not, and who has credentials of them."""

    def __init__(self, binary, directory, user_ca):
        self.ca = user_ca
        self.revoking = UserCa(directory / "revoking", "Revoking CA")
        # The same subject as the authority of users, with a key of its own.
        self.rogue = UserCa(directory / "rogue")
        self.site = Site(binary, directory / "fort", "fort", HOSTS[0])
        self.ca.trusted_by(self.site)
        self.revoking.install(self.site.certificates)
        self.site.append(RULES)
        self.alice, self.bob = user_ca.user("Alice Lab"), user_ca.user("Bob Lab")
        self.revoked = self.revoking.user("Alice Lab")
        crl = self.site.certificates / f"{self.revoking.hash}.r0"
        crl.write_text(self.revoking.revoke(self.revoked))
        self.proxy = user_ca.proxy(self.alice)
        self.member = user_ca.voms_proxy(self.alice, fqans=[MEMBER])
        self.site.start()

    def curl(self, credential, url, *words):
        """The status and the body of the answer to curl."""
        line = ["curl", "-sS", "--capath", str(self.site.certificates), *credential.curl, "-w", "\n%{http_code}"]
        done = subprocess.run([*line, *words, url], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{words} {url}: {done.stderr}"
        body, _, status = done.stdout.rpartition("\n")
        return int(status), body

    def said(self, text):
        return [line for line in self.site.log_text().splitlines() if text in line]

    def says_once(self, reason, ask):
        """What `ask` gives, and that the log told the reason in one line, as a warning."""
        known = len(self.said(reason))
        answer = ask()
        eventually(f"the log tells: {reason}", lambda: len(self.said(reason)) > known)
        [line] = self.said(reason)[known:]
        assert "WARN" in line, line
        return answer

    def assert_goes_on(self):
        url = f"{self.site.door}/alice/{uuid.uuid4()}"
        assert self.curl(self.alice, url, "-X", "PUT", "-d", "good faith")[0] == 201
        assert self.curl(self.proxy, url) == (200, "good faith")
        status, told = self.curl(self.member, f"{self.site.service}/whoami")
        assert (status, json.loads(told)["vos"]) == (200, [VO])


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, user_ca):
    lab = Lab(binary, tmp_path_factory.mktemp("credentials"), user_ca)
    yield lab
    code = lab.site.stop()[0]
    assert code == 0, lab.site.log_tail()


@pytest.fixture(autouse=True)
def unmoved(lab):
    """After every test the site serves others, and nothing broke."""
    yield
    assert lab.site.is_running(), lab.site.log_tail()
    lab.assert_goes_on()
    assert "panicked" not in lab.site.log_text()


ISSUER = "unable to get local issuer certificate"
CERTIFICATES = {
    "a rogue authority of the same name": (lambda lab: lab.rogue.user("Alice Lab"), ISSUER),
    "a proxy of such a user": (lambda lab: lab.rogue.proxy(lab.rogue.user("Alice Lab")), ISSUER),
    "such a user's proxy with attributes": (
        lambda lab: lab.rogue.voms_proxy(lab.rogue.user("Alice Lab"), fqans=[MEMBER]),
        ISSUER,
    ),
    "an authority's own certificate": (lambda lab: itself(lab.rogue), "self-signed certificate"),
    "a revoked user": (lambda lab: lab.revoked, "was revoked"),
    "a proxy of a revoked user": (lambda lab: lab.revoking.proxy(lab.revoked), "was revoked"),
    "a proxy of a proxy of a revoked user": (
        lambda lab: lab.revoking.proxy(lab.revoking.proxy(lab.revoked)),
        "was revoked",
    ),
    "an expired proxy": (lambda lab: lab.ca.proxy(lab.alice, hours=-1), "certificate has expired"),
    "a proxy of an expired one": (
        lambda lab: lab.ca.proxy(lab.ca.proxy(lab.alice, hours=-1)),
        "certificate has expired",
    ),
    "a proxy beyond the path length": (
        lambda lab: lab.ca.proxy(lab.ca.proxy(lab.alice, path_length=0)),
        "path length",
    ),
    "a proxy far beyond the path length": (
        lambda lab: lab.ca.proxy(lab.ca.proxy(lab.ca.proxy(lab.alice, path_length=1))),
        "path length",
    ),
    "a user signed by a user": (lambda lab: signed_by_a_user(lab), "invalid CA certificate"),
}


def itself(ca):
    """An authority's certificate and key, as if they were a user's."""
    user = ca.user("Nobody")
    user.pem.write_text(ca.certificate.read_text() + ca.key.read_text())
    return user


def signed_by_a_user(lab):
    """What Bob has signed with his certificate, in Alice's name."""
    forged = UserCa(lab.ca.new_directory() / "bob", "Bob")
    forged.certificate, forged.key = lab.bob.certificate, lab.bob.key
    alice = forged.user("Alice Lab")
    alice.pem.write_text(alice.pem.read_text() + lab.bob.certificate.read_text())
    return alice


@pytest.mark.parametrize("case", CERTIFICATES)
def test_a_certificate_that_is_not_believed_is_refused(lab, case):
    make, reason = CERTIFICATES[case]
    credential = make(lab)
    for url in (f"{lab.site.door}/alice/x", f"{lab.site.service}/whoami"):
        status, body = lab.says_once(reason, lambda: lab.curl(credential, url))
        assert status == 403 and reason in body, f"{url}: {status} {body}"


def test_a_shown_certificate_without_its_key_does_not_come_through(lab):
    """The handshake asks for a signature, so that others' certificates are of no use."""
    stolen = lab.ca.user("Thief")
    stolen.pem.write_text(lab.alice.certificate.read_text() + stolen.key.read_text())
    for port in (lab.site.door, lab.site.service):
        line = ["curl", "-sS", "--capath", str(lab.site.certificates), *stolen.curl, f"{port}/"]
        assert subprocess.run(line, capture_output=True, timeout=60).returncode != 0


ATTRIBUTES = {
    "a server that the site does not know": (
        lambda lab: lab.ca.voms_proxy(lab.bob, fqans=[MEMBER], server=lab.ca.host("voms.elsewhere.lab")),
        "does not list",
    ),
    "a user in a server's place": (
        lambda lab: lab.ca.voms_proxy(lab.bob, fqans=[MEMBER], server=lab.bob),
        "does not list",
    ),
    "a rogue server of the same name": (
        lambda lab: lab.ca.voms_proxy(lab.bob, fqans=[MEMBER], server=lab.rogue.voms_server),
        "certificate is not believed",
    ),
    "a role that was put in afterwards": (lambda lab: altered(lab, b"Role=NULL", b"Role=prod"), "signature"),
    "another group of the same length": (lambda lab: altered(lab, b"/dteam/Role", b"/admin/Role"), "signature"),
    "a group of another VO": (
        lambda lab: lab.ca.voms_proxy(lab.bob, fqans=[MEMBER, FOREIGN]),
        "is not a group of the VO",
    ),
    "somebody else's": (
        lambda lab: lab.ca.proxy_with_attributes(lab.bob, attributes_of(lab.member)),
        "made for another certificate",
    ),
    "yesterday's": (
        lambda lab: lab.ca.voms_proxy(lab.bob, fqans=[MEMBER], options=["-vomslife", "1", "-pastac", "2:00"]),
        "they expired at",
    ),
    "noise": (lambda lab: lab.ca.proxy_with_attributes(lab.bob, bytes(range(1, 200))), "attributes of a VO"),
    "nothing but depth": (lambda lab: lab.ca.proxy_with_attributes(lab.bob, nested(2000)), "attributes of a VO"),
}


def altered(lab, old, new):
    """A good attribute certificate of Bob's, in which something of the same length was replaced."""
    good = attributes_of(lab.ca.voms_proxy(lab.bob, fqans=[MEMBER]))
    assert old in good
    return lab.ca.proxy_with_attributes(lab.bob, good.replace(old, new))


def nested(depth):
    """DER sequences within sequences."""
    inner = b""
    for _ in range(depth):
        length = len(inner).to_bytes(3, "big")
        inner = b"\x30\x83" + length + inner
    return inner


@pytest.mark.parametrize("case", ATTRIBUTES)
def test_attributes_that_do_not_count_give_nothing(lab, case):
    make, reason = ATTRIBUTES[case]
    credential = make(lab)
    url = f"{lab.site.door}/{VO}/{uuid.uuid4()}"
    status, body = lab.says_once(reason, lambda: lab.curl(credential, url, "-X", "PUT", "-d", "x"))
    assert status == 403, f"{status} {body}"
    status, body = lab.says_once(reason, lambda: lab.curl(credential, f"{lab.site.service}/whoami"))
    told = json.loads(body)
    assert (status, told["voms_cred"]) == (200, [])
    assert told["vos"] == [private_vo(told["user_dn"])]


def test_a_limited_proxy_moves_data_and_what_is_below_it_stays_limited(lab):
    """Globus keeps limited proxies from starting jobs; transfers are data movement, which FTS does for them, too."""
    limited = lab.ca.proxy(lab.alice, limited=True)
    for credential in (limited, lab.ca.proxy(limited)):
        url = f"{lab.site.door}/alice/{uuid.uuid4()}"
        assert lab.curl(credential, url, "-X", "PUT", "-d", "limited")[0] == 201
        status, body = lab.curl(credential, f"{lab.site.service}/whoami")
        assert (status, json.loads(body)["user_dn"]) == (200, lab.alice.subject)
        line = [str(lab.site.binary), "--json", "authz", "test", "/alice/x", "--dir", str(lab.site.directory)]
        done = subprocess.run([*line, "--as", str(credential.pem)], capture_output=True, text=True, timeout=60)
        told = json.loads(done.stdout)
        assert told.get("report", told)["by"] == "a limited proxy", done.stdout
