"""What users choose, on the wire to a message broker: no value of theirs ends a header, a frame or a message.

The broker is one that reads STOMP 1.2 to the letter and keeps the bytes.
"""

import json
import re
import socket
import threading

import pytest

from .clients import Door, Service
from .site import Site
from .token_issuer import TokenIssuer
from .waiting import eventually

HOST, BROKER_HOST, ISSUER_HOST = "127.0.14.1", "127.0.14.2", "127.0.14.3"
FORGED = "x\r\n\x00SEND\r\ndestination:/topic/forged\r\n\r\nforged\x00\nSEND\ndestination:/topic/forged\n\nforged\x00"
HEADERS = {
    "destination",
    "receipt",
    "persistent",
    "content-type",
    "content-length",
    "expiration",
}
KINDS = {"start", "complete", "state", "queue_state"}


class StompBroker:
    """Takes every message and keeps its bytes, by frame: the header section as it came, and the body."""

    def __init__(self):
        self.frames = []
        self.trouble = []
        self.listener = socket.create_server((BROKER_HOST, 0))
        self.url = f"stomp://{BROKER_HOST}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                tcp, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(tcp,), daemon=True).start()

    def talk(self, tcp):
        with tcp, tcp.makefile("rb") as stream:
            try:
                self.converse(tcp, stream)
            except (OSError, ValueError) as trouble:
                self.trouble.append(trouble)

    def converse(self, tcp, stream):
        while head := self.head(stream):
            command, *lines = head.decode().split("\n")
            headers = dict(line.split(":", 1) for line in lines)
            if command == "CONNECT":
                assert stream.read(1) == b"\0"
                tcp.sendall(b"CONNECTED\nversion:1.2\n\n\0")
                continue
            body = stream.read(int(headers["content-length"]))
            if stream.read(1) != b"\0":
                raise ValueError(f"a frame does not end where it says: {head}")
            self.frames.append((command, lines, body))
            tcp.sendall(f"RECEIPT\nreceipt-id:{headers['receipt']}\n\n\0".encode())

    def head(self, stream):
        lines = []
        while line := stream.readline():
            if line == b"\n":
                if lines:
                    return b"".join(lines).removesuffix(b"\n")
                continue
            lines.append(line)
        return None

    def close(self):
        self.listener.close()


@pytest.fixture
def broker():
    broker = StompBroker()
    yield broker
    broker.close()


@pytest.fixture
def issuer(fault_ca):
    issuer = TokenIssuer(ISSUER_HOST, fault_ca)
    yield issuer
    issuer.close()


@pytest.fixture
def site(binary, tmp_path, fault_ca, broker, issuer):
    site = Site(binary, tmp_path / "site", "teller", HOST)
    site.trust(fault_ca.certificate)
    site.configure("[transfer]", retries=0)
    # An issuer whose groups name VOs.
    site.append(f'\n[[trust.issuer]]\nissuer = "{issuer.url}"\nprefix = "/"\n')
    site.append(f'\n[[transfer.messages]]\nname = "test"\nbrokers = ["{broker.url}"]\noptimizer_every = "1s"\n')
    site.start()
    yield site
    site.kill()


def test_no_value_of_a_user_forges_a_header_or_a_frame(site, broker, issuer):
    door = Door(site)
    door.put("/a", b"data")
    # A body with U+0000 is refused.
    storable = FORGED.replace("\0", "")
    metadata = {"note": storable, storable: [storable]}
    groups = [f"/{FORGED}", "/cms\r\nevil:1\x00"]
    token = issuer.token("fts", audience=site.service, sub=f"eve{FORGED}", **{"wlcg.groups": groups})
    asked = {
        "sources": [door.url("/a")],
        "destinations": [door.url("/c")],
        "source_tokens": [site.token()],
        "destination_tokens": [site.token()],
    }
    variants = [
        asked | {"metadata": metadata},
        asked | {"activity": FORGED},
        asked | {"destinations": [door.url("/d%0d%0aSEND%00%0adestination%3ax")]},
    ]
    jobs, answers = [], []
    for service in (Service(site), Service(site, token)):
        for variant in variants:
            answer = service.try_submit(variant, job_metadata=metadata, overwrite=True, retry=-1)
            answers.append((answer.status_code, answer.text))
            # What is refused at once is told to nobody else.
            assert answer.status_code in (200, 400, 401, 403), answer.text
            if answer.status_code == 200:
                jobs.append((service, answer.json()["job_id"]))
    assert answers[0][0] == 200, answers
    for service, job in jobs:
        service.wait(job)

    def ended():
        bodies = [json.loads(body) for _, _, body in list(broker.frames)]
        return {body.get("job_id") for body in bodies if body.get("file_state") in ("FINISHED", "FAILED")}

    eventually("the end of each job is told", lambda: ended() >= {job for _, job in jobs}, 60)
    assert broker.trouble == []
    told = list(broker.frames)
    for command, lines, body in told:
        names = [line.split(":", 1)[0] for line in lines]
        assert command == "SEND" and len(names) == len(set(names)), lines
        assert set(names) - {"vo"} == HEADERS, lines
        headers = dict(line.split(":", 1) for line in lines)
        assert re.fullmatch(r"\S*transfer\.fts_monitoring_(\w+)", headers["destination"])[1] in KINDS, lines
        # STOMP 1.2, value encoding: nothing that means something stands there as itself.
        assert not re.search(r"[\r\0:]|\\[^rnc\\]", "".join(headers.values())), lines
        # Brokers that look for the end of a message by its zero byte find the right one.
        assert b"\0" not in body and b"\n" not in body and b"\r" not in body, body
    states = [json.loads(body) for _, lines, body in told if any("_state" in line for line in lines)]
    notes = [state["job_metadata"] for state in states if state.get("job_metadata")]
    read = [json.loads(note) if isinstance(note, str) else note for note in notes]
    # The service notes how the submitter was known.
    assert read and all(note == metadata | {"auth_method": "oauth2"} for note in read), notes
