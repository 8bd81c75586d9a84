"""What is stored in a cloud storage whose answer was lost counts, and is never taken for somebody else's."""

import hashlib

import pytest

from .clients import Service, adler32, content

SMALL = content("cloud answers", 1000)
LARGE = content("cloud answers in parts", 20_000_000)


def error(exchange, status, code):
    exchange.reply(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>test</Message></Error>".encode())


def etag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


class Bucket:
    """Objects of a server that speaks as much S3 as one upload needs, and does not answer what it stores first."""

    def __init__(self, server, path, unanswered):
        self.server, self.path, self.unanswered = server, path, unanswered
        self.parts = {}
        server.answers.update({("HEAD", path): self.head, ("GET", path): self.get})
        server.answers.update({("PUT", path): self.put, ("POST", path): self.post})

    def head(self, exchange):
        data = self.server.files.get(self.path)
        if data is None:
            return exchange.reply(404)
        told = {"Content-Length": str(len(data)), "ETag": etag(data), "x-amz-meta-adler32": adler32(data)}
        exchange.reply(200, headers=told)

    def get(self, exchange):
        data = self.server.files.get(self.path)
        return error(exchange, 404, "NoSuchKey") if data is None else exchange.reply(200, data)

    def put(self, exchange):
        data = exchange.read_body()
        if "partNumber=" in exchange.path:
            self.parts[int(exchange.path.split("partNumber=")[1].split("&")[0])] = data
            return exchange.reply(200, headers={"ETag": etag(data)})
        if self.path in self.server.files:
            return error(exchange, 412, "PreconditionFailed")
        self.server.files[self.path] = data
        self.unanswered(exchange)

    def post(self, exchange):
        exchange.read_body()
        if "uploadId=" not in exchange.path:
            begun = "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
            return exchange.reply(200, f"<?xml version='1.0'?>{begun}".encode())
        if self.path in self.server.files:
            return error(exchange, 404, "NoSuchUpload")
        self.server.files[self.path] = b"".join(self.parts[number] for number in sorted(self.parts))
        self.unanswered(exchange)


@pytest.mark.parametrize(
    ("data", "unanswered"),
    [
        pytest.param(SMALL, lambda exchange: exchange.hang_up(), id="small, hang-up"),
        pytest.param(SMALL, lambda exchange: error(exchange, 500, "InternalError"), id="small, 500"),
        pytest.param(LARGE, lambda exchange: exchange.hang_up(), id="in parts, hang-up"),
    ],
)
def test_what_was_stored_without_an_answer_has_arrived(grid, elsewhere, place, data, unanswered):
    admin = Service(grid.here, grid.here.admin_token())
    name = f"S3:{elsewhere.host}"
    vo = grid.service.ask("GET", "/whoami").json()["vos"][0]
    admin.ask("POST", "/config/cloud_storage", json={"storage_name": name})
    keys = {"vo_name": vo, "access_key": "AKIATEST", "secret_key": "a-secret-of-the-test"}
    admin.ask("POST", f"/config/cloud_storage/{name}", json=keys)
    path = f"/bucket{place}/b"
    Bucket(elsewhere, path, unanswered)
    grid.here_door.put(f"{place}/a", data)
    pair = (grid.here_door.url(f"{place}/a"), elsewhere.url.replace("https", "s3s") + path)
    job = grid.service.submit(pair, verify_checksum="target", retry=-1)
    grid.service.wait_finished(job)
    assert elsewhere.files[path] == data
