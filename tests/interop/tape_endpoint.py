"""A storage element in front of a tape library, as tests need one: files in memory, some on disk and some on tape only,
and the WLCG Tape REST API v1 at the same address. A test scripts delays, failures, silence and loss of memory, and
sees every call.

What is on tape only can be looked at (HEAD) and not be read (GET: 409), like files of a nearline storage element.
"""

import json
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from .clients import adler32
from .fault_server import CHUNK, TlsServer, context_of

API = "/api/v1"
WELL_KNOWN = "/.well-known/wlcg-tape-rest-api"
# A call that hangs ends at last when nobody releases it.
HANG_SECONDS_MAX = 120
SITE = "TAPELAB"


@dataclass
class TapeFile:
    """A file: its bytes, and where they are."""

    data: bytes
    on_disk: bool = True
    on_tape: bool = False
    # When a file that was written here is on tape; None: nobody archives it.
    archived_at: float | None = None
    # What `archiveinfo` and stage requests say instead of anything else.
    error: str | None = None
    locality: str | None = None
    # Of the request that wrote it.
    headers: dict = field(default_factory=dict)
    pins: set = field(default_factory=set)

    def where(self):
        if self.locality:
            return self.locality
        if not self.data:
            return "NONE"
        if self.archived_at is not None and time.monotonic() >= self.archived_at:
            self.on_tape = True
        match self.on_disk, self.on_tape:
            case True, True:
                return "DISK_AND_TAPE"
            case True, False:
                return "DISK"
            case False, True:
                return "TAPE"
        return "LOST"


@dataclass
class StageFile:
    """One file of a stage request."""

    path: str
    due: float
    metadata: dict | None = None
    lifetime: str | None = None
    state: str = "SUBMITTED"
    error: str | None = None
    started: int | None = None
    finished: int | None = None


@dataclass
class StageRequest:
    id: str
    created: int
    files: dict


@dataclass(frozen=True)
class Call:
    """A call of the tape interface as it arrived."""

    name: str
    request: str | None
    body: dict
    headers: dict

    @property
    def paths(self):
        listed = self.body.get("files")
        return [file["path"] for file in listed] if listed is not None else self.body.get("paths", [])


class TapeEndpoint:
    """One endpoint. Attributes are the script, and may be changed at any time:

    - `recall_seconds`, `archive_seconds`: how long the library takes. `archive_seconds = None`: nothing is archived.
    - `holds`: while set, nothing comes from tape.
    - `errors[path]`: the library fails to bring this file, with that text.
    - `trouble[name]`: a list of answers to the next calls of that name (`discovery`, `stage`, `poll`, `cancel`,
      `delete`, `release`, `archiveinfo`), in the place of the true ones: a status, `"hang"`, `"cut"`, or bytes.
      `"lost"`: the work is done, but the answer is not sent. `trouble["GET"] = ["hang"]` is about reading files.
    - `evicts`: a file whose last pin was released leaves the disk.
    - `milliseconds`: times as dCache tells them.
    - `shows_states`: whether a file of a stage request has a `state`, else `onDisk`.
    """

    def __init__(self, host, ca=None, port=0):
        self.host = host
        self.files = {}
        self.requests = {}
        self.calls = []
        self.copies = []
        self.trouble = {}
        self.errors = {}
        self.recall_seconds = 0.0
        self.archive_seconds = 0.0
        self.holds = threading.Event()
        self.evicts = True
        self.milliseconds = False
        self.shows_states = True
        self.offers_tape = True
        self.released = threading.Event()
        self.lock = threading.RLock()
        self.http = TlsServer((host, port), handler_of(self), ca and context_of(ca.issue(host)))
        self.url = f"{'https' if ca else 'http'}://{host}:{self.http.server_port}"
        self.api = self.url + API
        self.thread = threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self.thread.start()

    def close(self):
        self.released.set()
        self.http.shutdown()
        self.http.server_close()

    def put_on_tape(self, path, data):
        """A file that is on tape only; gives back its URL."""
        with self.lock:
            self.files[collapsed(path)] = TapeFile(data, on_disk=False, on_tape=True)
        return self.url + path

    def put_on_disk(self, path, data, on_tape=False):
        with self.lock:
            self.files[collapsed(path)] = TapeFile(data, on_tape=on_tape)
        return self.url + path

    def where(self, path):
        with self.lock:
            self.work()
            known = self.files.get(collapsed(path))
            return known and known.where()

    def called(self, name):
        """The calls of that name so far."""
        return [call for call in list(self.calls) if call.name == name]

    def staged(self):
        """How often each path was asked for."""
        return Counter(path for call in self.called("stage") for path in call.paths)

    def forget_requests(self):
        """The library loses its memory: what was asked for is not known any more."""
        with self.lock:
            for file in self.files.values():
                file.pins.clear()
            self.requests.clear()

    def work(self):
        """What the library has done by now."""
        now = time.monotonic()
        for request in self.requests.values():
            for asked in request.files.values():
                if asked.state not in ("SUBMITTED", "STARTED"):
                    continue
                known = self.files.get(collapsed(asked.path))
                failed = self.errors.get(collapsed(asked.path))
                if known is None:
                    finish(asked, "FAILED", self.time(), f"no such file: {asked.path}")
                elif failed:
                    finish(asked, "FAILED", self.time(), failed)
                elif known.on_disk or (asked.due <= now and not self.holds.is_set()):
                    known.on_disk = True
                    known.pins.add(request.id)
                    finish(asked, "COMPLETED", self.time())
                else:
                    asked.state = "STARTED"
                    asked.started = asked.started or self.time()

    def time(self):
        return int(time.time() * (1000 if self.milliseconds else 1))

    # The calls: each gives status and document.

    def discovery(self, _request, _body):
        if not self.offers_tape:
            return 404, None
        endpoint = {"uri": self.api, "version": "v1", "metadata": {}}
        return 200, {"sitename": SITE, "description": "a tape library of tests", "endpoints": [endpoint]}

    def stage(self, _request, body):
        files = body.get("files")
        if not isinstance(files, list) or not files:
            return 400, problem(400, "no files")
        due, made = time.monotonic() + self.recall_seconds, str(uuid.uuid4())
        asked = {
            file["path"]: StageFile(file["path"], due, file.get("targetedMetadata"), file.get("diskLifetime"))
            for file in files
        }
        self.requests[made] = StageRequest(made, self.time(), asked)
        return 201, {"requestId": made}

    def poll(self, request, _body):
        known = self.requests.get(request)
        if known is None:
            return 404, problem(404, "no such request")
        self.work()
        told = {"id": known.id, "createdAt": known.created, "startedAt": known.created}
        if all(file.finished for file in known.files.values()):
            told["completedAt"] = self.time()
        return 200, told | {"files": [self.shown(file) for file in known.files.values()]}

    def shown(self, asked):
        known = self.files.get(collapsed(asked.path))
        told = {"path": asked.path}
        if asked.started:
            told["startedAt"] = asked.started
        if asked.finished:
            told["finishedAt"] = asked.finished
        if asked.error:
            told["error"] = asked.error
        if self.shows_states:
            told["state"] = asked.state
        else:
            told["onDisk"] = bool(known and known.on_disk and asked.state == "COMPLETED")
        return told

    def cancel(self, request, body):
        known = self.requests.get(request)
        if known is None:
            return 404, problem(404, "no such request")
        paths = body.get("paths", [])
        if any(path not in known.files for path in paths):
            return 400, problem(400, "a path is not of this request")
        for path in paths:
            if known.files[path].state in ("SUBMITTED", "STARTED"):
                finish(known.files[path], "CANCELLED", self.time())
        return 200, None

    def delete(self, request, _body):
        known = self.requests.pop(request, None)
        return (404, problem(404, "no such request")) if known is None else (200, None)

    def release(self, request, body):
        self.work()
        for path in body.get("paths", []):
            known = self.files.get(collapsed(path))
            if known is None:
                continue
            known.pins.discard(request)
            if self.evicts and not known.pins and known.where() == "DISK_AND_TAPE":
                known.on_disk = False
        return 200, None

    def archiveinfo(self, _request, body):
        return 200, [self.located(path) for path in body.get("paths", [])]

    def located(self, path):
        known = self.files.get(collapsed(path))
        if known is None:
            return {"path": path, "error": "No such file or directory"}
        if known.error:
            return {"path": path, "error": known.error}
        return {"path": path, "locality": known.where()}


def finish(asked, state, at, error=None):
    asked.state, asked.finished, asked.error = state, at, error


def problem(status, title):
    """RFC 7807."""
    return {"status": status, "title": title, "detail": f"{title} (a test says so)"}


def collapsed(path):
    return "/" + "/".join(part for part in path.split("/") if part)


def call_of(method, path):
    """The name of a call and the request that it is about."""
    if (method, path) == ("GET", WELL_KNOWN):
        return "discovery", None
    if not path.startswith(API + "/"):
        return None
    match method, *path.removeprefix(API).strip("/").split("/"):
        case "POST", "stage":
            return "stage", None
        case "GET", "stage", request:
            return "poll", request
        case "DELETE", "stage", request:
            return "delete", request
        case "POST", "stage", request, "cancel":
            return "cancel", request
        case "POST", "release", request:
            return "release", request
        case "POST", "archiveinfo":
            return "archiveinfo", None
    return None


def handler_of(endpoint):
    class Exchange(BaseHTTPRequestHandler):
        """One request and what is answered to it."""

        protocol_version = "HTTP/1.1"
        server_version = "TapeLab"
        timeout = HANG_SECONDS_MAX

        def log_message(self, *_):
            """Silent."""

        def serve(self):
            path = unquote(urlsplit(self.path).path)
            body = self.read_body()
            called = call_of(self.command, path)
            if called:
                return self.tape(*called, body)
            if self.command == "POST":
                return self.macaroon()
            with endpoint.lock:
                endpoint.work()
                script = endpoint.trouble.get(self.command)
                trouble = script.pop(0) if script else None
            if trouble:
                endpoint.released.wait(HANG_SECONDS_MAX)
                return self.hang_up()
            with endpoint.lock:
                return getattr(self, self.command.lower())(collapsed(path), body)

        do_POST = do_GET = do_HEAD = do_PUT = do_DELETE = do_MKCOL = do_PROPFIND = do_COPY = do_OPTIONS = serve

        def read_body(self):
            body, rest = [], int(self.headers.get("Content-Length", 0))
            while rest:
                piece = self.rfile.read(min(CHUNK, rest))
                if not piece:
                    raise ConnectionError("the sender has gone")
                rest -= len(piece)
                body.append(piece)
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                body = list(self.chunks())
            return b"".join(body)

        def chunks(self):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass

        def tape(self, name, request, body):
            read = json.loads(body) if body else {}
            with endpoint.lock:
                endpoint.calls.append(Call(name, request, read, dict(self.headers.items())))
                script = endpoint.trouble.get(name)
                trouble = script.pop(0) if script else None
            if trouble is None or trouble == "lost":
                with endpoint.lock:
                    status, document = getattr(endpoint, name)(request, read)
                if trouble == "lost":
                    return self.hang_up()
                data = b"" if document is None else json.dumps(document).encode()
                return self.reply(status, data, {"Content-Type": "application/json"})
            if trouble == "hang":
                endpoint.released.wait(HANG_SECONDS_MAX)
                return self.hang_up()
            if trouble == "cut":
                return self.hang_up()
            if isinstance(trouble, bytes):
                return self.reply(201 if name == "stage" else 200, trouble)
            return self.reply(trouble, json.dumps(problem(trouble, "refused")).encode())

        def macaroon(self):
            """Everybody may do everything here; clients with a proxy ask for macaroons all the same."""
            if self.headers.get("Content-Type") != "application/macaroon-request":
                return self.reply(405)
            return self.reply(200, json.dumps({"macaroon": "of-a-test", "expires_in": 3600}).encode())

        def head(self, path, _body):
            known = endpoint.files.get(path)
            if known is None:
                return self.reply(404)
            told = {"Content-Length": str(len(known.data)), "Digest": f"adler32={adler32(known.data)}"}
            return self.reply(200, headers=told)

        def get(self, path, _body):
            known = endpoint.files.get(path)
            if known is None:
                return self.reply(404)
            if not known.on_disk:
                return self.reply(409, b"the file is not online\n")
            endpoint.copies.append(path)
            return self.reply(200, known.data)

        def put(self, path, body):
            seconds = endpoint.archive_seconds
            at = None if seconds is None else time.monotonic() + seconds
            endpoint.files[path] = TapeFile(body, archived_at=at, headers=dict(self.headers.items()))
            self.reply(201)

        def delete(self, path, _body):
            self.reply(404 if endpoint.files.pop(path, None) is None else 204)

        def mkcol(self, _path, _body):
            self.reply(405)

        def propfind(self, path, _body):
            known = endpoint.files.get(path)
            if known is None and not any(name.startswith(path.rstrip("/") + "/") for name in endpoint.files):
                return self.reply(404)
            kind = "" if known else "<D:collection/>"
            size = f"<D:getcontentlength>{len(known.data)}</D:getcontentlength>" if known else ""
            text = (
                '<?xml version="1.0"?><D:multistatus xmlns:D="DAV:"><D:response>'
                f"<D:href>{path}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>{size}"
                "</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"
            )
            self.reply(207, text.encode(), {"Content-Type": "application/xml"})

        def copy(self, _path, _body):
            self.reply(405, b"no third-party copy here\n")

        def options(self, _path, _body):
            self.reply(200, headers={"DAV": "1", "Allow": "GET, HEAD, PUT, DELETE, MKCOL, PROPFIND"})

        def reply(self, status, body=b"", headers=None):
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def hang_up(self):
            self.close_connection = True
            self.wfile.flush()
            self.connection.close()

    return Exchange
