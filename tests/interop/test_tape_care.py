"""What a storage element does for the tapes of its libraries by itself or by order: it verifies them, empties them, writes them anew,
takes another library when one does not work, keeps families apart and learns how its drives locate. Each is one run of the real
program, and what was seen is asserted."""

import subprocess
import time

import pytest

from .clients import Door, content
from .test_files_on_tape import STAGING, TapeLibraries, all_are, with_tape
from .waiting import eventually

WITHIN = 120
TWICE = '[[storage.tape.class]]\npath = "/tape/twice"\nfamily = "twice"\ncopies = 2\n'


class Silo:
    """A storage element with tape libraries, and its operator."""

    def __init__(self, site, libraries=1, time_factor=2_000, **keys):
        self.site = site
        self.tapes = TapeLibraries(site, time_factor=time_factor, libraries=libraries)
        self.tapes.settings |= keys
        with_tape(site, self.tapes)

    def start(self):
        self.site.start()
        self.door = Door(self.site, self.site.token(STAGING))

    def run(self, *words, code=0):
        line = [str(self.site.binary), "tape", *words, "--dir", str(self.site.directory)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def status(self):
        """Libraries are told of once they are open, soon after a start."""

        def told():
            status = self.tapes.status()
            return status if "libraries" in status else None

        return eventually("the tape libraries are open", told)

    def care(self):
        return self.status()["libraries"]["care"]

    def tape(self, name):
        [tape] = [tape for tape in self.status()["libraries"]["tapes"] if tape["name"] == name]
        return tape

    def live(self):
        """Files by tape."""
        tapes = self.status()["libraries"]["tapes"]
        return {tape["name"]: tape["live"]["files"] for tape in tapes if tape["live"]["files"]}

    def archive(self, files):
        """Puts them, and waits until they are on tape only."""
        for path, data in files.items():
            self.door.put(path, data)
        eventually("all are on tape only", lambda: all_are(self.door, list(files), "TAPE"), WITHIN)

    def bring_back(self, files):
        """All of them come back as they were."""
        wanted = {"files": [{"path": path, "diskLifetime": "PT1H"} for path in files]}
        request = self.door.ask("POST", "/.penstock/tape/v1/stage", json=wanted).json()["requestId"]
        told = lambda: self.door.ask("GET", f"/.penstock/tape/v1/stage/{request}").json()
        eventually("all are told of", lambda: "completedAt" in told(), WITHIN)
        assert all(file.get("onDisk") for file in told()["files"]), told()
        for path, data in files.items():
            assert self.door.get(path) == data, path

    def fullest(self):
        live = self.live()
        return max(live, key=live.get)

    def spoil(self, data):
        """Flips a bit of one copy of a file. Returns the tape."""
        for cartridge in sorted(self.site.directory.glob("tape/*/cartridges/*.tape")):
            found = cartridge.read_bytes()
            at = found.find(data[:1_000])
            if at >= 0:
                with cartridge.open("r+b") as opened:
                    opened.seek(at)
                    opened.write(bytes([found[at] ^ 1]))
                return self.tape(cartridge.stem)
        raise AssertionError("it is on no tape")


def some(count, directory="/tape/run", begin=0):
    return {f"{directory}{n % 3}/f{n}": content(f"file {n}", 2_000 + n) for n in range(begin, begin + count)}


@pytest.fixture
def make_silo(own_grid):
    return lambda **keys: Silo(own_grid.there, **keys)


def test_a_tape_is_emptied_by_an_operator_over_kills_and_written_anew(make_silo, tmp_path):
    # A mount takes a second, so that kills meet reads, writes and the relabel.
    silo = make_silo(time_factor=80, repack_part="30 kB")
    silo.start()
    files = some(45)
    silo.archive(files)
    old = silo.fullest()
    hints = tmp_path / "hints.txt"
    hints.write_text("/tape/run2\n\n/tape/run0\n")
    silo.run("repack", old, "--together", str(hints))
    eventually("it is told", lambda: f"emptying {old}" in silo.run("status"))
    kills = 0
    while silo.tape(old)["live"]["files"] and kills < 4:
        time.sleep(0.6 + 0.5 * kills)
        silo.site.kill()
        silo.start()
        kills += 1
    assert kills, "it was over before anything could be killed"
    eventually("it is written anew", lambda: silo.tape(old)["written_bytes"] == 0, WITHIN)
    tape = silo.tape(old)
    assert (tape["state"], tape["dead_bytes"], tape["family"]) == ("active", 0, None)
    assert silo.care()["repacks"] == []
    assert sum(silo.live().values()) == len(files)
    silo.bring_back(files)
    silo.archive({"/tape/again": b"it is written to again"})


def test_tapes_of_which_little_is_needed_are_emptied_by_themselves_but_not_too_many_a_day(make_silo):
    # A day of the libraries is some minutes.
    silo = make_silo(time_factor=400, keep_removed="0s", reclaim_below_percent=50, reclaims_per_day=1)
    silo.site.configure("[storage]", trash="0s")
    settings = silo.site.directory / "penstock.toml"
    # A tape is full when six of the files are on it.
    settings.write_text(settings.read_text().replace("2 GB", "1215 kB"))
    silo.start()
    files = {f"/tape/f{n}": content(f"large {n}", 200_000) for n in range(18)}
    silo.archive(files)
    full = [name for name, count in silo.live().items() if count == 6]
    assert len(full) >= 2, silo.live()
    kept = {}
    for path, data in files.items():
        if int(path[7:]) % 6 == 0:
            kept[path] = data
        else:
            assert silo.door.ask("DELETE", path).status_code == 204
    anew = lambda: [name for name in full if silo.tape(name)["written_bytes"] == 0]
    eventually("one of them is written anew", anew, WITHIN)

    def waiting():
        return [one for one in silo.care()["repacks"] if "relabels 1 tape in a day" in (one["waits_for"] or "")]

    eventually("the next one waits for another day", waiting, WITHIN)
    assert len(anew()) == 1 and waiting()[0]["order"] == "automatic"
    assert waiting()[0]["tape"] in full
    silo.bring_back(kept)


def test_a_copy_that_cannot_be_read_is_found_told_and_written_again(make_silo):
    silo = make_silo(libraries=2, verify_every="1h")
    silo.site.append(TWICE)
    silo.start()
    once, twice = some(4), some(4, "/tape/twice/", 4)
    silo.archive(once | twice)
    lost, mended = list(once)[1], list(twice)[1]
    of_once, one = silo.spoil(once[lost]), silo.spoil(twice[mended])
    # An hour of the libraries is two seconds, so that all tapes are read soon and again and again.
    eventually("one is found", lambda: silo.care()["unreadable_files"] == 1 and unreadable(silo, lost), WITHIN)
    eventually("the other was", lambda: silo.tape(one["name"])["verification"]["unreadable_files"] >= 1, WITHIN)
    eventually("and is written again", lambda: silo.care()["unreadable_files"] == 1, WITHIN)
    [told] = silo.care()["unreadable"]
    assert (told["path"], told["tape"], told["has_other_copy"]) == (lost, of_once["name"], False)
    [incident] = silo.status()["incidents"]
    assert of_once["name"] in incident["what"]
    shown = silo.run("status")
    assert f"{lost} has no other copy" in shown and "1 file found unreadable" in shown
    # The file is not given up: it is reported where it is, and who wants it is told why it does not come.
    assert all_are(silo.door, [lost], "TAPE")
    # With its first copy damaged and its second out of use, the third place counts.
    for tape in silo.status()["libraries"]["tapes"]:
        if tape["family"] == "twice" and tape["library"] != one["library"]:
            silo.run("disable", tape["name"])
    silo.bring_back({mended: twice[mended]})
    # In a challenge nothing of it is done.
    silo.run("hold", "1h")
    eventually("it is told", lambda: "on hold until" in silo.run("status"))
    # What was begun is finished.
    time.sleep(2)
    before = silo.tape(one["name"])["verification"]["ended"]
    time.sleep(2.5)
    assert silo.tape(one["name"])["verification"]["ended"] == before
    silo.run("resume")
    eventually("it goes on", lambda: silo.tape(one["name"])["verification"]["ended"] != before, WITHIN)


def unreadable(silo, path):
    return [one for one in silo.care()["unreadable"] if one["path"] == path]


def test_another_library_takes_over_when_one_does_not_work(make_silo):
    silo = make_silo(libraries=2)
    silo.site.append(TWICE)
    silo.start()
    twice = some(5, "/tape/twice/")
    silo.archive(twice)
    drives = [drive["name"] for drive in silo.status()["libraries"]["drives"] if drive["library"] == "silo-1"]
    for drive in drives:
        silo.run("disable", drive)
    silo.bring_back(twice)
    once = some(5, begin=5)
    silo.archive(once)
    libraries = {tape["library"] for tape in silo.status()["libraries"]["tapes"] if tape["family"] == "raw"}
    assert libraries == {"silo-2"}, "what is new went to the one that works"
    reads = [mount["library"] for mount in silo.status()["libraries"]["mounts"] if mount["family"] is None]
    assert reads and set(reads) == {"silo-2"}
    silo.bring_back(once)
    for drive in drives:
        silo.run("enable", drive)
    eventually("no incident is left", lambda: silo.status()["incidents"] == [], WITHIN)
    silo.archive(some(2, "/tape/twice/", 20))


def in_libraries(silo):
    """Files by library, on tapes that are in use."""
    tapes = [tape for tape in silo.status()["libraries"]["tapes"] if tape["state"] in ("active", "read-only")]
    names = {tape["library"] for tape in tapes}
    return {name: sum(tape["live"]["files"] for tape in tapes if tape["library"] == name) for name in names}


def break_tape(silo, name):
    """Its label is gone, as the next mount finds."""
    eventually("it is in its slot", lambda: silo.tape(name)["drive"] is None, WITHIN)
    silo.site.kill()
    [cartridge] = silo.site.directory.glob(f"tape/*/cartridges/{name}.tape")
    with cartridge.open("r+b") as opened:
        label = opened.read(8)
        opened.seek(0)
        opened.write(b"no label")
    silo.start()
    silo.run("verify", name)
    eventually("it is found broken", lambda: silo.tape(name)["state"] == "broken", WITHIN)
    return cartridge, label


@pytest.mark.parametrize("fate", ["disabled", "broken"])
def test_copies_on_a_lost_tape_are_made_again_over_kills(make_silo, fate):
    # A mount takes a second, so that kills meet reads and writes.
    silo = make_silo(libraries=2, time_factor=80, repack_part="30 kB", replace_copies_after="0s", verify_every="0s")
    silo.site.append(TWICE)
    silo.start()
    files = some(30, "/tape/twice/")
    silo.archive(files)
    assert in_libraries(silo) == {"silo-1": 30, "silo-2": 30}
    of_one = {name: count for name, count in silo.live().items() if name.startswith("silo-1")}
    lost = max(of_one, key=of_one.get)
    if fate == "disabled":
        silo.run("disable", lost)
    else:
        break_tape(silo, lost)
        # Not only when lost tapes are looked at next.
        silo.run("retry")
    left = lambda: silo.tape(lost)["live"]["files"]
    eventually("some are copied", lambda: left() < of_one[lost], WITHIN)
    kills = 0
    while left() and kills < 4:
        time.sleep(0.6 + 0.5 * kills)
        silo.site.kill()
        silo.start()
        kills += 1
    assert kills, "it was over before anything could be killed"
    eventually("each has two good copies", lambda: in_libraries(silo) == {"silo-1": 30, "silo-2": 30}, WITHIN)
    assert left() == 0
    assert all_are(silo.door, list(files), "TAPE"), "what was brought for that has left the disk"
    # The new copies are good: only their library can be read.
    for drive in silo.status()["libraries"]["drives"]:
        if drive["library"] == "silo-2":
            silo.run("disable", drive["name"])
    silo.bring_back(files)


def test_files_get_further_copies_when_a_class_wants_more_and_lost_ones_are_named(make_silo):
    silo = make_silo(libraries=2, replace_copies_after="1h", verify_every="0s")
    silo.site.append(TWICE.replace("2", "1"))
    silo.start()
    files = some(8, "/tape/twice/")
    silo.archive(files)
    once = some(1, begin=8)
    silo.archive(once)
    silo.site.kill()
    settings = silo.site.directory / "penstock.toml"
    settings.write_text(settings.read_text().replace("copies = 1", "copies = 2"))
    silo.start()
    both = lambda: sorted(in_libraries(silo).values()) == [8, 9]
    eventually("each file of the class has two copies", both, WITHIN)
    # An hour of the libraries is two seconds. One tape has what has no other copy.
    [lost] = [tape["name"] for tape in silo.status()["libraries"]["tapes"] if tape["family"] == "raw"]
    silo.run("disable", lost)
    is_told = lambda: [one for one in silo.status()["incidents"] if one["code"] == "files-without-copy"]
    [incident] = eventually("it is an incident", is_told, WITHIN)
    [path] = once
    assert incident["what"].startswith(f"1 file on tape {lost} without a copy that can be read, such as {path}: ")
    assert f"no readable copy: {path}, which is on tape {lost}" in silo.run("status")
    silo.run("enable", lost)
    eventually("it is over", lambda: silo.status()["incidents"] == [], WITHIN)
    silo.bring_back(files | once)


def test_a_tape_is_repacked_by_hand_whatever_its_state(make_silo):
    silo = make_silo(libraries=2, replace_copies_after="1000d", verify_every="0s")
    silo.site.append(TWICE)
    silo.start()
    files = some(6, "/tape/twice/")
    silo.archive(files)
    tape_of = lambda library: max((name for name in silo.live() if name.startswith(library)), key=lambda n: silo.live()[n])
    # Read-only: all of it is moved, and the tape is written anew.
    first = tape_of("silo-1")
    silo.run("read-only", first)
    silo.run("repack", first)
    eventually("it is written anew", lambda: silo.tape(first)["written_bytes"] == 0, WITHIN)
    assert silo.tape(first)["state"] == "active"
    # Disabled: nothing is read from it, so it is not emptied.
    second = tape_of("silo-1")
    silo.run("disable", second)
    told = silo.run("repack", second, code=1)
    assert f"tape {second} is out of use: make it read-only first, with `penstock tape read-only`" in told, told
    silo.run("enable", second)
    # Broken: what has a copy elsewhere is moved with its help, and the tape stays as it is.
    cartridge, label = break_tape(silo, second)
    silo.run("repack", second)
    eventually("all of it is moved", lambda: silo.tape(second)["live"]["files"] == 0, WITHIN)
    waits = lambda: [one["waits_for"] for one in silo.care()["repacks"] if one["tape"] == second]
    is_told = lambda: waits() == ["it is broken; make it read-only first"]
    eventually("it is told what is to be done", is_told, WITHIN)
    assert silo.tape(second)["state"] == "broken"
    for drive in silo.status()["libraries"]["drives"]:
        if drive["library"] == "silo-2":
            silo.run("disable", drive["name"])
    silo.bring_back(files)
    # An operator who makes it read-only has it written anew.
    with cartridge.open("r+b") as opened:
        opened.write(label)
    silo.run("read-only", second)
    eventually("it is written anew", lambda: silo.tape(second)["written_bytes"] == 0, WITHIN)
    assert silo.care()["repacks"] == []


def test_a_broken_tape_keeps_what_has_no_other_copy_when_it_is_repacked(make_silo):
    silo = make_silo(replace_copies_after="1000d", verify_every="0s")
    silo.start()
    files = some(4)
    silo.archive(files)
    [name] = silo.live()
    cartridge, label = break_tape(silo, name)
    silo.run("repack", name)
    waits = lambda: [one["waits_for"] for one in silo.care()["repacks"] if one["waits_for"]]
    [why] = eventually("it is told", waits, WITHIN)
    assert why.startswith("4 files still on it"), why
    assert silo.tape(name)["live"]["files"] == 4
    # Once the tape can be read, all goes on.
    with cartridge.open("r+b") as opened:
        opened.write(label)
    silo.run("read-only", name)
    eventually("it is written anew", lambda: silo.tape(name)["written_bytes"] == 0, WITHIN)
    silo.bring_back(files)


def test_families_lie_on_tapes_of_their_own_and_use_as_many_drives_as_they_may(make_silo):
    silo = make_silo(time_factor=200)
    for family in ("red", "blue"):
        silo.site.append(f'[[storage.tape.class]]\npath = "/tape/{family}"\nfamily = "{family}"\nwidth = 1\n')
    silo.start()
    files = some(12, "/tape/red/") | some(12, "/tape/blue/", 12)
    silo.archive(files)
    tapes = silo.status()["libraries"]["tapes"]
    of = lambda family: [tape for tape in tapes if tape["family"] == family]
    for family in ("red", "blue"):
        assert sum(tape["live"]["files"] for tape in of(family)) == 12, tapes
    mounts = [mount for mount in silo.status()["libraries"]["mounts"] if mount["family"]]
    for family in ("red", "blue"):
        spans = sorted((mount["begin"], mount["end"]) for mount in mounts if mount["family"] == family)
        assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:])), spans
    silo.bring_back(files)


def test_a_storage_element_learns_how_its_drives_locate(make_silo):
    # Of several tapes that are written side by side, all that is brought back may lie on one of which nothing is asked.
    kind = {"kind": "LTO-8", "count": 1}
    tape = kind | {"capacity": "2 GB"}
    silo = make_silo(library=[{"name": "silo-1", "directory": "tape/silo-1", "drives": [kind], "tapes": [tape]}])
    silo.start()
    files = some(40)
    silo.archive(files)
    [(name, count)] = silo.live().items()
    assert count == len(files)
    assert silo.tape(name)["wraps_known"] > 100, "the drive has told where the wraps of the tape end"
    before = silo.tape(name)["locates_known"]
    silo.bring_back({path: data for path, data in list(files.items())[::4]})
    known = lambda: silo.tape(name)["locates_known"]
    eventually("each locate tells something", lambda: known() > before)
    after = known()
    silo.site.kill()
    silo.start()
    assert silo.tape(name)["locates_known"] >= after, "which a restart keeps"
