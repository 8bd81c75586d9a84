"""An XRootD server of an attacker: it answers as one, and sends clients elsewhere when they open a file.

It speaks as much of the protocol (XRootD protocol 5) as gfal2's client asks for, without authentication.
"""

import socketserver
import struct
import threading

OK, ERROR, REDIRECT = 0, 4003, 4004
NOT_FOUND, UNSUPPORTED = 3011, 3013
QUERY, CLOSE, PROTOCOL, LOGIN, MKDIR, OPEN = 3001, 3003, 3006, 3007, 3008, 3010
READ, REMOVE, STAT, WRITE = 3013, 3014, 3017, 3019
# An option of an open.
RETURN_STAT = 0x400


class HostileXrootd:
    """`files` are known by path, with their content. `elsewhere` is where each open is sent: a URL, or a host and port; or
    these by path. None: files are read here."""

    def __init__(self, host, files=(), elsewhere=None):
        self.host, self.files, self.elsewhere = host, dict(files), elsewhere
        # Each as the number of the request and the path with what follows it.
        self.requests = []
        self.server = Server((host, 0), Session)
        self.server.owner = self
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def port(self):
        return self.server.server_address[1]

    def url(self, path, query=""):
        return f"root://{self.host}:{self.port}/{path}{query}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def target(self, path):
        return self.elsewhere.get(path) if isinstance(self.elsewhere, dict) else self.elsewhere

    def asked(self, kind):
        return [path for number, path in self.requests if number == kind]


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class Session(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            self.take(20)
            self.request.sendall(struct.pack(">HHIII", 0, OK, 8, 0x0500, 1))
            while True:
                self.answer(*self.next_request())
        except (ConnectionError, EOFError):
            pass

    def take(self, length):
        data = b""
        while len(data) < length:
            more = self.request.recv(length - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def next_request(self):
        head = self.take(24)
        stream, kind, body, length = struct.unpack(">2sH16sI", head)
        return stream, kind, body, self.take(length)

    def say(self, stream, status, data=b""):
        self.request.sendall(stream + struct.pack(">HI", status, len(data)) + data)

    def refuse(self, stream, code, text):
        self.say(stream, ERROR, struct.pack(">I", code) + text.encode() + b"\0")

    def answer(self, stream, kind, body, data):
        owner = self.server.owner
        shown = data.decode(errors="replace").rstrip("\0")
        owner.requests.append((kind, shown))
        path = shown.split("?")[0].replace("//", "/")
        content = owner.files.get(path)
        if kind == PROTOCOL:
            self.say(stream, OK, struct.pack(">II", 0x0500, 1))
        elif kind == LOGIN:
            self.say(stream, OK, bytes(16))
        elif kind == STAT:
            if content is None:
                self.refuse(stream, NOT_FOUND, "no such file")
            else:
                self.say(stream, OK, f"1 {len(content)} 16 1700000000\0".encode())
        elif kind == OPEN and owner.target(path) is not None:
            self.say(stream, REDIRECT, redirection(owner.target(path)))
        elif kind == OPEN:
            if content is None:
                self.refuse(stream, NOT_FOUND, "no such file")
            else:
                self.opened = content
                wants_stat = struct.unpack(">H", body[2:4])[0] & RETURN_STAT
                found = f"1 {len(content)} 16 1700000000\0".encode() if wants_stat else b""
                self.say(stream, OK, bytes(12) + found)
        elif kind == READ:
            offset, length = struct.unpack(">qi", body[4:16])
            self.say(stream, OK, self.opened[offset : offset + length])
        elif kind in (CLOSE, MKDIR, REMOVE):
            self.say(stream, OK)
        else:
            self.refuse(stream, UNSUPPORTED, "not here")


def redirection(elsewhere):
    if isinstance(elsewhere, str):
        return struct.pack(">i", -1) + elsewhere.encode()
    host, port = elsewhere
    return struct.pack(">i", port) + host.encode()
