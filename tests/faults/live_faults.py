"""What may befall real services, each fault in two strengths, with the codes of causes that are right for it.

A fault acts on a resource: a disk, a way, a process, a credential, a setting of operators, the work of others. It is written
without a look at what the explainer reads.
"""

import os
import resource
import shutil
import subprocess
from collections import defaultdict

from .disk import UNCACHED
from .fault import MILD, STRONG, Fault, fill
from .live_tapes import TAPE_FAULTS

# As many movers as files run, so that each file has one of its own. Large files keep them for long.
MANY_POOLS = {"active": 9, "pools": 9, "movers": 1, "sizes": range(1_500_000, 2_500_000)}
LARGE_FILES = {"active": 12, "sizes": MANY_POOLS["sizes"]}
# Of a small file system 64 MiB stay free; the rest holds the copies of a run and some more.
SMALL_MB = 64 + 80


def lower_limit(world, strength):
    world.set_limit({MILD: 2, STRONG: 1}[strength])


def limit_rate(world, strength):
    """Of one end. Beyond half of what was usual there is little to see; far below, nothing moves until the last ten seconds
    are made up for."""
    side, site = {MILD: ("inbound", world.destination), STRONG: ("outbound", world.source)}[strength]
    answer = world.admin.ask("POST", "/config/se", json={site.storage_id: {"se_info": {f"{side}_max_throughput": 2}}})
    assert answer.ok, answer.text


def drain(world, strength):
    """A link, or a storage element: what runs ends, and nothing begins."""
    if strength == MILD:
        rule = {"symbolicname": "live", "min_active": 1, "max_active": world.active, "draining": True, **world.link()}
        answer = world.admin.ask("POST", "/config/links", json=rule)
    else:
        info = {world.destination.storage_id: {"se_info": {"draining": True}}}
        answer = world.admin.ask("POST", "/config/se", json=info)
    assert answer.ok, answer.text


def ban(world, strength):
    """Of an end: what runs ends, and what waits waits for the end of the ban."""
    site = {MILD: world.destination, STRONG: world.source}[strength]
    body = {"storage": site.storage_id, "status": "WAIT", "allow_submit": True}
    answer = world.admin.ask("POST", "/ban/se", json=body)
    assert answer.ok, answer.text


def drain_pools(world, strength):
    """Some pools take no new files any more, by the configuration of their storage element."""
    path = world.here.directory / "penstock.toml"
    text = path.read_text()
    for pool in some(world.pools, strength):
        name = f'name = "{pool.name}"\n'
        text = text.replace(name, f'{name}mode = "drained"\n')
    path.write_text(text)
    world.here.reload()


def some(pools, strength):
    """All pools but two, or but one."""
    return pools[: len(pools) - {MILD: 2, STRONG: 1}[strength]]


def small_pools(world):
    for pool in world.pools:
        world.mount(pool, SMALL_MB)


def fill_some(world, strength):
    fill(some(world.pools, strength))


def fill_all(world, strength):
    fill(world.pools)


def lose_pools(world, strength):
    """Their file systems are gone."""
    for pool in some(world.pools, strength):
        subprocess.run(["umount", "-l", pool], check=True)


def on_disk(world):
    """All pools lie on a disk that fails as it is told."""
    pools = world.here.directory / "pools"
    for pool in pools.iterdir():
        (world.disk.backing / "pools" / pool.name).mkdir(parents=True)
        pool.rmdir()
    pools.rmdir()
    world.disk.start()
    pools.symlink_to(world.disk.path / "pools")


def state_on_disk(world):
    """The databases of the destination lie on a disk that fails as it is told."""
    state = world.here.directory / "state"
    shutil.move(state, world.disk.backing / "state")
    world.disk.start()
    state.symlink_to(world.disk.path / "state")


def slow_flushes(world, strength):
    world.disk.fault("flush", path="/state/*", error=0, wait_ms={MILD: 600, STRONG: 1200}[strength])


def fail_writes(world, strength):
    for pool in {MILD: some(world.pools, STRONG), STRONG: world.pools}[strength]:
        world.disk.fault("write", path=f"/pools/{pool.name}/*")


def fail_reads(world, strength):
    """Of some pools, or of all."""
    for pool in {MILD: some(world.pools, STRONG), STRONG: world.pools}[strength]:
        world.disk.fault("read", path=f"/pools/{pool.name}/*")
    world.disk.forget()


def slow_writes(world, strength):
    world.disk.fault("write", path="/pools/*", error=0, wait_ms={MILD: 700, STRONG: 1000}[strength])


def slow_reads(world, strength):
    """Each read of the disk takes so long; what was read before is not remembered."""
    world.disk.fault("read", path="/pools/*", error=0, wait_ms={MILD: 300, STRONG: 450}[strength])
    world.disk.fault("uncached", path="/pools/*", error=UNCACHED)
    world.disk.forget()


def read_one_pool(world, strength):
    """Whoever submits wants files of few pools from now on."""
    of_pools = defaultdict(list)
    for path in world.sources:
        of_pools[world.pool_of(path)].append(path)
    wanted = sorted(of_pools)[: {MILD: 2, STRONG: 1}[strength]]
    for job in world.jobs:
        world.service.ask("DELETE", f"/jobs/{job}")
    world.submit(200, sources=[path for pool in wanted for path in of_pools[pool]])


def delay(world, strength):
    world.way.delay *= {MILD: 3, STRONG: 6}[strength]


def lose_packets(world, strength):
    world.way.loss = {MILD: 0.05, STRONG: 0.1}[strength]


def narrow(world, strength):
    world.way.rate = {MILD: 2_000_000, STRONG: 1_000_000}[strength]


def shared(world):
    """A way that carries a little more than the copies of a run."""
    world.way.rate = 6_000_000


def load(world, strength):
    """Clients at the other site write to the destination, over the same way."""
    data = world.there.directory / "load"
    data.write_bytes(bytes(2_000_000))
    put = f"curl -s -o /dev/null --capath {world.here.certificates} -H 'Authorization: Bearer {world.token}' -T {data}"
    for number in range({MILD: 6, STRONG: 12}[strength]):
        url = world.doors[world.here].url(f"/load/{number}")
        script = f"n=0; while {put} {url}-$n; do n=$((n + 1)); done"
        world.launch([*world.way.prefix, "sh", "-c", script])


def freeze_other(world, strength):
    """The other site stands still."""
    world.freeze(world.there)


def kill_other(world, strength):
    world.there.kill()


def few_descriptors(world, strength):
    """Somebody lowers the limit of open files of the destination below what it has open."""
    pid = world.here.process.pid
    _, hard = world.descriptors = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    held = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (int(held * {MILD: 0.9, STRONG: 0.7}[strength]), hard))


def enough_descriptors(world):
    resource.prlimit(world.here.process.pid, resource.RLIMIT_NOFILE, world.descriptors)


FAULTS = [
    Fault("limit", "operators lower the limit of a link", ("SLOTS",), lower_limit),
    Fault("rate limit", "operators limit the rate of a storage element", ("RATE",), limit_rate),
    Fault("drain", "operators drain a link or a storage element", ("DRAIN",), drain),
    Fault("ban", "operators ban a storage element", ("DRAIN",), ban),
    Fault("drained pools", "pools are set to take no new files", ("DRAIN",), drain_pools, MANY_POOLS),
    Fault("full pools", "some pools are filled by others", ("FULL",), fill_some, MANY_POOLS, small_pools),
    Fault("full storage", "all pools are filled by others", ("SPACE",), fill_all, MANY_POOLS, small_pools),
    Fault("lost pools", "file systems of pools are gone", ("CRASH",), lose_pools, MANY_POOLS, small_pools),
    Fault("write errors", "disks of pools fail to write", ("DSTERR", "CRASH"), fail_writes, MANY_POOLS | {"disk": True}, on_disk),
    Fault("read errors", "disks of pools fail to read", ("SRCERR",), fail_reads, MANY_POOLS | {"disk": True, "is_source": True}, on_disk),
    Fault("one pool", "all wanted files lie in few pools", ("SKEW",), read_one_pool, MANY_POOLS | {"is_source": True}),
    Fault("delay", "the way is longer", ("NETPATH",), delay),
    Fault("loss", "the way loses packets", ("NETPATH",), lose_packets),
    Fault("narrow way", "the way carries fewer bytes", ("NETPATH",), narrow),
    Fault("load", "clients write over the same way", ("LOAD",), load, prepare=shared),
    Fault("frozen source", "the source stands still", ("CRASH", "MOVER"), freeze_other),
    Fault("frozen destination", "the destination stands still", ("CRASH", "MOVER"), freeze_other, {"is_source": True}),
    Fault("killed source", "the source is gone", ("CRASH",), kill_other),
    Fault("descriptors", "fewer files may be open than are", ("FDLEAK",), few_descriptors, relieve=enough_descriptors),
    Fault("slow databases", "the disk of the databases is slow", ("DBLOAD",), slow_flushes, {"disk": True}, state_on_disk),
    Fault("slow reads", "the disk of the source is slow", ("RAID",), slow_reads, LARGE_FILES | {"disk": True, "is_source": True}, on_disk),
    Fault("slow writes", "the disk of the destination is slow", ("RAID",), slow_writes, {"disk": True}, on_disk),
    *TAPE_FAULTS,
]
