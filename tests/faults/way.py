"""A way between this machine and another one of a test: packets pass two TUN interfaces and a thread between them, which delays
them, loses some and lets through so many bytes a second. Connections see a way as long and as narrow as it is told to be.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from itertools import count

from .network import ip

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000
# Bytes that wait before a narrow place; what comes on top is lost, as at a router.
QUEUE_BYTES = 600_000
NUMBERS = count()


class Way:
    """Leads to a namespace with one address, `host`. Processes there are started with `prefix` before their words."""

    def __init__(self, delay=0.0, rate=None, loss=0.0, seed=0):
        self.delay, self.rate, self.loss = delay, rate, loss
        self.draw = random.Random(seed)
        number = f"{os.getpid()}-{next(NUMBERS)}"
        self.name = f"penstock-way-{number}"
        self.interfaces = [f"pw{number}{end}" for end in "ab"]
        net = f"10.214.{os.getpid() % 250}.{4 * (next(NUMBERS) % 60)}"
        base = net.rsplit(".", 1)
        self.here, self.host = (f"{base[0]}.{int(base[1]) + last}" for last in (1, 2))
        ip("netns", "add", self.name)
        self.ends = [interface(name) for name in self.interfaces]
        self.free_at, self.under_way, self.numbers = [0.0, 0.0], [], count()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        self.thread.start()

    def connect(self):
        outer, inner = self.interfaces
        ip("link", "set", inner, "netns", self.name)
        ip("addr", "add", self.here, "peer", self.host, "dev", outer)
        ip("link", "set", outer, "mtu", str(MTU), "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", self.host, "peer", self.here, "dev", inner),
            ("link", "set", inner, "mtu", str(MTU), "up"),
        ):
            ip("-n", self.name, *words)

    @property
    def prefix(self):
        return ["ip", "netns", "exec", self.name]

    def carry(self):
        """Takes packets at either end and gives them out at the other when they are due."""
        poll = select.poll()
        for end in self.ends:
            poll.register(end, select.POLLIN)
        while not self.stop.is_set():
            now = time.monotonic()
            while self.under_way and self.under_way[0][0] <= now:
                _, _, end, packet = heapq.heappop(self.under_way)
                give(self.ends[1 - end], packet)
            wait = self.under_way[0][0] - now if self.under_way else 0.1
            for file, _ in poll.poll(max(0.0, wait) * 1000):
                self.take(self.ends.index(file))

    def take(self, end):
        while (packet := take(self.ends[end])) is not None:
            now = time.monotonic()
            free_at = max(now, self.free_at[end])
            is_full = self.rate is not None and (free_at - now) * self.rate > QUEUE_BYTES
            if is_full or self.draw.random() < self.loss:
                continue
            self.free_at[end] = free_at + (len(packet) / self.rate if self.rate else 0.0)
            heapq.heappush(self.under_way, (self.free_at[end] + self.delay, next(self.numbers), end, packet))

    def close(self):
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join(10)
        for end in self.ends:
            os.close(end)
        # Its interfaces go with their ends, and so nothing is left in it.
        ip("netns", "delete", self.name)


def interface(name):
    """The end of a new interface."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return end


def take(end):
    try:
        return os.read(end, 2 * MTU)
    except BlockingIOError:
        return None


def give(end, packet):
    try:
        os.write(end, packet)
    except OSError:
        # Nobody is there yet, or any more.
        pass
