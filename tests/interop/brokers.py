"""Real message brokers on loopback: RabbitMQ with its STOMP plugin, and NATS with JetStream, each with what it has kept
for us. They end with their test.
"""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import nats
import stomp

from .site import free_port
from .waiting import eventually

HOST = "127.0.0.1"
# RabbitMQ reads a backslash in CONNECT as an escape, which STOMP 1.2 does not know there.
USER, PASSWORD = "penstock", "not: a secret"
START_SECONDS, START_TRIES = 150, 3
STOP_SECONDS = 30
COLLECT_SECONDS = 120
RABBITMQ = Path("/usr/lib/rabbitmq/lib")
TOPICS = [f"transfer.fts_monitoring_{kind}" for kind in ("start", "complete", "state", "queue_state")]


class RabbitMq:
    """One node with an EPMD of its own, so that nothing of the machine's is touched."""

    language = "stomp"

    def __init__(self, ca, password=None):
        self.password = password or PASSWORD
        self.directory = Path(tempfile.mkdtemp(prefix="interop-rabbitmq-"))
        self.ports = {name: free_port(HOST) for name in ("stomp", "tls", "dist", "epmd")}
        self.processes = []
        certificate, key = ca.issue(HOST)
        (self.directory / "rabbitmq.conf").write_text(
            "listeners.tcp = none\n"
            f"stomp.listeners.tcp.1 = {HOST}:{self.ports['stomp']}\n"
            f"stomp.listeners.ssl.1 = {HOST}:{self.ports['tls']}\n"
            f"ssl_options.cacertfile = {ca.certificate}\n"
            f"ssl_options.certfile = {certificate}\n"
            f"ssl_options.keyfile = {key}\n"
            "ssl_options.verify = verify_none\n"
            f"default_user = {USER}\n"
            f"default_pass = {self.password}\n"
        )
        (self.directory / "plugins").write_text("[rabbitmq_stomp].\n")

    def url(self, tls=False):
        return f"stomp+tls://{HOST}:{self.ports['tls']}/%2F" if tls else f"stomp://{HOST}:{self.ports['stomp']}/%2F"

    def start(self):
        """Once more at other ports where somebody else has taken one meanwhile."""
        for _ in range(START_TRIES - 1):
            try:
                return self.launch()
            except AssertionError:
                output = (self.directory / "output").read_text(errors="replace")
                if not any(word in output for word in ("already_used", "eaddrinuse")):
                    raise
                self.stop()
                self.ports |= {name: free_port(HOST) for name in ("dist", "epmd")}
        return self.launch()

    def launch(self):
        here = self.directory
        [release] = sorted(RABBITMQ.glob("rabbitmq_server-*"))[-1:]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(here),
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self.ports["epmd"]),
            "RABBITMQ_NODENAME": "interop@localhost",
            "RABBITMQ_DIST_PORT": str(self.ports["dist"]),
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_PID_FILE": str(here / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
        }
        self.run(["epmd", "-address", HOST, "-port", str(self.ports["epmd"])], environment)
        self.run([str(release / "sbin/rabbitmq-server")], environment)
        eventually("RabbitMQ takes messages", self.is_ready, START_SECONDS)
        return self

    def run(self, line, environment):
        with open(self.directory / "output", "ab") as output:
            process = subprocess.Popen(
                line, env=environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.processes.append(process)

    def is_ready(self):
        assert self.processes[-1].poll() is None, (self.directory / "output").read_text()[-2000:]
        with suppress(Exception):
            self.connect(Listener()).disconnect()
            return True
        return False

    def connect(self, listener):
        connection = stomp.Connection12([(HOST, self.ports["stomp"])], vhost="/", reconnect_attempts_max=1)
        connection.set_listener("", listener)
        connection.connect(USER, self.password, wait=True)
        return connection

    def collect(self, count, besides=()):
        """Messages of its queues, in the order in which each queue got them, once there are so many different ones besides
        those: what was not confirmed when a process was killed comes again."""
        listener = Listener()
        connection = self.connect(listener)
        for number, topic in enumerate(TOPICS):
            connection.subscribe(f"/queue/{topic}", id=number, ack="auto")
        eventually(f"{count} messages came", lambda: listener.different(besides) >= count, COLLECT_SECONDS)
        connection.disconnect()
        return listener.messages

    def stop(self):
        """At once, as a machine that loses its power."""
        processes, self.processes = self.processes, []
        for process in reversed(processes):
            process.kill()
            process.wait(STOP_SECONDS)
        # The script starts the node beside itself.
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            pid = int((self.directory / "pid").read_text())
            if str(self.directory) in Path(f"/proc/{pid}/environ").read_text(errors="replace"):
                os.kill(pid, 9)
                eventually("the node has ended", lambda: not Path(f"/proc/{pid}").exists(), STOP_SECONDS)

    def close(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Listener(stomp.ConnectionListener):
    def __init__(self):
        self.messages = []

    def on_message(self, frame):
        topic = frame.headers["destination"].removeprefix("/queue/")
        self.messages.append((topic, json.loads(frame.body), frame))

    def different(self, besides):
        return len(identities(list(self.messages)) - identities(besides))


def identities(messages):
    names = ("job_id", "file_id", "file_state")
    return {(topic, *(body.get(name) for name in names)) for topic, body, _ in messages}


class Nats:
    """One server with a stream for all subjects of transfers."""

    language = "nats"

    def __init__(self, ca, tls=False):
        self.directory = Path(tempfile.mkdtemp(prefix="interop-nats-"))
        self.port = free_port(HOST)
        self.tls = tls
        self.process = None
        self.certificates = ca.certificate
        lines = [f'listen: "{HOST}:{self.port}"', f'jetstream {{ store_dir: "{self.directory}/js" }}']
        lines += [f'authorization {{ user: "{USER}", password: {json.dumps(PASSWORD)} }}']
        if tls:
            certificate, key = ca.issue(HOST)
            lines += [f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}']
        (self.directory / "nats.conf").write_text("\n".join(lines) + "\n")

    def url(self):
        return f"nats{'+tls' if self.tls else ''}://{HOST}:{self.port}"

    def start(self, stream=True):
        with open(self.directory / "output", "ab") as output:
            self.process = subprocess.Popen(
                ["/usr/sbin/nats-server", "-c", str(self.directory / "nats.conf")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        eventually("NATS listens", self.is_ready, START_SECONDS)
        if stream:
            self.make_stream()
        return self

    def is_ready(self):
        assert self.process.poll() is None, (self.directory / "output").read_text()[-2000:]
        with suppress(Exception):
            asyncio.run(self.ask(lambda stream: stream.account_info()))
            return True
        return False

    async def ask(self, question):
        import ssl

        context = ssl.create_default_context(cafile=str(self.certificates)) if self.tls else None
        connection = await nats.connect(
            f"nats://{HOST}:{self.port}", user=USER, password=PASSWORD, tls=context, connect_timeout=10
        )
        try:
            return await question(connection.jetstream())
        finally:
            await connection.close()

    def make_stream(self):
        asyncio.run(self.ask(lambda stream: stream.add_stream(name="FTS", subjects=["transfer.>"])))

    def collect(self, count):
        """Messages of the stream in its order, once there are so many."""

        async def stored(stream):
            return (await stream.stream_info("FTS")).state.messages

        async def fetch(stream):
            found = []
            subscription = await stream.pull_subscribe("transfer.>", durable=secrets.token_hex(4), stream="FTS")
            while len(found) < count:
                for message in await subscription.fetch(min(100, count - len(found)), timeout=10):
                    found.append((message.subject, json.loads(message.data), message))
            return found

        eventually(f"{count} messages came", lambda: asyncio.run(self.ask(stored)) >= count, COLLECT_SECONDS)
        count = asyncio.run(self.ask(stored))
        return asyncio.run(self.ask(fetch))

    def stop(self):
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(STOP_SECONDS)

    def close(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
