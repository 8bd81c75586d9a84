"""A storage element is killed, loses its database or has an HSM whose script hangs, while files go to tape and back.

Nobody restarts anything but a process that was killed. Afterwards each file that was acknowledged can be read, what is
told to be on tape is read from there, counters are those of the listing, and no request is left without an end.
"""

import json
import shutil
import subprocess
import time

import pytest
from interop.test_files_on_tape import PROGRAM, DirectoryHsm
from interop.waiting import eventually

from .tape_round import CLIENTS, LibraryRound, Round
from .tapes import WITHIN

# Of each command.
HSM_TIMEOUT = "2s"


class Killed(LibraryRound):
    FAULT = "kill -9 with tapes"

    def events(self):
        kills = [(self.instant(), self.restart) for _ in range(self.draw.randint(1, 3))]
        return [(self.instant(0.0, 2.0), self.repack), *kills]


class WithoutDatabase(LibraryRound):
    FAULT = "database loss with tapes"

    def events(self):
        return [(self.instant(0.0, 2.0), self.repack), (self.instant(0.5, 4.0), self.lose_database)]

    def lose_database(self):
        # Pools hear of a change just after its client: with the namespace the last of them would be lost.
        self.is_served.clear()
        time.sleep(0.3)
        self.kill()
        # Requests are in no log of a pool.
        self.told_of_requests.add(404)
        for file in (self.site.directory / "state").glob("namespace.sqlite*"):
            file.unlink()
        self.make_again()
        self.assert_consistent()
        self.restart()

    def make_again(self):
        """What the pages tell an administrator to do while the pools are whole. Of a file about which its client had no
        answer as yet nothing says that it is later than another one at its path: both are kept."""
        told = json.loads(self.site.command("rebuild", "--json"))
        self.unplaced_max = CLIENTS
        assert told["lost"] <= CLIENTS and not (told["wrong_size"] or told["unreadable"]), told
        print(told["lost_named"])


class OlderDatabase(WithoutDatabase):
    FAULT = "older database with tapes"

    def __init__(self, *given):
        super().__init__(*given)
        for client in self.clients:
            # An empty directory that was made after the copy does not come back.
            client.make_directory = client.read

    def events(self):
        return [(self.instant(0.0, 0.5), self.back_up), *super().events()]

    def back_up(self):
        self.site.command("backup", "--to", str(self.directory / "backup"), "--only", "namespace")

    def make_again(self):
        self.unplaced_max = CLIENTS
        self.site.command("restore", str(self.directory / "backup"), "--only", "namespace")
        line = [str(self.site.binary), "fsck", "--repair", "--yes", "--dir", str(self.site.directory)]
        print(subprocess.run(line, capture_output=True, text=True, timeout=60).stdout)


HANGING = """#!/bin/sh
# Hangs while there is a switch that names the command, whether SIGTERM comes or not. Then it fails, or does its work.
{{ read -r command signal after <{switch}; }} 2>/dev/null
if [ "$command" = "$1" ]; then
    echo "$1" >>{hung}
    [ "$signal" = heeded ] || trap '' TERM
    while [ -e {switch} ]; do sleep 0.1; done
    [ "$after" = works ] || exit 1
fi
exec {program} "$@"
"""


class HungHsm(Round):
    FAULT = "hung HSM script"
    TRASH, CLASS = "0s", ""

    def tape_system(self):
        self.switch, self.hung = self.directory / "switch", self.directory / "hung"
        program = self.directory / "hanging-hsm"
        program.write_text(HANGING.format(switch=self.switch, hung=self.hung, program=PROGRAM))
        program.chmod(0o755)
        hsm = DirectoryHsm(self.site, program)
        # Five files whose commands are stopped count as a fault of the whole HSM, which is tested again after a minute.
        commands = 8 if self.draw.random() < 0.1 else 2
        for command in ("put", "get", "remove"):
            hsm.settings |= {f"{command}s_max": commands, f"{command}_timeout": HSM_TIMEOUT}
        return hsm

    def events(self):
        begin, seconds = self.instant(0.0, 1.0), self.instant(2.2, 4.5)
        events = [(begin, self.hang), (begin + seconds, self.lift)]
        if self.draw.random() < 0.5:
            events.append((begin + self.instant(0.1, seconds), self.restart))
        return events

    def hang(self):
        words = [["put", "get", "remove"], ["heeded", "ignored"], ["fails", "works"]]
        switch = self.directory / "switch-to-be"
        switch.write_text(" ".join(self.draw.choice(one) for one in words) + "\n")
        print(switch.read_text(), end="")
        switch.rename(self.switch)
        eventually("a command hangs", self.hung.exists, WITHIN)

    def lift(self):
        self.switch.unlink()

    def is_counted(self):
        [(copies,)] = self.query("SELECT count(*) FROM tape_copy JOIN entry ON entry.id = tape_copy.entry")
        self.seen = copies, len(self.tapes.files()), len(self.files())
        return len(set(self.seen)) == 1

    def close(self):
        # Commands of a process that was killed end, too.
        self.switch.unlink(missing_ok=True)
        super().close()


@pytest.mark.parametrize("kind", [Killed, WithoutDatabase, OlderDatabase, HungHsm])
def test_no_fault_loses_a_file_on_its_way_to_tape_and_back(kind, binary, tmp_path, tier, rounds):
    for seed in rounds.of("element", kind.FAULT, tier.tape_rounds):
        directory = tmp_path / str(seed)
        kind(binary, directory, seed).run()
        shutil.rmtree(directory)
