"""The tape system of a storage element, as clients and operators of a test meet it."""

import json
import subprocess

from interop.clients import Door
from interop.waiting import eventually

WITHIN = 120


class TapeDoor(Door):
    """Has what is on tape only brought back before it is read."""

    def get(self, path, expect=200, **headers):
        answer = self.ask("GET", path, headers=headers)
        if answer.status_code != 409:
            assert answer.status_code == expect, f"GET {path}: {answer.status_code} {answer.text}"
            return answer.content
        [file] = self.staged([path])
        assert file.get("onDisk"), f"a file that is reported on tape is not brought back: {file}"
        return self.ask("GET", path, headers=headers).content

    def staged(self, paths):
        """Asks for all of them together; what became of each."""
        request = self.stage(paths).json()["requestId"]
        told = lambda: self.ask("GET", f"/.penstock/tape/v1/stage/{request}").json()
        eventually(f"{len(paths)} files such as {paths[0]} come from tape", lambda: "completedAt" in told(), WITHIN)
        return told()["files"]

    def stage(self, paths):
        wanted = [{"path": path, "diskLifetime": "PT1H"} for path in paths]
        return self.ask("POST", "/.penstock/tape/v1/stage", json={"files": wanted})

    def is_on_tape(self, path):
        [told] = self.ask("POST", "/.penstock/tape/v1/archiveinfo", json={"paths": [path]}).json()
        return told.get("locality") in ("TAPE", "DISK_AND_TAPE")


def tape_command(site, *words):
    """What an operator types."""
    line = [str(site.binary), "tape", *words, "--dir", str(site.directory)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def tape_status(site):
    done = tape_command(site, "status", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
