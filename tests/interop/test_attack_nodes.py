"""The port by which the nodes of a service speak with each other, as an attacker on the network sees it."""

import json
import socket
import ssl
import threading

import pytest

from .certificates import UserCa
from .clients import Service
from .fault_server import FaultCa
from .test_nodes import HOSTS, Cluster
from .waiting import eventually

WANT_KEYS = {"want_keys": {"protocol": 1}}
IDLE_CONNECTIONS = 300
# Nodes connect from other addresses.
STRANGER = "127.0.3.30"


@pytest.fixture(scope="module")
def cluster(binary, tmp_path_factory):
    """Two nodes, one of which leads."""
    cluster = Cluster(binary, tmp_path_factory.mktemp("attacked"))
    try:
        yield cluster.start(count=2)
    finally:
        cluster.close()


def frame(said):
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    return len(text).to_bytes(4, "big") + text


def hello(node, protocol=1):
    said = {"protocol": protocol, "node": node, "version": "0", "slots": 1, "claims": [], "ends": []}
    return {"hello": said}


def dial(node, near="0.0.0.0"):
    host, port = node.address.split(":")
    tcp = socket.create_connection((host, int(port)), timeout=10, source_address=(near, 0))
    tcp.settimeout(30)
    return tcp


def say(node, data, certificate=None, with_tls=True):
    """Says it to a node's port; gives back everything that it answers until it closes."""
    heard = b""
    with dial(node) as stream:
        try:
            if with_tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                if certificate:
                    context.load_cert_chain(*certificate)
                stream = context.wrap_socket(stream)
            stream.sendall(data)
            while part := stream.recv(65536):
                heard += part
        except (ConnectionError, ssl.SSLError):
            pass
    return heard


def is_well(cluster):
    node = cluster.wait_leader()
    return Service(node, cluster.token).ask("GET", "/whoami").status_code == 200


@pytest.mark.parametrize("said", ["keys", "hello", "a frame of 4 GB", "garbage"])
@pytest.mark.parametrize("shown", ["nothing", "another authority", "a proxy of a user", "another site", "no TLS"])
def test_who_is_no_node_learns_nothing(cluster, tmp_path, shown, said):
    node = cluster.wait_leader()
    data = {
        "keys": frame(WANT_KEYS),
        "hello": frame(hello(node.host)),
        "a frame of 4 GB": b"\xff\xff\xff\xff" + b"x" * 100_000,
        "garbage": b"GET / HTTP/1.1\r\n\r\n" * 1000,
    }[said]
    certificate = None
    if shown == "another authority":
        certificate = FaultCa(tmp_path / "ca").issue(HOSTS[0])
    elif shown == "a proxy of a user":
        users = UserCa(tmp_path / "users")
        users.install(node.certificates)
        proxy = users.proxy(users.user())
        certificate = (proxy.pem, proxy.key)
    elif shown == "another site":
        host = cluster.stores[0].directory / "host"
        certificate = (host / "cert.pem", host / "key.pem")
    # TLS 1.2 and 1.3 may answer plain bytes with an alert.
    heard = say(node, data, certificate, with_tls=shown != "no TLS")
    assert len(heard) <= 7 and b"{" not in heard, heard
    assert is_well(cluster)


def own_certificate(node):
    return (node.directory / "host/cert.pem", node.directory / "host/key.pem")


def test_a_node_says_who_it_is_and_nothing_else(cluster):
    """One that was broken into can be itself, but no other node, no leader, and not twice at once."""
    leader = cluster.wait_leader()
    [stolen] = [node for node in cluster.nodes if node is not leader]
    certificate = own_certificate(stolen)
    told = say(leader, frame(hello(leader.host)), certificate)
    assert b"refused" in told and b"not that of" in told, told
    told = say(leader, frame(hello(stolen.host, protocol=999)), certificate)
    assert b"refused" in told, told
    # Words of a leader mean nothing at a port that takes in followers.
    told = say(leader, frame({"welcome": {"protocol": 1, "epoch": 999_999, "certain": True}}), certificate)
    assert b"welcome" not in told, told
    assert say(leader, b"\xff\xff\xff\xff" + b"x" * 100_000, certificate) == b""
    # The same to one that does not lead.
    told = say(stolen, frame(hello(leader.host)), own_certificate(leader))
    assert b"refused" in told and b"does not lead" in told, told
    assert is_well(cluster)
    assert cluster.wait_leader() is leader


class Wiretap:
    """A client's TLS connection of which every byte on the wire is kept, in both directions."""

    def __init__(self, node, certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(*certificate)
        self.tcp = dial(node)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing)
        self.sent = b""
        self.through(self.tls.do_handshake)

    def through(self, step):
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self.flush()
                part = self.tcp.recv(65536)
                if not part:
                    return b""
                self.incoming.write(part)
            else:
                self.flush()
                return done

    def flush(self):
        data = self.outgoing.read()
        self.sent += data
        if data:
            self.tcp.sendall(data)

    def say(self, data):
        self.through(lambda: self.tls.write(data))

    def hear(self, length):
        """So many bytes, or fewer when the other end has closed."""
        heard = b""
        while len(heard) < length and (part := self.through(lambda: self.tls.read(length - len(heard)))):
            heard += part
        return heard

    def frame(self):
        length = int.from_bytes(self.hear(4), "big")
        return json.loads(self.hear(length)) if length else None

    def close(self):
        self.tcp.close()


def test_a_recorded_connection_of_a_node_is_worth_nothing_a_second_time(cluster):
    """Its certificate and its hello are in it, for all who were on the way."""
    leader = cluster.wait_leader()
    [follower] = [node for node in cluster.nodes if node is not leader]
    tap = Wiretap(leader, own_certificate(follower))
    tap.say(frame(hello(follower.host)))
    assert "welcome" in tap.frame()
    recorded = tap.sent
    tap.close()
    for data in (recorded, recorded[: len(recorded) // 2], recorded + recorded):
        heard = say(leader, data, with_tls=False)
        # What the handshake says to everybody, and an alert.
        assert b"welcome" not in heard and len(heard) < 16_384, len(heard)
    assert is_well(cluster)

    def follows():
        return cluster.service(follower).ask("GET", "/health").json()["node"]["role"] == "follower"

    eventually("the node itself is taken in again", follows, 30)
    assert cluster.wait_leader() is leader


def test_a_frame_that_is_said_again_in_a_connection_changes_nothing(cluster):
    leader = cluster.wait_leader()
    [follower] = [node for node in cluster.nodes if node is not leader]
    tap = Wiretap(leader, own_certificate(follower))
    first = frame(hello(follower.host))
    tap.say(first)
    assert "welcome" in tap.frame()
    # As another node, as the same again, and as one that is not ready yet.
    tap.say(first + frame(hello(leader.host)) + frame(WANT_KEYS) + first)
    tap.say(frame({"ping": {"number": 7}}) + frame({"ping": {"number": 7}}))
    pongs, welcomes = 0, 0
    while pongs < 2:
        said = tap.frame()
        assert said is not None, "the connection stays"
        pongs += said == {"pong": {"number": 7}}
        welcomes += "welcome" in said
    assert welcomes == 0
    tap.close()
    assert is_well(cluster)
    assert cluster.wait_leader() is leader


class Idlers:
    """Connections that say nothing, each made anew when it is closed."""

    def __init__(self, node):
        self.node = node
        self.open = []
        self.stopping = threading.Event()
        self.renew()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopping.wait(0.1):
            self.renew()

    def renew(self):
        kept = []
        for connection in self.open:
            try:
                connection.setblocking(False)
                ended = connection.recv(1) == b""
            except BlockingIOError:
                ended = False
            except OSError:
                ended = True
            if ended:
                connection.close()
            else:
                kept.append(connection)
        self.open = kept + [dial(self.node, STRANGER) for _ in range(IDLE_CONNECTIONS - len(kept))]

    def close(self):
        self.stopping.set()
        self.thread.join()
        for connection in self.open:
            connection.close()


def test_idle_connections_of_one_address_do_not_keep_nodes_out(cluster):
    leader = cluster.wait_leader()
    [follower] = [node for node in cluster.nodes if node is not leader]
    idlers = Idlers(leader)
    try:
        follower.kill()
        follower.start()

        def follows():
            return cluster.service(follower).ask("GET", "/health").json()["node"]["role"] == "follower"

        eventually("the node is back", follows, 30)
        assert cluster.wait_leader() is leader
    finally:
        idlers.close()
