"""A storage element that misbehaves as it is told: plain WebDAV in memory, without third-party copy, in which
a test replaces single answers. It records every request, so that a test sees what credentials it got.
"""

import re
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .clients import adler32

CHUNK = 64 * 1024
# A stalled answer ends at last when nobody releases it, so that no thread outlives its test for long.
STALL_SECONDS_MAX = 300


class FaultCa:
    """A certification authority of the tests, whose servers a site trusts after `Site.trust`."""

    def __init__(self, directory):
        self.directory = directory
        self.certificate = directory / "ca.pem"
        directory.mkdir(parents=True)
        run_openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=Faulty CA",
            "-keyout",
            str(directory / "ca.key"),
            "-out",
            str(self.certificate),
        )

    def issue(self, host, subject=None):
        """A certificate for an address or a name; gives back the files of certificate and key. `subject`: of somebody else."""
        certificate, key = self.directory / f"{host}.pem", self.directory / f"{host}.key"
        request, extensions = self.directory / f"{host}.csr", self.directory / f"{host}.ext"
        kind = "IP" if re.fullmatch(r"[0-9.]+|.*:.*", host) else "DNS"
        extensions.write_text(f"subjectAltName={kind}:{host}\n")
        run_openssl(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            subject or f"/CN={host}",
            "-keyout",
            str(key),
            "-out",
            str(request),
        )
        run_openssl(
            "x509",
            "-req",
            "-in",
            str(request),
            "-days",
            "2",
            "-CAcreateserial",
            "-CA",
            str(self.certificate),
            "-CAkey",
            str(self.directory / "ca.key"),
            "-extfile",
            str(extensions),
            "-out",
            str(certificate),
        )
        return certificate, key


def run_openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict


class FaultServer:
    """One server. `answers[(method, path)]`, a function of the exchange, replaces what it would do itself."""

    def __init__(self, host, ca=None, subject=None):
        self.host = host
        self.files = {}
        self.answers = {}
        self.seen = []
        self.released = threading.Event()
        self.http = TlsServer((host, 0), handler_of(self), ca and context_of(ca.issue(host, subject)))
        self.url = f"{'https' if ca else 'http'}://{host}:{self.http.server_port}"
        self.thread = threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self.thread.start()

    def close(self):
        self.released.set()
        self.http.shutdown()
        self.http.server_close()

    def offer(self, path, data, get=None, size=None, checksum=None):
        """Makes a file readable; `get` replaces how its bytes come, `size` and `checksum` what HEAD tells."""
        told = {"Content-Length": str(len(data) if size is None else size)}
        told["Digest"] = f"adler32={checksum or adler32(data)}"
        self.answers["HEAD", path] = lambda exchange: exchange.reply(200, headers=told)
        self.answers["GET", path] = get or whole(data)
        return self.url + path

    def requests(self, method, path):
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    def release(self):
        """Lets stalled answers go on."""
        self.released.set()


def context_of(files):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, files))
    return context


class TlsServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address, handler, context):
        self.context = context
        super().__init__(address, handler)

    def get_request(self):
        connection, peer = super().get_request()
        if self.context:
            # The handshake happens with the first read, in the connection's own thread.
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def handle_error(self, request, client_address):
        """Broken connections are what these tests are about."""


def handler_of(fault):
    class Exchange(BaseHTTPRequestHandler):
        """One request and what is answered to it."""

        protocol_version = "HTTP/1.1"
        server_version = "Faulty"
        timeout = STALL_SECONDS_MAX

        def log_message(self, *_):
            """Silent."""

        def handle_expect_100(self):
            # Sent when the body is read: an early refusal must come instead of it.
            return True

        def serve(self):
            fault.seen.append(Seen(self.command, self.path, dict(self.headers.items())))
            # A query may hold a signature that no test knows beforehand.
            for known in (self.path, self.path.partition("?")[0]):
                answer = fault.answers.get((self.command, known))
                if answer:
                    break
            else:
                answer = ORDINARY.get(self.command, not_offered)
            answer(self)

        do_POST = do_GET = do_HEAD = do_PUT = do_DELETE = do_MKCOL = do_COPY = do_PROPFIND = serve

        @property
        def fault(self):
            return fault

        def reply(self, status, body=b"", headers=None):
            headers = {"Content-Length": str(len(body))} | (headers or {})
            self.start(status, headers)
            if self.command != "HEAD":
                self.wfile.write(body)

        def start(self, status, headers):
            if self.headers.get("Content-Length", "0") != "0" and not getattr(self, "body_read", False):
                # The body stays unread, so nothing can follow on this connection.
                headers = headers | {"Connection": "close"}
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def read_body(self):
            return b"".join(self.body_pieces())

        def body_pieces(self):
            """The bytes of the request as they come; asks for them first when the client waits for that."""
            if "100-continue" in self.headers.get("Expect", "").lower():
                self.send_response_only(100)
                self.end_headers()
            self.body_read = True
            rest = int(self.headers.get("Content-Length", 0))
            while rest:
                piece = self.rfile.read(min(CHUNK, rest))
                if not piece:
                    raise ConnectionError("the sender has gone")
                rest -= len(piece)
                yield piece

        def hang_up(self):
            self.close_connection = True
            self.wfile.flush()
            self.connection.close()

    return Exchange


def head(exchange):
    data = exchange.fault.files.get(exchange.path)
    if data is None:
        return exchange.reply(404)
    told = {"Content-Length": str(len(data)), "Digest": f"adler32={adler32(data)}"}
    return exchange.reply(200, headers=told)


def get(exchange):
    data = exchange.fault.files.get(exchange.path)
    return exchange.reply(404) if data is None else exchange.reply(200, data)


def put(exchange):
    exchange.fault.files[exchange.path] = exchange.read_body()
    exchange.reply(201)


def delete(exchange):
    known = exchange.fault.files.pop(exchange.path, None)
    exchange.reply(404 if known is None else 204)


def directory_exists(exchange):
    exchange.reply(405)


def not_offered(exchange):
    exchange.reply(405, b"there is no such method here\n")


ORDINARY = {"HEAD": head, "GET": get, "PUT": put, "DELETE": delete, "MKCOL": directory_exists}


# Answers for `FaultServer.answers`.


def refused(status, text=b"refused by the test\n", **headers):
    return lambda exchange: exchange.reply(status, text, {"Content-Length": str(len(text))} | headers)


def redirected(url, status=307):
    return lambda exchange: exchange.reply(status, headers={"Location": url})


def whole(data):
    return lambda exchange: exchange.reply(200, data)


def stalled(data, after):
    """Sends some bytes, then nothing until the test lets it go on."""

    def answer(exchange):
        exchange.start(200, {"Content-Length": str(len(data))})
        exchange.wfile.write(data[:after])
        exchange.wfile.flush()
        exchange.fault.released.wait(STALL_SECONDS_MAX)
        exchange.wfile.write(data[after:])

    return answer


def delayed(data, seconds):
    """Sends everything, after a time that counts for more than what the machine needs for a transfer."""

    def answer(exchange):
        time.sleep(seconds)
        exchange.reply(200, data)

    return answer


def silent(exchange):
    """Takes the request and says nothing until the test lets it go on."""
    exchange.fault.released.wait(STALL_SECONDS_MAX)
    exchange.hang_up()


def cut(data, after):
    """Announces everything, sends less, and hangs up."""

    def answer(exchange):
        exchange.start(200, {"Content-Length": str(len(data)), "Connection": "close"})
        exchange.wfile.write(data[:after])
        exchange.hang_up()

    return answer


def chunked(data):
    """Announces no length."""

    def answer(exchange):
        exchange.start(200, {"Transfer-Encoding": "chunked"})
        for at in range(0, len(data), CHUNK):
            piece = data[at : at + CHUNK]
            exchange.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        exchange.wfile.write(b"0\r\n\r\n")

    return answer


@dataclass
class Throttle:
    """Sends at a bounded rate, tells how far the last answer is, and goes at full speed after `open`."""

    data: bytes
    bytes_per_second: int
    sent: int = 0
    opened: threading.Event = field(default_factory=threading.Event)

    def open(self):
        self.opened.set()

    def __call__(self, exchange):
        exchange.start(200, {"Content-Length": str(len(self.data))})
        begun = time.monotonic()
        piece = max(1024, min(CHUNK, self.bytes_per_second // 20))
        for at in range(0, len(self.data), piece):
            exchange.wfile.write(self.data[at : at + piece])
            self.sent = at + piece
            due = begun + at / self.bytes_per_second
            self.opened.wait(max(0.0, due - time.monotonic()))


def slow_taker(bytes_per_second):
    """A PUT that takes bytes at a bounded rate."""

    def answer(exchange):
        begun, data = time.monotonic(), bytearray()
        for piece in exchange.body_pieces():
            data += piece
            due = begun + len(data) / bytes_per_second
            exchange.fault.released.wait(max(0.0, due - time.monotonic()))
        exchange.fault.files[exchange.path] = bytes(data)
        exchange.reply(201)

    return answer


def loses_bytes(missing):
    """A PUT that claims success and keeps less."""

    def answer(exchange):
        data = exchange.read_body()
        exchange.fault.files[exchange.path] = data[: len(data) - missing]
        exchange.reply(201)

    return answer


def flips_a_bit(exchange):
    """A PUT that claims success and keeps something else."""
    data = bytearray(exchange.read_body())
    data[len(data) // 2] ^= 1
    exchange.fault.files[exchange.path] = bytes(data)
    exchange.reply(201)
