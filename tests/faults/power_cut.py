"""What a power cut leaves of a disk, made from the log of its file system (`disk.c`).

The rules are those of POSIX, as ext4 and XFS keep them: bytes of a file are durable after its flush, a name after the flush
of its directory, extended attributes after an fsync but not an fdatasync, a rename happens as a whole or not at all, and
what an unsuccessful flush was to write may be lost for ever. Everything else may be there or not, page by page.
"""

import os
import random
import stat
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

HEAD = struct.Struct("<IBBHHHIQQQQQ")
PAGE, SECTOR = 4096, 512
(MARK, CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME, WRITE, TRUNCATE, ALLOCATE, SETXATTR, REMOVEXATTR) = range(1, 14)
(FLUSH, FLUSH_DIRECTORY, FLUSH_FAILED, ATTRIBUTES) = range(14, 18)
NAMES_OF_KINDS = {CREATE: "create", RENAME: "rename", UNLINK: "unlink", WRITE: "write", FLUSH: "flush", MARK: "mark"}
DATA_ONLY, SYNCHRONOUS = 1, 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
CANARY = b"unsynced"


@dataclass(frozen=True)
class Record:
    """One change, flush or mark, as `disk.c` wrote it."""

    number: int
    kind: int
    flags: int
    inode: int
    parent: int
    new_parent: int
    offset: int
    size: int
    name: bytes
    new_name: bytes
    data: bytes


def read_log(path):
    """All whole records of a log."""
    text, at, records = Path(path).read_bytes(), 0, []
    while at + HEAD.size <= len(text):
        length, kind, flags, name, new_name, _, data, *numbers = HEAD.unpack_from(text, at)
        begins = [at + HEAD.size]
        for size in (name, new_name, data):
            begins.append(begins[-1] + size)
        parts = [text[begin:end] for begin, end in zip(begins, begins[1:])]
        records.append(Record(len(records), kind, flags, *numbers, *parts))
        at += length
    return records


@dataclass(frozen=True)
class Cut:
    """How a power cut chooses among what it may lose: all of it, or by chance.

    With a journal, names become durable in the order of their changes, and any flush takes all names before it along."""

    seed: int = 0
    by_chance: bool = False
    journal: bool = False

    @classmethod
    def drawn(cls, seed):
        draw = random.Random(seed)
        return cls(seed, by_chance=draw.random() < 0.75, journal=draw.random() < 0.5)


@dataclass
class Inode:
    """A file, directory or symbolic link: what is durable of it, and what waits for a flush."""

    kind: int
    mode: int
    owner: int
    original: Path = None
    data: bytearray = None
    target: bytes = b""
    attributes: dict = field(default_factory=dict)
    pending: list = field(default_factory=list)
    entries: dict = field(default_factory=dict)
    changes: list = field(default_factory=list)
    is_canary: bool = False

    def bytes(self):
        if self.data is None:
            self.data = bytearray(self.original.read_bytes() if self.original else b"")
        return self.data

    def perform(self, change):
        """Makes one change of the file durable."""
        what, *values = change
        if what == "attribute":
            name, value = values
            self.attributes.pop(name, None) if value is None else self.attributes.__setitem__(name, value)
            return
        data = self.bytes()
        if what == "write":
            offset, written = values
            data.extend(bytes(max(0, offset - len(data))))
            data[offset : offset + len(written)] = written
        elif what == "truncate":
            [size] = values
            del data[size:]
            data.extend(bytes(size - len(data)))
        elif what == "extend":
            data.extend(bytes(max(0, values[0] - len(data))))
        elif what == "zero":
            offset, end = values[0], min(sum(values), len(data))
            data[offset:end] = bytes(max(0, end - offset))


@dataclass(frozen=True)
class NameChange:
    """A change of names, which happens as a whole: for each directory and name the inode that it then has, or none."""

    number: int
    names: tuple


def tree_of(backing, copy):
    """The inodes of a directory by their numbers, with content from a copy of it. The root's number comes first."""
    tree = {}

    def add(path):
        seen = os.lstat(path)
        inode = Inode(stat.S_IFMT(seen.st_mode), stat.S_IMODE(seen.st_mode), seen.st_uid << 32 | seen.st_gid)
        inode.is_canary = os.fsencode(path.name) == CANARY
        tree[seen.st_ino] = inode
        if stat.S_ISDIR(seen.st_mode):
            inode.entries = {os.fsencode(name): add(path / name) for name in sorted(os.listdir(path))}
        elif stat.S_ISLNK(seen.st_mode):
            inode.target = os.fsencode(os.readlink(path))
        else:
            inode.original = copy / path.relative_to(backing)
            inode.attributes = {name.encode(): os.getxattr(path, name) for name in os.listxattr(path)}
        return seen.st_ino

    add(Path(backing))
    return tree


class Replay:
    """Takes records in their order; knows what would be left at each of them."""

    def __init__(self, tree, cut):
        self.cut, self.draw = cut, random.Random(cut.seed)
        self.root = next(iter(tree))
        # Numbers are used again once a file is gone; what the tree at the start had must stay as it was for the next replay.
        self.inodes = {number: copy_of(inode) for number, inode in tree.items()}
        for number, inode in self.inodes.items():
            inode.entries = {name: self.inodes[entry] for name, entry in inode.entries.items()}
        self.pending_names = []
        self.number = 0

    def apply(self, record):
        self.number = record.number
        if record.kind in (CREATE, MKDIR, SYMLINK):
            kinds = {CREATE: stat.S_IFREG, MKDIR: stat.S_IFDIR, SYMLINK: stat.S_IFLNK}
            inode = Inode(kinds[record.kind], record.size, record.offset, target=record.data)
            inode.is_canary = record.name == CANARY
            self.inodes[record.inode] = inode
            self.rename((record.parent, record.name, inode))
        elif record.kind == LINK:
            self.rename((record.parent, record.name, self.inodes[record.inode]))
        elif record.kind in (UNLINK, RMDIR):
            self.rename((record.parent, record.name, None))
        elif record.kind == RENAME:
            moved = self.inodes[record.inode]
            self.rename((record.parent, record.name, None), (record.new_parent, record.new_name, moved))
        elif record.kind == ATTRIBUTES:
            inode = self.inodes[record.inode]
            inode.mode, inode.owner = record.size, record.offset
        elif record.kind in (FLUSH, FLUSH_DIRECTORY):
            self.flush(self.inodes[record.inode], record)
        elif record.kind == FLUSH_FAILED:
            self.lose(self.inodes[record.inode], record.offset)
        elif record.kind != MARK:
            self.change(self.inodes[record.inode], record)

    def rename(self, *names):
        change = NameChange(self.number, tuple((self.inodes[parent], name, inode) for parent, name, inode in names))
        self.pending_names.append(change)
        for directory in {id(parent): parent for parent, _, _ in change.names}.values():
            directory.changes.append(change)

    def change(self, inode, record):
        if record.kind == WRITE:
            change = ("write", record.offset, record.data)
        elif record.kind == TRUNCATE:
            change = ("truncate", record.size)
        elif record.kind == ALLOCATE:
            if record.flags & (PUNCH_HOLE | ZERO_RANGE):
                change = ("zero", record.offset, record.size)
            elif record.flags & KEEP_SIZE:
                return
            else:
                change = ("extend", record.offset + record.size)
        else:
            value = record.data if record.kind == SETXATTR else None
            change = ("attribute", record.name, value)
        inode.pending.append((record.number, change))
        if record.flags & SYNCHRONOUS and record.kind == WRITE:
            self.perform(inode, record.number + 1, data_only=True)

    def flush(self, inode, record):
        before = record.offset
        self.perform(inode, before, record.flags & DATA_ONLY)
        if self.cut.journal:
            self.name([change for change in self.pending_names if change.number < before])
        else:
            self.name([change for change in inode.changes if change.number < before])

    def perform(self, inode, before, data_only):
        """Makes durable what came before; of a data-only flush the attributes go on waiting."""
        waits = []
        for number, change in inode.pending:
            if number >= before or (data_only and change[0] == "attribute"):
                waits.append((number, change))
            else:
                inode.perform(change)
        inode.pending = waits

    def lose(self, inode, before):
        """A flush that failed: the pages count as written from now on, whether they were or not."""
        lost, inode.pending = split(inode.pending, lambda waiting: waiting[0] < before)
        for _, change in lost:
            if self.draw.random() < 0.5:
                inode.perform(change)

    def name(self, changes):
        """Makes changes of names durable, with all before them in the directories that they touch."""
        wanted, queue = {}, list(changes)
        while queue:
            change = queue.pop()
            if change.number in wanted:
                continue
            wanted[change.number] = change
            for directory, _, _ in change.names:
                queue += [older for older in directory.changes if older.number < change.number]
        for _, change in sorted(wanted.items()):
            for directory, name, inode in change.names:
                directory.entries.pop(name, None) if inode is None else directory.entries.__setitem__(name, inode)
        for directory in {id(place): place for change in wanted.values() for place, _, _ in change.names}.values():
            directory.changes = [change for change in directory.changes if change.number not in wanted]
        self.pending_names = [change for change in self.pending_names if change.number not in wanted]

    def write_to(self, target):
        """Decides what happened to all that was not flushed, and writes what is left."""
        if self.cut.by_chance:
            self.keep_some()
        write_directory(self.inodes[self.root], Path(target))

    def keep_some(self):
        kept = self.draw.choice([0.1, 0.5, 0.9])
        if self.cut.journal:
            self.name(self.pending_names[: self.draw.randint(0, len(self.pending_names))])
        else:
            for directory in list(self.inodes.values()):
                self.name(directory.changes[: self.draw.randint(0, len(directory.changes))])
        for inode in self.inodes.values():
            for _, change in [] if inode.is_canary else inode.pending:
                for piece in self.pieces(change):
                    if self.draw.random() < kept:
                        inode.perform(piece)

    def pieces(self, change):
        """A write comes apart into pages, and now and then a page into sectors."""
        if change[0] != "write":
            return [change]
        _, offset, data = change
        pieces, at = [], 0
        while at < len(data):
            unit = SECTOR if self.draw.random() < 0.05 else PAGE
            end = min(len(data), at + unit - (offset + at) % unit)
            pieces.append(("write", offset + at, data[at:end]))
            at = end
        return pieces


def split(items, belongs):
    return [item for item in items if belongs(item)], [item for item in items if not belongs(item)]


def copy_of(inode):
    attributes = dict(inode.attributes)
    return replace(inode, data=None, attributes=attributes, pending=[], changes=[])


def write_directory(inode, target):
    target.mkdir()
    for name, entry in inode.entries.items():
        path = target / os.fsdecode(name)
        if entry.kind == stat.S_IFDIR:
            write_directory(entry, path)
        elif entry.kind == stat.S_IFLNK:
            os.symlink(entry.target, path)
        else:
            write_file(entry, path)
    finish(inode, target)


def write_file(inode, path):
    """Of several names of a file each gets a copy: nobody here needs them to be one."""
    path.write_bytes(inode.original.read_bytes() if inode.data is None and inode.original else inode.bytes())
    for name, value in inode.attributes.items():
        os.setxattr(path, name, value)
    finish(inode, path)


def finish(inode, path):
    os.chmod(path, inode.mode)
    if os.geteuid() == 0:
        os.chown(path, inode.owner >> 32, inode.owner & 0xFFFFFFFF)
