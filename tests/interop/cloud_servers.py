"""Cloud storages of other hands that speak S3: moto (PyPI), which does not look at signatures, and s3s-fs,
which refuses every request whose signature is not right. Each listens on a loopback address of its own.
"""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import boto3
from botocore.config import Config

from .fault_server import context_of
from .site import free_port
from .waiting import eventually

TOOLS = Path(sys.executable).parent
ACCESS_KEY = "AKIAINTEROPTESTS"
SECRET_KEY = "not/so+secret/AsItShouldBe0123456789abcd"
BUCKET = "data"
CHUNK = 64 * 1024


class CloudServer:
    """One server. `url` names an object for the transfer service, `client` is a client of Amazon's own library."""

    kind = None

    def __init__(self, host, directory, ca):
        self.host = host
        self.port = free_port(host)
        self.ca = ca
        self.directory = directory
        directory.mkdir(parents=True)
        self.log = directory / "server.log"
        self.process = None
        self.front = None
        self.start()
        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{self.port}",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}),
        )
        self.client.create_bucket(Bucket=BUCKET)
        certificate = ca.issue(host)
        self.front = TlsFront(host, self.port, certificate)

    @property
    def name(self):
        """Of the record with its keys."""
        return f"S3:{self.host}"

    def url(self, key, bucket=BUCKET, tls=True):
        scheme, port = ("s3s", self.front.port) if tls else ("s3", self.port)
        return f"{scheme}://{self.host}:{port}/{bucket}/{key}"

    def start(self):
        environment = {**os.environ, **self.environment()}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.line(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        eventually(f"{self.kind} listens", self.listens, 60)

    def environment(self):
        return {}

    def listens(self):
        assert self.process.poll() is None, f"{self.kind} ended\n{self.log.read_text()}"
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def put(self, key, data, **options):
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data, **options)

    def get(self, key):
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def head(self, key):
        return self.client.head_object(Bucket=BUCKET, Key=key)

    def keys(self):
        return sorted(entry["Key"] for entry in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", []))

    def uploads(self):
        """Ids of uploads in parts that have not ended."""
        raise NotImplementedError

    def forget_uploads(self):
        """Of earlier tests."""

    def close(self):
        if self.front:
            self.front.close()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Moto(CloudServer):
    kind = "moto"

    def line(self):
        return [TOOLS / "moto_server", "-H", self.host, "-p", str(self.port)]

    def uploads(self):
        listed = self.client.list_multipart_uploads(Bucket=BUCKET)
        return [upload["UploadId"] for upload in listed.get("Uploads", [])]


class S3s(CloudServer):
    kind = "s3s-fs"

    def line(self):
        root = self.directory / "root"
        root.mkdir(exist_ok=True)
        keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
        return [TOOLS / "s3s-fs", "--host", self.host, "--port", str(self.port), *keys, str(root)]

    def uploads(self):
        root = self.directory / "root"
        return sorted(path.name for path in root.glob(".upload*"))

    def forget_uploads(self):
        """It keeps a part that comes after its upload was given up."""
        for path in (self.directory / "root").glob(".upload*"):
            path.unlink(missing_ok=True)


class TlsFront:
    """TLS before a plain server: what comes is passed on byte by byte."""

    def __init__(self, host, behind, certificate):
        self.behind = (host, behind)
        self.context = context_of(certificate)
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
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
        try:
            client = self.context.wrap_socket(client, server_side=True)
            server = socket.create_connection(self.behind)
        except OSError:
            client.close()
            return
        # Python's TLS sockets may be read by one thread while another one writes.
        threading.Thread(target=pass_on, args=(server, client), daemon=True).start()
        pass_on(client, server)


def pass_on(source, destination):
    try:
        while piece := source.recv(CHUNK):
            destination.sendall(piece)
    except (OSError, ValueError):
        pass
    for end in (source, destination):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
