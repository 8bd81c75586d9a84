"""An experiment's data management: Penstock sites, and a Rucio that has their directories as its storages (RSEs).

What operators have to set up is read from `docs/rucio.md`; only names, places and addresses are other ones here.
"""

import configparser
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from .brokers import HOST as BROKER_HOST
from .brokers import PASSWORD, USER
from .certificates import VO
from .clients import Door, Service, adler32, content
from .lossy_way import LossyWay
from .rucio_daemons import Rucio
from .site import Site
from .test_files_on_tape import STAGING, DirectoryHsm, gated_program, locality, with_tape
from .tape_endpoint import TapeEndpoint
from .token_issuer import TokenIssuer
from .waiting import eventually

HOSTS = ["127.0.4.1", "127.0.4.2", "127.0.4.3"]
ISSUER_HOST, LIBRARY_HOST, WAY_HOST = "127.0.4.4", "127.0.4.5", "127.0.4.6"
# How often a service looks at what the library is at.
OFTEN = {"quiet": "100ms", "fill_max": "1s", "poll_min": "100ms", "poll_max": "1s"}
CLIENTS = {"rucio": "secret of rucio", "penstock": "secret of penstock"}
PLACE = f"/{VO}/rucio"
RULE_SECONDS = 90
TOOLS = Path(sys.executable).parent
NEW_DATASETS = iter(range(1, 1000))


@dataclass
class Storage:
    """What Rucio calls an RSE: a directory at a site, and how Rucio is to reach it."""

    name: str
    site: Site
    scheme: str = "https"
    tape: bool = False
    # Its files are those of a tape storage that have been brought to disk.
    is_staging_area: bool = False

    @property
    def prefix(self):
        return f"{PLACE}/{self.name.lower()}/"

    @property
    def address(self):
        return self.site.host, self.site.base

    def put(self, path, data):
        Door(self.site).put(path, data)

    def checksum(self, path):
        return Door(self.site).checksum(path)


@dataclass
class TapeStorage(Storage):
    """One in front of a tape library."""

    site: TapeEndpoint
    tape: bool = True

    @property
    def address(self):
        return self.site.host, self.site.http.server_port

    def put(self, path, data):
        self.site.put_on_tape(path, data)

    def checksum(self, path):
        return adler32(self.site.files[path].data)


@dataclass
class Shipment:
    """A data set, and where a rule wants it."""

    dataset: str
    contents: dict
    destination: str = None
    rule: str = None


class Lab:
    def __init__(self, directory, binary, user_ca, fault_ca):
        self.issuer_ca = fault_ca.certificate
        self.ca, self.alice = user_ca, user_ca.user("Rucio Robot")
        self.proxy = user_ca.voms_proxy(self.alice, hours=24)
        self.near, self.far, self.third = self.sites = make_sites(binary, directory)
        self.way = LossyWay(WAY_HOST, fault_ca, self.near.service, self.proxy, self.near.certificates)
        self.library = TapeEndpoint(LIBRARY_HOST, fault_ca)
        self.storages = {
            storage.name: storage
            for storage in [
                Storage("NEAR", self.near),
                Storage("SPARE", self.third),
                Storage("FAR", self.far),
                Storage("STEP", self.third),
                Storage("REMOTE", self.far),
                Storage("ELSEWHERE", self.far),
                Storage("BEHIND", self.far),
                Storage("VAULT", self.far, tape=True),
                Storage("ARCHIVE", self.far, tape=True),
                Storage("ARCHIVE-BUFFER", self.far, is_staging_area=True),
                Storage("NEARLINE", self.far),
                TapeStorage("TAPE", self.library),
                Storage("TOKEN-NEAR", self.near, "davs"),
                Storage("TOKEN-FAR", self.far, "davs"),
            ]
        }
        program, self.gate = gated_program(directory)
        with_tape(self.far, DirectoryHsm(self.far, program), paths=self.tape_paths())
        self.issuer = TokenIssuer(ISSUER_HOST, fault_ca, CLIENTS.items())
        self.rucio = Rucio(directory / "rucio", self.proxy, self.near.certificates)

    def start(self, broker):
        for site in self.sites:
            self.let_in(site, broker)
            # The one that Rucio submits to renews tokens, too.
            self.issuer.trusted_by(site, client="penstock" if site is self.near else None, vo=VO)
            site.trust(self.issuer_ca)
        rucio = partial(self.start_rucio, broker)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda start: start(), [*(site.start for site in self.sites), rucio]))
        for site in (self.near, self.third):
            self.delegate(site)
        self.rucio.run_conveyor()

    def let_in(self, site, broker):
        """The collaboration may use its directory."""
        self.ca.trusted_by(site)
        site.configure("[transfer]", retries=0, retry_delay="1s")
        site.allow(LIBRARY_HOST)
        lines = [f"{key} = {json.dumps(value)}" for key, value in OFTEN.items()]
        site.append("\n".join(["", "[transfer.staging]", *lines, ""]))
        site.append(GUIDE.toml("At every storage"))
        service = GUIDE.toml("At the transfer service").replace("/DC=org/DC=example/CN=rucio", self.alice.subject)
        service = service.replace("stomp://mq.example.org:61613/%2F", broker.url())
        site.append(service)
        secret = site.directory / "keys/broker"
        secret.touch(mode=0o600)
        secret.write_text(PASSWORD + "\n")

    def start_rucio(self, broker):
        secrets = self.rucio.directory / "idpsecrets.json"
        client = {"issuer": self.issuer.url, "client_id": "rucio", "client_secret": CLIENTS["rucio"]}
        secrets.touch(mode=0o600)
        secrets.write_text(json.dumps({"test": client}))
        sections = GUIDE.ini("In Rucio")
        replace(sections["conveyor"], usercert=self.proxy.pem)
        replace(sections["oidc"], idpsecrets=secrets, admin_issuer="test")
        port = broker.ports["stomp"]
        replace(sections["messaging-fts3"], brokers=BROKER_HOST, port=port, username=USER, password=PASSWORD)
        self.rucio.start(sections)
        for storage in self.storages.values():
            self.add_rse(storage)
        for ends in DISTANCES:
            self.rucio.ask("add_distance", *ends.split())

    def add_rse(self, storage):
        services = {"ELSEWHERE": self.third.service, "BEHIND": self.way.url}
        wanted = {"fts", "verify_checksum", "supported_checksums"} | ATTRIBUTES.get(storage.name, set())
        attributes = {key: value for key, value in GUIDE.attributes().items() if key in wanted}
        replace(attributes, fts=services.get(storage.name, self.near.service))
        if "staging_buffer" in attributes:
            replace(attributes, staging_buffer=f"{storage.name}-BUFFER")
        words = [storage.name, storage.scheme, *storage.address, storage.prefix, attributes]
        options = {"tape": storage.tape, "is_staging_area": storage.is_staging_area}
        self.rucio.ask("add_rse", *words, **options)

    def delegate(self, site):
        """What a cron job of Rucio's operators does."""
        line = [str(TOOLS / "fts-rest-delegate"), "-s", site.service]
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            "X509_CERT_DIR": str(site.certificates),
            "X509_USER_PROXY": str(self.proxy.pem),
        }
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def service(self, site):
        """A transfer service as Rucio's certificate sees it."""
        service = Service(site)
        del service.session.headers["Authorization"]
        service.session.cert = str(self.proxy.pem)
        return service

    def forget_delegation(self, site):
        service = self.service(site)
        own = service.ask("GET", "/whoami").json()["delegation_id"]
        assert service.ask("DELETE", f"/delegation/{own}").status_code == 204

    def load(self, count=1, sources=("NEAR",), absent=(), size=20_000):
        """Registers new files at the sources, and puts them there but for those sources where they are `absent`."""
        dataset = f"set-{next(NEW_DATASETS)}"
        contents = {f"{dataset}.{number}": content(f"{dataset} {number}", size) for number in range(count)}
        with ThreadPoolExecutor(8) as pool:
            for source in set(sources) - set(absent):
                list(pool.map(lambda put: put(), self.puts(source, contents)))
        files = [
            {"name": name, "bytes": len(data), "adler32": adler32(data)} for name, data in contents.items()
        ]
        self.rucio.ask("register", list(sources), dataset, files)
        return Shipment(dataset, contents)

    def want(self, shipment, destination, **options):
        """Adds a rule that wants the files at the destination."""
        shipment.destination = destination
        shipment.rule = self.rucio.ask("add_rule", shipment.dataset, destination, **options)
        return shipment

    def ship(self, destination, activity=None, priority=3, **load):
        return self.want(self.load(**load), destination, activity=activity, priority=priority)

    def put_in_the_way(self, shipment, destination, data):
        """Something is at the destination of a shipment of one file. Gives back where."""
        [path] = self.paths(destination, shipment.contents).values()
        self.storages[destination].put(path, data)
        return path

    def make_prefix(self, name):
        """Rucio's own clients want the directory to be there."""
        storage = self.storages[name]
        door = Door(storage.site)
        for length in range(2, storage.prefix.count("/") + 1):
            path = "/".join(storage.prefix.split("/")[:length])
            assert door.ask("MKCOL", path).status_code in (201, 405)

    def puts(self, name, contents):
        storage, paths = self.storages[name], self.paths(name, contents)
        return [lambda path=paths[file], data=data: storage.put(path, data) for file, data in contents.items()]

    def paths(self, name, files):
        urls = self.rucio.ask("urls", name, list(files))
        return {file: urlsplit(url).path for file, url in urls.items()}

    def tape_paths(self):
        """Below which the files of the site that has tape go there."""
        return [self.storages[name].prefix.rstrip("/") for name in ("ARCHIVE", "NEARLINE")]

    def localities(self, name, contents):
        """Where the files of a storage are that has tape, told to an operator."""
        storage = self.storages[name]
        door = Door(storage.site, storage.site.token(STAGING))
        return set(locality(door, *self.paths(name, contents).values()).values())

    def wait_only_on_tape(self, shipment, name):
        eventually("they are on tape only", lambda: self.localities(name, shipment.contents) == {"TAPE"}, 60)

    def rule(self, shipment):
        return self.rucio.ask("show_rule", shipment.rule)

    def requests(self, shipment):
        return self.rucio.ask("requests", shipment.dataset)

    def replicas(self, shipment, name=None):
        """The state of each replica at a storage."""
        found = self.rucio.ask("replicas", shipment.dataset)
        return {file: state for at, file, state, _ in found if at == (name or shipment.destination)}

    def wait_rule(self, shipment, state):
        self.rucio.assert_runs()
        try:
            eventually(f"the rule is {state}", lambda: self.rule(shipment)["state"] == state, RULE_SECONDS)
        except AssertionError as late:
            shown = [self.rule(shipment), *self.requests(shipment)[:6]]
            raise AssertionError(f"{late}\n{shown}\n{self.rucio.log_tail()}\n{self.near.log_tail(10)}") from None

    def wait_ok(self, shipment):
        """The rule is OK, and every file is at the destination with all its bytes."""
        self.wait_rule(shipment, "OK")
        assert self.replicas(shipment) == dict.fromkeys(shipment.contents, "AVAILABLE")
        self.assert_arrived(shipment.destination, shipment.contents)

    def assert_arrived(self, name, contents):
        paths = self.paths(name, contents)
        for file, data in contents.items():
            assert self.storages[name].checksum(paths[file]) == adler32(data)

    def wait_submitted(self, shipment):
        """The requests of a shipment once they are jobs."""

        def submitted():
            found = self.requests(shipment)
            return found if found and all(request["external_id"] for request in found) else None

        return eventually("the requests are jobs", submitted, RULE_SECONDS)

    def wait_failed(self, shipment, why):
        """A request of a shipment has failed for a reason that Rucio has from us."""

        def failed():
            told = [request["err_msg"] for request in self.requests(shipment) if request["state"] == "FAILED"]
            return any(why in text for text in told)

        eventually(f"a request fails: {why}", failed, RULE_SECONDS)

    def job(self, request):
        """A request's job as the service shows it to the collaboration."""
        [site] = [site for site in self.sites if site.service == request["external_host"]]
        return self.service(site).job(request["external_id"])

    @contextmanager
    def drained(self, site):
        """While a service takes jobs and starts nothing."""
        self.drain(site, "on")
        try:
            yield
        finally:
            self.drain(site, "off")

    def drain(self, site, state):
        site.command("drain", state)

    def lose_jobs(self, site):
        """A service begins anew without its records; it is delegated to before Rucio submits again."""
        with self.rucio.paused("submitter"):
            site.stop()
            for file in (site.directory / "state").iterdir():
                if file.name.startswith(("transfer.sqlite", "delegations.sqlite")):
                    file.unlink()
            site.start()
            self.delegate(site)

    def close(self):
        self.rucio.close()
        self.issuer.close()
        self.library.close()
        self.way.close()
        for site in self.sites:
            site.kill()


DISTANCES = [
    "NEAR FAR",
    "SPARE FAR",
    "NEAR STEP",
    "STEP REMOTE",
    "NEAR ELSEWHERE",
    "NEAR BEHIND",
    "NEAR VAULT",
    "NEAR TAPE",
    "NEAR ARCHIVE",
    "ARCHIVE NEAR",
    "ARCHIVE ARCHIVE-BUFFER",
    "NEARLINE NEAR",
    "TAPE FAR",
    "TOKEN-NEAR TOKEN-FAR",
]
# Beyond those that every storage has.
ATTRIBUTES = {
    "STEP": {"available_for_multihop"},
    "TAPE": {"archive_timeout"},
    "ARCHIVE": {"archive_timeout", "staging_buffer"},
    "NEARLINE": {"archive_timeout", "staging_required"},
    "TOKEN-NEAR": {"oidc_support"},
    "TOKEN-FAR": {"oidc_support"},
}


class Guide:
    """A page of the documentation, whose examples are tried."""

    def __init__(self, path):
        self.text = path.read_text()

    def section(self, title):
        return re.split(r"^## ", self.text.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.M)[0]

    def block(self, title, language):
        [block] = re.findall(rf"^```{language}\n(.*?)^```$", self.section(title), re.M | re.S)
        return block

    def toml(self, title):
        return "\n" + self.block(title, "toml")

    def ini(self, title):
        parser = configparser.ConfigParser()
        parser.read_string(self.block(title, "ini"))
        return {name: dict(parser[name]) for name in parser.sections()}

    def attributes(self):
        rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", self.section("In Rucio"), re.M)
        return {key: value == "True" or value for key, value in rows}


GUIDE = Guide(Path(__file__).resolve().parents[2] / "docs/rucio.md")


def replace(values, **others):
    """Puts other values in the place of those that the guide has."""
    assert others.keys() <= values.keys(), f"the guide does not tell of {others.keys() - values.keys()}"
    values.update(others)


def make_sites(binary, directory):
    sites = []
    for name, host in zip(["near", "far", "third"], HOSTS, strict=True):
        sites.append(Site(binary, directory / name, name, host, peers=sites))
    return sites
