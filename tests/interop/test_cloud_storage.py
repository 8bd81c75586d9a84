"""Files between storage elements and cloud storages that speak S3, through the transfer service: every way there is,
with and without TLS, what can go wrong, and that no secret is ever told.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .clients import Service, adler32, content
from .cloud_servers import ACCESS_KEY, BUCKET, SECRET_KEY
from .conftest import make_grid
from .waiting import eventually

KINDS = ["moto", "s3s-fs"]
TOOLS = Path(sys.executable).parent
PART = 16 * 1024 * 1024


class Lab:
    """Two sites, of which one runs the service and has keys for both cloud storages."""

    def __init__(self, grid, clouds):
        self.grid = grid
        self.clouds = clouds
        self.admin = Service(grid.here, grid.here.admin_token())
        self.service = grid.service
        self.vo = self.service.ask("GET", "/whoami").json()["vos"][0]
        for cloud in clouds.values():
            self.add(cloud.name)
            self.grant(cloud.name)

    def ask(self, method, name="", expect=None, **body):
        path = "/config/cloud_storage" + (f"/{name}" if name else "")
        answer = self.admin.ask(method, path, **({"json": body} if body else {}))
        assert expect is None or answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def add(self, name, **more):
        return self.ask("POST", expect=201, storage_name=name, **more)

    def grant(self, name, access_key=ACCESS_KEY, secret_key=SECRET_KEY, **more):
        whom = {} if "user_dn" in more or "vo_name" in more else {"vo_name": self.vo}
        keys = {"access_key": access_key, "secret_key": secret_key}
        return self.ask("POST", name, expect=201, **keys, **whom, **more)


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, fault_ca, clouds):
    grid = make_grid(binary, tmp_path_factory.mktemp("cloud"), fault_ca)
    try:
        for site in grid.sites:
            site.start()
        yield Lab(grid, clouds)
        codes = [site.stop()[0] for site in grid.sites]
        assert codes == [0, 0], f"{grid.here.log_tail()}\n{grid.there.log_tail()}"
        for site in grid.sites:
            assert_nothing_told(site)
    finally:
        for site in grid.sites:
            site.kill()


def assert_nothing_told(site):
    """Neither the log nor any file of the site holds a secret or a signature."""
    secrets = [SECRET_KEY, "X-Amz-Signature", "X-Amz-Credential", "AWS4-HMAC"]
    for path in site.directory.rglob("*"):
        if path.is_file():
            found = [secret for secret in secrets if secret.encode() in path.read_bytes()]
            assert not found, f"{path} holds {found}"


@pytest.fixture(params=KINDS)
def cloud(request, lab):
    return lab.clouds[request.param]


@pytest.fixture
def key(place):
    return f"{place.strip('/')}/a file+ü$.bin"


def quoted(key):
    from urllib.parse import quote

    return quote(key)


@pytest.mark.parametrize("tls", [True, False], ids=["s3s", "s3"])
@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_a_storage_element_pulls_from_a_cloud_storage(lab, cloud, place, key, size, tls):
    data = content(place, size)
    cloud.put(key, data)
    there = lab.grid.there_door
    job = lab.service.submit((cloud.url(quoted(key), tls=tls), there.url(f"{place}/b")), s3alternate=True)
    lab.service.wait_finished(job)
    assert lab.grid.here.landed_modes(job) == ["pull"]
    assert there.get(f"{place}/b") == data


@pytest.mark.parametrize("tls", [True, False], ids=["s3s", "s3"])
@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_a_storage_element_pushes_to_a_cloud_storage(lab, cloud, place, key, size, tls):
    data = content(place, size)
    lab.grid.here_door.put(f"{place}/a", data)
    job = lab.service.submit((lab.grid.here_door.url(f"{place}/a"), cloud.url(quoted(key), tls=tls)))
    lab.service.wait_finished(job)
    assert lab.grid.here.landed_modes(job) == ["push"]
    assert cloud.get(key) == data


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 3 * PART - 7])
def test_what_is_to_be_verified_passes_through_the_service(lab, cloud, place, key, size):
    data = content(place, size)
    lab.grid.here_door.put(f"{place}/a", data)
    job = lab.service.submit(
        (lab.grid.here_door.url(f"{place}/a"), cloud.url(quoted(key))), verify_checksum="both"
    )
    lab.service.wait_finished(job)
    assert lab.grid.here.landed_modes(job) == ["streamed"]
    assert cloud.get(key) == data
    assert cloud.head(key)["Metadata"]["adler32"] == adler32(data)
    [landed] = [event for event in lab.grid.here.ledger(job) if event["event"] == "landed"]
    assert landed["report"]["verified"] == "in_passing"
    assert cloud.uploads() == []
