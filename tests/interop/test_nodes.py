"""Several service processes over one PostgreSQL, killed, stopped and cut off at random.

Each transfer ends exactly once, no limit is exceeded at any instant, and whoever leads next answers within seconds. What is
said of that here is read from the record.
"""

import json
import os
import random
import re
import signal
import socket
import ssl
import statistics
import subprocess
import time
from collections import Counter

import pytest
import requests

from .clients import Door, Service, content
from .postgres import Postgres
from .site import Site, free_ports
from .test_kill import Background
from .waiting import eventually

HOSTS = ["127.0.7.1", "127.0.7.2", "127.0.7.3"]
STORES = ["127.0.7.11", "127.0.7.12"]
FILES_PER_JOB = 50
SOURCES = 20
LINK_MAX = 16
STORE_MAX = 24
NODE_MAX = 10
TAKEOVER_SECONDS = 5
SETTLE_SECONDS = 120


class Node(Site):
    """One process of the service: a site without a storage element, whose record all have in common."""

    def __init__(self, binary, directory, name, host, peers, url):
        super().__init__(binary, directory, name, host, peers=peers)
        self.remove("storage")
        self.address = f"{host}:{free_ports(host)}"
        self.configure(
            "[transfer]",
            database=url,
            nodes=self.address,
            active_max=NODE_MAX,
            active_max_per_link=LINK_MAX,
            active_max_per_storage=STORE_MAX,
            retry_delay="1s",
            retries=20,
        )
        self.told = self.directory / "state/told.jsonl"
        self.append(f'\n[[transfer.messages]]\nname = "test"\nfile = "state/told.jsonl"\noptimizer_every = "1s"\n')

    def lines_told(self):
        return self.told.read_text().splitlines() if self.told.exists() else []

    def messages_about(self, name):
        """How many lines of what it has told speak of a job's files."""
        return sum(f"/moved/{name}/" in line for line in self.lines_told())


class Cluster:
    """Two storage elements, three nodes, one database."""

    def __init__(self, binary, directory, postgres=None):
        self.postgres = postgres or Postgres("penstock")
        here = Site(binary, directory / "here", "here", STORES[0])
        self.stores = [here, Site(binary, directory / "there", "there", STORES[1], peers=[here])]
        self.nodes = []
        self.accepted = 0
        self.binary, self.directory = binary, directory

    def start(self, count=len(HOSTS)):
        self.postgres.start()
        here = self.stores[0]
        self.token = here.token(lifetime="1d")
        for at, host in enumerate(HOSTS[:count]):
            place = self.directory / f"node{at}"
            self.nodes.append(Node(self.binary, place, f"node{at}", host, self.stores, self.postgres.url))
        # All at once: whoever comes first makes the tables and the keys.
        for site in [*self.stores, *self.nodes]:
            site.launch()
        for site in [*self.stores, *self.nodes]:
            site.wait_ready()
        return self

    def revive(self):
        if self.postgres.process is None:
            self.postgres.launch()
        self.postgres.wait_ready()
        for node in self.nodes:
            if node.is_running():
                node.process.send_signal(signal.SIGCONT)
            else:
                node.kill()
                node.start()

    def close(self):
        for site in [*self.nodes, *self.stores]:
            if site.process is not None:
                site.process.send_signal(signal.SIGCONT)
            site.kill()
        self.postgres.close()

    def ask(self, query):
        return self.postgres.ask(self.postgres.user, query)

    def leader(self):
        """The node that holds the lease, as the database knows; None while nobody does."""
        rows = self.ask("SELECT leader FROM lease WHERE expires_at > clock_timestamp()")
        names = [name for (name,) in rows]
        return next((node for node in self.nodes if names == [node.host]), None)

    def wait_leader(self):
        return eventually("a node leads", self.leader, 30)

    def follower(self, draw):
        leader = self.wait_leader()
        return draw.choice([node for node in self.nodes if node is not leader])

    def service(self, node):
        return Service(node, self.token)

    def doors(self):
        return [Door(store, self.token) for store in self.stores]

    def upload(self):
        for at, door in enumerate(self.doors()):
            for number in range(SOURCES):
                door.put(f"/kept/{number}", content(("nodes", at, number), 1000 + 997 * number))

    def submission(self, name, number):
        here, there = (store.door for store in self.stores)
        source, target = (here, there) if number % 2 else (there, here)
        return f"{source}/kept/{number % SOURCES}", f"{target}/moved/{name}/{number}"

    def submit(self, name, count, nodes, within=SETTLE_SECONDS):
        """Submits a job of so many files to one of the nodes after the other, until it is acknowledged."""
        files = [self.submission(name, number) for number in range(count)]
        turns = list(nodes)

        def accepted():
            turns.append(turns.pop(0))
            try:
                params = {"id_generator": "deterministic", "sid": name}
                answer = self.service(turns[0]).try_submit(*files, **params)
            except requests.RequestException:
                return None
            if answer.status_code == 409:
                return answer.json()["message"].split("the job ")[1].split()[0]
            assert answer.status_code in (200, 503), f"{answer.status_code} {answer.text}"
            return answer.json()["job_id"] if answer.status_code == 200 else None

        job = eventually(f"job {name} is accepted", accepted, within)
        self.accepted += count
        return job

    def open_transfers(self):
        [(count,)] = self.ask(
            "SELECT count(*) FROM transfer WHERE state_name NOT IN ('FINISHED', 'FAILED', 'CANCELED', 'NOT_USED')"
        )
        return int(count)

    def wait_all_ended(self, within=SETTLE_SECONDS):
        try:
            eventually("all have ended", lambda: self.open_transfers() == 0, within)
        except AssertionError as late:
            states = self.ask("SELECT transfer_id, state FROM transfer WHERE finished_ms IS NULL LIMIT 10")
            logs = "\n".join(f"{node.name}:\n{node.log_tail()}" for node in self.nodes)
            raise AssertionError(f"{late}; open: {states}\n{logs}") from None

    def ended(self):
        [(count,)] = self.ask("SELECT count(*) FROM transfer WHERE state_name = 'FINISHED'")
        return int(count)


@pytest.fixture(scope="module")
def started(binary, tmp_path_factory):
    cluster = Cluster(binary, tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        cluster.upload()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(started):
    """All of it at work, whatever a test before has left."""
    started.revive()
    return started


class Trouble:
    """What befalls nodes and database, and how long clients had nobody to turn to."""

    def guard_deeds(self):
        """Once each."""
        deeds = [self.kill_leader, self.restart_database, self.kill_agent]
        self.draw.shuffle(deeds)
        return deeds

    def soak_deeds(self):
        """What takes long once or twice, kills all the time between."""
        deeds = [self.kill_leader, self.kill_agent] * 8
        deeds += [self.restart_database] * 2
        deeds += [self.stop_leader_for_a_while, self.cut_off_agent]
        self.draw.shuffle(deeds)
        return deeds

    def __init__(self, cluster, draw):
        self.cluster, self.draw = cluster, draw
        self.takeovers = []
        self.probes = 0

    def kill_leader(self):
        leader = self.cluster.wait_leader()
        leader.kill()
        self.measure([node for node in self.cluster.nodes if node is not leader])
        leader.start()

    def measure(self, others):
        """How long it takes until somebody else accepts a job."""
        begun = time.monotonic()
        self.probes += 1
        self.cluster.submit(f"probe-{self.probes}", 1, others)
        self.takeovers.append(time.monotonic() - begun)

    def kill_agent(self):
        agent = self.cluster.follower(self.draw)
        agent.kill()
        agent.start()

    def restart_database(self):
        self.cluster.postgres.crash()
        self.cluster.postgres.launch()
        self.cluster.postgres.wait_ready()

    def stop_leader_for_a_while(self):
        """It must find itself deposed when it wakes."""
        leader = self.cluster.wait_leader()

        def times_deposed():
            return leader.log_text().count("this node leads no more")

        before = times_deposed()
        leader.process.send_signal(signal.SIGSTOP)
        self.measure([node for node in self.cluster.nodes if node is not leader])
        time.sleep(self.draw.uniform(0, 15))
        leader.process.send_signal(signal.SIGCONT)
        eventually("it knows that it leads no more", lambda: times_deposed() > before, 30)

    def cut_off_agent(self):
        """For longer than its agents may go on without a leader."""
        agent = self.cluster.follower(self.draw)
        agent.process.send_signal(signal.SIGSTOP)
        time.sleep(25)
        agent.process.send_signal(signal.SIGCONT)


def after(cluster, count, deed):
    """Does something once so many transfers have arrived."""
    eventually(f"{count} have arrived", lambda: cluster.ended() >= count, SETTLE_SECONDS * 5)
    deed()


def test_whatever_is_killed_each_transfer_ends_once_and_no_limit_is_exceeded(cluster, tier):
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")
    draw = random.Random(seed)
    trouble = Trouble(cluster, draw)
    soak = tier.name == "soak"
    count = 20_000 if soak else 600
    deeds = trouble.soak_deeds() if soak else trouble.guard_deeds()
    begun, arrived = time.monotonic(), cluster.ended()

    def submit_all():
        choose = random.Random(seed)
        for at in range(0, count, FILES_PER_JOB):
            nodes = choose.sample(cluster.nodes, len(cluster.nodes))
            cluster.submit(f"job-{at}", FILES_PER_JOB, nodes)

    with Background(submit_all, stop=lambda: None):
        for turn, deed in enumerate(deeds):
            after(cluster, arrived + count * (turn + 1) // (len(deeds) + 3), deed)
    cluster.wait_all_ended(SETTLE_SECONDS * (10 if soak else 1))
    took, takeovers = time.monotonic() - begun, ", ".join(f"{one:.1f}" for one in trouble.takeovers)
    print(f"{count} transfers in {took:.1f} s; takeovers after {takeovers} s")
    judge(cluster)
    assert statistics.median(trouble.takeovers) < TAKEOVER_SECONDS, trouble.takeovers


def judge(cluster):
    """Goes through the record from the first line on."""
    rows = cluster.ask("SELECT transfer_id, event FROM ledger ORDER BY sequence")
    links = {}
    for transfer, request in cluster.ask("SELECT transfer_id, request FROM transfer"):
        told = json.loads(request)
        links[transfer] = (host(told["source"]), host(told["destination"]))
    running, landed, told = {}, Counter(), Counter()
    for transfer, event in rows:
        event = json.loads(event)
        name = event["event"]
        told[name] += 1
        if name == "started":
            assert transfer not in running, f"{transfer} runs twice at once"
            running[transfer] = event["node"]
            judge_limits(running, links)
        elif name in ("landed", "attempt_failed", "attempt_lost", "canceled"):
            running.pop(transfer, None)
        landed[transfer] += name == "landed"
    print(dict(told))
    assert not running
    assert len(landed) == cluster.accepted
    assert set(landed.values()) == {1}, [one for one, times in landed.items() if times != 1][:10]
    assert told["attempt_lost"] >= 1, "what was killed ran nothing, so this proves nothing"


def judge_limits(running, links):
    nodes = Counter(running.values())
    assert max(nodes.values()) <= NODE_MAX, nodes
    by_link = Counter(links[transfer] for transfer in running)
    assert max(by_link.values()) <= LINK_MAX, by_link
    for end in (0, 1):
        by_store = Counter(links[transfer][end] for transfer in running)
        assert max(by_store.values()) <= STORE_MAX, by_store


def host(url):
    return url.split("/")[2].split(":")[0]


def another_version(binary, directory):
    """The same program that takes itself for another version, everywhere alike."""
    patched = directory / "penstock"
    # Texts lie in a binary without anything between them; what is part of a longer number, such as an address, stays.
    text, count = re.subn(rb"(?<!\d\.)0\.1\.0(?!\.\d)", b"0.9.7", binary.read_bytes())
    assert count > 0, "its version is another now: adapt this"
    patched.write_bytes(text)
    patched.chmod(0o755)
    printed = subprocess.run([patched, "--version"], capture_output=True, text=True, check=True).stdout
    assert "0.9.7" in printed, printed
    return patched


def test_nodes_are_upgraded_and_put_back_one_by_one_without_a_failed_transfer(cluster, binary, tmp_path):
    """Either version leads and follows the other meanwhile."""
    mixtures, jobs = set(), []
    for version in (another_version(binary, tmp_path), binary):
        jobs.append(cluster.submit(f"rolling-{len(jobs)}", 200, cluster.nodes))
        for node in cluster.nodes:
            code, _ = node.stop()
            assert code == 0, node.log_tail()
            node.binary = version
            node.start()
            eventually("each node leads or follows", lambda: roles(cluster)["leaderless"] == 0, 30)
            mixtures.add(tuple(cluster.ask("SELECT node, version FROM node ORDER BY node")))
    cluster.wait_all_ended()
    assert len(mixtures) == 2 * len(cluster.nodes), mixtures
    for job in jobs:
        assert cluster.service(cluster.nodes[0]).job(job)["job_state"] == "FINISHED"
        events = cluster.ask(f"SELECT event FROM ledger WHERE job_id = '{job}'")
        events = Counter(json.loads(event)["event"] for (event,) in events)
        assert events["landed"] == 200 and not events["attempt_failed"], events


def roles(cluster):
    """How many nodes take themselves for what."""
    told = [cluster.service(node).ask("GET", "/health").json()["node"] for node in cluster.nodes]
    return Counter(node["role"] for node in told)


def test_every_node_answers_and_tells_who_leads(cluster):
    leader = cluster.wait_leader()

    def is_seen_by_all():
        seen = [cluster.service(node).ask("GET", "/api/v1/nodes").json() for node in cluster.nodes]
        roles = [Counter(row["role"] for row in told["nodes"]) for told in seen]
        return seen if all(counts == {"leader": 1, "follower": 2} for counts in roles) else None

    for told in eventually("all nodes are seen", is_seen_by_all, 30):
        assert told["leader"] == leader.host
    follower = cluster.follower(random.Random(0))
    assert roles(cluster) == {"leader": 1, "follower": 2}
    printed = json.loads(follower.command("nodes", "--json"))
    assert printed["leader"] == leader.host and len(printed["nodes"]) == 3
    # What is set at one node is in effect at all of them.
    settings = {"symbolicname": "all", "source": "*", "destination": "*", "min_active": 1, "max_active": 3}
    answer = Service(follower, follower.admin_token()).ask("POST", "/config/links", json=settings)
    assert answer.status_code == 201, answer.text
    for node in cluster.nodes:

        def is_known(node=node):
            return Service(node, node.admin_token()).ask("GET", "/config/links/all").status_code == 200

        eventually("the setting is known", is_known)


def test_a_job_that_was_refused_through_a_follower_was_not_submitted_before(cluster):
    node = cluster.follower(random.Random(3))
    banned = cluster.stores[1]
    admin = Service(node, node.admin_token())
    files = [cluster.submission("refused", 1)]
    params = {"id_generator": "deterministic", "sid": "refused"}
    answer = admin.ask("POST", "/ban/se", json={"storage": banned.storage_id, "status": "cancel"})
    assert answer.status_code == 200, answer.text
    try:
        for asked in [node, node, *cluster.nodes]:
            answer = cluster.service(asked).try_submit(*files, **params)
            assert answer.status_code == 403, f"{answer.status_code} {answer.text}"
    finally:
        assert admin.ask("DELETE", "/ban/se", params={"storage": banned.storage_id}).status_code == 204
    job = cluster.service(node).submit(*files, **params)
    cluster.accepted += 1
    assert cluster.service(node).try_submit(*files, **params).status_code == 409
    assert cluster.service(node).wait(job)["job_state"] == "FINISHED"


def told_of_links(node):
    """How often it has told what waits and runs on a link."""
    return sum('"transfer.fts_monitoring_queue_state"' in line for line in node.lines_told())


def test_who_has_led_and_leads_no_more_tells_no_messages(cluster):
    before = cluster.wait_leader()
    cluster.submit("told-before", 1, cluster.nodes)
    eventually("it is told", lambda: before.messages_about("told-before"), 30)
    # Something waits on a link, so that there is something to say of it each second.
    before.command("drain", "on")
    cluster.submit("told-queued", 3, cluster.nodes)
    eventually("a link is told", lambda: told_of_links(before), 30)
    before.process.send_signal(signal.SIGSTOP)
    others = [node for node in cluster.nodes if node is not before]
    eventually("another node leads", lambda: cluster.leader() in others, 30)
    deposed = before.log_text().count("this node leads no more")
    before.process.send_signal(signal.SIGCONT)
    eventually("it knows", lambda: before.log_text().count("this node leads no more") > deposed, 30)
    told = before.lines_told()
    known = sum(told_of_links(node) for node in others)
    eventually("links are told", lambda: sum(told_of_links(node) for node in others) >= known + 3, 30)
    others[0].command("drain", "off")
    cluster.submit("told-after", 3, cluster.nodes)
    cluster.wait_all_ended()
    eventually("it is told", lambda: any(node.messages_about("told-after") for node in others), 30)
    cluster.submit("told-last", 1, cluster.nodes)
    eventually("it is told", lambda: any(node.messages_about("told-last") for node in others), 30)
    assert before.messages_about("told-after") == 0
    assert before.lines_told() == told


def test_a_leader_whose_last_records_the_database_has_lost_reads_anew(cluster):
    cluster.wait_leader()
    cluster.submit("before the loss", 1, cluster.nodes)
    cluster.ask("UPDATE journal_writer SET batch = batch - 1")
    cluster.submit("after the loss", 1, cluster.nodes, within=30)
    cluster.wait_all_ended()


def first_key(file):
    """The key that seals."""
    return next(line for line in file.read_text().splitlines() if not line.startswith("#"))


def test_a_new_credential_key_is_everywhere_before_it_seals(cluster):
    leader = cluster.wait_leader()
    cluster.submit("with the old key", 3, cluster.nodes)
    cluster.wait_all_ended()
    failed = cluster.ask("SELECT count(*) FROM transfer WHERE state_name = 'FAILED'")
    lost = cluster.ask("SELECT count(*) FROM ledger WHERE event LIKE '%attempt_failed%'")
    leader.command("key", "rotate", "credential")
    leader.reload()
    keys = [node.directory / "keys/credential-encryption" for node in cluster.nodes]
    newest = first_key(keys[cluster.nodes.index(leader)])
    # Files whose tokens are sealed while the key goes around, and afterwards.
    for part in range(4):
        cluster.submit(f"with a new key {part}", 10, cluster.nodes)
    eventually("all have it on top", lambda: all(first_key(key) == newest for key in keys), 30)
    cluster.submit("with the new key", 20, cluster.nodes)
    cluster.wait_all_ended()
    assert cluster.ask("SELECT count(*) FROM transfer WHERE state_name = 'FAILED'") == failed
    assert cluster.ask("SELECT count(*) FROM ledger WHERE event LIKE '%attempt_failed%'") == lost


def test_who_is_not_registered_is_not_let_in(cluster, binary, tmp_path):
    """A certificate that no node has registered, though the same authority could have signed it."""
    stranger = cluster.stores[0]
    node = cluster.wait_leader()
    address, port = node.address.split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(stranger.directory / "host/cert.pem", stranger.directory / "host/key.pem")
    with socket.create_connection((address, int(port)), timeout=10) as tcp:
        with context.wrap_socket(tcp) as tls:
            tls.settimeout(20)
            said = json.dumps({"want_keys": {"protocol": 1}}).encode()
            tls.sendall(len(said).to_bytes(4, "big") + said)
            try:
                assert tls.recv(4) == b""
            except (ConnectionError, ssl.SSLError):
                pass
