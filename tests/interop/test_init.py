"""A site with a certificate authority that exists already: `penstock init --ca`. Whatever would make a site that its own
clients refuse is refused in one sentence, and nothing is made."""

import json
import os
import stat
import subprocess

import pytest

from .clients import Door
from .site import AUTHORITIES, Site, free_ports

HOST = "127.0.3.63"


@pytest.fixture
def ca(tmp_path):
    directory = tmp_path / "authority"
    directory.mkdir()
    return directory


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


def make_ca(directory, *key, constraints="critical,CA:TRUE", more=()):
    """An authority with a key as `openssl genpkey` makes it."""
    openssl("genpkey", *key, "-out", directory / "ca.key")
    (directory / "ca.key").chmod(0o600)
    words = [word for extension in (f"basicConstraints={constraints}", *more) for word in ("-addext", extension)]
    line = ["req", "-x509", "-new", "-key", directory / "ca.key", "-out", directory / "ca.pem"]
    # Without the defaults of the machine's configuration, which is one of an authority.
    openssl(*line, "-config", os.devnull, "-subj", "/O=lab/CN=lab CA", "-days", "30", *words)


def init(binary, tmp_path, ca, *hosts):
    """Exit code and what was printed as JSON; where nothing was made, that nothing is there."""
    site = tmp_path / "site"
    names = [word for host in hosts or (HOST,) for word in ("--host", host)]
    line = [str(binary), "init", "--dir", str(site), "--ca", str(ca), "--ports", str(free_ports(HOST)), *names, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.stdout, done.stderr
    assert done.returncode == 0 or not site.exists()
    return done.returncode, json.loads(done.stdout)


EC = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def test_an_authority_that_cannot_vouch_for_the_site_is_refused(binary, tmp_path, ca):
    def check(expected, *hosts):
        code, told = init(binary, tmp_path, ca, *hosts)
        assert code == 2 and told["error"].startswith(f"cannot use the CA in {ca}: ") and expected in told["error"], told

    check("ca.pem cannot be read")
    make_ca(ca, *EC, constraints="critical,CA:FALSE")
    check("CA:TRUE")
    make_ca(ca, "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024")
    check("1024 bits")
    make_ca(ca, *EC, more=["nameConstraints=critical,permitted;IP:192.0.2.0/255.255.255.0"])
    check(f"'{HOST}': the name constraints of the authority do not allow it")
    make_ca(ca, *EC)
    (ca / "ca.key").rename(ca / "plain.key")
    openssl("pkey", "-in", ca / "plain.key", "-aes256", "-passout", "pass:secret", "-out", ca / "ca.key")
    check("ca.key is encrypted")
    (ca / "ca.key").unlink()
    os.mkfifo(ca / "ca.key")
    check("not a regular file")


def check(binary, site):
    return subprocess.run([str(binary), "check", "--dir", str(site)], capture_output=True, text=True, timeout=60)


def test_a_key_that_others_can_read_is_told(binary, tmp_path, ca):
    make_ca(ca, *EC)
    (ca / "ca.key").chmod(0o644)
    code, told = init(binary, tmp_path, ca)
    assert code == 0 and len(told["warnings"]) == 1, told
    assert f"{ca}/ca.key can be read by others (mode 644)" in told["warnings"][0]
    site = tmp_path / "site"
    assert stat.S_IMODE((site / "ca/ca.key").stat().st_mode) == 0o600
    assert "refuse it" not in check(binary, site).stdout
    # Clients that do not know the authority are the site's own as well.
    for file in (site / "certificates").iterdir():
        file.rename(tmp_path / file.name)
    refused = check(binary, site).stdout
    assert f"refuse it for the host '{HOST}': unable to get local issuer certificate" in refused, refused


def test_an_authority_with_an_ed25519_key_makes_a_site_that_its_clients_believe(binary, tmp_path):
    kept = AUTHORITIES.of(binary, "modern")
    kept.mkdir(parents=True)
    make_ca(kept, "-algorithm", "ED25519")
    site = Site(binary, tmp_path / "site", "modern", HOST)
    try:
        site.start()
        Door(site).put("/f", b"bytes")
        assert site.command("ls", f"{site.door}/") == "f\n"
    finally:
        site.kill()
