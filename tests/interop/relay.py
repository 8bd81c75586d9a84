"""A relay in front of a plain door for clients that cannot show a token: it adds headers to each request,
passes all else on byte by byte, and remembers what was asked and answered.
"""

import socket
import threading
from dataclasses import dataclass, field

HEAD_BYTES_MAX = 64 * 1024


@dataclass
class Exchange:
    """One request as the client sent it, and the status of its answer once that has come."""

    method: str
    target: str
    headers: dict
    body: bytes = b""
    status: int = None

    def __str__(self):
        return f"{self.method} {self.target} {self.status}"


@dataclass
class Relay:
    """Listens on a free port of the door's address while its `with` lasts."""

    host: str
    port: int
    added: dict
    exchanges: list = field(default_factory=list)

    def __post_init__(self):
        self.listener = socket.create_server((self.host, 0))
        self.url = f"http://{self.host}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A blocked accept() ends only by shutdown().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        """One connection, request by request: clients that are tested here do not send ahead."""
        server = socket.create_connection((self.host, self.port))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = Line(client, server)
        answered = Line(server, client)
        try:
            while self.one(asked, answered):
                pass
        except OSError:
            pass
        finally:
            for end in (client, server):
                end.close()

    def one(self, asked, answered):
        head = asked.head()
        if head is None:
            return False
        exchange = Exchange(head.words[0], head.words[1], head.headers)
        self.exchanges.append(exchange)
        asked.send(head.text(self.added))
        # The server may answer before the body has come, or say that it wants it: so both ways at once.
        body = threading.Thread(target=lambda: exchange.__setattr__("body", asked.request_body(head)))
        body.start()
        while True:
            answer = answered.head()
            if answer is None:
                return False
            answered.send(answer.text({}))
            exchange.status = int(answer.words[1])
            if exchange.status >= 200:
                break
        answered.answer_body(answer, exchange)
        body.join()
        return answer.headers.get("connection", "").lower() != "close"


@dataclass
class Head:
    words: list
    lines: list
    headers: dict

    def text(self, added):
        lines = [*self.lines, *(f"{name}: {value}" for name, value in added.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Line:
    """Reads from one end and sends to the other."""

    def __init__(self, source, sink):
        self.source, self.sink, self.buffer = source, sink, b""

    def send(self, data):
        self.sink.sendall(data)

    def more(self):
        data = self.source.recv(64 * 1024)
        self.buffer += data
        return bool(data)

    def head(self):
        while b"\r\n\r\n" not in self.buffer:
            if len(self.buffer) > HEAD_BYTES_MAX or not self.more():
                return None
        text, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = text.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return Head(lines[0].split(" ", 2), lines, headers)

    def request_body(self, head):
        try:
            if head.headers.get("transfer-encoding", "").lower() == "chunked":
                return self.chunks()
            return self.exactly(int(head.headers.get("content-length", 0)))
        except OSError:
            return b""

    def answer_body(self, head, exchange):
        if exchange.method == "HEAD" or exchange.status in (204, 304):
            return
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            self.chunks()
        elif "content-length" in head.headers:
            self.exactly(int(head.headers["content-length"]))
        else:
            while self.more():
                self.pass_on(len(self.buffer))

    def exactly(self, size):
        passed = []
        while size:
            if not self.buffer and not self.more():
                break
            piece = self.pass_on(min(size, len(self.buffer)))
            size -= len(piece)
            passed.append(piece)
        return b"".join(passed)

    def chunks(self):
        passed = []
        while True:
            while b"\r\n" not in self.buffer:
                if not self.more():
                    return b"".join(passed)
            size = int(self.pass_on(self.buffer.index(b"\r\n") + 2).split(b";")[0], 16)
            data = self.exactly(size + 2)
            if size == 0:
                return b"".join(passed)
            passed.append(data[:-2])

    def pass_on(self, size):
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        self.send(data)
        return data
