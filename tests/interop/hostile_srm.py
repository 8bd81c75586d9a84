"""An SRM of an attacker: SOAP over GSI (TLS, then one byte that tells whether a proxy is delegated, then HTTP). It knows
one file, and answers with a transfer URL of its choice.
"""

import re
import socketserver
import ssl
import threading

ENVELOPE = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<SOAP-ENV:Envelope xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema" '
    'xmlns:srm="http://srm.lbl.gov/StorageResourceManager"><SOAP-ENV:Body>'
    "<srm:{0}Response><{0}Response>{1}</{0}Response></srm:{0}Response>"
    "</SOAP-ENV:Body></SOAP-ENV:Envelope>"
)
SUCCESS = "<statusCode>SRM_SUCCESS</statusCode><explanation>done</explanation>"


class HostileSrm:
    def __init__(self, address, host, transfer_url, size):
        """`host` has the certificate and the key of the name by which clients know the address."""
        self.transfer_url, self.size = transfer_url, size
        # Names of the calls.
        self.calls = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Clients take each record for data; later versions have others.
        self.context.maximum_version = ssl.TLSVersion.TLSv1_2
        self.context.load_cert_chain(str(host.certificate), str(host.key))
        self.server = Server((address, 0), Session)
        self.server.owner = self
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def port(self):
        return self.server.server_address[1]

    def url(self, name, path):
        return f"srm://{name}:{self.port}/srm/managerv2?SFN={path}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, call, url):
        path = url.partition("?SFN=")[2] or "/f"
        status = f"<returnStatus>{SUCCESS}</returnStatus>"
        of_file = f"<status>{SUCCESS}</status>"
        if call == "srmPing":
            return "<versionInfo>v2.2</versionInfo>"
        if call == "srmLs":
            detail = f"<path>{path}</path>{of_file}<size>{self.size}</size><type>FILE</type>"
            detail += "<fileLocality>ONLINE</fileLocality>"
            return f"{status}<details><pathDetailArray>{detail}</pathDetailArray></details>"
        if call in ("srmPrepareToGet", "srmStatusOfGetRequest"):
            ready = SUCCESS.replace("SRM_SUCCESS", "SRM_FILE_PINNED")
            file = f"<sourceSURL>{url}</sourceSURL><fileSize>{self.size}</fileSize><status>{ready}</status>"
            file += f"<transferURL>{self.transfer_url}</transferURL>"
            token = "<requestToken>1</requestToken>" if call == "srmPrepareToGet" else ""
            files = f"<arrayOfFileStatuses><statusArray>{file}</statusArray></arrayOfFileStatuses>"
            return f"{status}{token}{files}"
        return status


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class Session(socketserver.BaseRequestHandler):
    def handle(self):
        owner = self.server.owner
        try:
            with owner.context.wrap_socket(self.request, server_side=True) as stream:
                stream.settimeout(30)
                stream.recv(1)
                reader = stream.makefile("rb")
                while self.take(stream, reader):
                    pass
        except (OSError, ValueError):
            pass

    def take(self, stream, reader):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = reader.readline()
            if not line:
                return False
            head += line
        length = re.search(rb"content-length: *(\d+)", head, re.I)
        body = reader.read(int(length.group(1))) if length else chunks(reader)
        text = body.decode(errors="replace")
        call = re.search(r"<(?:[\w-]+:)?(srm[A-Z]\w+)", text.partition("Body")[2]).group(1)
        url = re.search(r"srm://[^<\s]+", text)
        owner = self.server.owner
        owner.calls.append(call)
        data = ENVELOPE.format(call, owner.answer(call, url.group(0) if url else "")).encode()
        reply = f"HTTP/1.1 200 OK\r\nContent-Type: text/xml; charset=utf-8\r\nContent-Length: {len(data)}\r\n\r\n"
        stream.sendall(reply.encode() + data)
        return True


def chunks(reader):
    data = b""
    while True:
        length = int(reader.readline().split(b";")[0], 16)
        data += reader.read(length)
        reader.readline()
        if length == 0:
            return data
