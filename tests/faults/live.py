"""Two real sites with a way between them, whose copies go on for a while as usual; then something befalls a resource, and the
record of the transfer service is asked why the rate fell.

Nothing here knows what the explainer looks at: a fault changes a disk, a way, a process, a setting or the work, and nothing else.
"""

import json
import os
import random
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count

from interop.clients import Door, Service, content
from interop.site import EVERYTHING, Site, read_database
from interop.waiting import eventually

from .disk import Disk
from .network import BASE_PORT
from .way import Way

WAYS = "10.214.0.0/16"
# Of many sizes, so that copies do not keep in step.
FILE_BYTES = range(500_000, 1_500_000)
SOURCE_FILES = 24
DELAY_SECONDS = 0.1
# Of sockets at the other site: one connection carries so much in a round trip, and more movers carry more. Files are small,
# so what is in buffers must be smaller.
BUFFERS = "4096 65536 262144"
ACTIVE = 6
# Timeouts are as short as the rest of the time.
STALL_TIMEOUT = "3s"
# Long enough for a usual rate, and for a low one, with an interval of a second.
USUAL_SECONDS, LOW_SECONDS = 16, 15
# Until what was queued has been copied, and how much that is where files are asked for as they are needed.
QUEUE_SECONDS = 120
QUEUED_PER_SLOT = 2
# A drop that began so long before or after the fault at most is that of the fault: what runs goes on for a while, or it fails,
# and what it had moved before the fault has come to nothing, too.
BEFORE_SECONDS, AFTER_SECONDS = 5, 8


@dataclass
class Answer:
    """What was explained of a fault."""

    drop: dict
    detail: dict = field(default_factory=dict)

    @property
    def first(self):
        causes = self.drop and self.drop["causes"]
        return causes[0]["code"] if causes else None

    def __str__(self):
        if not self.drop:
            return "no drop was found"
        told = [f"{cause['code']} {cause['share_percent']} %" for cause in self.drop["causes"]]
        rates = f"{self.drop['usual_bytes_per_second']} -> {self.drop['low_bytes_per_second']}"
        return f"{rates}: {', '.join(told)}, unexplained {self.drop['unexplained_percent']} %"


class World:
    """`here` has the transfer service. Files go from `there` to it, or where it is the source, from it to `there`."""

    def __init__(self, binary, directory, stack, is_source=False, active=ACTIVE, pools=1, movers=20, disk=None, sizes=FILE_BYTES, seed=0):
        self.stack, self.is_source, self.names, self.jobs = stack, is_source, count(), []
        self.draw, self.sizes, self.active = random.Random(seed), sizes, active
        # Files for each second, where not all are asked for at once, and what is said of these jobs.
        self.wanted, self.parameters = None, {}
        self.disk = disk and Disk(disk, directory / "disk")
        self.way = Way(DELAY_SECONDS, seed=seed)
        stack.callback(self.way.close)
        self.here = Site(binary, directory / "here", "here", self.way.here)
        self.there = Site(binary, directory / "there", "there", self.way.host, peers=[self.here], base=BASE_PORT)
        self.there.prefix = self.way.prefix
        self.there.remove("transfer")
        for site in self.sites:
            site.configure("[trust]", private_addresses=[f"127.0.0.0/8{site.any_port}", f"{WAYS}{site.any_port}"])
            site.configure("[limits]", stall_timeout=STALL_TIMEOUT)
            stack.callback(site.kill)
        self.here.allow(self.way.host)
        for buffers in ("rmem", "wmem"):
            subprocess.run([*self.way.prefix, "sysctl", "-qw", f"net.ipv4.tcp_{buffers}={BUFFERS}"], check=True)
        self.here.configure(
            "[transfer]", tuning="fixed", active_max_per_link=active, retries=0, retry_delay="1s", halt_after=1000
        )
        self.here.configure("[storage]", trash="0s")
        if self.disk:
            stack.callback(self.disk.stop)
        self.pools = [self.here.directory / "pools" / f"p{number}" for number in range(pools)]
        self.make_pools(movers)

    @property
    def sites(self):
        return [self.here, self.there]

    def make_pools(self, movers):
        """The pools of `here`, in place of its own."""
        path = self.here.directory / "penstock.toml"
        kept = path.read_text().split("\n[[storage.pool]]")[0] + "\n"
        rest = path.read_text().split("\n[limits]")[1]
        own = [
            f'[[storage.pool]]\nname = "{pool.name}"\npath = "pools/{pool.name}"\n'
            f"movers_max = {movers}\nmovers_per_user_max = {movers}\n"
            for pool in self.pools
        ]
        path.write_text(kept + "\n".join(own) + "\n[limits]" + rest)
        for pool in self.pools:
            pool.mkdir(parents=True, exist_ok=True)

    def start(self):
        for site in self.sites:
            site.start()
        self.token = self.here.token(f"{EVERYTHING} storage.stage:/", lifetime="1d")
        self.service = Service(self.here, self.token)
        self.admin = Service(self.here, self.here.token("penstock.admin", subject="root"))
        self.doors = {site: Door(site, self.token) for site in self.sites}
        self.source, self.destination = (self.here, self.there) if self.is_source else (self.there, self.here)
        self.stock()

    def stock(self):
        """Puts the files that are copied."""
        self.sources = [f"/source/{number}" for number in range(SOURCE_FILES)]
        for path in self.sources:
            self.put(path)

    def put(self, path, size_bytes=None):
        self.doors[self.source].put(path, content(path, size_bytes or self.draw.choice(self.sizes)))

    def feed(self):
        """Once a second copies of further files are asked for, as `wanted` says, unless enough are queued."""
        over = threading.Event()

        def submit():
            due = time.monotonic()
            while not over.wait(max(0.0, due - time.monotonic())):
                sources = next(self.wanted) if self.queued() < QUEUED_PER_SLOT * self.active else []
                if sources:
                    self.submit(len(sources), sources, **self.parameters)
                due += 1

        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        self.stack.callback(thread.join)
        self.stack.callback(over.set)

    def submit(self, files, sources=None, token=None, **parameters):
        """So many copies of these files."""
        sources = sources or self.sources
        pairs = [
            (
                self.doors[self.source].url(sources[number % len(sources)]),
                self.doors[self.destination].url(f"/copies/{next(self.names)}"),
            )
            for number in range(files)
        ]
        service = self.service if token is None else Service(self.here, token)
        self.jobs.append(service.submit(*pairs, **parameters))

    def finished(self):
        return self.service.overview()["totals"]["finished"]

    def queued(self):
        return self.service.overview()["totals"]["submitted"]

    def run(self, fault, files=700, relieve=None, hidden_seconds=0, **options):
        """Copies as usual, then with the fault; gives back what is told of the drop. `relieve` ends a fault that leaves nobody to ask;
        for some seconds what was in store may hide one."""
        if self.wanted:
            self.feed()
        else:
            self.submit(files, **options)
        eventually("copies run", lambda: self.finished() > self.active, 60)
        time.sleep(USUAL_SECONDS)
        at = time.time()
        fault(self)
        time.sleep(hidden_seconds)
        if self.wanted:
            # What has come from tape before is copied first.
            eventually("nothing is queued", lambda: self.queued() < self.active, QUEUE_SECONDS)
            hidden_seconds = time.time() - at
        time.sleep(LOW_SECONDS)
        if relieve:
            relieve(self)
        return self.ask(at, hidden_seconds)

    def link(self):
        return {"source": self.source.storage_id, "destination": self.destination.storage_id}

    def ask(self, at, hidden_seconds=0):
        """The drop that began when the fault did, or when nothing hid it any more."""
        fine = ("--since", f"{int(time.time() - at) + USUAL_SECONDS + 6}s", "--resolution", "1s")
        told = json.loads(self.here.command("explain", "--json", *fine))
        after = AFTER_SECONDS + hidden_seconds
        near = [drop for drop in told["drops"] if -BEFORE_SECONDS < drop["from"] / 1000 - at < after]
        near = [drop for drop in near if drop["population"]["link"] == self.link()]
        if not near:
            return Answer(None, told)
        drop = max(near, key=lambda drop: drop["to"] - drop["from"])
        detail = json.loads(self.here.command("explain", "drop", drop["id"], "--json", *fine))
        return Answer(drop, detail)

    def pool_of(self, path):
        """The pool of `here` that has a file."""
        [(pool,)] = read_database(
            self.here.directory / "state/namespace.sqlite",
            "SELECT pool FROM entry WHERE kind = 1 AND name = ?",
            (path.rsplit("/", 1)[1],),
        )
        return pool

    def set_limit(self, active):
        rule = {"symbolicname": "live", "min_active": 1, "max_active": active, **self.link()}
        answer = self.admin.ask("POST", "/config/links", json=rule)
        assert answer.ok, answer.text

    def freeze(self, site):
        """Stops a process without ending it."""
        site.process.send_signal(signal.SIGSTOP)
        self.stack.callback(lambda: site.process and site.process.send_signal(signal.SIGCONT))

    def launch(self, command):
        """Starts a process that is ended with the world, and all that it started."""
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def end():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        self.stack.callback(end)

    def mount(self, pool, size_mb):
        """Gives a pool a small file system of its own."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "pool", pool], check=True)
        self.stack.callback(lambda: subprocess.run(["umount", "-l", pool], capture_output=True))


def world_for(fault, binary, disk_program, directory, seed):
    """The world in which a fault is tried."""
    options = fault.world | ({"disk": disk_program} if fault.world.get("disk") else {})
    return world_of(binary, directory, seed=seed, **options)


def world_of(binary, directory, **options):
    """A world that is closed with its stack."""
    stack = ExitStack()
    try:
        return stack, World(binary, directory, stack, **options)
    except BaseException:
        stack.close()
        raise
