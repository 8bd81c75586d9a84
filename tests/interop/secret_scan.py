"""Looks for secrets in whatever somebody wrote: as they are, and in every form in which programs write texts and bytes.

A secret is known by a part of it that nothing else has, so that one that was cut off at either end is found as well.
"""

import base64
import json
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from cryptography.hazmat.primitives.serialization import load_pem_private_key

PART_BYTES = 24
PART_BYTES_MIN = 12
# Letters of a line of PEM.
PEM_LINE = 64


def secret_numbers(key):
    """The numbers of a private key that its public half does not have, as bytes."""
    numbers = key.private_numbers()
    if hasattr(numbers, "private_value"):
        return [numbers.private_value.to_bytes((key.key_size + 7) // 8, "big")]
    return [number.to_bytes((number.bit_length() + 7) // 8, "big") for number in (numbers.d, numbers.p, numbers.q)]


def part_of(secret):
    """The middle of a secret, which stands for it."""
    data = secret if isinstance(secret, bytes) else secret.encode()
    assert len(data) >= PART_BYTES_MIN, "too short to be told from something else"
    begin = max(0, (len(data) - PART_BYTES) // 2)
    return data[begin : begin + PART_BYTES]


def forms_of(part):
    """Each form of some bytes, by its name."""
    forms = {"plain": part, "reversed": part[::-1], "hex": part.hex().encode(), "HEX": part.hex().upper().encode()}
    for name, encode in (("base64", base64.b64encode), ("base64url", base64.urlsafe_b64encode)):
        # Base64 depends on what stands before, by its length; the letters at both ends also on what that is.
        for before in range(3):
            text = encode(b"\0" * before + part).rstrip(b"=")
            forms[f"{name} after {before}"] = text[(0, 2, 3)[before] : -1]
    letters = "".join(chr(byte) for byte in part)
    forms["percent-encoded"] = quote(part, safe="").encode()
    forms["percent-encoded twice"] = quote(quote(part, safe=""), safe="").encode()
    forms["percent-encoded throughout"] = "".join(f"%{byte:02X}" for byte in part).encode()
    forms["percent-encoded throughout, small"] = "".join(f"%{byte:02x}" for byte in part).encode()
    forms["JSON"] = json.dumps(letters)[1:-1].encode()
    forms["JSON throughout"] = "".join(f"\\u{byte:04x}" for byte in part).encode()
    forms["C"] = "".join(f"\\x{byte:02x}" for byte in part).encode()
    forms["octal"] = "".join(f"\\{byte:03o}" for byte in part).encode()
    forms["HTML"] = "".join(f"&#{byte};" for byte in part).encode()
    forms["numbers"] = ", ".join(map(str, part)).encode()
    forms["numbers without blanks"] = ",".join(map(str, part)).encode()
    forms["UTF-16, little end first"] = letters.encode("utf-16-le")
    forms["UTF-16, big end first"] = letters.encode("utf-16-be")
    forms["UTF-32"] = letters.encode("utf-32-le")
    return forms


@dataclass(repr=False)
class SecretScan:
    """Secrets by name, and how much was looked at for them."""

    secrets: dict = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    places: set = field(default_factory=set)
    needles: list = field(default_factory=list)

    def plant(self, name, secret):
        """Gives back the secret, which from now on must be found nowhere."""
        part = part_of(secret)
        known = self.secrets.setdefault(part, name)
        if known == name and not any(of == name and form == part for of, _, form in self.needles):
            # Equal forms are looked for once.
            distinct = {form: kind for kind, form in reversed(forms_of(part).items())}
            self.needles += [(name, kind, form) for form, kind in distinct.items()]
        return secret

    def plant_key_file(self, name, path):
        """A private key in PEM: its secret numbers as bytes, and the letters of the file that stand for them. What is
        public of it stands in certificates as well."""
        text = Path(path).read_text()
        body = "".join(line for line in text.splitlines() if not line.startswith("-----"))
        data = base64.b64decode(body)
        for number in secret_numbers(load_pem_private_key(text.encode(), None)):
            self.plant(name, number)
            at = data.find(number)
            assert at >= 0, f"{path} holds its numbers in another way"
            first, last = -(-at * 4 // 3), (at + len(number)) * 4 // 3
            for begin in range(first - first % PEM_LINE, last, PEM_LINE):
                letters = body[max(first, begin) : min(last, begin + PEM_LINE)]
                if len(letters) >= PART_BYTES_MIN:
                    self.plant(f"{name} in PEM", letters)

    def in_bytes(self, place, data, of=None):
        """What is found in some bytes: lines for people. `of` narrows it to some secrets."""
        data = data if isinstance(data, bytes) else data.encode()
        self.bytes += len(data)
        self.places.add(place.split(" ")[0])
        return [
            f"{place}: {name} ({kind}) at {data.find(form)}"
            for name, kind, form in self.needles
            if (of is None or of(name)) and form in data
        ]

    def in_tree(self, kind, root, allowed=()):
        """What is found in all files below a directory, and in their names. `allowed(path, name)` says what may be where."""
        found = []
        self.places.add(kind)
        for path in sorted(Path(root).rglob("*")):
            relative = path.relative_to(root)
            found += self.in_bytes(f"{kind} name of {relative}", str(relative))
            if path.is_symlink() or not path.is_file():
                continue
            self.files += 1
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            found += self.in_bytes(f"{kind} {relative}", data, of=lambda name, at=relative: not allowed_at(allowed, at, name))
        return found


def allowed_at(allowed, path, name):
    return any(path.match(pattern) and name.startswith(secret) for pattern, secret, _reason in allowed)


def open_to_others(root):
    """Files and directories below a directory, itself included, that others than its owner may read, change or enter."""
    found = []
    for path in [Path(root), *sorted(Path(root).rglob("*"))]:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISLNK(mode) and mode & 0o077:
            found.append(f"{path}: {stat.S_IMODE(mode):o}")
    return found


def processes_below(pid):
    """A process and all that it has started, as far as they live."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        left += children.get(one, [])
    return found
