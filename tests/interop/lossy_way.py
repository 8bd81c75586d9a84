"""A way to a transfer service on which answers get lost: it passes requests on with a certificate of its client's, and
hangs up instead of answering submissions while a test says so."""

import threading
from http.server import BaseHTTPRequestHandler

import requests

from .fault_server import TlsServer, context_of


class LossyWay:
    """Listens on a free port of a host. `loses` is set while answers to submissions get lost; `lost` counts them."""

    def __init__(self, host, ca, service, proxy, certificates):
        self.loses = threading.Event()
        self.lost = 0
        self.service = service
        self.options = {"cert": str(proxy.pem), "verify": str(certificates), "timeout": 60}
        self.http = TlsServer((host, 0), handler_of(self), context_of(ca.issue(host)))
        self.url = f"https://{host}:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def handler_of(way):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def pass_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kind = {"Content-Type": "application/json"}
            answer = requests.request(self.command, way.service + self.path, data=body, headers=kind, **way.options)
            if self.command == "POST" and way.loses.is_set():
                way.lost += 1
                return
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_DELETE = pass_on

    return Handler
