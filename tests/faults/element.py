"""A storage element on a disk of a test, clients at work there, and a model of what it has promised them."""

import hashlib
import random
import re
import threading
from dataclasses import dataclass, field

import requests
from interop.clients import Door, content
from interop.site import Site
from interop.waiting import eventually

DIRECTORY = "directory"
SIZES = [0, 1, 3000, 70_000, 200_000]
UPLOAD_BYTES = 150_000
PIECE_BYTES = 50_000
PATHS_PER_CLIENT = 6
HEALTH = "/.penstock/health"
LASTING = ("within the last hour", "which the namespace does not know")


class ElementSite(Site):
    """A site whose databases and pools are on a disk: `state` and two pools."""

    def __init__(self, binary, directory, name, host, disk, peers=()):
        super().__init__(binary, directory, name, host, peers=peers)
        for place in ("state", "pools"):
            original = self.directory / place
            if original.exists():
                original.rename(disk.backing / place)
            else:
                (disk.backing / place).mkdir()
        self.remove("transfer")
        (disk.backing / "pools/second").mkdir()
        self.append('\n[[storage.pool]]\nname = "second"\npath = "pools/second"\n')
        self.use(disk.path)

    def use(self, place):
        """From the next start on its databases and pools are there."""
        for name in ("state", "pools"):
            link = self.directory / name
            link.unlink(missing_ok=True)
            link.symlink_to(place / name)

    def health(self):
        """Its status and its findings, as an administrator sees them."""
        door = Door(self, self.admin_token())
        answer = door.ask("GET", HEALTH, timeout=10)
        return answer.status_code, answer.json().get("findings", [])

    def findings(self, about):
        """The texts of findings about a subject."""
        return [finding["text"] for finding in self.health()[1] if finding["about"] == about]

    def wait_healthy(self, within=30.0):
        def healthy():
            status, findings = self.health()
            return status == 200 and not [finding for finding in findings if not is_lasting(finding)]

        eventually(f"{self.name} is healthy", healthy, within)


def is_lasting(finding):
    """What is told for a while after a fault is over, or until a person has looked."""
    return finding["about"] == "expiry" or any(words in finding["text"] for words in LASTING)


def assert_runs(site):
    """No fault below it ends a process."""
    code = site.process.poll()
    assert code is None, f"{site.name} ended with {code}\n{site.log_tail()}"


@dataclass
class Operation:
    """What a client asked for: how the files change when it happens."""

    number: int
    client: str
    what: str
    change: object
    paths: tuple


@dataclass
class Upload:
    """An upload in pieces: what was acknowledged of it, by the marks at which it was."""

    path: str
    data: bytes
    location: str
    offsets: list = field(default_factory=list)
    finish: int = None


class Book:
    """What clients asked for and were told, each with a mark on the disk's log: so it can be opened at any record."""

    def __init__(self, disk):
        self.disk = disk
        self.operations, self.uploads, self.answers = [], [], {}
        # Operations whose answer never came: a server that still has one may do it later than what follows.
        self.unanswered = set()
        self.adding = threading.Lock()

    def begin(self, client, what, change, *paths):
        with self.adding:
            operation = Operation(len(self.operations), client, what, change, paths)
            self.operations.append(operation)
        self.disk.mark(f"begin {operation.number}")
        return operation

    def end(self, operation, is_done, is_answered=True):
        """Told after the answer has come, or nobody waits for it any more."""
        if not is_answered:
            self.unanswered.add(operation.number)
        self.answers[operation.number] = is_done
        self.disk.mark(f"{'done' if is_done else 'refused'} {operation.number}")

    def at(self, marks):
        """What may be there once these marks were made, client by client: a list of possible trees for each."""
        begun, done = set(), set()
        for mark in marks:
            kind, _, number = mark.partition(" ")
            if kind == "begin":
                begun.add(int(number))
            elif kind == "done":
                done.add(int(number))
        # Of each client: the trees that may be there, each with the operations that may still be done to it, once.
        trees = {}
        for operation in self.operations:
            states = trees.setdefault(operation.client, [({}, ())])
            if operation.number not in begun:
                continue
            changed = [(operation.change(dict(tree)), late) for tree, late in states]
            if operation.number in self.unanswered:
                changed += [(tree, (*late, operation)) for tree, late in states]
            elif operation.number not in done:
                changed += states
            trees[operation.client] = distinct([state for one in changed for state in with_late(*one)])
        return {client: distinct([tree for tree, _ in states]) for client, states in trees.items()}, done

    def paths_of(self, client):
        return {path for operation in self.operations if operation.client == client for path in operation.paths}


def with_late(tree, late):
    """A tree as it is, and as it becomes when some of these operations are done now, in any order."""
    states = [(tree, late)]
    for operation in late:
        rest = tuple(other for other in late if other is not operation)
        states += with_late(operation.change(dict(tree)), rest)
    return states


def distinct(states):
    return [state for at, state in enumerate(states) if state not in states[:at]]


def put(path, data):
    return lambda state: state | {path: digest_of(data)}


def delete(path):
    return lambda state: {name: what for name, what in state.items() if name != path}


def move(path, target):
    def change(state):
        return state | {target: state.pop(path)} if path in state else state

    return change


def make_directory(path):
    return lambda state: state | {path: DIRECTORY}


def nothing(state):
    return state


def digest_of(data):
    return hashlib.sha256(data).hexdigest()[:16]


class Client:
    """Works below a directory of its own, one request at a time; goes on after whatever it is answered."""

    def __init__(self, name, door, book, seed, source=None):
        self.name, self.door, self.book, self.source = name, door, book, source
        self.draw = random.Random(f"{name} {seed}")
        self.count, self.statuses, self.timeout = 0, [], 60
        self.there = set()

    def path(self):
        return f"/{self.name}/{self.draw.randrange(PATHS_PER_CLIENT)}"

    def data(self, size=None):
        self.count += 1
        return content((self.name, self.count), self.draw.choice(SIZES) if size is None else size)

    def work(self, count):
        for _ in range(count):
            self.step()

    def step(self):
        deeds = {self.put: 8, self.remove: 2, self.move: 2, self.make_directory: 1, self.upload: 2}
        if self.source is not None:
            deeds[self.pull] = 2
        self.draw.choices(list(deeds), list(deeds.values()))[0]()

    def ask(self, method, path, expect, **options):
        """Whether it was done; an answer that did not come says nothing."""
        try:
            answer = self.door.ask(method, path, timeout=self.timeout, **options)
        except requests.RequestException as error:
            self.statuses.append((method, path, f"{error!r}"[:300]))
            return None
        self.statuses.append((method, path, answer.status_code))
        return answer if answer.status_code in expect else None

    def put(self):
        path, data = self.path(), self.data()
        operation = self.book.begin(self.name, "PUT", put(path, data), path)
        self.end(operation, self.ask("PUT", path, (201, 204), data=data))

    def remove(self):
        path = self.path()
        operation = self.book.begin(self.name, "DELETE", delete(path), path)
        # What is not there needs no removal: 404 promises as much.
        self.end(operation, self.ask("DELETE", path, (204, 404)))

    def move(self):
        path, target = self.path(), f"/{self.name}/{self.draw.randrange(PATHS_PER_CLIENT)}"
        if path == target:
            return
        operation = self.book.begin(self.name, "MOVE", move(path, target), path, target)
        self.end(operation, self.ask("MOVE", path, (201, 204, 404), headers={"Destination": self.door.url(target)}))

    def make_directory(self):
        path = f"/{self.name}/directory-{self.count}"
        self.count += 1
        self.there.add(path)
        operation = self.book.begin(self.name, "MKCOL", make_directory(path), path)
        answer = self.ask("MKCOL", path, (201, 405))
        if answer is None and self.statuses[-1][2] == 409:
            # Nobody has put anything below the client's directory yet.
            operation.change = nothing
        self.end(operation, answer)

    def upload(self):
        """In pieces, of which the last may never come."""
        path, data = f"/{self.name}/upload-{self.count}", self.data(UPLOAD_BYTES)
        operation = self.book.begin(self.name, "begin an upload", nothing, path)
        answer = self.ask("PUT", path, (201,), headers={"Upload-Complete": "?0"})
        self.end(operation, answer)
        if answer is None:
            return
        upload = Upload(path, data, answer.headers["Location"], [(operation.number, 0)])
        self.book.uploads.append(upload)
        for end in range(PIECE_BYTES, UPLOAD_BYTES + 1, PIECE_BYTES):
            is_last = end == UPLOAD_BYTES
            if is_last and self.draw.random() < 0.4:
                return
            change = put(path, data) if is_last else nothing
            operation = self.book.begin(self.name, f"upload up to {end}", change, path)
            upload.finish = operation.number if is_last else None
            headers = {"Content-Type": "application/partial-upload", "Upload-Offset": str(end - PIECE_BYTES)}
            headers["Upload-Complete"] = "?1" if is_last else "?0"
            piece = data[end - PIECE_BYTES : end]
            upload_path = re.sub(r"^https://[^/]*", "", upload.location)
            answer = self.ask("PATCH", upload_path, (201, 204), data=piece, headers=headers)
            upload.offsets.append((operation.number, end))
            self.end(operation, answer)
            if answer is None:
                return

    def pull(self):
        path, data = self.path(), self.data()
        source = self.source.offer(f"/{self.name}/{self.count}", data)
        operation = self.book.begin(self.name, "COPY", put(path, data), path)
        answer = self.ask("COPY", path, (202,), headers={"Source": source, "Credential": "none", "Overwrite": "T"})
        self.end(operation, answer if answer is not None and "success:" in answer.text else None)

    def end(self, operation, answer):
        is_answered = answer is not None or isinstance(self.statuses[-1][2], int)
        self.book.end(operation, answer is not None, is_answered)


def work_together(clients, count):
    """All of them at once, each so many steps."""
    threads = [threading.Thread(target=client.work, args=(count,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a client waits for ever"


def judge(book, door, marks, finish=True):
    """Compares what is there with what was promised up to these marks; gives back how many files there are. Uploads are
    finished for it, unless somebody judges again later."""
    trees, done = book.at(marks)
    files = 0
    for client, states in trees.items():
        seen = look(door, client, book.paths_of(client))
        shown = {path: what for path, what in seen.items() if what is not None}
        assert shown in states, describe(client, shown, states, marks)
        files += len(shown)
    for upload in book.uploads:
        judge_upload(upload, door, done, marks, finish)
    return files


def look(door, client, paths):
    """The digest of each file, `DIRECTORY`, or None; nothing may be there that nobody put there."""
    listed = door.list(f"/{client}")
    unknown = set(listed) - paths - {f"/{client}"}
    assert not unknown, f"nobody has asked for {sorted(unknown)}"
    seen = {}
    for path in paths:
        if path not in listed:
            seen[path] = None
        elif listed[path] is None:
            seen[path] = DIRECTORY
        else:
            seen[path] = digest_of(door.get(path))
    return seen


def judge_upload(upload, door, done, marks, finish):
    """What was told of it is kept, until it is finished."""
    if upload.offsets[0][0] not in done or (upload.finish is not None and f"begin {upload.finish}" in marks):
        # Not yet told of, or finished, or in doubt: then its path says what became of it.
        return
    told = max((end for number, end in upload.offsets if number in done), default=0)
    location = re.sub(r"^https://[^/]*", "", upload.location)
    answer = door.ask("HEAD", location)
    assert answer.status_code == 204, f"the upload to {upload.path} is lost: {answer.status_code}"
    kept = int(answer.headers["Upload-Offset"])
    assert told <= kept, f"of the upload to {upload.path}, {told} bytes were told to be kept, now {kept}"
    if not finish:
        return
    headers = {"Content-Type": "application/partial-upload", "Upload-Offset": str(kept), "Upload-Complete": "?1"}
    answer = door.ask("PATCH", location, data=upload.data[kept:], headers=headers)
    assert answer.status_code in (201, 204), f"{upload.path}: {answer.status_code} {answer.text}"
    assert door.get(upload.path) == upload.data, f"{upload.path} has other bytes than were uploaded"


def describe(client, shown, states, marks):
    likely = min(states, key=lambda state: len(state.items() ^ shown.items()))
    lines = [f"what {client} sees is none of {len(states)} possible states; the nearest differs in:"]
    for path in sorted({path for path, _ in likely.items() ^ shown.items()}):
        lines.append(f"  {path}: {likely.get(path)} promised, {shown.get(path)} seen")
    return "\n".join([*lines, f"last marks: {marks[-6:]}"])
