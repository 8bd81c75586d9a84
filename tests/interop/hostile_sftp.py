"""An sftp server of an attacker: OpenSSH lets the client in, and this program, as its subsystem, answers as it was told.

It speaks version 3 of the protocol (draft-ietf-secsh-filexfer-02), as much as clients ask for who read and write one file.
"""

import json
import socket
import struct
import sys
import threading
import time
from pathlib import Path

from .grid_servers import ADDRESS, HOST, Sftp

DIRECTORY, FILE, LINK = 0o040755, 0o100644, 0o120777


class HostileSftp(Sftp):
    """`conduct` says what it does; it counts from the next connection on."""

    def __init__(self):
        super().__init__()
        # sshd starts it, and knows nothing of this package.
        package = Path(__file__).resolve().parent
        program = self.directory / "subsystem"
        program.write_text(
            f"#!/bin/sh\ncd {package.parent} && exec {sys.executable} -c "
            f"'from {package.name}.hostile_sftp import Session; Session(\"{self.directory}\").serve()'\n"
        )
        program.chmod(0o755)
        conf = self.directory / "sshd.conf"
        conf.write_text(conf.read_text().replace(self.subsystem, str(program)))
        self.conduct()

    def conduct(self, how="honest", content=b"abc", target=""):
        (self.directory / "requests").write_text("")
        told = {"how": how, "content": content.decode("latin-1"), "target": str(target)}
        (self.directory / "conduct").write_text(json.dumps(told))

    def url(self, name):
        return f"sftp://{HOST}:{self.port}/{name}"

    def requests(self):
        """What was asked for: its kind, and the path."""
        return [json.loads(line) for line in (self.directory / "requests").read_text().splitlines()]

    def written(self):
        """All bytes that clients wrote."""
        path = self.directory / "written"
        return path.read_bytes() if path.exists() else b""


KINDS = {
    1: "INIT", 3: "OPEN", 4: "CLOSE", 5: "READ", 6: "WRITE", 7: "LSTAT", 8: "FSTAT", 9: "SETSTAT", 10: "FSETSTAT",
    11: "OPENDIR", 12: "READDIR", 13: "REMOVE", 14: "MKDIR", 15: "RMDIR", 16: "REALPATH", 17: "STAT", 18: "RENAME",
    19: "READLINK", 20: "SYMLINK",
}
OK, END, NO_FILE, UNSUPPORTED = 0, 1, 2, 8


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


class Session:
    """One connection, on standard input and output."""

    def __init__(self, directory):
        self.directory = Path(directory)
        told = json.loads((self.directory / "conduct").read_text())
        self.how, self.target = told["how"], told["target"]
        self.content = told["content"].encode("latin-1")

    def serve(self):
        try:
            while True:
                (length,) = struct.unpack(">I", self.take(4))
                self.answer(self.take(length))
        except (EOFError, BrokenPipeError):
            pass

    def take(self, length):
        data = sys.stdin.buffer.read(length)
        if len(data) < length:
            raise EOFError
        return data

    def raw(self, data):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def say(self, kind, number, data):
        body = bytes([kind]) + struct.pack(">I", number) + data
        self.raw(struct.pack(">I", len(body)) + body)

    def status(self, number, code):
        self.say(101, number, struct.pack(">I", code) + text("as it is") + text(""))

    def attributes(self):
        mode, size = FILE, len(self.content)
        if self.how in ("link", "listing"):
            mode = LINK if self.how == "link" else DIRECTORY
        if self.how == "huge":
            size = (1 << 63) - 1
        return struct.pack(">IQIII", 0x1 | 0x4 | 0x8, size, mode, 1_700_000_000, 1_700_000_000)

    def names(self, number, names):
        listed = b"".join(text(name) + text(f"-rw-r--r-- 1 0 0 3 {name}") + self.attributes() for name in names)
        self.say(104, number, struct.pack(">I", len(names)) + listed)

    def answer(self, packet):
        kind = KINDS.get(packet[0], str(packet[0]))
        if kind == "INIT":
            self.raw(struct.pack(">IBI", 5, 2, 3))
            return
        (number,) = struct.unpack(">I", packet[1:5])
        (length,) = struct.unpack(">I", packet[5:9])
        path, rest = packet[9 : 9 + length], packet[9 + length :]
        with open(self.directory / "requests", "a") as requests:
            requests.write(json.dumps([kind, path.decode(errors="replace")]) + "\n")
        if self.how == "silent":
            time.sleep(3600)
        elif self.how == "packet" and kind in ("STAT", "LSTAT", "FSTAT", "OPEN"):
            # A packet that is longer than any, and never ends.
            self.raw(struct.pack(">I", 0x7FFFFFF0))
            while True:
                self.raw(b"A" * 65536)
        elif kind in ("STAT", "LSTAT", "FSTAT"):
            self.say(105, number, self.attributes())
        elif kind in ("OPEN", "OPENDIR"):
            self.say(102, number, text("h"))
        elif kind == "READ":
            self.read(number, rest)
        elif kind == "WRITE":
            with open(self.directory / "written", "ab") as written:
                written.write(rest[12:])
            self.status(number, OK)
        elif kind == "READDIR":
            self.names(number, [f"{self.target or '../../x'}-{at}" for at in range(100)])
        elif kind in ("REALPATH", "READLINK"):
            self.names(number, [self.target or path.decode(errors="replace")])
        elif kind in KINDS.values():
            self.status(number, OK)
        else:
            self.status(number, UNSUPPORTED)

    def read(self, number, rest):
        offset, length = struct.unpack(">QI", rest[:12])
        if self.how in ("endless", "huge"):
            data = b"A" * min(length, 32_768)
        elif self.how == "longer":
            data = b"A" * (length + 100_000)
        elif self.how == "lie":
            # The length in the packet is not that of what follows.
            self.say(103, number, struct.pack(">I", 0xFFFFFFF0) + b"A" * 100)
            return
        else:
            data = self.content[offset : offset + length]
        if data:
            self.say(103, number, text(data))
        else:
            self.status(number, END)


class EndlessBanner:
    """Sends lines before it says which SSH it speaks, for ever (RFC 4253 §4.2 lets a server send some)."""

    def __init__(self):
        self.listener = socket.create_server((ADDRESS, 0))
        self.connections, self.stopping = 0, threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def url(self, name):
        return f"sftp://{HOST}:{self.listener.getsockname()[1]}/{name}"

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        try:
            while not self.stopping.is_set():
                client.sendall(b"welcome, welcome\r\n" * 100)
        except OSError:
            pass
        finally:
            client.close()

    def close(self):
        self.stopping.set()
        # A blocked accept() ends only by shutdown().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
