"""What the tests themselves ask over the wire: the files of a door and the jobs of a service. Kept simple."""

import base64
import random
import re
import xml.etree.ElementTree as ElementTree
import zlib
from urllib.parse import unquote, urlsplit

import requests

from . import openapi
from .waiting import eventually

SCOPES = r"^(SOURCE|DESTINATION|TRANSFER|GENERAL_FAILURE|STAGING|ARCHIVING) \[\d+\] \S"
TERMINAL = {"FINISHED", "FINISHEDDIRTY", "FAILED", "CANCELED"}
DAV = "{DAV:}"
# Answers beyond are not held against the OpenAPI documents.
OPENAPI_BYTES_MAX = 1 << 20


def content(seed, size):
    """Bytes that cannot be compressed or mistaken for other ones."""
    return random.Random(repr(seed)).randbytes(size)


def adler32(data):
    return f"{zlib.adler32(data):08x}"


class Endpoint:
    """An HTTPS server of a site, with a bearer token."""

    def __init__(self, base, certificates, token=None):
        self.base = base
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = str(certificates)
        if token:
            self.session.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method, path, **options):
        options.setdefault("timeout", 60)
        options.setdefault("allow_redirects", False)
        return self.session.request(method, self.base + path, **options)


class Door(Endpoint):
    """The files of a site."""

    def __init__(self, site, token=None):
        super().__init__(site.door, site.certificates, token or site.token())

    def url(self, path):
        return self.base + path

    def put(self, path, data, expect=201, **headers):
        answer = self.ask("PUT", path, data=data, headers=headers)
        assert answer.status_code == expect, f"PUT {path}: {answer.status_code} {answer.text}"
        return answer

    def get(self, path, expect=200, **headers):
        answer = self.ask("GET", path, headers=headers)
        assert answer.status_code == expect, f"GET {path}: {answer.status_code} {answer.text}"
        return answer.content

    def exists(self, path):
        status = self.ask("HEAD", path).status_code
        assert status in (200, 404), f"HEAD {path}: {status}"
        return status == 200

    def checksum(self, path, algorithm="adler32"):
        """As the storage element tells it, in hexadecimal."""
        answer = self.ask("HEAD", path, headers={"Want-Digest": algorithm})
        assert answer.status_code == 200, f"HEAD {path}: {answer.status_code}"
        name, _, value = answer.headers["Digest"].partition("=")
        assert name.lower() == algorithm
        return base64.b64decode(value).hex() if algorithm in ("md5", "sha-256") else value.lower()

    def list(self, path):
        """Sizes of the files in a directory by path; directories have none."""
        answer = self.ask("PROPFIND", path, headers={"Depth": "1"})
        if answer.status_code == 404:
            return {}
        assert answer.status_code == 207, f"PROPFIND {path}: {answer.status_code} {answer.text}"
        return dict(listed(entry) for entry in ElementTree.fromstring(answer.content))


def listed(entry):
    path = unquote(urlsplit(entry.findtext(f"{DAV}href")).path).rstrip("/")
    is_directory = entry.find(f".//{DAV}resourcetype/{DAV}collection") is not None
    length = entry.findtext(f".//{DAV}getcontentlength")
    return path, None if is_directory else int(length)


class Service(Endpoint):
    """The jobs of a site's transfer service. Each answer must be as the OpenAPI documents say."""

    def __init__(self, site, token=None):
        super().__init__(site.service, site.certificates, token or site.token())

    def ask(self, method, path, **options):
        answer = super().ask(method, path, **options)
        if not options.get("stream") and len(answer.content) < OPENAPI_BYTES_MAX:
            openapi.check(method, path, answer)
        return answer

    def submit(self, *files, **params):
        """Submits files, each a pair of URLs or a whole file object; gives back the job's id."""
        answer = self.try_submit(*files, **params)
        assert answer.status_code == 200, f"POST /jobs: {answer.status_code} {answer.text}"
        return answer.json()["job_id"]

    def try_submit(self, *files, **params):
        return self.ask(
            "POST", "/jobs", json={"files": [file_object(file) for file in files], "params": params}
        )

    def job(self, job):
        answer = self.ask("GET", f"/jobs/{job}")
        assert answer.status_code == 200, f"GET /jobs/{job}: {answer.status_code} {answer.text}"
        return answer.json()

    def files(self, job):
        answer = self.ask("GET", f"/jobs/{job}/files")
        assert answer.status_code == 200, f"GET /jobs/{job}/files: {answer.status_code} {answer.text}"
        return answer.json()

    def wait(self, job, within=60.0):
        """The job once it has ended."""

        def ended():
            seen = self.job(job)
            return seen if seen["job_state"] in TERMINAL else None

        try:
            return eventually(f"job {job} ends", ended, within)
        except AssertionError as late:
            states = [(file["file_state"], file["reason"]) for file in self.files(job)[:5]]
            raise AssertionError(f"{late}; files: {states}") from None

    def wait_finished(self, job, within=60.0):
        seen = self.wait(job, within)
        reasons = sorted({file["reason"] for file in self.files(job)})
        assert seen["job_state"] == "FINISHED", f"{seen['job_state']}: {reasons}"
        return seen

    def wait_failed(self, job, within=60.0):
        """The reason of the only file of a job that must fail."""
        seen = self.wait(job, within)
        [file] = self.files(job)
        assert (seen["job_state"], file["file_state"]) == ("FAILED", "FAILED"), f"{seen} {file}"
        assert re.match(SCOPES, file["reason"]), file[
            "reason"
        ]
        return file["reason"]

    def wait_state(self, job, state, within=20.0):
        eventually(f"job {job} is {state}", lambda: self.job(job)["job_state"] == state, within)

    def overview(self):
        answer = self.ask("GET", "/api/v1/overview")
        assert answer.status_code == 200, f"GET /api/v1/overview: {answer.status_code} {answer.text}"
        return answer.json()

    def wait_idle(self, within=10.0):
        """No transfer runs and every slot is free."""

        def idle():
            seen = self.overview()
            active = [
                seen["totals"]["active"],
                seen["agents"]["active"],
                *(link["active"] for link in seen["links"]),
            ]
            active += [
                row[side] for row in seen["storages"] for side in ("inbound_active", "outbound_active")
            ]
            return not any(active)

        eventually("every slot is free", idle, within)


def file_object(file):
    if isinstance(file, dict):
        return file
    source, destination = file
    return {"sources": [source], "destinations": [destination]}
