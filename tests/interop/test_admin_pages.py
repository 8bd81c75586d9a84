"""The pages of `docs/admin` are true: their links lead somewhere, their commands exist, the messages that they explain are
those of the program, and their longer drills work as printed."""

import json
import os
import re
import subprocess

import pytest

from .clients import Door, content
from .site import Site
from .waiting import eventually

PAGES = "docs/admin"
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# What these texts stand for comes from libraries and the system, so no source of ours has it.
OTHERS = [
    "unknown field",
    "duplicate key",
    "expected one of",
    "Permission denied",
    "Connection refused",
    "No such file or directory",
    "key values mismatch",
    "database disk image is malformed",
    "unable to get local issuer certificate",
    "unexpected end of file",
    "Insufficient Storage",
]
# Fewer would mean that this reads the pages wrongly.
LINKS_MIN, SYMPTOMS_MIN, COMMANDS_MIN = 300, 60, 60
HOSTS = ["127.0.3.101", "127.0.3.102", "127.0.3.103"]


def page(repository, name):
    return (repository / PAGES / name).read_text()


def without_code(text):
    return FENCE.sub("", text)


def anchors(text):
    """Headings as links name them."""
    for heading in re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        yield re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def dead_links(documents):
    seen, dead = 0, []
    for document in documents:
        for link in LINK.findall(without_code(document.read_text())):
            if link.startswith(("https:", "http:", "mailto:")):
                continue
            seen += 1
            file, _, anchor = link.partition("#")
            target = (document.parent / file).resolve() if file else document
            is_dead = not target.exists()
            if anchor and target.suffix == ".md" and not is_dead:
                is_dead = anchor not in set(anchors(target.read_text()))
            dead += [f"{document.name}: {link}"] if is_dead else []
    return seen, dead


def test_links_of_all_documents_lead_somewhere(repository, tmp_path):
    documents = [*repository.glob("docs/**/*.md"), *repository.glob("*.md"), repository / "bench/README.md"]
    seen, dead = dead_links(documents)
    assert seen >= LINKS_MIN and not dead, (seen, dead)
    planted = tmp_path / "planted.md"
    planted.write_text("# A `heading`\n[a](#a-heading) [b](#b) [c](nowhere.md)\n")
    assert dead_links([planted]) == (3, ["planted.md: #b", "planted.md: nowhere.md"])


def said_by_the_program(repository):
    """All sources as one text: lines of texts that go on are joined, and quotes in texts are plain."""
    text = "\n".join(path.read_text() for path in repository.glob("crates/**/*.rs"))
    return re.sub(r"\\\n\s*", "", text).replace('\\"', '"')


def fragments(symptom):
    """What of a message is the same each time, as it stands in one text of a source. Words of the system are others'."""
    for other in OTHERS:
        symptom = symptom.replace(other, "…")
    pieces = re.split(r"…|\b\d+\b|[:;,\]]", symptom)
    yield from (piece.strip(" .()") for piece in pieces)


def code_spans(cell):
    return [a or b for a, b in re.findall(r"``(.+?)``(?!`)|`([^`]+)`", cell)]


def never_said(row, said):
    symptoms = code_spans(row.split(" | ")[0])
    found = {fragment for symptom in symptoms for fragment in fragments(symptom) if len(fragment) > 8}
    return {fragment for fragment in found if fragment not in said}


def test_symptoms_are_what_the_program_says(repository):
    rows = [row for row in page(repository, "troubleshooting.md").splitlines() if re.match(r"\| (`|….*`)", row)]
    assert len(rows) >= SYMPTOMS_MIN
    said = said_by_the_program(repository)
    assert len(said) > 3_000_000
    unknown = {fragment for row in rows for fragment in never_said(row, said)}
    assert not unknown, "\n".join(sorted(unknown))
    planted = "| `the pool … is full of wombats: key values mismatch` | x | y |"
    assert never_said(planted, said) == {"is full of wombats"}


def commands(text):
    """Lines of code blocks that begin with the program, and spans that are a command of it with its options."""
    for _, block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|-u penstock |\$\(|&& |\| )penstock ([a-z].*)", line.strip())
            if found:
                yield found.group(1)
    for span in re.findall(r"`penstock ([a-z][^`]*)`", without_code(text)):
        yield span


class Helps:
    """What `--help` prints, of each command once."""

    def __init__(self, binary):
        self.binary, self.known = binary, {}

    def of(self, names):
        if names not in self.known:
            line = [str(self.binary), *names, "--help"]
            done = subprocess.run(line, capture_output=True, text=True, timeout=60)
            self.known[names] = done.stdout if done.returncode == 0 else None
        return self.known[names]

    def lack(self, command):
        """Whether there is no such command, or one of its options is not its own."""
        command = re.split(r" #| > | && | \|", command)[0]
        names = tuple(word for word in command.split()[:2] if re.fullmatch(r"[a-z][a-z0-9-]*", word))
        told = self.of(names) or self.of(names[:1])
        if told and "options of access" in told:
            # They are described once, for all commands.
            told += self.of(())
        options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", command)
        return not told or any(not re.search(rf"{option}\b", told) for option in options)


def test_commands_and_options_of_the_pages_exist(repository, binary):
    texts = [path.read_text() for path in (repository / PAGES).glob("*.md")]
    found = sorted({command for text in texts for command in commands(text)})
    assert len(found) >= COMMANDS_MIN, found
    helps = Helps(binary)
    assert [command for command in found if helps.lack(command)] == []
    planted = ["befriend URL", "backup --dir D --wombat", "link set NAME --max 4 --dir D"]
    assert [helps.lack(command) for command in planted] == [True, True, False]


@pytest.fixture
def sites(binary, tmp_path):
    """Two sites that were made apart and have never heard of each other."""
    north = Site(binary, tmp_path / "north", "north", HOSTS[0])
    south = Site(binary, tmp_path / "south", "south", HOSTS[1])
    for site in (north, south):
        # As `init` made it.
        site.configure("[trust]", private_addresses=[f"{site.host}:{site.base}"])
    try:
        yield north, south
    finally:
        for site in (north, south):
            site.kill()


def toml_blocks(text, heading):
    """The TOML below a heading, until the next one of its level."""
    below = text.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    return [block for kind, block in FENCE.findall(below) if kind == "toml"]


def test_two_sites_are_joined_as_the_page_says(repository, sites):
    north, south = sites
    text = page(repository, "joining.md")
    doors = {name: f"{north.host}:{north.base}" for name in ("north.example.org:8443", "10.0.0.5:8443")}
    doors |= {name: f"{south.host}:{south.base}" for name in ("south.example.org:8443", "10.1.0.7:8443")}

    def here(block):
        for name, door in doors.items():
            block = block.replace(name, door)
        return block

    (issuer,) = toml_blocks(text, "## 2. Issuer")
    outbound, private = (here(block).split("=", 1)[1] for block in toml_blocks(text, "## 3. Outbound"))
    for site in sites:
        site.start()
    Door(north).put("/data/services", content("services", 10_000))
    # 1. The CA's two files, each to the other site.
    for site, other in ((north, south), (south, north)):
        for file in [*site.certificates.glob("*.0"), *site.certificates.glob("*.signing_policy")]:
            (other.certificates / file.name).write_bytes(file.read_bytes())
    # 2. and 3.
    south.append("\n" + here(issuer))
    for site in sites:
        site.configure("[storage.outbound]", allow=json.loads(outbound))
        site.configure("[trust]", private_addresses=json.loads(private.split("#")[0]))
        site.reload()
        eventually("the site has reloaded", lambda site=site: "reloaded limits" in site.log_text())
    # 4. What the page has one look at.
    assert "warning: issuer" not in south.command("check")
    token = north.command("token", "--scope", "storage.read:/ storage.modify:/data", "--audience", HOSTS[1])
    (south.directory / "north-token").write_text(token)
    told = south.command("authz", "test", "/data/f", "--as", str(south.directory / "north-token"))
    assert re.search(r"^modify +allowed", told, re.MULTILINE), told
    line = [str(north.binary), "submit", "--dir", str(north.directory), "--wait", "--json"]
    line += [f"{north.door}/data/services", f"{south.door}/data/services"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    ((job,),) = north.journal("SELECT DISTINCT job_id FROM ledger")
    assert north.landed_modes(job) == ["pull"]


def test_a_pool_is_emptied_as_the_page_says(repository, binary, tmp_path):
    text = page(repository, "storage.md")
    (tree,) = [block for kind, block in FENCE.findall(text) if kind == "sql"]
    (tmp_path / "tree.sql").write_text(tree)
    below = text.split("### Empty a pool\n", 1)[1].split("\n### ", 1)[0]
    listing, moving = [re.sub(r"^ {3}", "", block, flags=re.MULTILINE) for _, block in FENCE.findall(below)]
    site = Site(binary, tmp_path / "D", "keeper", HOSTS[2])
    (site.directory / "pools/disk2").mkdir(mode=0o700)
    site.append('[[storage.pool]]\nname = "disk2"\npath = "pools/disk2"\n')
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "penstock").symlink_to(binary)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def shell(script):
        script = script.replace("HOST:8443", f"{site.host}:{site.base}")
        line = ["bash", "-euc", script]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    try:
        site.start()
        files = {f"/data/f{number}": content(f"f{number}", 10_000) for number in range(20)}
        for name, data in files.items():
            Door(site).put(name, data)
        drained = [file for file in (site.directory / "pools/disk1/data").glob("*/*") if file.is_file()]
        assert drained, "nothing to be moved"
        drain(site, "disk1")
        site.reload()
        eventually("the pool is drained", lambda: "reloaded limits" in site.log_text())
        for _ in range(2):
            done = shell(listing)
            assert done.returncode == 0, done.stdout + done.stderr
            listed = (tmp_path / "files").read_text().split()
            done = shell(moving)
            assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr
        assert listed == []
        site.command("trash", "empty", "--yes")
        assert all(Door(site).get(name) == data for name, data in files.items())
        eventually("the pool is empty", lambda: not list((site.directory / "pools/disk1/data").glob("*/*")))
    finally:
        site.kill()


def drain(site, pool):
    path = site.directory / "penstock.toml"
    named = f'name = "{pool}"\n'
    path.write_text(path.read_text().replace(named, f'{named}mode = "drained"\n', 1))
