"""Fixtures of the interop tests: the binary under test, two sites that know each other, faulty servers.

Nothing is skipped: a missing tool is an error that names the command which installs it.
"""

import itertools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from .certificates import UserCa
from .clients import Door, Service
from .cloud_servers import TOOLS as CLOUD_TOOLS
from .cloud_servers import Moto, S3s
from .fault_server import FaultCa, FaultServer
from .field import make_field
from .rucio_daemons import RUCIO
from .site import Site
from .tape_endpoint import TapeEndpoint
from .xrootd import CRASHES

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ["curl", "rclone", "davix-get", "openssl", "node", "npm", "chromium", "voms-proxy-fake"]
TOOLS += ["cc", "davix-tester", "gfal-copy", "xrootd", "litmus", "/usr/sbin/mount.davfs", "/usr/sbin/nats-server"]
TOOLS += ["epmd", "/usr/sbin/globus-gridftp-server", "/usr/sbin/sshd", "prometheus", "promtool"]
TOOLS += ["dpkg-shlibdeps", "objcopy", "systemd-analyze", "lintian", "skopeo"]
POSTGRES = Path("/usr/lib/postgresql")
HOSTS = ["127.0.0.2", "127.0.0.3"]
NUMBERS = itertools.count(1)
FAULTY_HOST, ELSEWHERE_HOST = "127.0.0.4", "127.0.0.5"
TAPE_HOST = "127.0.0.11"
CLOUD_HOSTS = {Moto: "127.0.0.41", S3s: "127.0.0.42"}


@dataclass(frozen=True)
class Tier:
    """How large the suites are: `guard` for every change, `soak` for what a promise is made for."""

    name: str
    kills: int
    kill_files: int
    stall_seconds: int
    vanishing_jobs: int
    rebuilt_files: int
    tape_files: int
    bucket_files: int


# Files whose tests take longest together, the longest first.
LONGEST_FIRST = ["test_tape_care", "test_rucio", "test_hsm_commands", "test_files_on_tape", "test_kill"]
LONGEST_FIRST += ["test_one_run_told_by_four", "test_openapi", "test_matrix", "test_cloud_storage", "test_xrootd_copies"]
LONGEST_FIRST += ["test_what_if", "test_stories", "test_records_at_scale", "test_alerts", "test_copies_and_trees", "test_sync_and_moves"]
LONGEST_FIRST += ["test_attack_outbound", "test_attack_child_servers", "test_gfal_endpoints", "test_secrets"]
LONGEST_FIRST += ["test_faults", "test_delegation", "test_toolbox", "test_fts3_tools", "test_messages"]
LONGEST_FIRST += ["test_attack_children", "test_restart_and_reload", "test_packages", "test_tape"]


TIERS = {
    "guard": Tier(
        "guard",
        kills=6,
        kill_files=120,
        stall_seconds=3,
        vanishing_jobs=600,
        rebuilt_files=500,
        tape_files=100,
        bucket_files=8,
    ),
    "soak": Tier(
        "soak",
        kills=50,
        kill_files=500,
        stall_seconds=90,
        vanishing_jobs=100_000,
        rebuilt_files=100_000,
        tape_files=5000,
        bucket_files=5000,
    ),
}


def pytest_addoption(parser):
    parser.addoption("--tier", choices=TIERS, default="guard", help="size of the suites")
    parser.addoption(
        "--write-golden", action="store_true", help="write tests/interop/golden anew; review the diff"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: takes too long for every change; runs with --tier=soak only")


def pytest_collection_modifyitems(config, items):
    """Leaves out what only `soak` runs, and begins with the files that take longest, so that workers end together."""
    if config.getoption("--tier") != "soak":
        left_out = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """A test that failed because the real XRootD crashed under it says nothing of us: it is run once more, and that is told."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    crashes = len(CRASHES)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports) and len(CRASHES) > crashes:
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            report.sections.append(("run once more", "; ".join(CRASHES[crashes:])))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_sessionstart(session):
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    missing += [] if (RUCIO / "bin/rucio-conveyor-submitter").exists() else ["rucio"]
    missing += [tool for tool in ("moto_server", "s3s-fs") if not (CLOUD_TOOLS / tool).exists()]
    missing += [] if POSTGRES.exists() else ["postgresql"]
    if not binary_path().exists():
        pytest.exit(f"{binary_path()} is missing: run 'cargo build -p penstock-cli' first", 2)
    if missing:
        pytest.exit(f"missing: {', '.join(missing)}; run 'make setup', which installs them", 2)


def binary_path():
    named = os.environ.get("PENSTOCK_BINARY")
    return Path(named).absolute() if named else REPOSITORY / "target/debug/penstock"


@pytest.fixture(scope="session")
def tier(request):
    return TIERS[request.config.getoption("--tier")]


@pytest.fixture(scope="session")
def binary():
    return binary_path()


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def fault_ca(tmp_path_factory):
    return FaultCa(tmp_path_factory.mktemp("faulty") / "ca")


@pytest.fixture(scope="session")
def user_ca(tmp_path_factory):
    """An authority of users with a VOMS server. No site trusts it before `user_ca.trusted_by(site)`."""
    return UserCa(tmp_path_factory.mktemp("users") / "ca")


@pytest.fixture(scope="session")
def browser_tools(repository):
    """The packages of `web/`, as `make test-web` installs them."""
    web = repository / "web"
    if not (web / "node_modules/playwright-core").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=web, check=True, timeout=300)
    return web


@dataclass
class Grid:
    """Two sites that trust each other, and clients of them that may do everything."""

    here: Site
    there: Site

    def __post_init__(self):
        self.token = self.here.token()
        self.here_door = Door(self.here, self.token)
        self.there_door = Door(self.there, self.token)
        self.service = Service(self.here, self.token)

    @property
    def sites(self):
        return [self.here, self.there]


def make_grid(binary, directory, fault_ca):
    """Two sites, not yet served. Retries come after a second, so that tests see them."""
    here = Site(binary, directory / "here", "here", HOSTS[0])
    there = Site(binary, directory / "there", "there", HOSTS[1], peers=[here])
    for site in (here, there):
        site.trust(fault_ca.certificate)
        site.allow(FAULTY_HOST, ELSEWHERE_HOST, TAPE_HOST, *CLOUD_HOSTS.values())
        site.configure("[transfer]", retry_delay="1s", retries=1)
    return Grid(here, there)


@pytest.fixture(scope="session")
def grid(binary, tmp_path_factory, fault_ca):
    """Two sites that all tests share which neither stop nor reconfigure them."""
    grid = make_grid(binary, tmp_path_factory.mktemp("grid"), fault_ca)
    yield from served(grid)


@pytest.fixture(scope="session")
def whole_field(binary, tmp_path_factory, fault_ca):
    field = make_field(binary, tmp_path_factory.mktemp("field"), fault_ca)
    try:
        yield field
        codes = [site.stop()[0] for site in field.sites]
        assert not any(codes), f"sites ended with {codes}\n{field.here.log_tail()}\n{field.there.log_tail()}"
    finally:
        field.close()


@pytest.fixture
def field(whole_field):
    """Sites, a real XRootD and a user with every kind of credential, for tests of the field's clients."""
    yield whole_field
    for server in whole_field.servers:
        server.assert_runs()


@pytest.fixture
def own_grid(binary, tmp_path, fault_ca):
    """Two sites of one test, which may do with them what it likes. They are not served yet."""
    grid = make_grid(binary, tmp_path, fault_ca)
    yield grid
    for site in grid.sites:
        site.kill()


def served(grid):
    try:
        for site in grid.sites:
            site.start()
        yield grid
        codes = [site.stop()[0] for site in grid.sites]
        assert codes == [0, 0], f"sites ended with {codes}\n{grid.here.log_tail()}\n{grid.there.log_tail()}"
    finally:
        for site in grid.sites:
            site.kill()


@pytest.fixture
def faulty(fault_ca):
    """A storage element without third-party copy that misbehaves as told."""
    server = FaultServer(FAULTY_HOST, fault_ca)
    yield server
    server.close()


@pytest.fixture
def elsewhere(fault_ca):
    """Another such server, at another address."""
    server = FaultServer(ELSEWHERE_HOST, fault_ca)
    yield server
    server.close()


@pytest.fixture
def tape(fault_ca):
    """A storage element in front of a tape library, which every site of a grid trusts and may copy from."""
    endpoint = TapeEndpoint(TAPE_HOST, fault_ca)
    yield endpoint
    endpoint.close()


@pytest.fixture(scope="session")
def clouds(tmp_path_factory, fault_ca):
    """Cloud storages of two independent makers, by their kinds. Every site of a grid trusts them."""
    servers = {}
    try:
        for make, host in CLOUD_HOSTS.items():
            servers[make.kind] = make(host, tmp_path_factory.mktemp("clouds") / make.kind, fault_ca)
        yield servers
    finally:
        for server in servers.values():
            server.close()


@pytest.fixture
def place(request):
    """A directory in the namespace that no other test uses."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.originalname)
    return f"/{name}-{next(NUMBERS)}"
