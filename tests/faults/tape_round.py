"""A storage element whose files go to tape and come back, clients and an operator at work there, and a judge of what is
left when something befell it."""

import json
import random
import subprocess
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

from interop.site import read_database
from interop.test_files_on_tape import STAGING, TapeLibraries, all_are, with_tape
from interop.waiting import eventually, files_for_tape

from .element import Book, Client, ElementSite, assert_runs, digest_of, judge, work_together
from .tapes import WITHIN, TapeDoor, tape_command, tape_status

HOST = "127.0.9.3"
CLIENTS, PATHS, STOCK, PAUSE_SECONDS = 3, 12, 8, 0.1
LOST = "/lost+found"
STAGE, RELEASE = "/.penstock/tape/v1/stage", "/.penstock/tape/v1/release"
# Of a mount: two thirds of a second.
TIME_FACTOR = 60
COPIES = 2


class HealthyDisk:
    """A directory in place of a disk that fails. Keeps the marks of clients, as that does."""

    def __init__(self, directory):
        self.path = self.backing = directory
        self.marks = []
        directory.mkdir(parents=True)

    def mark(self, text):
        self.marks.append(text)


class TapeClient(Client):
    """Reads, too, has files brought from tape and lets them go. Waits while nobody serves."""

    def __init__(self, name, run, seed):
        super().__init__(name, TapeDoor(run.site, run.token), run.book, seed)
        self.run, self.requests, self.wrong, self.timeout = run, {}, [], 30

    def path(self):
        return f"/{self.name}/{self.draw.randrange(PATHS)}"

    def work(self, count):
        """Until the round is over."""
        try:
            while not self.run.is_over.wait(self.draw.random() * PAUSE_SECONDS):
                self.step()
        except Exception as error:
            self.wrong.append(repr(error))

    def step(self):
        deeds = {self.put: 8, self.remove: 2, self.move: 2, self.make_directory: 1, self.upload: 1}
        deeds |= {self.read: 6, self.stage: 3, self.look: 3, self.release: 2, self.forget: 1}
        self.draw.choices(list(deeds), list(deeds.values()))[0]()

    def ask(self, method, path, expect, **options):
        self.run.is_served.wait()
        kills = self.run.kills
        answer = super().ask(method, path, expect, **options)
        status = self.statuses[-1][2]
        if not isinstance(status, int):
            self.door.session.close()
            if kills == self.run.kills and self.run.is_served.is_set():
                self.wrong.append(self.statuses[-1])
        elif status >= 500 or (answer is None and path.startswith("/.penstock/tape")):
            if status not in expect:
                self.wrong.append(self.statuses[-1])
        return answer

    def end(self, operation, answer):
        """What a killed process has not done it does not do later."""
        self.book.end(operation, answer is not None)

    def read(self):
        path = self.path()
        answer = self.ask("GET", path, (200, 404, 409, 503))
        if answer is None or answer.status_code == 503:
            return
        if answer.status_code == 409:
            self.stage([path])
            return
        seen = digest_of(answer.content) if answer.status_code == 200 else None
        trees = self.book.at(list(self.run.disk.marks))[0].get(self.name, [{}])
        assert seen in [tree.get(path) for tree in trees], f"{path} is read as {seen}, {answer.status_code}"

    def stage(self, paths=None):
        paths = paths or sorted({self.path() for _ in range(4)})
        wanted = [{"path": path, "diskLifetime": "PT1H"} for path in paths]
        answer = self.ask("POST", STAGE, (201,), json={"files": wanted})
        if answer is not None:
            self.requests[answer.json()["requestId"]] = paths

    def look(self):
        if self.requests:
            request = self.draw.choice(list(self.requests))
            self.ask("GET", f"{STAGE}/{request}", self.run.told_of_requests)

    def release(self):
        if self.requests:
            request = self.draw.choice(list(self.requests))
            self.ask("POST", f"{RELEASE}/{request}", (200,), json={"paths": self.requests[request]})

    def forget(self):
        if self.requests:
            request = self.draw.choice(list(self.requests))
            if self.ask("DELETE", f"{STAGE}/{request}", self.run.told_of_requests) is not None:
                del self.requests[request]


class Round:
    """An element whose files go to tape, clients and an operator at work there, and what befalls them."""

    def __init__(self, binary, directory, seed):
        self.draw, self.directory = random.Random(seed), directory
        self.disk = HealthyDisk(directory / "disk")
        self.site = ElementSite(binary, directory / "element", "element", HOST, self.disk)
        self.site.configure("[storage]", trash=self.TRASH)
        self.tapes = self.tape_system()
        self.tapes.settings |= {"keep_removed": "0s"}
        with_tape(self.site, self.tapes, paths=("/",))
        self.site.append(self.CLASS)
        self.token, self.book = self.site.token(STAGING), Book(self.disk)
        self.is_over, self.is_served = threading.Event(), threading.Event()
        self.kills, self.told_of_requests, self.unplaced_max = 0, {200}, 0
        self.clients = [TapeClient(f"client-{number}", self, seed) for number in range(CLIENTS)]

    def instant(self, first=0.0, last=4.0):
        return self.draw.uniform(first, last)

    def prepare(self):
        """Files on tape, to be brought back from the beginning on."""
        self.start()
        for client in self.clients:
            for _ in range(STOCK):
                client.put()
        self.door = TapeDoor(self.site, self.token)
        eventually("the first files are on tape only", lambda: all_are(self.door, list(self.files()), "TAPE"), WITHIN)

    def start(self):
        self.site.start()
        self.is_served.set()

    def kill(self):
        self.is_served.clear()
        self.kills += 1
        self.site.kill()

    def restart(self):
        """Some starts are killed as well."""
        self.kill()
        for _ in range(self.draw.choice([0, 0, 1])):
            self.site.launch()
            time.sleep(self.instant(0.0, 0.6))
            self.site.kill()
        self.start()

    def work(self):
        """All of them at once; each event comes at its instant, without the time that earlier ones took."""
        together = threading.Thread(target=work_together, args=(self.clients, 0))
        together.start()
        before = 0.0
        try:
            for at, event in sorted(self.events(), key=lambda event: event[0]):
                time.sleep(at - before)
                print(f"after {at:.2f} s: {event.__name__}")
                event()
                before = at
            time.sleep(self.instant(0.0, 0.5))
        finally:
            self.is_over.set()
            self.is_served.set()
            together.join()
        assert_runs(self.site)
        wrong = [one for client in self.clients for one in client.wrong]
        assert not wrong, f"{wrong[:5]}\n{self.site.log_tail()}"

    def files(self):
        """Sizes of what goes to tape."""
        return {path: size for path, size in self.tree("").items() if size}

    def tree(self, directory):
        """Sizes of all that is there; directories have none."""
        listed = self.door.list(directory or "/")
        for path in [path for path, size in listed.items() if size is None and path != directory]:
            listed |= self.tree(path)
        return listed

    def judge(self):
        self.door = TapeDoor(self.site, self.token)
        requests = [request for client in self.clients for request in client.requests]
        eventually("all requests have an end", lambda: all(map(self.has_ended, requests)), WITHIN)
        self.wait("nothing is asked for any more", self.is_quiet)
        paths = list(self.files())
        assert self.door.ask("POST", f"{RELEASE}/all", json={"paths": paths}).status_code == 200
        eventually("all are on tape only", lambda: all_are(self.door, paths, "TAPE"), WITHIN)
        self.read_from_tape(paths)
        judge(self.book, self.door, self.disk.marks)
        lost = [path for path, size in self.tree(LOST).items() if size is not None]
        assert len(lost) <= self.unplaced_max, f"files have lost their place: {lost}"
        self.wait("nothing is asked for any more", self.is_quiet)
        self.wait("counters are those of the listing", self.is_counted)
        code, _ = self.site.stop()
        assert code == 0, self.site.log_tail()
        self.assert_consistent()

    def assert_consistent(self):
        """Namespace and pools agree, but for files in quarantine: of those nobody was told that they are stored."""
        line = [str(self.site.binary), "fsck", "--json", "--dir", str(self.site.directory)]
        told = json.loads(subprocess.run(line, capture_output=True, text=True, timeout=60).stdout)
        report = told.get("report", told)
        found = {name: kind for name, kind in report.items() if isinstance(kind, dict) and kind.get("count")}
        unknown = found.pop("unknown", {"named": []})["named"]
        lost = [file for file in unknown if not file["in_quarantine"]]
        assert not (found or lost or report["counters"] or report["pools_away"]), (found, lost, told)

    def wait(self, what, probe):
        try:
            eventually(what, probe, WITHIN)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.seen}\n{self.site.log_tail()}") from None

    def has_ended(self, request):
        answer = self.door.ask("GET", f"{STAGE}/{request}")
        assert answer.status_code in self.told_of_requests, f"{request}: {answer.status_code} {answer.text}"
        return answer.status_code == 404 or "completedAt" in answer.json()

    def is_quiet(self):
        status = tape_status(self.site)
        care = status["libraries"]["care"] if "libraries" in status else {"repacks": [], "copying": None}
        self.seen = status["counts"], status["incidents"], care
        return files_for_tape(status) == 0 and not (status["incidents"] or care["repacks"] or care["copying"])

    def read_from_tape(self, paths):
        files = self.door.staged(paths)
        assert all(file.get("onDisk") for file in files), [file for file in files if not file.get("onDisk")]

    def query(self, sql):
        return read_database(self.site.directory / "state/namespace.sqlite", sql, ())

    def run(self):
        try:
            self.prepare()
            self.work()
            self.judge()
        finally:
            self.close()

    def close(self):
        self.site.kill()


class LibraryRound(Round):
    """With copies of each file in two tape libraries; small files lie together."""

    TRASH = "1s"
    CLASS = f'copies = {COPIES}\naggregate = "10 kB"\n'

    def tape_system(self):
        return TapeLibraries(self.site, TIME_FACTOR, libraries=COPIES)

    def tapes_in_use(self):
        tapes = tape_status(self.site)["libraries"]["tapes"]
        return {tape["name"]: tape for tape in tapes if tape["live"]["files"]}

    def repack(self):
        """An operator has a tape written anew."""
        eventually("the libraries are open", lambda: "libraries" in tape_status(self.site))
        name = self.draw.choice(sorted(self.tapes_in_use()))
        done = tape_command(self.site, "repack", name)
        assert done.returncode == 0, done.stderr

    def read_from_tape(self, paths):
        """Some day one library is all that is left."""
        lost = self.draw.choice([None, "silo-1", "silo-2"])
        tapes = [name for name, tape in self.tapes_in_use().items() if tape["library"] == lost]
        for order in ("disable", "enable"):
            for name in tapes:
                assert tape_command(self.site, order, name).returncode == 0
            if order == "disable":
                super().read_from_tape(paths)

    def is_counted(self):
        sql = "SELECT uri, size_bytes FROM tape_copy JOIN entry ON entry.id = tape_copy.entry"
        copies = [(urlsplit(uri).path.split("/")[1], size) for uri, size in self.query(sql)]
        files, sizes = Counter(), Counter()
        for tape, size in copies:
            files[tape] += 1
            sizes[tape] += size
        told = {name: (tape["live"]["files"], tape["live"]["bytes"]) for name, tape in self.tapes_in_use().items()}
        listed = {tape: (files[tape], sizes[tape]) for tape in files}
        self.seen = told, listed
        return told == listed and len(copies) == COPIES * len(self.files())
