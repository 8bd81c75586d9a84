"""Hosts that vanish without a word: no FIN, no reset, no error; packets are swallowed until the host is back, or for ever.

What landed is not called a failure, other links go on, and what a canceled transfer left is removed when its storage is back.
"""

import shutil
import time

import pytest
from interop.clients import Door, Service, content
from interop.fault_server import FaultServer, Throttle
from interop.site import Site
from interop.waiting import eventually

from .network import BASE_PORT, NETWORKS, OTHERS, THERE, THIS, Machine

DATA = content("dark", 2_000_000)
SLOW_BYTES_PER_SECOND = 500_000
# The far end of a dark link notices nothing for longer than this.
DARK_SECONDS = 8
SETTLE_SECONDS = 90


@pytest.fixture
def machine():
    machine = Machine()
    yield machine
    machine.close()


@pytest.fixture
def make_lab(binary, fault_ca, machine):
    """A service and a storage element, of which one is on the machine that goes dark, another storage element and a source."""
    made = []

    def make(directory, far):
        lab = Lab(binary, directory, fault_ca, machine, far)
        made.append(lab)
        lab.start()
        return lab

    yield make
    for lab in made:
        lab.close()


class Lab:
    def __init__(self, binary, directory, fault_ca, machine, far):
        self.machine = machine
        places = {"store": THIS, "service": THIS, "near": OTHERS[1]} | {far: THERE}
        hosts = {name: machine.addresses[last] for name, last in places.items()}
        self.source = FaultServer(machine.addresses[OTHERS[0]], fault_ca)
        base = {far: BASE_PORT}
        self.store = Site(binary, directory / "store", "store", hosts["store"], base=base.get("store"))
        self.near = Site(binary, directory / "near", "near", hosts["near"], peers=[self.store])
        peers = [self.store, self.near]
        self.site = Site(binary, directory / "service", "service", hosts["service"], peers=peers, base=base.get("service"))
        for site in (self.store, self.near):
            site.remove("transfer")
        self.site.remove("storage")
        self.site.configure("[transfer]", retry_delay="1s", retries=3)
        self.sites = [self.store, self.near, self.site]
        for site in self.sites:
            site.trust(fault_ca.certificate)
            site.configure("[trust]", private_addresses=[f"127.0.0.0/8{site.any_port}", f"{NETWORKS}{site.any_port}"])
            if site is not self.site:
                site.allow(self.source.host)
            if site.host == machine.host:
                site.prefix = machine.prefix

    def start(self):
        for site in self.sites:
            site.start()
        self.token = self.store.token()
        self.door, self.near_door = Door(self.store, self.token), Door(self.near, self.token)
        self.service = Service(self.site, self.token)
        # It asks the other for the keys of its tokens, once.
        self.near_door.put("/known", b"")

    def submit(self, path, door=None, slow=True, **params):
        throttle = Throttle(DATA, SLOW_BYTES_PER_SECOND) if slow else None
        source = self.source.offer(path, DATA, get=throttle)
        job = self.service.submit((source, (door or self.door).url(path)), **params)
        if slow:
            eventually("bytes move", lambda: throttle.sent > 0, SETTLE_SECONDS)
        return job

    def close(self):
        self.machine.come_back()
        self.machine.forget_connections()
        for site in self.sites:
            site.kill()
        self.source.close()


def stay_dark(seconds=DARK_SECONDS):
    """The length of a fault, not a wait for something to happen."""
    time.sleep(seconds)


def test_a_storage_that_goes_dark_amid_copies_and_comes_back_has_each_file_once(make_lab, machine, tmp_path, tier, rounds):
    for seed in rounds.of("service", "a storage element goes dark", tier.rounds):
        lab = make_lab(tmp_path / str(seed), far="store")
        jobs = [lab.submit(f"/far/{number}") for number in range(3)]
        machine.go_dark()
        other = lab.submit("/near/1", door=lab.near_door, slow=False)
        lab.service.wait_finished(other, 20)
        stay_dark()
        machine.come_back()
        for number, job in enumerate(jobs):
            lab.service.wait_finished(job, SETTLE_SECONDS)
            assert lab.door.get(f"/far/{number}") == DATA
        lab.service.wait_idle(30)
        lab.store.wait_tidy()
        lab.close()
        shutil.rmtree(tmp_path / str(seed))


def test_what_a_canceled_copy_left_at_a_dark_storage_is_removed_when_it_is_back(make_lab, machine, tmp_path, tier, rounds):
    for seed in rounds.of("service", "canceled while a storage element is dark", tier.rounds):
        lab = make_lab(tmp_path / str(seed), far="store")
        job = lab.submit("/far/canceled")
        machine.go_dark()
        lab.service.ask("DELETE", f"/jobs/{job}")
        assert lab.service.wait(job)["job_state"] == "CANCELED"
        # The copy itself goes on over there and lands, if nobody stops it.
        stay_dark()
        machine.come_back()
        eventually("nothing is left", lambda: is_empty(lab, "/far/canceled"), SETTLE_SECONDS)
        lab.store.wait_tidy()
        lab.close()
        shutil.rmtree(tmp_path / str(seed))


def is_empty(lab, path):
    return not lab.store.incoming() and not lab.door.exists(path)


def test_a_copy_that_outlives_the_service_s_machine_is_no_failure(make_lab, machine, tmp_path, tier, rounds):
    for seed in rounds.of("service", "the service's machine is lost amid copies", tier.rounds):
        lab = make_lab(tmp_path / str(seed), far="service")
        jobs = [lab.submit(f"/far/{number}") for number in range(2)]
        machine.lose_power(lab.site)
        lab.site.start()
        lab.service = Service(lab.site, lab.token)
        for number, job in enumerate(jobs):
            lab.service.wait_finished(job, SETTLE_SECONDS)
            assert lab.door.get(f"/far/{number}") == DATA
        lab.service.wait_idle(30)
        lab.store.wait_tidy()
        lab.close()
        shutil.rmtree(tmp_path / str(seed))
