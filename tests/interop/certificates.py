"""A certificate authority of users, as grids have them: user and host certificates, RFC 3820 proxies, VOMS
proxies, revocation. Everything is made by `openssl` and Debian's `voms-proxy-fake`, which signs attributes
without a VOMS server.
"""

import hashlib
import itertools
import os
import secrets
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

BASE = "/DC=lab/DC=interop"
VO = "dteam"
VOMS_HOST = "voms.interop.lab"
USER_EXTENSIONS = (
    "basicConstraints=critical,CA:FALSE\n"
    "keyUsage=critical,digitalSignature,keyEncipherment\n"
    "extendedKeyUsage=clientAuth\n"
)
HOST_EXTENSIONS = (
    "basicConstraints=critical,CA:FALSE\n"
    "keyUsage=critical,digitalSignature,keyEncipherment\n"
    "extendedKeyUsage=serverAuth,clientAuth\n"
    "subjectAltName=DNS:{host}\n"
)
LIMITED = "1.3.6.1.4.1.3536.1.1.1.9"
INHERIT_ALL = "id-ppl-inheritAll"
ATTRIBUTES = "1.3.6.1.4.1.8005.100.100.5"
NUMBERS = itertools.count(1_000_000)


@dataclass(frozen=True)
class Credential:
    """A certificate with its key: a user's, a host's or a proxy's. `pem` holds all that a client needs: the
    certificate, its key, and for proxies the chain up to the user's certificate."""

    subject: str
    certificate: Path
    key: Path
    pem: Path

    @property
    def curl(self):
        """Options that make curl show it."""
        return ["--cert", str(self.pem), "--key", str(self.pem)]

    @property
    def requests(self):
        """What `requests` wants as `cert`."""
        return str(self.pem)

    def pkcs12(self, path):
        """A file with certificate and key as clients with neon want it, without a password."""
        path.touch(mode=0o600)
        line = ["pkcs12", "-export", "-passout", "pass:", "-out", path]
        openssl(*line, "-in", self.certificate, "-inkey", self.key)
        return path


class UserCa:
    """An authority of users, and a VOMS server's certificate that it has signed."""

    def __init__(self, directory, name="Interop Lab CA"):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True)
        self.subject = f"{BASE}/CN={name}"
        self.certificate, self.key = self.directory / "ca.pem", self.directory / "ca.key"
        line = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-days", "30"]
        line += ["-keyout", self.key, "-out", self.certificate, "-subj", self.subject]
        line += ["-addext", "basicConstraints=critical,CA:TRUE"]
        openssl(*line, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self.revoked = []
        self.hashed = self.directory / "certificates"
        self.hashed.mkdir()
        self.install(self.hashed)
        self.voms_server = self.host(VOMS_HOST)

    @property
    def hash(self):
        return openssl("x509", "-in", self.certificate, "-noout", "-subject_hash").strip()

    def install(self, directory):
        """Adds the authority to a hashed directory, with a signing policy."""
        (directory / f"{self.hash}.0").write_bytes(self.certificate.read_bytes())
        (directory / f"{self.hash}.signing_policy").write_text(
            f"access_id_CA X509 '{self.subject}'\npos_rights globus CA:sign\n"
            f"cond_subjects globus '\"{BASE}/*\"'\n"
        )

    def trusted_by(self, site, vo=VO):
        """Makes a site believe this authority, and the VOMS server for a VO. A running site sees it within
        seconds."""
        self.install(site.certificates)
        self.write_lsc(site.directory / "vomsdir", vo)
        return self

    def write_lsc(self, vomsdir, vo=VO, host=VOMS_HOST, names=None):
        """The list of certificates that stands for a VOMS server: its subject, then its authority's."""
        directory = Path(vomsdir) / vo
        directory.mkdir(parents=True, exist_ok=True)
        names = names or [self.voms_server.subject, self.subject]
        (directory / f"{host}.lsc").write_text("".join(f"{name}\n" for name in names))

    def user(self, name="Alice Lab", **options):
        """A user's certificate: `/DC=lab/DC=interop/OU=Users/CN=<name>`."""
        return self.issue(f"{BASE}/OU=Users/CN={name}", USER_EXTENSIONS, **options)

    def host(self, host):
        """A host's certificate."""
        return self.issue(f"{BASE}/OU=Hosts/CN={host}", HOST_EXTENSIONS.format(host=host))

    def issue(self, subject, extensions, days=20):
        """Any certificate. Its serial number is random."""
        at = self.new_directory()
        certificate, key, pem = at / "cert.pem", at / "key.pem", at / "both.pem"
        openssl(*NEW_KEY, "-keyout", key, "-out", at / "request", "-subj", subject)
        (at / "extensions").write_text(extensions)
        serial = f"0x7{secrets.token_hex(7)}"
        line = ["x509", "-req", "-in", at / "request", "-CA", self.certificate, "-CAkey", self.key]
        line += ["-set_serial", serial, "-sha256", "-extfile", at / "extensions", "-out", certificate]
        openssl(*line, "-days", str(days))
        write_private(pem, certificate.read_text() + key.read_text())
        os.chmod(key, 0o600)
        return Credential(subject, certificate, key, pem)

    def proxy(self, signer, limited=False, path_length=None, hours=12):
        """An RFC 3820 proxy of a user, or of another proxy. One that is over when `hours` is negative."""
        at = self.new_directory()
        certificate, key, pem = at / "cert.pem", at / "key.pem", at / "proxy.pem"
        number = next(NUMBERS)
        subject = f"{signer.subject}/CN={number}"
        openssl(*NEW_KEY, "-keyout", key, "-out", at / "request", "-subj", subject)
        length = "" if path_length is None else f",pathlen:{path_length}"
        (at / "extensions").write_text(
            "keyUsage=critical,digitalSignature,keyEncipherment\n"
            f"proxyCertInfo=critical,language:{LIMITED if limited else INHERIT_ALL}{length}\n"
        )
        now = time.time()
        line = ["ca", "-config", self.ca_config(at), "-batch", "-notext", "-preserveDN", "-md", "sha256"]
        line += ["-in", at / "request", "-out", certificate, "-subj", subject]
        line += ["-cert", signer.certificate, "-keyfile", signer.key, "-extfile", at / "extensions"]
        line += ["-startdate", utc(now - 25 * 3600), "-enddate", utc(now + hours * 3600)]
        openssl(*line)
        above = "".join(blocks(signer.pem.read_text(), "CERTIFICATE"))
        write_private(pem, certificate.read_text() + key.read_text() + above)
        return Credential(subject, certificate, key, pem)

    def voms_proxy(self, user, vo=VO, fqans=None, server=None, hours=12, options=()):
        """A proxy with attributes of a VO, signed by this authority's VOMS server or another certificate."""
        at = self.new_directory()
        pem = at / "proxy.pem"
        server = server or self.voms_server
        fqans = fqans if fqans is not None else [f"/{vo}/Role=NULL/Capability=NULL"]
        line = ["voms-proxy-fake", "-rfc", "-q", "-bits", "2048", "-hours", str(hours), "-voms", vo]
        line += ["-cert", user.certificate, "-key", user.key, "-certdir", self.hashed]
        line += ["-path-length", "9"]
        line += ["-hostcert", server.certificate, "-hostkey", server.key, "-uri", f"{VOMS_HOST}:15000"]
        line += [word for fqan in fqans for word in ("-fqan", fqan)]
        env = {**os.environ, "X509_CERT_DIR": str(self.hashed)}
        run(*line, *options, "-out", pem, env=env)
        certificate, key = at / "cert.pem", at / "key.pem"
        text = pem.read_text()
        certificate.write_text(blocks(text, "CERTIFICATE")[0])
        write_private(key, "".join(blocks(text, "PRIVATE KEY") + blocks(text, "RSA PRIVATE KEY")))
        return Credential(slash_subject(certificate), certificate, key, pem)

    def proxy_with_attributes(self, signer, attributes):
        """A proxy that carries VOMS attributes as bytes, whoever they were made for."""
        at = self.new_directory()
        certificate, key, pem = at / "cert.pem", at / "key.pem", at / "proxy.pem"
        number = next(NUMBERS)
        subject = f"{signer.subject}/CN={number}"
        openssl(*NEW_KEY, "-keyout", key, "-out", at / "request", "-subj", subject)
        (at / "extensions").write_text(
            "keyUsage=critical,digitalSignature,keyEncipherment\n"
            f"proxyCertInfo=critical,language:{INHERIT_ALL}\n"
            f"{ATTRIBUTES}=DER:{attributes.hex()}\n"
        )
        line = ["x509", "-req", "-in", at / "request", "-CA", signer.certificate, "-CAkey", signer.key]
        line += ["-set_serial", str(number), "-days", "1", "-extfile", at / "extensions", "-out", certificate]
        openssl(*line)
        above = "".join(blocks(signer.pem.read_text(), "CERTIFICATE"))
        write_private(pem, certificate.read_text() + key.read_text() + above)
        return Credential(subject, certificate, key, pem)

    def revoke(self, *credentials):
        """A revocation list in PEM that names these certificates and all that were revoked before."""
        at = self.new_directory()
        self.revoked += [credential.certificate for credential in credentials]
        config = self.ca_config(at)
        by_us = ["-cert", self.certificate, "-keyfile", self.key]
        for certificate in self.revoked:
            openssl("ca", "-config", config, *by_us, "-revoke", certificate)
        openssl("ca", "-config", config, *by_us, "-gencrl", "-crldays", "10", "-out", at / "crl.pem")
        return (at / "crl.pem").read_text()

    def ca_config(self, at):
        """What `openssl ca` needs, in a directory of its own, so that nothing remembers anything."""
        (at / "index.txt").touch()
        (at / "index.txt.attr").write_text("unique_subject = no\n")
        (at / "crlnumber").write_text("01\n")
        (at / "serial").write_text(f"{next(NUMBERS):08X}\n")
        config = at / "ca.cnf"
        config.write_text(
            "[ca]\ndefault_ca=own\n[own]\npolicy=any\ndefault_md=sha256\n"
            f"database={at}/index.txt\nserial={at}/serial\ncrlnumber={at}/crlnumber\nnew_certs_dir={at}\n"
            "[any]\ndomainComponent=optional\norganizationalUnitName=optional\ncommonName=optional\n"
        )
        return config

    def new_directory(self):
        directory = self.directory / str(next(NUMBERS))
        directory.mkdir()
        return directory


NEW_KEY = ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-sha256"]


def openssl(*words):
    return run("openssl", *words)


def run(*words, env=None):
    line = [str(word) for word in words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, f"{' '.join(line)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def attributes_of(proxy):
    """The VOMS attributes that a proxy carries, as bytes."""
    shown = openssl("asn1parse", "-in", proxy.certificate).splitlines()
    [at] = [number for number, line in enumerate(shown) if ATTRIBUTES in line]
    return bytes.fromhex(shown[at + 1].rpartition(":")[2])


def slash_subject(certificate):
    shown = openssl("x509", "-in", certificate, "-noout", "-subject", "-nameopt", "compat")
    return shown.strip().removeprefix("subject=").strip()


def identity_digest(*parts):
    """Names who shows a certificate, by its subject and attributes: SHA-256, each part behind its length."""
    parts = [part.encode() for part in parts]
    sized = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hashlib.sha256(b"certificate subject\0" + sized).hexdigest()


def private_vo(subject):
    """The VO of who belongs to none, in this domain."""
    name = subject.rpartition("/CN=")[2]
    return f"{name}@interop.lab~{identity_digest(subject)[:20]}"


def blocks(text, kind):
    """The PEM blocks of one kind."""
    begin, end = f"-----BEGIN {kind}-----\n", f"-----END {kind}-----\n"
    return [begin + part.split(end)[0] + end for part in text.split(begin)[1:]]


def utc(seconds):
    return time.strftime("%y%m%d%H%M%SZ", time.gmtime(seconds))


def write_private(path, text):
    path.touch(mode=0o600)
    path.write_text(text)
