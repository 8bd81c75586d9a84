"""What a site tells of its host agrees with what was moved, also over a crash: on a machine and a disk of its own, so that
nobody else's bytes are counted.
"""

import json
import subprocess
import time

import pytest
import requests
from interop.clients import Service, content
from interop.fault_server import FaultServer
from interop.site import Site
from interop.waiting import eventually

from .network import BASE_PORT, NETWORKS, OTHERS, Machine

FILES, FILE_BYTES = 4, 50_000_000
# Heads of packets and of TLS come on top; with long packets these are below one percent.
MTU = 9000
NEAR = 0.02
# Facts are read once a minute.
LOOK_SECONDS = 90
SETTING, LARGE = "net.ipv4.tcp_wmem", "8192 1048576 8388608"


@pytest.fixture
def machine():
    machine = Machine()
    try:
        machine.inside("link", "set", machine.inner, "mtu", str(MTU))
        subprocess.run(["ip", "link", "set", machine.outer, "mtu", str(MTU)], check=True)
        yield machine
    finally:
        machine.close()


class LoopDisk:
    """A file as a disk with a file system that is written to for files only."""

    def __init__(self, image, directory):
        self.directory = directory
        with open(image, "wb") as file:
            file.truncate(3 * FILES * FILE_BYTES)
        make = ["mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard", str(image)]
        subprocess.run(make, check=True, timeout=60)
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-o", "loop,noatime", str(image), str(directory)], check=True, timeout=60)

    def close(self):
        subprocess.run(["umount", "--lazy", str(self.directory)], check=True, timeout=60)


@pytest.fixture
def site(binary, fault_ca, machine, tmp_path):
    site = Site(binary, tmp_path / "site", "sampled", machine.host, base=BASE_PORT)
    site.trust(fault_ca.certificate)
    site.configure("[trust]", private_addresses=[f"127.0.0.0/8{site.any_port}", f"{NETWORKS}{site.any_port}"])
    site.allow(machine.addresses[OTHERS[0]])
    site.append(f'[observe.interfaces]\n{machine.inner} = "wan"\n')
    site.prefix = machine.prefix
    disk = LoopDisk(tmp_path / "disk.image", site.directory / "pools/disk1")
    try:
        yield site.start()
        code = site.stop()[0]
        assert code == 0 and "panicked" not in site.log_text(), site.log_tail()
    finally:
        site.kill()
        disk.close()


@pytest.fixture
def source(fault_ca, machine):
    source = FaultServer(machine.addresses[OTHERS[0]], fault_ca)
    yield source
    source.close()


def report(site, **query):
    answer = Service(site, site.admin_token()).ask("GET", "/api/v1/host", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def received(told, machine):
    """Bytes that came over the cable."""
    found = [one for one in told["total"]["interfaces"] if one["name"] == machine.inner]
    return found[0]["traffic"]["received_bytes"] if found else 0


def written(told):
    """Bytes that were written to the disk of the pool."""
    [disk] = [disk for disk in told["disks"] if "pool disk1" in disk["holds"]]
    found = [one for one in told["total"]["disks"] if one["name"] == disk["name"]]
    return found[0]["activity"]["written_bytes"] if found else 0


def near(counted, moved):
    return abs(counted - moved) <= NEAR * moved


def covers(told, since):
    """Whether the samples reach a time."""
    last = told["points"][-1]
    return last["from"] + last["covered_us"] / 1000 >= since


def test_counters_agree_with_what_was_moved_and_survive_a_crash(site, source, machine, tmp_path):
    service = Service(site, site.admin_token())
    eventually("something is sampled", lambda: report(site, seconds=600)["total"])
    before = report(site, seconds=600, resolution=1)
    data = [content(number, FILE_BYTES) for number in range(FILES)]
    pairs = [(source.offer(f"/{n}", data[n]), f"{site.door}/data/{n}") for n in range(FILES)]
    job = service.submit(*pairs)
    service.wait_finished(job, 120)
    moved = FILES * FILE_BYTES
    ended = report(site, seconds=1)["to"]
    told = eventually(
        "seconds after the end are sampled",
        lambda: (found := report(site, seconds=600, resolution=1)) and covers(found, ended) and found,
    )
    came = received(told, machine) - received(before, machine)
    wrote = written(told) - written(before)
    assert near(came, moved), f"the interface counted {came} bytes, {moved} were moved"
    assert near(wrote, moved), f"the disk counted {wrote} bytes, {moved} were moved"
    assert told["facts"]["pool disk1 file system"] == "ext4"
    [wan] = [one for one in told["interfaces"] if one["role"] == "wan"]
    assert (wan["name"], wan["mtu_bytes"]) == (machine.inner, MTU)

    subprocess.run([*machine.prefix, "sysctl", "-qw", f"{SETTING}={LARGE}"], check=True, timeout=20)
    changes = eventually(
        "the setting is noted",
        lambda: [one for one in report(site, seconds=600)["changes"] if one["name"] == SETTING],
        LOOK_SECONDS,
    )
    assert [one["after"] for one in changes] == [LARGE] and changes[0]["before"] != LARGE

    # The minute with the copies is over and kept; what is there of the one that has begun is lost.
    over = (ended // 60_000 + 1) * 60 + 20
    eventually("the minute with the copies is over", lambda: time.time() >= over, 90)
    site.kill()
    site.start()
    again = report(site, seconds=1)["to"]
    kept = eventually(
        "samples come again",
        lambda: (found := report(site, seconds=600)) and covers(found, again) and found,
    )
    assert near(received(kept, machine) - received(before, machine), moved), kept["total"]
    assert near(written(kept) - written(before), moved), kept["total"]
    assert [one["after"] for one in kept["changes"] if one["name"] == SETTING] == [LARGE]
    lost = kept["gaps"][1]
    assert lost["to"] - lost["from"] < 70_000, kept["gaps"]

    shown = site.command("host", "--since", "10m")
    for part in (machine.inner, "wan", "pool disk1", f"{SETTING}: {changes[0]['before']} → {LARGE}", "not sampled:"):
        assert part in shown, shown
    stored = json.loads(site.command("host", "--since", "10m", "--offline", "--json"))
    [kept_here] = [one for one in stored["total"]["interfaces"] if one["name"] == machine.inner]
    assert kept_here["traffic"]["received_bytes"] >= moved, stored["total"]
    compare_with_itself(site, tmp_path, changes[0]["before"])
    only_for_administrators(site, machine)


def compare_with_itself(site, directory, small):
    """The same host before and after the change, with the rates of Manchester in 2013."""
    fast = json.loads(site.command("host", "--since", "10m", "--json"))
    slow = fast | {"facts": fast["facts"] | {SETTING: small}}
    for name, told in (("before", slow), ("after", fast)):
        (directory / f"{name}.json").write_text(json.dumps(told))
    line = [str(site.binary), "host", "compare", str(directory / "before.json"), str(directory / "after.json")]
    line += ["--rate", "before=474 kB/s", "--rate", "after=25.5 MB/s"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"{SETTING} (default): slow {small.split()[1]}; fast 1048576" in done.stdout, done.stdout
    wrong = subprocess.run([*line, "--rate", "other=1 kB/s"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 2 and "other" in wrong.stderr, wrong.stderr


def only_for_administrators(site, machine):
    assert Service(site, site.token()).ask("GET", "/api/v1/host").status_code == 403
    nobody = requests.get(f"{site.service}/api/v1/host", verify=str(site.certificates), timeout=60)
    assert nobody.status_code == 401
    for query in ({"seconds": "0"}, {"seconds": "many"}, {"resolution": "-1"}, {"until": "x"}):
        assert Service(site, site.admin_token()).ask("GET", "/api/v1/host", params=query).status_code == 400, query
    page = Service(site, site.admin_token()).ask("GET", "/metrics").text
    label = f'interface="{machine.inner}",role="wan",direction="in"'
    assert f"penstock_host_interface_bytes_total{{{label}}}" in page, page
    assert "penstock_host_minutes_lost_total 0" in page
