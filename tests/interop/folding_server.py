"""A storage element of another make: what it tells, and what comes between two requests, is decided by the test."""

import http.server
import threading
import urllib.parse

from .clients import adler32

# The same files are found below it.
DOOR = "/door"
LONG_AGO = "Thu, 01 Jan 2026 00:00:00 GMT"


class FoldingServer:
    """A storage element without TLS that keeps names in lower case, and removes directories with all that is in them."""

    def __init__(self):
        outer, self.files, self.removed, self.moves = self, {}, [], []
        # What it tells of files beside their sizes, and of itself.
        self.modified, self.tells_etags, self.options, self.before_move = LONG_AGO, False, {}, lambda: None
        # Which moves, counted from 0, are made and not answered.
        self.unanswered = set()

        class Exchange(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                """Silent."""

            def reply(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def do_HEAD(self):
                data = outer.files.get(self.path.lower())
                if data is None:
                    return self.reply(404)
                return self.reply(200, data, Digest=f"adler32={adler32(data)}")

            def do_PUT(self):
                if "Expect" in self.headers:
                    self.send_response_only(100)
                    self.end_headers()
                outer.files[self.path.lower()] = self.rfile.read(int(self.headers["Content-Length"]))
                self.reply(201)

            def do_DELETE(self):
                outer.removed.append(self.path)
                outer.files.pop(self.path.lower(), None)
                self.reply(204)

            def do_MKCOL(self):
                self.reply(405)

            def do_OPTIONS(self):
                self.reply(200, **outer.options)

            def do_MOVE(self):
                outer.before_move()
                place = urllib.parse.urlsplit(self.headers["Destination"]).path
                outer.moves.append((self.path, place, self.headers["Overwrite"], self.headers.get("If")))
                there = outer.below(place)
                is_refused = there and self.headers["Overwrite"] == "F"
                if is_refused or ("If" in self.headers and not outer.evaluates(place, self.headers["If"])):
                    return self.reply(412)
                for name in there:
                    outer.files.pop(name)
                for name in outer.below(self.path):
                    outer.files[place + name[len(self.path) :]] = outer.files.pop(name)
                if len(outer.moves) - 1 in outer.unanswered:
                    self.close_connection = True
                    return None
                return self.reply(204 if there else 201)

            def do_PROPFIND(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path = self.path.lower().rstrip("/").removeprefix(DOOR)
                below = {name[len(path) + 1 :].split("/")[0] for name in outer.files if name.startswith(path + "/")}
                if path not in outer.files and not below and path != "/t":
                    return self.reply(404)
                names = [path, *(f"{path}/{name}" for name in sorted(below))]
                prefix = DOOR if self.path.startswith(DOOR) else ""
                shown = names if self.headers["Depth"] == "1" else names[:1]
                entries = "".join(outer.entry(name, prefix) for name in shown)
                self.reply(207, f"<multistatus xmlns='DAV:'>{entries}</multistatus>".encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exchange)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/t"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def below(self, path):
        return [name for name in self.files if name == path or name.startswith(path + "/")]

    def evaluates(self, path, condition):
        """Whether an `If` header about a path holds."""
        return condition.endswith(f"([{self.etag(path)}])")

    def etag(self, path):
        return f'"{adler32(self.files[path])}"' if path in self.files else ""

    def entry(self, path, prefix=""):
        data = self.files.get(path)
        told = "<resourcetype><collection/></resourcetype>" if data is None else f"<getcontentlength>{len(data)}</getcontentlength>"
        if data is not None and self.modified:
            told += f"<getlastmodified>{self.modified}</getlastmodified>"
        if data is not None and self.tells_etags:
            told += f"<getetag>{self.etag(path)}</getetag>"
        return f"<response><href>{prefix}{path}</href><propstat><prop>{told}</prop></propstat></response>"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
