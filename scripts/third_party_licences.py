#!/usr/bin/env python3
"""Prints the licences of all crates of Cargo.lock, each text once, as those who receive a binary must get them.

Reads the sources that cargo has fetched; also those of crates that only tests or other systems use, which does no harm.
"""

import os
import re
import sys
import tomllib
from pathlib import Path

NAMES = re.compile(r"(licen[sc]e|copying|unlicense|notice|copyright)", re.IGNORECASE)
HOME = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))


def texts_of(name, version, registries):
    """The licence files of a crate, or None when its sources are not there."""
    for registry in registries:
        directory = registry / f"{name}-{version}"
        if directory.is_dir():
            files = sorted(path for path in directory.iterdir() if path.is_file() and NAMES.match(path.name))
            manifest = tomllib.loads((directory / "Cargo.toml").read_text())["package"]
            return manifest.get("license", "see its licence file"), [path.read_text(errors="replace") for path in files]
    return None


def main():
    registries = sorted((HOME / "registry/src").glob("*"))
    packages = tomllib.loads(Path("Cargo.lock").read_text())["package"]
    by_text, plain, missing = {}, [], []
    for package in packages:
        if "source" not in package:
            continue
        crate = f"{package['name']} {package['version']}"
        found = texts_of(package["name"], package["version"], registries)
        if found is None:
            missing.append(crate)
            continue
        licence, texts = found
        plain.append(f"{crate}: {licence}")
        for text in texts:
            crates, whole = by_text.setdefault(" ".join(text.split()), ([], text))
            crates.append(crate)
    if missing:
        sys.exit(f"sources of {', '.join(missing)} are not there: run 'cargo fetch --locked'")
    print("Crates that Penstock is built from, and their licences\n")
    print("\n".join(plain))
    for crates, text in sorted(by_text.values()):
        print("\n" + "=" * 80 + "\n" + ", ".join(crates) + "\n\n" + text.strip())


main()
