"""The field: Penstock sites and a real XRootD that trust each other, a user with a certificate, a proxy and
tokens, and the environment in which the field's clients find them.
"""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .certificates import Credential, UserCa
from .clients import Door, Endpoint, Service
from .site import Site
from .xrootd import Xrootd

HOSTS = ["127.0.0.6", "127.0.0.7"]
SECLUDED_HOST = "127.0.0.10"
XROOTD_HOSTS = ["127.0.0.8", "127.0.0.9"]
CLIENT_SECONDS = 120


@dataclass(frozen=True)
class Issuer:
    """A token issuer and its public keys, for whoever cannot fetch them."""

    url: str
    keys: dict


@dataclass
class Field:
    """Everything that a test of clients needs. The user may do all, everywhere. The site `secluded` fetches from
    nowhere, `without_copies` is an XRootD that knows no third-party copy."""

    here: Site
    there: Site
    secluded: Site
    user: Credential
    proxy: Credential
    home: Path
    xrootd: Xrootd = None
    without_copies: Xrootd = None
    token: str = None
    doors: dict = field(default_factory=dict)

    @property
    def certificates(self):
        return self.here.certificates

    @property
    def sites(self):
        return [self.here, self.there, self.secluded]

    @property
    def servers(self):
        return [server for server in (self.xrootd, self.without_copies) if server]

    @property
    def service(self):
        return Service(self.here, self.token)

    def door(self, server):
        """The files of a site or of XRootD, with the token."""
        if server not in self.doors:
            self.doors[server] = FieldDoor(server, self.certificates, self.token)
        return self.doors[server]

    def environment(self, credential):
        """Where clients look for trust and for a credential: `token`, `proxy`, `certificate`, or a token itself."""
        found = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "X509_CERT_DIR": str(self.certificates),
            # gfal2's commands look for a Python that has its module: Debian's.
            "GFAL_PYTHONBIN": "/usr/bin/python3",
        }
        if credential == "proxy":
            found["X509_USER_PROXY"] = str(self.proxy.pem)
        elif credential == "certificate":
            found |= {"X509_USER_CERT": str(self.user.certificate), "X509_USER_KEY": str(self.user.key)}
        else:
            found["BEARER_TOKEN"] = self.token if credential == "token" else credential
        return found

    def run(self, credential, *line, check=True, text=True, timeout=CLIENT_SECONDS, **options):
        """Runs a client with a credential. What it printed, when it succeeded; else, unchecked, how it ended."""
        line = [str(word) for word in line]
        done = subprocess.run(
            line, env=self.environment(credential), capture_output=True, text=text, timeout=timeout, **options
        )
        if not check:
            return done
        assert done.returncode == 0, f"{line} ({credential[:12]}): exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def macaroon(self, server, path, *activities, validity="PT2H"):
        """What a server gives to the user's proxy for a path."""
        session = Endpoint(server.door, self.certificates)
        answer = session.ask(
            "POST",
            path,
            cert=str(self.proxy.pem),
            headers={"Content-Type": "application/macaroon-request"},
            data=json.dumps({"caveats": [f"activity:{','.join(activities)}"], "validity": validity}),
        )
        assert answer.status_code == 200, f"POST {path}: {answer.status_code} {answer.text}"
        return answer.json()["macaroon"]

    def close(self):
        for server in self.servers:
            server.close()
        for site in self.sites:
            site.kill()


class FieldDoor(Door):
    """The door of any storage element that takes our token."""

    def __init__(self, server, certificates, token):
        Endpoint.__init__(self, server.door, certificates, token)


def make_field(binary, directory, ca):
    """Serves all of it."""
    users = UserCa(directory / "users")
    user = users.user()
    here = Site(binary, directory / "here", "here", HOSTS[0])
    there = Site(binary, directory / "there", "there", HOSTS[1], peers=[here])
    secluded = Site(binary, directory / "secluded", "secluded", SECLUDED_HOST, peers=[here])
    secluded.configure("[storage.outbound]", allow=[SECLUDED_HOST])
    home = directory / "home"
    home.mkdir()
    made = Field(here, there, secluded, user, users.proxy(user), home)
    try:
        for site in made.sites:
            users.install(site.certificates)
            site.trust(ca.certificate)
            if site is not secluded:
                site.allow(*XROOTD_HOSTS)
            site.configure("[transfer]", retry_delay="1s", retries=1)
            site.configure("[storage]", plain_listen=f"{site.host}:{site.base + 1}")
            grant(site, user.subject)
            site.start()
        made.token = here.token()
        issuer = issuer_of(here)
        for host, copies in zip(XROOTD_HOSTS, (True, False), strict=True):
            server = Xrootd(host, ca, here.certificates, [user.subject], issuer, copies)
            if copies:
                made.xrootd = server
            else:
                made.without_copies = server
            server.start()
    except BaseException:
        made.close()
        raise
    return made


def grant(site, subject, path="/", rights=("read", "modify")):
    """A rule for a user with a certificate."""
    rule = f'\n[[storage.user]]\ndn = "{subject}"\npath = "{path}"\nrights = {json.dumps(list(rights))}\n'
    with open(site.directory / "penstock.toml", "a") as config:
        config.write(rule)


def issuer_of(site):
    door = Endpoint(site.door, site.certificates)
    described = door.ask("GET", "/.well-known/openid-configuration").json()
    keys = door.ask("GET", described["jwks_uri"].removeprefix(site.door))
    return Issuer(described["issuer"], keys.json())
