"""Joining sites: `penstock trust`, by which sites that share no directory trust each other over the network, and the ways in
which somebody in between, or a hostile site, could make more of it."""

import json
import os
import pty
import shutil
import stat
import subprocess
import threading
import time

import pytest
import requests

from .clients import Door, content
from .fault_server import FaultServer
from .site import Site

HOSTS = {"a": "127.0.36.11", "b": "127.0.36.12", "c": "127.0.36.13", "impostor": "127.0.36.14"}
HOSTILE_HOST = "127.0.36.15"
WELL_KNOWN = "/.well-known/penstock-site"
FILES = 12


@pytest.fixture
def make(binary, tmp_path):
    """Makes a site that knows nobody, each in a directory that no other site reads, and ends it after the test."""
    made = []

    def make(name, **options):
        site = Site(binary, tmp_path / name / "site", options.pop("called", name), HOSTS[name], **options)
        # As `init` leaves it: `Site` lets tests reach any server of loopback.
        site.configure("[trust]", private_addresses=[f"{site.host}:{site.base}"])
        made.append(site)
        return site

    yield make
    for site in made:
        site.kill()


def run(site, *words, exit_code=0, as_json=True, **options):
    """Runs a command on a site's directory; gives back what it printed."""
    line = [site.binary, *(["--json"] if as_json else []), *words, "--dir", site.directory]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=90, **options)
    assert done.returncode == exit_code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout) if as_json else done.stdout + done.stderr


def fingerprint(site):
    """What its admin would tell another one on the telephone."""
    [authority] = run(site, "trust", "show")["authorities"]
    return authority["fingerprint"]


def add(site, other, *words, **options):
    return run(site, "trust", "add", other.door, "--fingerprint", fingerprint(other), *words, **options)


def snapshot(site):
    """What says whom a site trusts."""
    paths = [site.directory / "penstock.toml", *sorted(site.certificates.iterdir())]
    paths += sorted((site.directory / "trusted-sites").glob("*"))
    return {str(path.relative_to(site.directory)): path.read_bytes() for path in paths}


def fill(site, tmp_path):
    """A data set at a site's own door."""
    tree = tmp_path / "data"
    for number in range(FILES):
        path = tree / f"part{number % 3}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(("trust", number), 1000 * number))
    run(site, "copy", tree, f"{site.door}/set/", as_json=False)
    return tree


def files_of(tree):
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def assert_holds(site, tree, tmp_path):
    """The site has the data set whole, as its own admin sees it."""
    there = tmp_path / f"from-{site.name}"
    run(site, "copy", f"{site.door}/set/", there, as_json=False)
    assert files_of(there) == files_of(tree)
    shutil.rmtree(there)


def test_two_sites_exchange_a_data_set_in_three_commands_and_a_third_joins_while_both_run(make, tmp_path):
    a, b = make("a").start(), make("b").start()
    tree = fill(a, tmp_path)
    # The three commands: one at each site, and the copy.
    add(a, b)
    add(b, a, "--rights", "write", "--prefix", "/")
    run(a, "copy", f"{a.door}/set/", f"{b.door}/set/", as_json=False)
    assert_holds(b, tree, tmp_path)
    processes = [site.process.pid for site in (a, b)]
    c = make("c").start()
    told = [add(c, a, "--rights", "write", "--prefix", "/"), add(a, c)]
    assert [one["reload"] for one in told] == ["taken_over"] * 2
    # At once: the command has waited until the running service had taken it over.
    run(a, "copy", f"{a.door}/set/", f"{c.door}/set/", as_json=False)
    assert_holds(c, tree, tmp_path)
    # By the transfer service as well, and between the first two as before.
    one = f"{a.door}/set/part0/f0", f"{b.door}/again/f0"
    run(a, "submit", *one, "--wait", as_json=False)
    assert [site.process.pid for site in (a, b) if site.is_running()] == processes
    names = [site["name"] for site in run(a, "trust", "list")["sites"]]
    assert names == ["b", "c"]
    for site in (a, b, c):
        assert run(site, "check", as_json=False).rstrip().splitlines()[-1].startswith("ok")


def test_without_rights_tokens_of_the_other_site_allow_nothing(make, tmp_path):
    a, b = make("a").start(), make("b").start()
    fill(b, tmp_path)
    told = add(b, a)
    assert (told["rights"], told["issuer"]) == ("none", None)
    add(a, b)
    run(a, "ls", f"{b.door}/set/", exit_code=3)
    told = add(b, a, "--rights", "read", "--prefix", "/")
    # A VO that the other site cannot choose by its name alone.
    assert (told["rights"], told["vo"], told["prefix"]) == ("read", f"a@{a.host}", "/")
    assert "part0" in run(a, "ls", f"{b.door}/set/", as_json=False)
    file = tmp_path / "file"
    file.write_bytes(b"new")
    refused = run(a, "copy", file, f"{b.door}/new", exit_code=3)
    assert "storage.read" in json.dumps(refused) and "rights" in json.dumps(refused)
    add(b, a, "--rights", "write", "--prefix", "/")
    run(a, "copy", file, f"{b.door}/new")
    add(b, a, "--rights", "none")
    run(a, "ls", f"{b.door}/set/", exit_code=3)


def test_rights_bound_what_groups_of_tokens_allow(make):
    """Of a site that speaks for a VO for whose groups this one has rules."""
    a, b = make("a"), make("b").start()
    a.append('[[storage.group]]\ngroup = "/dteam"\npath = "/data"\nrights = ["read", "create", "modify"]\n')
    a.start()
    Door(a).put("/data/f", b"x")
    member = Door(a, b.token(scope="openid", groups=["/dteam"]))
    told = add(a, b, "--rights", "read", "--prefix", "/data", "--vo", "dteam")
    assert any("dteam" in warning and "--rights" in warning for warning in told["warnings"])
    assert member.get("/data/f") == b"x"
    member.put("/data/new", b"x", expect=403)
    assert member.ask("DELETE", "/data/f").status_code == 403
    add(a, b, "--rights", "write", "--prefix", "/data", "--vo", "dteam")
    member.put("/data/new", b"x")


def test_what_is_trusted_is_listed_watched_and_taken_back(make, binary, tmp_path):
    a, b = make("a").start(), make("b").start()
    before, comments = snapshot(a), [line for line in config_of(a).splitlines() if line.startswith("#")]
    add(a, b, "--rights", "read", "--prefix", "/data", "--vo", "theirs", "--name", "lyon")
    changed = snapshot(a)
    assert [line for line in config_of(a).splitlines() if line.startswith("#")] == comments
    assert (a.directory / "penstock.toml.before").read_bytes() == before["penstock.toml"]
    private = [a.directory / "penstock.toml.before", a.directory / "trusted-sites/lyon.json"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in private)
    [site] = run(a, "trust", "list")["sites"]
    assert (site["name"], site["site_name"], site["standing"]) == ("lyon", "b", "same")
    assert (site["rights"], site["prefix"], site["vo"]) == ("read", "/data", "theirs")
    assert [one["fingerprint"] for one in site["authorities"]] == [fingerprint(b)]
    assert site["same_keys"] is True and site["since"].startswith("20")
    # Again changes nothing; under another name it is refused.
    assert add(a, b)["changed"] is False
    assert snapshot(a) == changed
    add(a, b, "--name", "other", exit_code=2)
    b.stop()
    listed = run(a, "trust", "list", exit_code=5)
    assert listed["report"]["sites"][0]["standing"] == "unreachable"
    assert run(a, "trust", "list", "--offline")["sites"][0]["standing"] == "not_asked"
    # Somebody else answers there, with an authority of the same name.
    base = b.base
    shutil.move(b.directory, tmp_path / "gone")
    stranger = subprocess.run(
        [binary, "init", "--dir", b.directory, "--site", "b", "--host", b.host, "--ports", str(base)], capture_output=True
    )
    assert stranger.returncode == 0, stranger.stderr
    b.start()
    listed = run(a, "trust", "list", exit_code=6)
    assert listed["report"]["sites"][0]["standing"] == "changed"
    refused = run(a, "trust", "add", b.door, "--yes", exit_code=6)
    assert "a different authority than the one trusted" in refused["error"]
    assert snapshot(a) == changed
    run(a, "trust", "remove", "lyon")
    assert {**snapshot(a), "penstock.toml": b""} == {**before, "penstock.toml": b""}
    assert run(a, "trust", "list")["sites"] == []
    run(a, "trust", "remove", "lyon", exit_code=4)
    a.stop()
    a.start()


def config_of(site):
    return (site.directory / "penstock.toml").read_text()


def test_nothing_changes_without_a_yes_a_fingerprint_or_an_answer(make):
    a, b = make("a").start(), make("b").start()
    before = snapshot(a)
    refused = run(a, "trust", "add", b.door, exit_code=2, stdin=subprocess.DEVNULL)
    assert "nothing was changed" in refused["error"]
    refused = run(a, "trust", "add", b.door, "--yes", "--rights", "write", exit_code=2)
    assert "--prefix" in refused["error"]
    for words in (["--fingerprint", "zz"], ["--vo", "x", "--yes"], ["--name", "../x", "--yes"]):
        run(a, "trust", "add", b.door, *words, exit_code=2)
    run(a, "trust", "add", a.door, "--yes", exit_code=2)
    run(a, "trust", "add", b.door + "/data", "--yes", exit_code=2)
    run(a, "trust", "add", b.plain_door, "--yes", exit_code=2)
    assert snapshot(a) == before
    shown = answered(a, ["trust", "add", b.door], ["read", "/data", "no"])
    assert "nothing was changed" in shown and snapshot(a) == before
    shown = answered(a, ["trust", "add", b.door], ["read", "/data", "yes"])
    assert fingerprint(b) in shown and "is trusted now" in shown
    assert f"penstock trust add {a.door} --fingerprint {fingerprint(a)}" in shown
    [site] = run(a, "trust", "list")["sites"]
    assert (site["rights"], site["prefix"], site["vo"]) == ("read", "/data", f"b@{b.host}")


def answered(site, words, answers):
    """What a command shows at a terminal to somebody who types these lines."""
    here, there = pty.openpty()
    line = [str(site.binary), *words, "--dir", str(site.directory)]
    process = subprocess.Popen(line, stdin=there, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    os.close(there)
    os.write(here, "".join(f"{answer}\n" for answer in answers).encode())
    shown = process.communicate(timeout=60)[0]
    os.close(here)
    return shown


def test_somebody_in_between_is_found_out_by_the_fingerprint(make):
    a, b = make("a").start(), make("b").start()
    impostor = make("impostor", called="b", own_authority=True).start()
    before = snapshot(a)
    words = ["--fingerprint", fingerprint(b)]
    refused = run(a, "trust", "add", impostor.door, *words, "--rights", "write", "--prefix", "/", exit_code=6)
    assert "somebody intercepts the connection" in refused["error"]
    assert snapshot(a) == before
    # Also of one whose certificate is trusted already, and of keys.
    add(a, b)
    refused = run(a, "trust", "add", b.door, "--fingerprint", fingerprint(impostor), exit_code=6)
    [key] = run(b, "trust", "show")["key_fingerprints"]
    run(a, "trust", "add", b.door, "--fingerprint", fingerprint(b), "--fingerprint", key)


def test_a_certificate_of_another_trusted_authority_is_found_out_by_the_fingerprint(make, serve, fault_ca):
    """Somebody in between has a certificate of an authority that is trusted already, and names the one that is expected."""
    a, b = make("a").start(), make("b").start()
    known = serve(HOSTILE_HOST, fault_ca)
    tells(known, document(known, fault_ca))
    run(a, "trust", "add", known.url, "--yes")
    between = serve(HOSTS["c"], fault_ca)
    [own] = b.directory.glob("ca/ca.pem")
    tells(between, document(between, fault_ca, name="b", authorities=[own.read_text()]))
    before = snapshot(a)
    told = run(a, "trust", "add", between.url, "--fingerprint", fingerprint(b), exit_code=6)
    assert "somebody intercepts the connection" in told["error"] and snapshot(a) == before
    # Whoever names the authority that is there gets it, and a change of it is seen.
    told = run(a, "trust", "add", between.url, "--fingerprint", sha256_of(fault_ca.certificate))
    assert told["authorities"] == [] and told["certified_by"]["subject"] == "/CN=Faulty CA"
    standings = {site["name"]: site["standing"] for site in run(a, "trust", "list")["sites"]}
    assert standings == {"b": "same", "hostile": "same"}
    record = a.directory / "trusted-sites/b.json"
    kept = json.loads(record.read_text())
    record.write_text(json.dumps({**kept, "certified_by": {**kept["certified_by"], "fingerprint": "ab" * 32}}))
    listed = run(a, "trust", "list", exit_code=6)["report"]["sites"]
    assert {site["name"]: site["standing"] for site in listed} == {"b": "changed", "hostile": "same"}
    told = run(a, "trust", "add", between.url, "--yes", exit_code=6)
    assert "a different authority than the one trusted" in told["error"]
    # An earlier version kept none.
    record.write_text(json.dumps({name: value for name, value in kept.items() if name != "certified_by"}))
    standings = {site["name"]: site["standing"] for site in run(a, "trust", "list")["sites"]}
    assert standings == {"b": "unrecorded", "hostile": "same"}


def test_one_attribute_of_a_subject_never_reads_like_several(make, serve, tmp_path):
    """The subject of an authority is shown to who compares fingerprints, and says for whom it may sign."""
    a = make("a").start()
    before = snapshot(a)
    twin = twin_of("/DC=penstock\\/O=t\\/CN=t CA", tmp_path / "twin")
    hostile = serve(HOSTILE_HOST, twin)
    tells(hostile, document(hostile, twin))
    told = run(a, "trust", "add", hostile.url, "--yes", exit_code=5)
    assert "could be read as another name" in told["error"] and snapshot(a) == before


def test_a_name_that_openssl_takes_for_another_locks_nobody_out(make, serve, tmp_path):
    a, b = make("a"), make("b").start()
    # Copied by hand, without its policy.
    [subject] = [one["subject"] for one in run(b, "trust", "show")["authorities"]]
    [own] = b.directory.glob("ca/ca.pem")
    line = ["openssl", "x509", "-noout", "-hash", "-in", str(own)]
    name = subprocess.run(line, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    shutil.copy(own, a.certificates / f"{name}.0")
    a.start()
    before = snapshot(a)
    twin = twin_of(subject.replace("CN=", "CN=  ").replace(" CA", "  CA"), tmp_path / "twin")
    hostile = serve(HOSTILE_HOST, twin)
    tells(hostile, document(hostile, twin))
    told = run(a, "trust", "add", hostile.url, "--fingerprint", sha256_of(twin.certificate), exit_code=6)
    assert "a trusted one has the same name" in told["error"] and snapshot(a) == before


@pytest.fixture
def hostile(fault_ca):
    """A server that tells what a test wants of itself. Nobody trusts its authority as yet."""
    server = FaultServer(HOSTILE_HOST, fault_ca)
    yield server
    server.close()


def document(server, fault_ca, **changes):
    port = int(server.url.rsplit(":", 1)[1])
    return {
        "penstock_site": 1,
        "name": "hostile",
        "hosts": [server.host],
        "storage": {"port": port},
        "authorities": [fault_ca.certificate.read_text()],
        **changes,
    }


def tells(server, told, status=200, **headers):
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    server.answers["GET", WELL_KNOWN] = lambda exchange: exchange.reply(status, body, headers=headers)


def test_a_hostile_site_gets_no_more_than_a_place_of_its_own(make, hostile, fault_ca, tmp_path):
    a = make("a").start()
    before = snapshot(a)

    def refused(expected, exit_code=5):
        told = run(a, "trust", "add", hostile.url, "--yes", exit_code=exit_code)
        assert expected in told["error"], told
        assert snapshot(a) == before

    tells(hostile, b"", 404)
    refused("it has no site document")
    tells(hostile, b"", 302, Location=f"{hostile.url}/elsewhere")
    refused("redirects are not followed")
    assert not hostile.requests("GET", "/elsewhere")
    tells(hostile, b"<html>")
    refused("returned an unusable document")
    tells(hostile, b" " * 200_000)
    refused("")
    tells(hostile, document(hostile, fault_ca, authorities=[]))
    refused("its site document has no authority")
    # The authority of somebody else does not vouch for it.
    [other] = a.directory.glob("ca/ca.pem")
    tells(hostile, document(hostile, fault_ca, authorities=[other.read_text()]))
    refused("is not trusted")
    tells(hostile, document(hostile, fault_ca, hosts=["127.0.36.99"]))
    refused("has the host names", exit_code=2)
    tells(hostile, document(hostile, fault_ca, issuer={"url": "https://iam.example.org"}))
    refused("cannot introduce others")
    tells(hostile, document(hostile, fault_ca, name="\u001b[2Jx"))
    refused("its name")
    turns = iter([document(hostile, fault_ca), document(hostile, fault_ca, name="another")])
    hostile.answers["GET", WELL_KNOWN] = lambda exchange: exchange.reply(200, json.dumps(next(turns)).encode())
    refused("two different site documents")
    # A name that would lead elsewhere, and hosts that lead inside or nowhere: localhost, a private address, this site itself.
    inside = ["localhost", "10.0.0.5", a.host, "169.254.169.254", "nowhere.invalid"]
    tells(hostile, document(hostile, fault_ca, name="../../../../tmp/x", hosts=[hostile.host, *inside]))
    told = run(a, "trust", "add", hostile.url, "--yes")
    port = hostile.url.rsplit(":", 1)[1]
    assert (told["name"], told["servers"]) == ("tmp-x", [f"{hostile.host}:{port}"])
    assert told["private_addresses"] == [f"{hostile.host}:{port}"]
    assert sorted(told["hosts_left_out"]) == sorted(inside)
    assert [path.name for path in (a.directory / "trusted-sites").iterdir()] == ["tmp-x.json"]
    # Its authority is not one of our own kind, so it may sign for that host alone.
    [policy] = [path for path in a.certificates.glob("*.signing_policy") if "Faulty CA" in path.read_text()]
    assert f"'\"/CN={hostile.host}\"'" in policy.read_text()
    run(a, "trust", "remove", "tmp-x")
    assert not policy.exists()


def test_an_authority_that_could_be_taken_for_a_trusted_one_is_refused(make, hostile, tmp_path):
    """A stranger whose authority has the name of one that is trusted."""
    a, b = make("a").start(), make("b").start()
    add(a, b)
    subject = run(a, "trust", "list", "--offline")["sites"][0]["authorities"][0]["subject"]
    twin = twin_of(subject, tmp_path / "twin")
    server = FaultServer(HOSTS["c"], twin)
    try:
        tells(server, document(server, twin))
        before = snapshot(a)
        told = run(a, "trust", "add", server.url, "--yes", exit_code=6)
        assert "a trusted one has the same name" in told["error"]
        assert snapshot(a) == before
    finally:
        server.close()


def twin_of(subject, directory):
    """An authority with a subject of somebody else and a key of its own."""
    directory.mkdir()
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", subject]
    line += ["-keyout", str(directory / "ca.key"), "-out", str(directory / "ca.pem")]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    return Twin(directory)


class Twin:
    """As `FaultCa`, of a directory that is there."""

    def __init__(self, directory):
        from .fault_server import FaultCa

        self.directory = directory
        self.certificate = directory / "ca.pem"
        self.issue = FaultCa.issue.__get__(self)


@pytest.fixture
def serve():
    """Starts hostile servers, and ends them after the test."""
    made = []

    def serve(*words, **options):
        made.append(FaultServer(*words, **options))
        return made[-1]

    yield serve
    for server in made:
        server.close()


def sha256_of(certificate):
    line = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", str(certificate)]
    return subprocess.run(line, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def status_of_put(site, path, credential):
    """What the door answers to somebody with this certificate and key."""
    session = requests.Session()
    session.trust_env = False
    session.verify, session.cert = str(site.certificates), tuple(map(str, credential))
    return session.put(site.door + path, data=b"x", timeout=60).status_code


BOB = "/DC=ch/DC=cern/OU=Users/CN=bob"


def rule_for(subject):
    return f'[[storage.user]]\ndn = "{subject}"\npath = "/"\nrights = ["read", "create", "modify"]\n'


def test_another_site_cannot_be_a_user_of_this_one(make, serve, fault_ca):
    """Whatever its document and its certificate say: its authority may sign for the host that was typed."""
    a = make("a")
    a.append(rule_for(BOB))
    a.start()
    before = snapshot(a)
    words = ["--fingerprint", sha256_of(fault_ca.certificate)]
    as_bob = fault_ca.issue("bob", BOB)
    # The certificate that it shows is bob's.
    hostile = serve(HOSTILE_HOST, fault_ca, subject=BOB)
    tells(hostile, document(hostile, fault_ca))
    told = run(a, "trust", "add", hostile.url, *words, exit_code=6)
    assert f"does not end with CN={HOSTILE_HOST}" in told["error"] and snapshot(a) == before
    # Its own, of a host for which there is a rule already.
    a.append(rule_for(f"/CN={HOSTILE_HOST}"))
    before = snapshot(a)
    hostile = serve(HOSTILE_HOST, fault_ca)
    tells(hostile, document(hostile, fault_ca))
    told = run(a, "trust", "add", hostile.url, *words, exit_code=6)
    assert "storage.user" in told["error"] and snapshot(a) == before
    # Its own, with a lie in the document.
    hostile = serve(HOSTS["c"], fault_ca)
    tells(hostile, document(hostile, fault_ca, host_subject=BOB))
    run(a, "trust", "add", hostile.url, *words)
    [policy] = [path.read_text() for path in a.certificates.glob("*.signing_policy") if "Faulty CA" in path.read_text()]
    assert f"'\"/CN={hostile.host}\"'" in policy and "bob" not in policy
    assert status_of_put(a, "/as-bob", as_bob) in (401, 403)


@pytest.mark.parametrize("organisation", ["?", "[a-z]", "*"])
def test_the_name_of_an_authority_is_no_pattern(make, serve, tmp_path, organisation):
    a = make("a")
    [own] = run(a, "trust", "show")["authorities"]
    site = own["subject"].removeprefix("/DC=penstock/O=").split("/")[0]
    alice = f"/DC=penstock/O={site}/CN=alice"
    a.append(rule_for(alice))
    a.start()
    twin = twin_of(f"/DC=penstock/O={organisation}{site[1:]}/CN=x CA", tmp_path / "twin")
    hostile = serve(HOSTILE_HOST, twin)
    tells(hostile, document(hostile, twin))
    run(a, "trust", "add", hostile.url, "--fingerprint", sha256_of(twin.certificate))
    assert status_of_put(a, "/as-alice", twin.issue("alice", alice)) in (401, 403)


def test_a_policy_that_was_left_counts_for_nobody_new(make, hostile, fault_ca):
    a = make("a").start()
    tells(hostile, document(hostile, fault_ca))
    run(a, "trust", "add", hostile.url, "--yes")
    [policy] = [path for path in a.certificates.glob("*.signing_policy") if "Faulty CA" in path.read_text()]
    run(a, "trust", "remove", "hostile")
    policy.write_text("access_id_CA X509 '/CN=Faulty CA'\npos_rights globus CA:sign\ncond_subjects globus '\"*\"'\n")
    before = snapshot(a)
    told = run(a, "trust", "add", hostile.url, "--yes", exit_code=6)
    assert str(policy) in told["error"] and snapshot(a) == before


def test_a_name_leads_to_nothing_inside_that_nobody_has_typed(make, serve, fault_ca):
    """`localhost` stands for a name whose owner has it lead to this machine."""
    a = make("a").start()
    before = snapshot(a)
    hostile = serve("localhost", fault_ca)
    port = int(hostile.url.rsplit(":", 1)[1])
    tells(hostile, document(hostile, fault_ca, storage={"port": port, "plain_port": 6379}))
    for words in (["--yes"], ["--fingerprint", sha256_of(fault_ca.certificate)]):
        told = run(a, "trust", "add", hostile.url, *words, exit_code=2)
        assert f"--private-address 127.0.0.1:{port}" in told["error"] and snapshot(a) == before
    typed = ["--private-address", f"127.0.0.1:{port}"]
    told = run(a, "trust", "add", hostile.url, "--yes", *typed)
    assert told["private_addresses"] == [f"127.0.0.1:{port}"]
    assert told["servers"] == [f"localhost:{port}"] and "6379" not in config_of(a)
    # Again without a word about it changes nothing.
    assert run(a, "trust", "add", hostile.url, "--yes")["changed"] is False
    told = run(a, "trust", "add", hostile.url, "--yes", "--plain")
    assert "http://localhost:6379" in told["servers"] and "127.0.0.1:6379" not in told["private_addresses"]
    assert any("127.0.0.1:6379" in warning for warning in told["warnings"])


def test_what_stays_of_a_removed_site_is_told(make, hostile, fault_ca):
    a, b = make("a").start(), make("b").start()
    vo = ["--vo", f"b@{b.host}"]
    a.append(f'[[trust.issuer]]\nissuer = "{b.door}"\nprefix = "/"\nvo = "{vo[1]}"\nrights = ["read"]\n')
    add(a, b, "--rights", "read", "--prefix", "/", *vo)
    # No other site takes over what belongs to it.
    before = snapshot(a)
    [own] = b.directory.glob("ca/ca.pem")
    authorities = [fault_ca.certificate.read_text(), own.read_text()]
    tells(hostile, document(hostile, fault_ca, authorities=authorities, hosts=[hostile.host, b.host]))
    told = run(a, "trust", "add", hostile.url, "--yes", exit_code=6)
    assert "which does not certify it" in told["error"] and snapshot(a) == before
    told = run(a, "trust", "add", b.service, "--yes", "--name", "again", exit_code=6)
    assert "belongs to the site 'b'" in told["error"] and snapshot(a) == before
    # Nor its hosts.
    tells(hostile, document(hostile, fault_ca, hosts=[hostile.host, b.host]))
    told = run(a, "trust", "add", hostile.url, "--yes")
    assert told["hosts_left_out"] == [b.host]
    told = run(a, "trust", "remove", "b", exit_code=6)
    [stays] = told["report"]["staying"]
    assert (stays["kind"], stays["value"], stays["needed_by"]) == ("issuer", b.door, [])
    assert "still trusted" in told["error"] and b.door in config_of(a)
    assert f"{b.host}:{b.base}" not in [server for one in run(a, "trust", "list", "--offline")["sites"] for server in one["servers"]]


def test_a_site_that_sends_forever_is_given_up(make, hostile):
    a = make("a").start()
    stop = threading.Event()

    def drip(exchange):
        exchange.send_response(200)
        exchange.send_header("Content-Length", "60000")
        exchange.end_headers()
        while not stop.is_set():
            try:
                exchange.wfile.write(b" ")
                exchange.wfile.flush()
            except OSError:
                return
            time.sleep(0.2)

    hostile.answers["GET", WELL_KNOWN] = drip
    begun = time.monotonic()
    try:
        told = run(a, "trust", "add", hostile.url, "--yes", exit_code=5)
    finally:
        stop.set()
    assert "takes longer than 20 s" in told["error"]
    assert time.monotonic() - begun < 40


def test_a_change_that_would_break_the_configuration_is_not_put_in_place(make):
    a, b = make("a").start(), make("b").start()
    before = snapshot(a)
    refused = add(a, b, "--rights", "read", "--prefix", "/", "--vo", "no~vo", exit_code=2)
    assert "nothing was changed" in refused["error"]
    # The VO of a site that is given by hand, and that of another one, are those of somebody here.
    a.append(f'[[trust.issuer]]\nissuer = "https://idp.example.org"\nvo = "b@{b.host}"\n')
    before = snapshot(a)
    refused = add(a, b, "--rights", "read", "--prefix", "/", exit_code=2)
    assert "--vo" in refused["error"] and snapshot(a) == before
    # What somebody wrote by hand says what it says, and stays.
    a.append(f'[[trust.issuer]]\nissuer = "{b.door}"\nprefix = "/by-hand"\nvo = "hand"\n')
    by_hand = snapshot(a)
    refused = add(a, b, "--rights", "read", "--prefix", "/", "--vo", "b", exit_code=2)
    assert "with other values" in refused["error"] and snapshot(a) == by_hand != before
    assert run(a, "trust", "list")["issuers_by_hand"] == ["https://idp.example.org", b.door]


def test_sites_of_one_machine_know_what_init_did(binary, tmp_path):
    a = Site(binary, tmp_path / "a", "a", HOSTS["a"])
    b = Site(binary, tmp_path / "b", "b", HOSTS["b"], peers=[a])
    [site] = run(a, "trust", "list", "--offline")["sites"]
    assert (site["name"], site["rights"], site["prefix"]) == ("b", "all", "/")
    run(a, "trust", "remove", "b")
    assert b.door not in config_of(a)
    assert run(b, "trust", "list", "--offline")["sites"][0]["url"] == a.door


def test_both_ports_tell_of_the_site(make):
    from .clients import Endpoint

    a = make("a").start()
    told = [Endpoint(base, a.certificates).ask("GET", WELL_KNOWN) for base in (a.door, a.service)]
    assert [one.status_code for one in told] == [200, 200]
    assert told[0].json() == told[1].json()
    assert told[0].json()["hosts"] == [a.host]
