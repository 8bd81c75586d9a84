"""Fixes of real services bring what was told: something befalls two real sites, `penstock explain` names a cause with the rate
that there would be without it, operators do what it says, and the rate is measured.

Most of the time is waiting, so all of it belongs to the soak tier.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from interop.site import read_database

from .live import USUAL_SECONDS, world_for
from .live_faults import FAULTS, MILD, STRONG

# What a fix may bring of what was told, and how many must.
GAIN_PARTS = (0.75, 1.25)
HELD_PERCENT_MIN = 80
WARM_SECONDS = 20
# Until copies that began with the fault have ended.
SETTLING_SECONDS = 8
TRIALS = [MILD, STRONG] * 2


def raise_limit(world):
    world.set_limit(world.active)


def take_rate_limits_away(world):
    for side, site in (("inbound", world.destination), ("outbound", world.source)):
        answer = world.admin.ask("POST", "/config/se", json={site.storage_id: {"se_info": {f"{side}_max_throughput": 0}}})
        assert answer.ok, answer.text


def open_again(world):
    rule = {"symbolicname": "live", "min_active": 1, "max_active": world.active, "draining": False, **world.link()}
    answer = world.admin.ask("POST", "/config/links", json=rule)
    assert answer.ok, answer.text
    info = {world.destination.storage_id: {"se_info": {"draining": False}}}
    answer = world.admin.ask("POST", "/config/se", json=info)
    assert answer.ok, answer.text


def open_pools(world):
    path = world.here.directory / "penstock.toml"
    path.write_text(path.read_text().replace('mode = "drained"\n', ""))
    world.here.reload()


def mend_way(world):
    world.way.delay, world.way.loss, world.way.rate = world.usual_way


def mend_disk(world):
    world.disk.clear()


FIXES = {
    "limit": raise_limit,
    "rate limit": take_rate_limits_away,
    "drain": open_again,
    "drained pools": open_pools,
    "delay": mend_way,
    "loss": mend_way,
    "narrow way": mend_way,
    "slow writes": mend_disk,
}


def rate_between(world, begin, end):
    """Bytes a second of the link by the record of the transfer service."""
    rows = read_database(
        world.here.directory / "state/transfer.sqlite",
        "SELECT sum(moved_bytes) FROM link_sample WHERE at_ms > ? AND at_ms <= ? AND source = ? AND destination = ?",
        (int(begin * 1000), int(end * 1000), world.source.storage_id, world.destination.storage_id),
    )
    [(moved,)] = rows
    return (moved or 0) / (end - begin)


def try_fix(stack, world, fault, strength):
    """What was told of the first fix, and the rate after it: the low rate, the one promised, and the one that came."""
    with stack:
        if fault.prepare:
            fault.prepare(world)
        world.usual_way = (world.way.delay, world.way.loss, world.way.rate)
        world.start()
        # Connections of new sites are slower than those that were used for a while.
        world.submit(600)
        time.sleep(WARM_SECONDS)
        answer = world.run(lambda world: fault.strike(world, strength))
        if answer.first not in fault.right:
            return str(answer), None
        promised = answer.detail["details"][0]["bytes_per_second_without"]
        FIXES[fault.name](world)
        time.sleep(SETTLING_SECONDS)
        begin = time.time()
        time.sleep(USUAL_SECONDS)
        # The last sample is written within a second.
        end = time.time()
        time.sleep(2)
        return str(answer), (answer.drop["low_bytes_per_second"], promised, rate_between(world, begin, end))


def test_the_first_fix_brings_what_was_told(binary, disk_program, tmp_path, request):
    results = request.config.getoption("--live-results")
    faults = [fault for fault in FAULTS if fault.name in FIXES]
    outcomes = []
    for number, strength in enumerate(TRIALS):
        worlds = []
        for place, fault in enumerate(faults):
            directory = tmp_path / f"{number}-{fault.name}"
            worlds.append((fault, *world_for(fault, binary, disk_program, directory, number * 100 + place)))
        with ThreadPoolExecutor(4) as threads:
            trials = [threads.submit(try_fix, stack, world, fault, strength) for fault, stack, world in worlds]
            outcomes += [(fault, strength, *trial.result()) for (fault, _, _), trial in zip(worlds, trials)]
    held, told = 0, []
    for fault, strength, answer, rates in outcomes:
        low, promised, came = rates or (0, 0, 0)
        part = (came - low) / (promised - low) if promised > low else 0.0
        held += GAIN_PARTS[0] <= part <= GAIN_PARTS[1]
        told.append(f"{fault.name}, {strength}: {answer}; {low} B/s, {promised} promised, {came:.0f} came: {part:.2f}")
        if results:
            with open(results, "a") as file:
                file.write(json.dumps({"fix_of": fault.name, "strength": strength, "rates": rates, "part": part}) + "\n")
    print("\n".join(told))
    assert held * 100 >= len(outcomes) * HELD_PERCENT_MIN, "\n".join(told)


@pytest.mark.parametrize("name", FIXES)
def test_each_fix_is_of_a_fault(name):
    assert name in {fault.name for fault in FAULTS}
