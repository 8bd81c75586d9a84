"""Every command of the fts3 client from PyPI with every kind of credential: an X.509 proxy, one with attributes of a
VO, a token. A row of the table is a command line; `ways` tells by which credentials it works and what it prints.

Two sites, of which one runs the service. Who administers it is named in its configuration, differently for each
credential; beside each stands somebody of the same kind who is not named.
"""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from .certificates import VO
from .clients import TERMINAL, Door, adler32, content
from .conftest import make_grid
from .waiting import eventually

TOOLS = Path(sys.executable).parent
JOB_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
PRODUCTION = f"/{VO}/Role=production/Capability=NULL"
MEMBER = f"/{VO}/Role=NULL/Capability=NULL"
KINDS = ["proxy", "VOMS proxy", "token"]
NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass
class Caller:
    """Somebody with a credential of one kind."""

    kind: str
    name: str
    proxy: object = None
    token: str = None

    @property
    def options(self):
        return ["--access-token", self.token] if self.token else []

    @property
    def environment(self):
        return {"X509_USER_PROXY": str(self.proxy.pem)} if self.proxy else {}


class Lab:
    def __init__(self, grid, ca):
        self.here, self.there = grid.here, grid.there
        self.ca = ca
        alice, vera, bob, carl = (ca.user(f"{name} Lab") for name in ("Alice", "Vera", "Bob", "Carl"))
        for site in grid.sites:
            ca.trusted_by(site)
            for user in (alice, bob):
                site.append(rule("user", "dn", user.subject))
            site.append(rule("group", "group", f"/{VO}"))
        self.here.append(
            f'\n[[transfer.administrator]]\ndn = "{alice.subject}"\n'
            f'\n[[transfer.administrator]]\nfqan = "/{VO}/Role=production"\nvo = "{VO}"\n'
            f'\n[[transfer.administrator]]\nissuer = "{issuer_of(self.here)}"\nsubject = "operator"\n'
        )
        for site in grid.sites:
            site.start()
        scope = "storage.read:/ storage.modify:/"
        tokens = {
            name: self.here.token(scope, audience="https://wlcg.cern.ch/jwt/v1/any", subject=name)
            for name in ("operator", "plain")
        }
        self.operators = {
            "proxy": Caller("proxy", alice.subject, proxy=ca.proxy(alice)),
            "VOMS proxy": Caller("VOMS proxy", vera.subject, proxy=ca.voms_proxy(vera, fqans=[MEMBER, PRODUCTION])),
            "token": Caller("token", "operator", token=tokens["operator"]),
        }
        self.users = {
            "proxy": Caller("proxy", bob.subject, proxy=ca.proxy(bob)),
            "VOMS proxy": Caller("VOMS proxy", carl.subject, proxy=ca.voms_proxy(carl, fqans=[MEMBER])),
            "token": Caller("token", "plain", token=tokens["plain"]),
        }

    def run(self, who, command, *words):
        """The exit code of a command and what it printed."""
        line = [str(TOOLS / f"fts-rest-{command}"), "-s", self.here.service, *who.options, *words]
        environment = {"PATH": "/usr/bin:/bin", "X509_CERT_DIR": str(self.here.certificates)} | who.environment
        # The client reads a token file of the user's otherwise.
        environment["HOME"] = "/nonexistent"
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def ok(self, who, command, *words):
        code, shown = self.run(who, command, *words)
        assert code == 0, f"{who.kind} {command} {words}: exit {code}\n{shown}\n{self.here.log_tail()}"
        return shown

    def ask(self, who, method, path, **options):
        options.setdefault("timeout", 60)
        if who.token:
            options["headers"] = {"Authorization": f"Bearer {who.token}"}
        else:
            options["cert"] = str(who.proxy.pem)
        return requests.request(method, self.here.service + path, verify=str(self.here.certificates), **options)

    def state(self, who, job):
        return self.ask(who, "GET", f"/jobs/{job}").json()["job_state"]

    def wait(self, who, job, *states):
        wanted = set(states) or TERMINAL
        eventually(f"{job} is {wanted}", lambda: self.state(who, job) in wanted, 60)
        return self.state(who, job)

    def submit(self, who, *words):
        return JOB_ID.search(self.ok(who, "transfer-submit", *words)).group()

    def ends(self, place):
        """A file that is there, and where it may go."""
        source = f"/{VO}{place}/source"
        Door(self.here).put(source, content(place, 20_000))
        return self.here.door + source, f"{self.there.door}/{VO}{place}/destination"

    def unban_all(self):
        command = ["ban", "list", "--dir", str(self.here.directory)]
        listed = json.loads(self.penstock("--json", *command))
        for ban in listed:
            vo = [] if ban.get("vo", "*") == "*" else ["--vo", ban["vo"]]
            self.penstock("ban", "remove", ban.get("se") or ban["dn"], *vo, "--dir", str(self.here.directory))

    def penstock(self, *words):
        done = subprocess.run([str(self.here.binary), *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


def rule(table, key, name):
    return f'\n[[storage.{table}]]\n{key} = "{name}"\npath = "/{VO}"\nrights = ["read", "modify"]\n'


def issuer_of(site):
    [url] = re.findall(r'^url = "(.*)"', (site.directory / "penstock.toml").read_text(), re.M)
    return url


@pytest.fixture(scope="module")
def whole_lab(binary, tmp_path_factory, fault_ca, user_ca):
    grid = make_grid(binary, tmp_path_factory.mktemp("tools"), fault_ca)
    try:
        yield Lab(grid, user_ca)
        codes = [site.stop()[0] for site in grid.sites]
        assert codes == [0, 0], f"sites ended with {codes}"
    finally:
        for site in grid.sites:
            site.kill()


@pytest.fixture
def lab(whole_lab):
    yield whole_lab
    whole_lab.unban_all()


each_kind = pytest.mark.parametrize("kind", KINDS)


# A command line, by which kinds of credential it succeeds, what is printed then, and what otherwise. {source},
# {destination}, {job} stand for a file that is there, one that may be made, and a job that has ended.
CERTIFICATES = ("proxy", "VOMS proxy")
ROWS = [
    ("whoami", "whoami", KINDS, "User DN: {name}"),
    ("whoami as JSON", "whoami -j", KINDS, '"delegation_id"'),
    ("delegate", "delegate -f", CERTIFICATES, "Delegation id:", "Certificate required"),
    ("submit", "transfer-submit {source} {destination}", KINDS, "Job successfully submitted"),
    ("submit and compare", "transfer-submit -K {source} {destination} {checksum}", KINDS, "Job successfully submitted"),
    ("submit without sending", "transfer-submit --dry-run {source} {destination}", KINDS, '"files"'),
    ("submit and wait", "transfer-submit -b -i 1 -o {source} {destination}", KINDS, "Job finished with state FINISHED"),
    ("submit and wait in vain", "transfer-submit -b -i 1 {source}x {destination}", KINDS, "finished with state FAILED"),
    ("submit nonsense", "transfer-submit gopher://a/b {destination}", (), "scheme 'gopher' is not supported"),
    ("submit many", "transfer-submit -f {bulk}", KINDS, "Job successfully submitted"),
    ("status", "transfer-status {job}", KINDS, "Status: FINISHED"),
    ("status as JSON", "transfer-status -j {job}", KINDS, '"file_state": "FINISHED"'),
    ("status of nothing", f"transfer-status {NOBODY}", (), f"Not found: {NOBODY}"),
    ("list", "transfer-list", KINDS, ""),
    ("list as JSON", "transfer-list -j", KINDS, r"\["),
    ("list somebody's", "transfer-list -u {name} --source {here} --destination {there}", KINDS, ""),
    ("list of another VO", "transfer-list -o elsewhere", (), "'vo_name' names another VO"),
    ("cancel what has ended", "transfer-cancel {job}", KINDS, "FINISHED"),
    ("cancel nothing", f"transfer-cancel {NOBODY}", (), "No such job"),
    ("delete", "delete-submit {source}", (), "Deletion jobs are no longer supported by FTS|Certificate required"),
    ("server status", "server-status", (), "Not enough permissions"),
    ("ban a storage", "ban --storage {there}", (), "Not enough permissions"),
    ("lift the ban of a storage", "ban --storage {there} --unban", (), "Not enough permissions"),
    ("ban a user", "ban --user /CN=x", (), "Not enough permissions"),
    ("lift the ban of a user", "ban --user /CN=x --unban", (), "Not enough permissions"),
    ("ban with an odd status", "ban --storage {there} --status halt", (), "Status can only be cancel or wait"),
    ("ban with odd options", "ban --storage {there} --allow-submit", (), "--allow-submit can only be used"),
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_command_does_what_it_does_with_fts(lab, ended_jobs, place, tmp_path, row):
    """By three who are no administrators, at once."""

    def by(kind):
        own = f"{place}-{kind[0]}"
        source, destination = lab.ends(own)
        known = {
            "name": lab.users[kind].name,
            "source": source,
            "destination": destination,
            "here": lab.here.storage_id,
            "there": lab.there.storage_id,
            "checksum": f"ADLER32:{adler32(content(own, 20_000))}",
            "job": ended_jobs[kind],
            "bulk": tmp_path / kind,
        }
        write_bulk(known["bulk"], lab.users[kind], source, destination)
        check_row(lab, lab.users[kind], known, *row[1:])

    with ThreadPoolExecutor() as at_once:
        list(at_once.map(by, KINDS))


def check_row(lab, who, known, line, works_with, *texts):
    command, *words = [word.format(**known) for word in line.split(" ")]
    code, shown = lab.run(who, command, *words)
    works = who.kind in works_with
    assert (code == 0) == works, f"{who.kind}: exit {code}: {shown}\n{lab.here.log_tail(5)}"
    printed = texts[0 if works else -1].replace("{name}", who.name)
    assert re.search(printed, shown), f"{who.kind}: {shown}"


def write_bulk(path, who, source, destination):
    files = [{"sources": [source], "destinations": [f"{destination}-{number}"]} for number in range(3)]
    if who.token:
        for file in files:
            file |= {"source_tokens": [who.token], "destination_tokens": [who.token]}
    path.write_text(json.dumps({"files": files, "params": {"retry": 1}}))


@pytest.fixture(scope="module")
def ended_jobs(whole_lab):
    """A job that has ended well, for each kind of credential."""
    jobs = {}
    for kind, who in whole_lab.users.items():
        source, destination = whole_lab.ends(f"/ended-{kind[0]}")
        jobs[kind] = whole_lab.submit(who, source, destination)
        assert whole_lab.wait(who, jobs[kind]) == "FINISHED", whole_lab.here.log_tail()
    return jobs


@each_kind
def test_a_job_and_some_of_its_files_are_canceled(lab, place, tmp_path, kind):
    who = lab.users[kind]
    # Nobody listens there, so the files wait for their retries.
    nowhere = "https://127.0.0.9:9"
    files = [{"sources": [f"{nowhere}/{n}"], "destinations": [f"{nowhere}{place}{n}"]} for n in "ab"]
    if who.token:
        for file in files:
            file |= {"source_tokens": [who.token], "destination_tokens": [who.token]}
    bulk = tmp_path / "bulk"
    bulk.write_text(json.dumps({"files": files, "params": {"retry": 50}}))
    job = lab.submit(who, "-f", str(bulk))
    assert job in lab.ok(who, "transfer-list")
    first, second = [file["file_id"] for file in lab.ask(who, "GET", f"/jobs/{job}/files").json()]
    assert "CANCELED" in lab.ok(who, "transfer-cancel", f"{job}:{first}")
    assert lab.state(who, job) not in TERMINAL
    assert "CANCELED" in lab.ok(who, "transfer-cancel", job)
    assert lab.wait(who, job) == "CANCELED"
    assert job not in lab.ok(who, "transfer-list")


@each_kind
def test_administrators_see_what_the_hosts_do(lab, kind):
    who = lab.operators[kind]
    code, shown = lab.run(who, "server-status")
    if kind == "VOMS proxy":
        assert code == 1 and "Not enough permissions" in shown, "of one VO only"
        return
    assert code == 0 and re.search(r"127\.0\.0\.2\s+active: \d+\s+staging: 0", shown), shown
    assert lab.run(who, "server-status", "-H", lab.here.host, "--is-active")[0] in (0, 1)


@each_kind
def test_a_banned_storage_refuses_submissions_and_loses_its_jobs(lab, place, kind):
    operator, user = lab.operators[kind], lab.users["VOMS proxy"]
    source, destination = lab.ends(f"{place}-{kind[0]}")
    waiting = lab.submit(user, "--retry", "50", source, "https://127.0.0.9:9/x")
    shown = lab.ok(operator, "ban", "--storage", "https://127.0.0.9:9")
    assert "Affected jobs:" in shown and waiting in shown
    assert lab.wait(user, waiting) == "CANCELED"
    [file] = lab.ask(user, "GET", f"/jobs/{waiting}/files").json()
    assert file["reason"] == "Storage banned"
    code, shown = lab.run(user, "transfer-submit", source, "davs://127.0.0.9:9/y")
    assert code == 1 and "davs://127.0.0.9 is banned" in shown
    [listed] = lab.ask(user, "GET", "/ban/se").json()
    vo = VO if kind == "VOMS proxy" else "*"
    assert (listed["se"], listed["vo"], listed["status"]) == ("https://127.0.0.9", vo, "CANCEL")
    assert listed["admin_dn"] == operator.name
    lab.ok(operator, "ban", "--storage", "https://127.0.0.9", "--unban")
    assert lab.ask(user, "GET", "/ban/se").json() == []
    lab.ok(user, "transfer-cancel", lab.submit(user, source, "https://127.0.0.9:9/y"))


@each_kind
def test_transfers_wait_for_a_banned_storage_across_a_restart_and_then_run(lab, place, kind):
    operator, user = lab.operators[kind], lab.users["VOMS proxy"]
    source, destination = lab.ends(f"{place}-{kind[0]}")
    there = lab.there.storage_id
    assert "No jobs affected" in lab.ok(operator, "ban", "--storage", there, "--status", "wait", "--allow-submit")
    [listed] = lab.ask(user, "GET", "/ban/se").json()
    assert listed["status"] == "WAIT_AS"
    job = lab.submit(user, source, destination)
    lab.here.kill()
    lab.here.start()
    assert lab.state(user, job) == "SUBMITTED"
    [told] = lab.ask(user, "GET", f"/api/v1/jobs/{job}/explain").json()["files"]
    assert told["waiting"]["reason"] == "storage_banned", told
    assert f"{there} has been banned" in told["text"]
    lab.ok(operator, "ban", "--storage", there, "--unban")
    assert lab.wait(user, job) == "FINISHED"


def test_what_waits_is_canceled_when_its_time_is_over(lab, place):
    operator, user = lab.operators["proxy"], lab.users["token"]
    source, destination = lab.ends(place)
    lab.ok(operator, "ban", "--storage", lab.there.storage_id, "--status", "wait", "--allow-submit", "--timeout", "2")
    job = lab.submit(user, source, destination)
    assert lab.wait(user, job) == "CANCELED"
    [file] = lab.ask(user, "GET", f"/jobs/{job}/files").json()
    assert file["reason"] == "Storage banned"


def test_who_administers_one_vo_bans_for_that_vo_only(lab, place):
    operator = lab.operators["VOMS proxy"]
    source, destination = lab.ends(place)
    there = lab.there.storage_id
    lab.ok(operator, "ban", "--storage", there)
    code, shown = lab.run(lab.users["VOMS proxy"], "transfer-submit", source, destination)
    assert code == 1 and f"{there} is banned" in shown
    job = lab.submit(lab.users["token"], source, destination)
    assert lab.wait(lab.users["token"], job) == "FINISHED"
    for body in ({"storage": there, "vo": "*"}, {"storage": there, "vo": "here"}):
        assert lab.ask(operator, "POST", "/ban/se", json=body).status_code == 403
    assert lab.ask(operator, "POST", "/ban/dn", json={"user_dn": "/CN=x"}).status_code == 403
    assert lab.ask(operator, "DELETE", f"/ban/se?storage={there}&vo=here").status_code == 403


@pytest.mark.parametrize("kind", ["proxy", "token"])
@pytest.mark.parametrize("banned", KINDS)
def test_a_banned_user_is_locked_out_until_the_ban_is_lifted(lab, kind, banned):
    operator, user = lab.operators[kind], lab.users[banned]
    job = lab.submit(user, "--retry", "50", "https://127.0.0.9:9/x", f"https://127.0.0.9:9/{kind}-{banned}")
    shown = lab.ok(operator, "ban", "--user", user.name)
    assert job in shown
    code, shown = lab.run(user, "whoami")
    assert code == 1
    refused = lab.ask(user, "GET", "/whoami")
    assert refused.status_code == 403 and "The user has been banned" in refused.json()["message"]
    assert user.name in [ban["dn"] for ban in lab.ask(operator, "GET", "/ban/dn").json()]
    assert lab.state(operator, job) == "CANCELED"
    lab.here.kill()
    lab.here.start()
    assert lab.ask(user, "GET", "/whoami").status_code == 403, "a ban survives a restart"
    lab.ok(operator, "ban", "--user", user.name, "--unban")
    assert user.name in lab.ok(user, "whoami")


@pytest.mark.parametrize("kind", ["proxy", "token"])
def test_nobody_bans_themselves(lab, kind):
    operator = lab.operators[kind]
    answer = lab.ask(operator, "POST", "/ban/dn", json={"user_dn": operator.name})
    assert (answer.status_code, answer.json()["message"]) == (409, "The user tried to ban (her|his)self")


def test_bans_that_make_no_sense_are_refused(lab):
    operator = lab.operators["token"]

    def refused(path, body, why):
        answer = lab.ask(operator, "POST", path, json=body)
        assert answer.status_code == 400 and why in answer.json()["message"], answer.text

    refused("/ban/se", {}, "Missing storage parameter")
    refused("/ban/se", {"storage": "se.org"}, "is not a storage element")
    refused("/ban/se", {"storage": "https://se.org", "status": "halt"}, "status can only be cancel or wait")
    refused("/ban/se", {"storage": "https://se.org", "allow_submit": True}, "can not be combined")
    refused("/ban/se", {"storage": "https://se.org", "message": "x" * 2000}, "longer than")
    refused("/ban/dn", {}, "Missing dn parameter")
    refused("/ban/dn", [], "Malformed input")
    for path in ("/ban/se", "/ban/dn"):
        assert lab.ask(operator, "DELETE", path).status_code == 400
        assert lab.ask(operator, "DELETE", f"{path}?storage=https://never.org&user_dn=/CN=never").status_code == 204


def test_the_command_line_bans_lists_and_lifts_and_all_of_it_is_recorded(lab):
    at = ["--dir", str(lab.here.directory)]
    shown = lab.penstock("ban", "se", "https://se.org", "--wait", "--vo", VO, "--message", "disks are replaced", *at)
    assert "https://se.org is banned; 0 jobs affected" in shown
    lab.penstock("ban", "dn", "/DC=org/CN=Mallory", "--message", "key stolen", *at)
    listed = lab.penstock("ban", "list", *at)
    assert f"https://se.org  WAIT  VO {VO}  (disks are replaced)" in listed
    assert "/DC=org/CN=Mallory  (key stolen)" in listed
    lab.penstock("ban", "remove", "https://se.org", "--vo", VO, *at)
    lab.penstock("ban", "remove", "/DC=org/CN=Mallory", *at)
    assert lab.penstock("ban", "list", *at).strip() == "no bans"
    changes = json.loads(lab.penstock("--json", "audit", *at))
    assert [change["action"] for change in changes[:4]] == ["unban-dn", "unban-se", "ban-dn", "ban-se"]
    assert all(change["dn"] and change["datetime"] for change in changes)
    assert changes[3]["new"]["message"] == "disks are replaced" and changes[0]["old"]["message"] == "key stolen"


def test_to_whom_operators_grant_config_may_ban(lab):
    granted = lab.users["proxy"]
    at = ["--dir", str(lab.here.directory)]
    assert lab.run(granted, "ban", "--storage", "https://se.org")[0] == 1
    lab.penstock("authorize", "set", granted.name, *at)
    try:
        lab.ok(granted, "ban", "--storage", "https://se.org")
        assert lab.ask(granted, "GET", "/whoami").json()["level"]["config"] == "all"
    finally:
        lab.penstock("authorize", "remove", granted.name, *at)
    assert lab.run(granted, "ban", "--storage", "https://se.org", "--unban")[0] == 1


def test_levels_of_administrators_are_told(lab):
    def level(who):
        return lab.ask(who, "GET", "/whoami").json()["level"]

    for kind in KINDS:
        everywhere = "vo" if kind == "VOMS proxy" else "all"
        assert level(lab.operators[kind]) == {"transfer": everywhere, "config": everywhere}
        assert level(lab.users[kind]) == {"transfer": "vo"}
