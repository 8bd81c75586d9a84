"""A token issuer as collaborations run them (INDIGO IAM and its kind): tokens of the WLCG profile by client
credentials, token exchange for refresh tokens, refresh tokens that are good for one use.

It answers as it should, unless a test has put an answer into `answers[grant]`. Every question is recorded.
"""

import base64
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qsl, unquote

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from .fault_server import TlsServer, context_of

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
REFRESH_TYPE = "urn:ietf:params:oauth:token-type:refresh_token"
KEY_NAME = "issuer-key"
ANY = "https://wlcg.cern.ch/jwt/v1/any"


def plain(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenIssuer:
    """One issuer. `clients` holds secrets by client; `lifetime` is that of the tokens it gives, in seconds."""

    def __init__(self, host, ca, clients=(("penstock", "the secret/of:penstock"),), port=0):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.clients = dict(clients)
        self.lifetime = 3600
        self.answers = {}
        self.seen = []
        self.refresh_tokens = {}
        self.http = TlsServer((host, port), handler_of(self), context_of(ca.issue(host)))
        self.url = f"https://{host}:{self.http.server_port}/"
        options = {"poll_interval": 0.05}
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs=options, daemon=True)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def trusted_by(self, site, client="penstock", vo="dteam"):
        """Makes a site trust its tokens for the whole namespace, and be its client."""
        lines = ["", "[[trust.issuer]]", f'issuer = "{self.url}"', 'prefix = "/"', f'vo = "{vo}"']
        if client:
            secret = site.directory / "keys/issuer-client-secret"
            secret.write_text(self.clients[client] + "\n")
            secret.chmod(0o600)
            lines += [f'client_id = "{client}"', 'client_secret_file = "keys/issuer-client-secret"']
        site.append("\n".join(lines) + "\n")

    def token(self, scope="storage.read:/ storage.modify:/", audience=ANY, life=None, **claims):
        now = int(time.time())
        claims = {
            "wlcg.ver": "1.0",
            "iss": self.url,
            "sub": "alice",
            "aud": audience,
            "iat": now,
            "nbf": now,
            "exp": now + (self.lifetime if life is None else life),
            "jti": str(uuid.uuid4()),
            "scope": scope,
            **claims,
        }
        head = {"alg": "ES256", "kid": KEY_NAME, "typ": "JWT"}
        signed = ".".join(plain(json.dumps(part).encode()) for part in (head, claims))
        r, s = decode_dss_signature(self.key.sign(signed.encode(), ec.ECDSA(SHA256())))
        return f"{signed}.{plain(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def asked(self, grant):
        """The forms of all questions of a kind."""
        return [form for form in list(self.seen) if form["grant_type"] == grant]

    # What it answers.

    def configuration(self):
        return {
            "issuer": self.url,
            "token_endpoint": f"{self.url}token",
            "jwks_uri": f"{self.url}jwk",
            "grant_types_supported": ["client_credentials", "refresh_token", EXCHANGE],
        }

    def keys(self):
        numbers = self.key.public_key().public_numbers()
        point = {"x": plain(numbers.x.to_bytes(32, "big")), "y": plain(numbers.y.to_bytes(32, "big"))}
        return {"keys": [{"kty": "EC", "crv": "P-256", "kid": KEY_NAME, "use": "sig", "alg": "ES256", **point}]}

    def answer(self, form, client):
        """Status and document for a question at the token endpoint."""
        self.seen.append(form)
        grant = form["grant_type"]
        if grant in self.answers:
            return self.answers[grant](form)
        if client is None:
            return 401, {"error": "invalid_client", "error_description": "Bad client credentials"}
        match grant:
            case "client_credentials":
                return 200, self.given(form)
            case "refresh_token":
                rights = self.refresh_tokens.pop(form["refresh_token"], None)
                if rights is None:
                    return 400, {"error": "invalid_grant", "error_description": "Invalid refresh token"}
                return 200, self.given(rights) | {"refresh_token": self.new_refresh_token(rights)}
            case _ if grant == EXCHANGE:
                given = self.new_refresh_token(form)
                return 200, {"access_token": given, "issued_token_type": REFRESH_TYPE, "token_type": "N_A"}
        return 400, {"error": "unsupported_grant_type"}

    def given(self, rights):
        audience = rights.get("audience", ANY)
        token = self.token(rights.get("scope", ""), audience)
        return {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}

    def new_refresh_token(self, rights):
        name = f"refresh-{uuid.uuid4()}"
        self.refresh_tokens[name] = {key: rights[key] for key in ("scope", "audience") if key in rights}
        return name


def handler_of(issuer):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            match self.path:
                case "/.well-known/openid-configuration":
                    self.tell(200, issuer.configuration())
                case "/jwk":
                    self.tell(200, issuer.keys())
                case _:
                    self.tell(404, {})

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.tell(*issuer.answer(dict(parse_qsl(body)), self.client()))

        def client(self):
            """Who asks, if it knows the secret."""
            kind, _, both = self.headers.get("Authorization", "").partition(" ")
            if kind != "Basic":
                return None
            name, _, secret = base64.b64decode(both).decode().partition(":")
            known = issuer.clients.get(unquote(name))
            return unquote(name) if known is not None and known == unquote(secret) else None

        def tell(self, status, document):
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
