"""Who may do what: every caller that a site may meet × every request that its two ports take, as reviewed tables say
(`golden/access-*.txt`). All objects are Alice's, or of the site; what a refused request was about is as it was before, and a
refusal does not tell whether it exists.

The rows of the transfer service are its OpenAPI documents, those of the door its document and the methods that it names: a
route without a row fails.
"""

import base64
import hashlib
import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from .access_table import AccessTable
from .certificates import UserCa
from .clients import Endpoint
from .openapi import interface
from .site import Site
from .test_files_on_tape import with_tape
from .token_issuer import ANY, TokenIssuer, plain

HOST, REMOTE_HOST, ISSUER_HOST, NOWHERE = "127.0.3.61", "127.0.3.62", "127.0.3.63", "https://127.0.3.64:9"
ALICE, BOB, MALLORY = "alice", "bob", "mallory"
HOME, COLLEAGUE = "/team/alice", "/team/bob"
TOOLS = Path(sys.executable).parent
# What only those may be told who may see what they stand in.
CONTENT, JOB, SETTING = "content-of-alice", "job-of-alice", "setting-of-the-administrator"
PRIVATE = [CONTENT, JOB, SETTING, "inner-of-alice"]
EVERYTHING = "storage.read:/ storage.modify:/"
OF_ALICE = f"storage.read:{HOME} storage.modify:{HOME} storage.stage:{HOME}"
TAPE = "/.penstock/tape/v1"
MISSING_JOB = "00000000-0000-0000-0000-000000000000"
RULES = """
[[storage.user]]
dn = "{alice}"
path = "/team/alice"
rights = ["read", "modify"]

[[storage.user]]
dn = "{bob}"
path = "/team/bob"
rights = ["read", "modify"]

[[storage.user]]
dn = "{mallory}"
path = "/team/alice"
rights = ["read", "modify"]

[[storage.group]]
group = "/dteam"
path = "/dteam"
rights = ["read", "modify"]

[[trust.member]]
dn = "{alice}"
vo = "team"

[[trust.issuer]]
issuer = "{issuer}"
prefix = "/other"
vo = "other"
"""
# Of one run, or in the background: nothing of these is what somebody did.
BACKGROUND = {
    "meta", "mover_record", "trash", "counter", "ledger", "link_sample", "minute_sample", "pool_minute", "link_event", "tuning",
    "history", "sink_position", "sqlite_sequence",
}


@dataclass
class Request:
    method: str
    path: str
    headers: dict = field(default_factory=dict)
    body: object = None


class Lab:
    """A site with an object of every kind of Alice's, another site, and whoever may come."""

    def __init__(self, binary, directory, fault_ca, user_ca):
        self.site = Site(binary, directory / "team", "team", HOST)
        self.remote = Site(binary, directory / "remote", "remote", REMOTE_HOST, peers=[self.site])
        self.databases = []
        self.issuer = TokenIssuer(ISSUER_HOST, fault_ca)
        self.unknown = TokenIssuer(ISSUER_HOST, fault_ca)
        self.revoking, self.rogue = UserCa(directory / "revoking", "Revoking CA"), UserCa(directory / "rogue")
        self.alice, self.bob, self.mallory = (user_ca.user(f"{name} Lab") for name in ("Alice", "Bob", "Mallory"))
        self.user_ca = user_ca
        self.configure(fault_ca)
        for site in (self.site, self.remote):
            site.start()
        self.callers = {"door": self.at_the_door(), "service": self.at_the_service()}
        self.root = self.bearer(self.site.door, self.site.token(EVERYTHING, audience=self.site.door, subject="root"))
        self.remote_root = Endpoint(
            self.remote.door, self.site.certificates, self.site.token(EVERYTHING, audience=self.remote.door, subject="root")
        )
        self.owner = self.callers["door"]["owner"]
        self.administrator = self.callers["service"]["admin"]
        self.stand, self.locks = {}, []
        paths = [path for site in (self.site, self.remote) for path in sorted((site.directory / "state").glob("*.sqlite"))]
        self.databases = [sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) for path in paths]
        self.seen = None, None
        self.restore_door()
        self.restore_service()

    def configure(self, fault_ca):
        site = self.site
        for one in (site, self.remote):
            self.user_ca.trusted_by(one)
            one.trust(fault_ca.certificate)
        self.revoking.install(site.certificates)
        self.revoked = self.revoking.user("Alice Lab")
        (site.certificates / f"{self.revoking.hash}.r0").write_text(self.revoking.revoke(self.revoked))
        subjects = {name: getattr(self, name).subject for name in ("alice", "bob", "mallory")}
        site.append(RULES.format(**subjects, issuer=self.issuer.url))
        with_tape(site)
        site.configure("[trust]", banned=[MALLORY, self.mallory.subject])
        site.configure("[storage]", anonymous_read=["/public"])
        # Callers of this machine are strangers, too.
        site.configure("[observe]", monitor_addresses=[])
        site.allow(REMOTE_HOST)
        self.remote.allow(HOST)

    def close(self):
        for site in (self.site, self.remote):
            site.kill()
        for database in self.databases:
            database.close()
        self.issuer.close()
        self.unknown.close()

    # Who comes.

    def bearer(self, base, token):
        return Endpoint(base, self.site.certificates, token)

    def certificate(self, base, credential):
        endpoint = Endpoint(base, self.site.certificates)
        endpoint.session.cert = credential if isinstance(credential, tuple) else credential.requests
        return endpoint

    def strangers(self, base):
        """Whoever comes to either port and is nobody there, or has no business with Alice's."""
        token, issuer = self.site.token, self.issuer
        bearers = {
            "garbage": "not.a.token",
            "expired": issuer.token(audience=base, life=-120),
            "untrusted-issuer": self.unknown.token(audience=base),
            "wrong-audience": token(OF_ALICE, audience="https://elsewhere.example.org", subject=ALICE),
            "banned": token(OF_ALICE, audience=base, subject=MALLORY),
            "other-vo": issuer.token(EVERYTHING, audience=base),
            "colleague": token(f"storage.read:{COLLEAGUE} storage.modify:{COLLEAGUE}", audience=base, subject=BOB),
            # Administers, and is good for whoever is shown it: so it must count nowhere.
            "admin-anywhere": signed_again(self.site, token("penstock.admin", audience=base, subject="root"), aud=ANY),
            "admin": token("penstock.admin", audience=base, subject="root"),
            "monitor": token("penstock.monitor", audience=base, subject="prometheus"),
        }
        certificates = {
            "cert-rogue": self.rogue.user("Alice Lab"),
            "cert-revoked": self.revoked,
            "cert-banned": self.mallory,
            "cert-other-vo": self.user_ca.voms_proxy(self.user_ca.user("Carol Lab")),
            "cert-colleague": self.bob,
            "cert-peer": tuple(str(self.remote.directory / "host" / name) for name in ("cert.pem", "key.pem")),
        }
        found = {"anonymous": Endpoint(base, self.site.certificates)}
        found |= {name: self.bearer(base, text) for name, text in bearers.items()}
        return found | {name: self.certificate(base, one) for name, one in certificates.items()}

    def at_the_door(self):
        base, token = self.site.door, self.site.token
        owner = self.bearer(base, token(OF_ALICE, audience=base, subject=ALICE))
        own = {
            "reader": token(f"storage.read:{HOME}", audience=base, subject=BOB),
            "creator": token(f"storage.create:{HOME}", audience=base, subject=BOB),
            "link": macaroon(owner, f"{HOME}/file", "DOWNLOAD,LIST"),
            "drop-box": macaroon(owner, HOME, "UPLOAD,LIST"),
        }
        found = self.strangers(base) | {name: self.bearer(base, text) for name, text in own.items()}
        return found | {"owner": owner, "cert-owner": self.certificate(base, self.alice)}

    def at_the_service(self):
        base, owner = self.site.service, self.callers_door_owner()
        own = {
            "macaroon": macaroon(owner, HOME, "DOWNLOAD,LIST"),
            "owner": self.site.token(OF_ALICE, audience=base, subject=ALICE),
        }
        found = self.strangers(base) | {name: self.bearer(base, text) for name, text in own.items()}
        return found | {"cert-owner": self.certificate(base, self.alice)}

    def callers_door_owner(self):
        return self.bearer(self.site.door, self.site.token(OF_ALICE, audience=self.site.door, subject=ALICE))

    def owner_vo(self):
        if "vo" not in self.stand:
            self.stand["vo"] = self.administrator.ask("GET", f"/jobs/{self.stand['job']}").json()["vo_name"]
        return self.stand["vo"]

    # What there is.

    def restore_door(self):
        """What stands at the door before each request, after one that changed something."""
        while self.locks:
            caller, path, token = self.locks.pop()
            caller.ask("UNLOCK", path, headers={"Lock-Token": token})
        if "upload" in self.stand:
            self.owner.ask("DELETE", self.stand["upload"])
        for path in ("/team", "/other", "/dteam", "/public", "/mine"):
            assert self.root.ask("DELETE", path).status_code in (204, 404), path
        files = {f"{HOME}/file": CONTENT, f"{HOME}/dir/inner-of-alice": CONTENT, f"{HOME}/locked": CONTENT}
        files |= {f"{COLLEAGUE}/own": "of bob", "/other/own": "of carol", "/dteam/own": "of dteam", "/public/file": "public"}
        for path, text in files.items():
            assert self.root.ask("PUT", path, data=text).status_code == 201, path
        locked = self.owner.ask("LOCK", f"{HOME}/locked", data=LOCK, headers={"Timeout": "Second-3000"})
        assert locked.status_code == 200, locked.text
        self.locks.append((self.owner, f"{HOME}/locked", locked.headers["Lock-Token"]))
        self.stand["lock"] = locked.headers["Lock-Token"].strip("<>")
        begun = self.owner.ask("PUT", f"{HOME}/upload", headers={"Upload-Complete": "?0"}, data=b"begun")
        assert begun.status_code == 201, begun.text
        self.stand["upload"] = begun.headers["Location"].removeprefix(self.site.door)
        if "stage" in self.stand:
            self.owner.ask("DELETE", self.stand["stage"])
        wanted = {"files": [{"path": f"{HOME}/file", "diskLifetime": "PT1H"}]}
        staged = self.owner.ask("POST", f"{TAPE}/stage", json=wanted)
        assert staged.status_code == 201, staged.text
        self.stand["stage"] = staged.headers["Location"]
        self.remote_root.ask("DELETE", "/remote")
        assert self.remote_root.ask("PUT", "/remote/file", data="of remote").status_code == 201

    def restore_service(self):
        """What the service holds before each request, after one that changed something."""
        asked = self.administrator.ask
        for method, path, body in RESTORED:
            answer = asked(method, path, json=body)
            assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        for method, path, *body in LIFTED:
            asked(method, path, json=body[0] if body else None)
        owner = self.callers["service"]["owner"]
        if "job" in self.stand:
            owner.ask("DELETE", f"/jobs/{self.stand['job']}")
        answer = owner.ask("POST", "/jobs", json=SUBMISSION)
        assert answer.status_code == 200, answer.text
        self.stand["job"] = answer.json()["job_id"]
        [file] = owner.ask("GET", f"/jobs/{self.stand['job']}/files").json()
        self.stand["file"] = file["file_id"]
        alice = self.callers["service"]["cert-owner"]
        self.stand["delegation"] = alice.ask("GET", "/whoami").json()["delegation_id"]
        if alice.ask("GET", f"/delegation/{self.stand['delegation']}").json() is None:
            self.delegate()
        # A request for a proxy is made once, and stays until it is answered.
        assert alice.ask("GET", f"/delegation/{self.stand['delegation']}/request").status_code == 200

    def delegate(self):
        """By the fts3 client, with Alice's certificate."""
        environment = {"PATH": "/usr/bin:/bin", "X509_CERT_DIR": str(self.site.certificates)}
        environment |= {"X509_USER_CERT": str(self.alice.certificate), "X509_USER_KEY": str(self.alice.key)}
        line = [str(TOOLS / "fts-rest-delegate"), "-s", self.site.service]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def state(self):
        """Everything that a request may change, as one digest."""
        pieces = [f"{path.name} {path.stat().st_size}" for site in (self.site, self.remote) for path in partial(site)]
        # A number that changes with each commit of somebody else: without one, nothing is read.
        versions = [database.execute("PRAGMA data_version").fetchone() for database in self.databases]
        if self.seen[0] != versions:
            found = hashlib.sha256()
            for database in self.databases:
                found.update(rows_of(database))
            self.seen = versions, found.hexdigest()
        return self.seen[1], pieces


def partial(site):
    return sorted(site.directory.glob("pools/*/partial/*"))


def rows_of(database):
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    kept = [name for name in names if name not in BACKGROUND]
    return repr([database.execute(f'SELECT * FROM "{name}"').fetchall() for name in kept]).encode()


def signed_again(site, token, **changed):
    """A token of the site's own issuer with other claims, signed with its key."""
    head, claims, _ = (json.loads(decoded(part)) if at < 2 else None for at, part in enumerate(token.split(".")))
    signed = ".".join(plain(json.dumps(part).encode()) for part in (head, claims | changed))
    key = load_pem_private_key((site.directory / "keys/token-signing.pem").read_bytes(), None)
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
    return f"{signed}.{plain(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def macaroon(endpoint, path, activities):
    asked = {"caveats": [f"activity:{activities}"], "validity": "PT2H"}
    answer = endpoint.ask("POST", path, json=asked, headers={"Content-Type": "application/macaroon-request"})
    assert answer.status_code == 200, answer.text
    return answer.json()["macaroon"]


LOCK = (
    '<?xml version="1.0"?><D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope>'
    "<D:locktype><D:write/></D:locktype></D:lockinfo>"
)
PROPERTY = (
    '<?xml version="1.0"?><D:propertyupdate xmlns:D="DAV:" xmlns:x="urn:x"><D:set><D:prop><x:a>b</x:a></D:prop></D:set>'
    "</D:propertyupdate>"
)
SUBMISSION = {
    "files": [{"sources": [f"{NOWHERE}/{JOB}"], "destinations": [f"https://{REMOTE_HOST}:8443/{JOB}"]}],
    "params": {"job_metadata": {"note": JOB}},
}
CLOUD = "S3:CLOUD.EXAMPLE.ORG"
PATTERN = {"source": NOWHERE.rpartition(":")[0], "destination": f"https://{REMOTE_HOST}"}
LINK = {"symbolicname": SETTING, **PATTERN, "min_active": 1, "max_active": 2}
STORAGE = {"https://se.example.org": {"se_info": {"inbound_max_active": 5, "site": SETTING}}}
SHARE = {"source": "https://se.example.org", "destination": "*", "vo": SETTING, "share": 3}
ACTIVITIES = {"vo": SETTING, "active": True, "share": [{"default": 1}]}
GRANT = {"dn": f"/CN={SETTING}", "operation": "config"}
MUTE = {"vo": SETTING, "seconds": 3600, "why": "a test"}
KEYS = {"vo_name": SETTING, "access_key": "AKIAMATRIX", "secret_key": "not-told"}
# Requests of an administrator that give what there is; each may be repeated.
RESTORED = [
    # Nothing starts, so that a job stays as it is.
    ("POST", "/config/drain", {"hostname": HOST, "drain": True}),
    ("POST", "/config/global", {"vo_name": "other-matrix", "retry": 2}),
    ("POST", "/ban/se", {"storage": "https://standing.example.org"}),
    ("POST", "/ban/dn", {"user_dn": "/CN=Standing"}),
    ("POST", "/config/links", LINK),
    ("POST", "/config/se", STORAGE),
    ("POST", "/config/authorize", GRANT),
    ("POST", "/config/shares", SHARE),
    ("POST", "/config/activity_shares", ACTIVITIES),
    ("POST", "/config/cloud_storage", {"storage_name": CLOUD}),
    ("POST", f"/config/cloud_storage/{CLOUD}", KEYS),
    ("POST", "/api/v1/mutes", MUTE),
]
# Takes back what single rows do.
LIFTED = [
    ("DELETE", "/ban/se?storage=https://banned.example.org"),
    ("DELETE", "/ban/dn?user_dn=/CN=Banned"),
    ("DELETE", "/config/global?vo_name=matrix"),
    ("DELETE", f"/config/authorize?dn=/CN={SETTING}&operation=transfer"),
]
# What others submit: nothing of Alice's.
OTHERS = json.loads(json.dumps(SUBMISSION).replace(JOB, "job-of-others"))
# What the writing requests of the documents are sent. `{…}` of a path are what the lab has.
BODIES = {
    "POST /jobs": OTHERS,
    "PUT /jobs": OTHERS,
    "POST /jobs/{ids}": {"params": {"priority": 5}},
    "DELETE /jobs/{ids}": None,
    "DELETE /jobs/{id}/files/{files}": None,
    "DELETE /jobs/all": None,
    "DELETE /jobs/vo/{vo}": None,
    "POST /ban/se": {"storage": "https://banned.example.org"},
    "DELETE /ban/se": None,
    "POST /ban/dn": {"user_dn": "/CN=Banned"},
    "DELETE /ban/dn": None,
    "DELETE /delegation/{id}": None,
    "PUT /delegation/{id}/credential": "no proxy",
    "POST /delegation/{id}/credential": "no proxy",
    "POST /delegation/{id}/voms": ["dteam"],
    "POST /config/links": LINK | {"max_active": 3},
    "DELETE /config/links/{name}": None,
    "POST /config/se": {"https://se.example.org": {"se_info": {"inbound_max_active": 6}}},
    "DELETE /config/se": None,
    "POST /config/authorize": GRANT | {"operation": "transfer"},
    "DELETE /config/authorize": None,
    "POST /config/global": {"vo_name": "matrix", "retry": 2},
    "DELETE /config/global": None,
    "POST /config/shares": SHARE | {"share": 4},
    "DELETE /config/shares": None,
    "POST /config/activity_shares": ACTIVITIES | {"share": [{"default": 2}]},
    "DELETE /config/activity_shares/{vo}": None,
    "POST /config/cloud_storage": {"storage_name": CLOUD, "region": "eu-west-3"},
    "POST /config/cloud_storage/{name}": KEYS | {"access_key": "AKIAOTHER"},
    "DELETE /config/cloud_storage/{name}": None,
    "DELETE /config/cloud_storage/{name}/{holder}": None,
    "POST /config/drain": {"hostname": HOST, "drain": False},
    "POST /api/v1/mutes": MUTE | {"why": "another test"},
    "DELETE /api/v1/mutes": None,
    "POST /api/v1/access-links": {"kind": "login"},
    "POST /api/v1/access-links/redeem": {"secret": "L" + "A" * 22},
    "DELETE /api/v1/access-links/{id}": None,
    "POST /admin/force-start": [1],
    "POST /optimizer/current": {"active": 5},
}
QUERIES = {
    "DELETE /ban/se": "storage=https://standing.example.org",
    "DELETE /ban/dn": "user_dn=/CN=Standing",
    "DELETE /config/se": "se=https://se.example.org",
    "DELETE /config/authorize": f"dn=/CN={SETTING}&operation=config",
    "DELETE /config/global": "vo_name=other-matrix",
    "DELETE /config/shares": f"source=https://se.example.org&destination=*&vo={SETTING}",
    "DELETE /api/v1/mutes": f"scope=vo&name={SETTING}",
    "GET /jobs": "state_in=SUBMITTED,ACTIVE",
    "GET /autocomplete/{kind}": "term=",
    "GET /api/v1/transfers": f"search={JOB}",
    "GET /live/api/report": "window=3600",
}
NAMES = {
    "{vo}": SETTING,
    "{name}": SETTING,
    "{holder}": SETTING,
    "{kind}": "source",
    "{what}": "vos",
    "{field}": "job_metadata",
}


def service_rows():
    """Each operation of the documents that speak of the service's port: with Alice's, and with what is not there."""
    for known in (interface("fts"), interface("penstock")):
        for template, method, _ in known.operations():
            row = f"{method.upper()} {template}"
            yield row, (template, method.upper())
            if "{id" in template:
                yield f"{row}, of nothing", (template, method.upper())
            if template in ("/api/v1/explain", "/api/v1/incidents"):
                yield f"{row}, of Alice's VO", (template, method.upper())


def service_request(lab, row, template, method):
    key = f"{method} {template}"
    names = dict(NAMES)
    if "cloud_storage" in template:
        names["{name}"] = CLOUD
    if template.startswith("/fts3/ftsmon/config/"):
        names |= {"{kind}": "links", "{vo}": SETTING}
    of = lab.stand["delegation"] if template.startswith("/delegation") else lab.stand["job"]
    number = str(lab.stand["file"])
    if row.endswith("of nothing"):
        of, number = ("0123456789abcdef" if template.startswith("/delegation") else MISSING_JOB), "999999"
    if template == "/api/v1/transfers/{id}":
        of = number
    names |= {"{id}": of, "{ids}": of, "{file}": number, "{files}": number}
    path = template
    for name, value in names.items():
        path = path.replace(name, value)
    assert "{" not in path, f"{key}: what stands for the names in it?"
    assert method == "GET" or key in BODIES, f"{key}: add what is sent to BODIES"
    query = QUERIES.get(key)
    if row.endswith("of Alice's VO"):
        query = f"vo={lab.owner_vo()}"
    return Request(method, path + (f"?{query}" if query else ""), body=BODIES.get(key))


def door_requests(lab):
    """Each request at the door. Rows of one method differ in what they are about."""
    moved = {"Destination": f"{lab.site.door}{COLLEAGUE}/taken"}
    own = {"Destination": f"{lab.site.door}{HOME}/renamed"}
    lock, remote = lab.stand["lock"], f"{lab.remote.door}/remote/file"
    away = {"TransferHeaderAuthorization": lab.remote_root.session.headers["Authorization"], "Credential": "none"}
    pieces = {"Content-Type": "application/partial-upload", "Upload-Offset": "5", "Upload-Complete": "?1"}
    asked = json.dumps({"caveats": ["activity:DOWNLOAD"], "validity": "PT1M"})
    caveats = {"Content-Type": "application/macaroon-request"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    rows = {}
    for what, path in [
        ("a file", f"{HOME}/file"), ("nothing", f"{HOME}/nothing"), ("a directory", f"{HOME}/dir"),
        ("the root", "/"), ("a public file", "/public/file"),
    ]:
        rows |= {
            f"GET {what}": Request("GET", path),
            f"HEAD {what}": Request("HEAD", path, {"Want-Digest": "adler32"}),
            f"PROPFIND {what}": Request("PROPFIND", path, {"Depth": "1"}),
            f"OPTIONS {what}": Request("OPTIONS", path),
        }
    for what, path in [("a file", f"{HOME}/file"), ("nothing", f"{HOME}/nothing"), ("a directory", f"{HOME}/dir")]:
        rows |= {
            f"PUT {what}": Request("PUT", path, body="written"),
            f"DELETE {what}": Request("DELETE", path),
            f"MKCOL {what}": Request("MKCOL", path),
            f"MOVE {what} to the colleague's": Request("MOVE", path, moved),
            f"MOVE {what} beside it": Request("MOVE", path, own),
            f"COPY {what} to the colleague's": Request("COPY", path, moved),
            f"PROPPATCH {what}": Request("PROPPATCH", path, body=PROPERTY),
            f"LOCK {what}": Request("LOCK", path, {"Timeout": "Second-3000"}, LOCK),
            f"POST for a macaroon of {what}": Request("POST", path, caveats, asked),
            f"COPY {what} to another site": Request("COPY", path, away | {"Destination": f"{lab.remote.door}/remote/new"}),
            f"COPY from another site onto {what}": Request("COPY", path, away | {"Source": remote}),
            f"PUT {what} in pieces": Request("PUT", path, {"Upload-Complete": "?0"}, "piece"),
        }
    locked, upload, no_upload = f"{HOME}/locked", lab.stand["upload"], f"/.penstock/uploads/{MISSING_JOB}"
    rows |= {
        "MOVE the colleague's onto a file": Request("MOVE", f"{COLLEAGUE}/own", {"Destination": f"{HOME}/file"}),
        "MOVE beside an existing file": Request("MOVE", f"{HOME}/file", {"Destination": f"{HOME}/dir/inner-of-alice"}),
        "DELETE of the whole": Request("DELETE", "/team"),
        "PUT at the root": Request("PUT", "/mine", body="written"),
        "PUT a locked file": Request("PUT", locked, body="written"),
        "PUT a locked file with its token": Request("PUT", locked, {"If": f"(<{lock}>)"}, "written"),
        "DELETE a locked file with its token": Request("DELETE", locked, {"If": f"(<{lock}>)"}),
        "LOCK again": Request("LOCK", locked, {"If": f"(<{lock}>)", "Timeout": "Second-3000"}),
        "UNLOCK": Request("UNLOCK", locked, {"Lock-Token": f"<{lock}>"}),
        "HEAD an upload": Request("HEAD", upload),
        "PATCH an upload": Request("PATCH", upload, pieces, "more"),
        "DELETE an upload": Request("DELETE", upload),
        "HEAD an upload of nobody": Request("HEAD", no_upload),
        "PATCH an upload of nobody": Request("PATCH", no_upload, pieces, "more"),
        "DELETE an upload of nobody": Request("DELETE", no_upload),
        "POST for a token": Request("POST", "/.oauth2/token", form, f"grant_type=client_credentials&scope=DOWNLOAD:{HOME}"),
        "DELETE /.penstock/trash": Request("DELETE", "/.penstock/trash?path=/nothing"),
        "POST for a file of the trash": Request("POST", "/.penstock/trash/fffffff"),
        "DELETE a share of nobody": Request("DELETE", "/.penstock/shares/0123456789ab"),
        "GET a share of nobody": Request("GET", "/s/S" + "A" * 22),
        "GET a stage request": Request("GET", lab.stand["stage"]),
        "GET a stage request of nobody": Request("GET", f"{TAPE}/stage/{MISSING_JOB}"),
        "DELETE a stage request": Request("DELETE", lab.stand["stage"]),
        "DELETE a stage request of nobody": Request("DELETE", f"{TAPE}/stage/{MISSING_JOB}"),
        "POST to try the tape system again": Request("POST", "/.penstock/tape/retry"),
        "POST to stop a drive": Request("POST", "/.penstock/tape/drive/d1", body={"state": "down"}),
        "POST to stop a tape": Request("POST", "/.penstock/tape/tape/t1", body={"state": "disabled"}),
        "POST to empty a tape": Request("POST", "/.penstock/tape/tape/t1/repack", body={}),
        "DELETE an order to empty a tape": Request("DELETE", "/.penstock/tape/tape/t1/repack"),
        "POST to verify a tape": Request("POST", "/.penstock/tape/tape/t1/verify"),
        "POST to relabel a tape": Request("POST", "/.penstock/tape/tape/t1/relabel"),
        "POST to hold background work on tapes": Request("POST", "/.penstock/tape/background", body={"hold_seconds": 0}),
        "GET whether a library may be stopped": Request("GET", "/.penstock/tape/ok-to-stop/silo"),
        "TRACE": Request("TRACE", f"{HOME}/file"),
        "SEARCH": Request("SEARCH", f"{HOME}/file"),
    }
    for what, path in [("a file", f"{HOME}/file"), ("nothing", f"{HOME}/nothing")]:
        paths = {"paths": [path]}
        rows |= {
            f"POST for a share of {what}": Request("POST", "/.penstock/shares", body={"path": path, "access": "read"}),
            f"POST to stage {what}": Request("POST", f"{TAPE}/stage", body={"files": [{"path": path}]}),
            f"POST to cancel {what} of a stage request": Request("POST", f"{lab.stand['stage']}/cancel", body=paths),
            f"POST to release {what} of a stage request": Request(
                "POST", lab.stand["stage"].replace("/stage/", "/release/"), body=paths
            ),
            f"POST to release {what} of all stage requests": Request("POST", f"{TAPE}/release/any", body=paths),
            f"POST for the locality of {what}": Request("POST", f"{TAPE}/archiveinfo", body=paths),
        }
    for name in ("/.penstock/uploads", "/.penstock/mine", "/.penstock"):
        rows[f"GET {name}"] = Request("GET", name)
        rows[f"PUT {name}"] = Request("PUT", name, body="written")
        rows[f"DELETE {name}"] = Request("DELETE", name)
        rows[f"MOVE a file to {name}"] = Request("MOVE", f"{HOME}/file", {"Destination": f"{lab.site.door}{name}"})
        rows[f"MKCOL {name}"] = Request("MKCOL", name)
    for template, method, _ in interface("storage").operations():
        if "{" not in template and method == "get":
            rows[f"GET {template}"] = Request("GET", template)
    return rows


# The operations of the door's document that have rows under other names.
DOOR_OPERATIONS = {
    "post /{path}": "POST for a macaroon of a file",
    "put /{path}": "PUT a file in pieces",
    "head /.penstock/uploads/{upload}": "HEAD an upload",
    "patch /.penstock/uploads/{upload}": "PATCH an upload",
    "delete /.penstock/uploads/{upload}": "DELETE an upload",
    "post /.oauth2/token": "POST for a token",
    "post /.penstock/trash/{file}": "POST for a file of the trash",
    "post /.penstock/shares": "POST for a share of a file",
    "delete /.penstock/shares/{id}": "DELETE a share of nobody",
    "get /s/{secret}": "GET a share of nobody",
    "post /.penstock/tape/v1/stage": "POST to stage a file",
    "get /.penstock/tape/v1/stage/{id}": "GET a stage request",
    "delete /.penstock/tape/v1/stage/{id}": "DELETE a stage request",
    "post /.penstock/tape/v1/stage/{id}/cancel": "POST to cancel a file of a stage request",
    "post /.penstock/tape/v1/release/{id}": "POST to release a file of a stage request",
    "post /.penstock/tape/v1/archiveinfo": "POST for the locality of a file",
    "post /.penstock/tape/retry": "POST to try the tape system again",
    "post /.penstock/tape/drive/{name}": "POST to stop a drive",
    "post /.penstock/tape/tape/{name}": "POST to stop a tape",
    "post /.penstock/tape/tape/{name}/repack": "POST to empty a tape",
    "delete /.penstock/tape/tape/{name}/repack": "DELETE an order to empty a tape",
    "post /.penstock/tape/tape/{name}/verify": "POST to verify a tape",
    "post /.penstock/tape/tape/{name}/relabel": "POST to relabel a tape",
    "post /.penstock/tape/background": "POST to hold background work on tapes",
    "get /.penstock/tape/ok-to-stop/{name}": "GET whether a library may be stopped",
}
DOOR, SERVICE = AccessTable("door"), AccessTable("service")


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, fault_ca, user_ca):
    lab = Lab(binary, tmp_path_factory.mktemp("matrix"), fault_ca, user_ca)
    try:
        yield lab
        codes = [site.stop()[0] for site in (lab.site, lab.remote)]
        assert codes == [0, 0], lab.site.log_tail()
        assert "panicked" not in lab.site.log_text()
    finally:
        lab.close()


def alike(text, *names):
    """An answer without some names."""
    for name in filter(None, names):
        text = text.replace(name, "…")
    return text


def path_of(header):
    """The path of a URL in a header; else nothing."""
    return urlsplit(header).path if header.startswith(("http", "/")) else ""


class Asked:
    """The outcome of each request by each caller, and what the answers to refused ones were."""

    def __init__(self):
        self.cells, self.bodies = {}, {}

    def ask(self, lab, port, row, make, restore):
        cells, bodies = self.cells.setdefault(row, {}), self.bodies.setdefault(row, {})
        before = lab.state()
        for name, caller in lab.callers[port].items():
            request = make()
            options = {"json": request.body} if isinstance(request.body, dict | list) else {"data": request.body}
            answer = caller.ask(request.method, request.path, headers=request.headers, **options)
            outcome = str(answer.status_code)
            if "Lock-Token" in answer.headers:
                lab.locks.append((caller, request.path, answer.headers["Lock-Token"]))
            # What the request itself has named is no news.
            told = alike(answer.text + repr(answer.headers), request.path, *map(path_of, request.headers.values()))
            if any(text in told for text in PRIVATE):
                outcome += "*"
            after = lab.state()
            if after != before:
                outcome += "!"
                restore()
                before = lab.state()
            cells[name] = outcome
            bodies[name] = answer.text


def asked(request, lab, port, table, rows, restore):
    found = Asked()
    for row, make in rows.items():
        found.ask(lab, port, row, make, restore)
    if request.config.getoption("--write-golden"):
        table.write(found.cells)
    return found


@pytest.fixture(scope="module")
def at_the_door(request, lab):
    names = list(door_requests(lab))
    rows = {name: (lambda name=name: door_requests(lab)[name]) for name in names}
    return asked(request, lab, "door", DOOR, rows, lab.restore_door)


@pytest.fixture(scope="module")
def at_the_service(request, lab):
    rows = {
        row: (lambda row=row, of=of: service_request(lab, row, *of))
        for row, of in service_rows()
    }
    return asked(request, lab, "service", SERVICE, rows, lab.restore_service)


@pytest.fixture(scope="module", params=["door", "service"])
def port(request):
    """A port: what each caller got there, and the table that says what each should get."""
    found = request.getfixturevalue(f"at_the_{request.param}")
    return found, {"door": DOOR, "service": SERVICE}[request.param]


def test_each_caller_gets_what_the_table_says(port):
    found, table = port
    expected = table.read()
    wrong = []
    for row, cells in found.cells.items():
        for caller, outcome in cells.items():
            meant = expected.get(row, {}).get(caller, "nothing: add a row and have it reviewed")
            if outcome != meant:
                wrong.append(f"{row} · {caller}: {outcome}, the table says {meant}")
    assert not wrong, f"{table.path}: {len(wrong)} cells differ\n" + "\n".join(wrong)


def test_the_table_speaks_of_nothing_else(port):
    found, table = port
    left = {row: sorted(set(cells) - set(found.cells.get(row, {}))) for row, cells in table.read().items()}
    assert not {row: callers for row, callers in left.items() if callers or row not in found.cells}


REFUSED = {"401", "403"}


def test_a_refusal_at_the_door_does_not_tell_what_exists(at_the_door):
    there = {row: row.replace(" a file", " nothing", 1) for row in at_the_door.cells if " a file" in row}
    pairs = [(row, absent) for row, absent in there.items() if absent in at_the_door.cells]
    assert len(pairs) > 15
    # Who may not look at either: others are told what is there by HEAD.
    looked = (at_the_door.cells["HEAD a file"], at_the_door.cells["HEAD nothing"])
    blind = [caller for caller in looked[0] if all(cells[caller] in REFUSED for cells in looked)]
    assert len(blind) > 12
    told = []
    for row, absent in pairs:
        for caller in blind:
            outcome = at_the_door.cells[row][caller]
            other = at_the_door.cells[absent][caller]
            bodies = (at_the_door.bodies[row][caller], at_the_door.bodies[absent][caller])
            same = alike(bodies[0], f"{HOME}/file") == alike(bodies[1], f"{HOME}/nothing")
            if outcome != other or not same:
                told.append(f"{row} · {caller}: {outcome} {bodies[0]!r}, and of nothing {other} {bodies[1]!r}")
    assert not told, "\n".join(told)


# Ids of these have 74 random bits, so that nobody can try them; FTS tells 403 and 404 of them apart.
RANDOM_IDS = ("/jobs/{id", "/archive/{id", "/fts3/ftsmon/jobs/{id")


def test_a_refusal_at_the_service_does_not_tell_which_numbers_exist(at_the_service):
    rows = [row for row in at_the_service.cells if f"{row}, of nothing" in at_the_service.cells]
    assert len(rows) > 10
    told = []
    for row in rows:
        if any(path in row for path in RANDOM_IDS):
            continue
        for caller, outcome in at_the_service.cells[row].items():
            other = at_the_service.cells[f"{row}, of nothing"][caller]
            if outcome in REFUSED and outcome != other:
                told.append(f"{row} · {caller}: {outcome}, and of nothing {other}")
    assert not told, "\n".join(told)


def test_a_request_that_is_refused_changes_nothing_in_any_row():
    """A rule for whoever changes the tables."""
    for table in (DOOR, SERVICE):
        for row, cells in table.read().items():
            wrong = [caller for caller, outcome in cells.items() if outcome[0] == "4" and outcome[-1] in "*!"]
            assert not wrong, f"{table.path}: {row}: {wrong}"


NEVER = {"anonymous", "garbage", "expired", "untrusted-issuer", "wrong-audience", "banned", "admin-anywhere", "cert-rogue",
         "cert-revoked", "cert-banned"}


def test_who_is_not_believed_changes_nothing_and_is_told_nothing_in_any_row():
    """Another rule: none of these callers has an outcome that changes or tells anything."""
    for table in (DOOR, SERVICE):
        for row, cells in table.read().items():
            wrong = {caller: outcome for caller, outcome in cells.items() if caller in NEVER and outcome[-1] in "*!"}
            assert not wrong, f"{table.path}: {row}: {wrong}"


# What monitors, verifiers and load balancers ask a door for: nobody's files may answer in its place.
RESERVED = [
    "/health", "/health/ready", "/metrics", "/jwks", "/.well-known", "/.well-known/openid-configuration",
    "/.well-known/penstock-site", "/.well-known/wlcg-tape-rest-api", "/.oauth2/token", "/.penstock", "/.penstock/health",
]


@pytest.mark.parametrize("name", RESERVED)
def test_nobody_puts_anything_where_the_door_itself_answers(lab, name):
    """Not even who may write everywhere."""
    here, away = f"{lab.site.door}{name}", {"TransferHeaderAuthorization": lab.remote_root.session.headers["Authorization"]}
    requests = [
        Request("PUT", name, body="planted"),
        Request("PUT", f"{name}/below", body="planted"),
        Request("PUT", name, {"Upload-Complete": "?0"}, "planted"),
        Request("MKCOL", name),
        Request("LOCK", name, {"Timeout": "Second-600"}, LOCK),
        Request("MOVE", f"{COLLEAGUE}/own", {"Destination": here}),
        Request("COPY", f"{COLLEAGUE}/own", {"Destination": here}),
        Request("COPY", name, away | {"Source": f"{lab.remote.door}/remote/file"}),
        Request("PROPPATCH", name, body=PROPERTY),
        Request("DELETE", name),
    ]
    lab.restore_door()
    before = lab.state()
    for request in requests:
        answer = lab.root.ask(request.method, request.path, headers=request.headers, data=request.body)
        changed = lab.state() != before
        if changed:
            lab.root.ask("DELETE", name)
        assert 400 <= answer.status_code < 500 and not changed, f"{request.method} {name}: {answer.status_code} {answer.text}"


def test_each_operation_of_the_door_has_a_row(lab):
    rows = door_requests(lab)
    allowed = lab.owner.ask("OPTIONS", "/").headers["Allow"]
    methods = {word.strip() for word in allowed.split(",")}
    assert len(methods) > 12
    missing = {method for method in methods if not any(row.split()[0] == method for row in rows)}
    for template, method, _ in interface("storage").operations():
        row = DOOR_OPERATIONS.get(f"{method} {template}", f"{method.upper()} {template}")
        missing |= set() if row in rows else {row}
    assert not missing
