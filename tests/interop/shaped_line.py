"""Lines of a given rate before a server: TCP relays that let so many bytes through, together or each connection by itself."""

import socket
import threading
import time

CHUNK_BYTES = 16 * 1024
# As on a real way, so that a server has sent what has passed, and not a whole file into the buffers of a loopback connection.
BUFFER_BYTES, SEGMENT_BYTES = 64 * 1024, 1448


class Rate:
    """Lets so many bytes pass in a second, in the order in which they ask."""

    def __init__(self, bytes_per_second):
        self.bytes_per_second = bytes_per_second
        self.free_at = time.monotonic()
        self.lock = threading.Lock()

    def wait(self, count):
        with self.lock:
            begin = max(self.free_at, time.monotonic())
            self.free_at = begin + count / self.bytes_per_second
        time.sleep(max(0.0, begin - time.monotonic()))


class ShapedLine:
    """A relay on the server's own address. The server sees it at the address `client`. `rate_of` gives the rate of a new
    connection, which may be that of others, too."""

    def __init__(self, host, port, client, rate_of):
        self.server, self.client, self.rate_of = (host, port), client, rate_of
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def url(self, path):
        return f"https://{self.server[0]}:{self.port}{path}"

    def close(self):
        # A blocked accept() ends only by shutdown().
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        while True:
            try:
                asking, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(asking,), daemon=True).start()

    def serve(self, asking):
        try:
            answering = self.connect()
        except OSError:
            asking.close()
            return
        threading.Thread(target=pass_on, args=(asking, answering), daemon=True).start()
        pass_on(answering, asking, self.rate_of())

    def connect(self):
        answering = socket.socket()
        answering.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        answering.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        try:
            answering.bind((self.client, 0))
            answering.connect(self.server)
        except OSError:
            answering.close()
            raise
        return answering


def pass_on(giving, taking, rate=None):
    """All bytes of one direction, until either end is closed."""
    try:
        while data := giving.recv(CHUNK_BYTES):
            if rate:
                rate.wait(len(data))
            taking.sendall(data)
    except OSError:
        pass
    for end in (giving, taking):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
