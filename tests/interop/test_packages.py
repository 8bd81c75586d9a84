"""What `make package` makes, installed on a machine of its own under a real systemd: a site is served, upgraded, and survives
the removal of the package. Commands are those of docs/admin/install.md, as printed there.
"""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from .machine import Machine
from .waiting import eventually

SITE = "/var/lib/penstock/north"
UNIT = "penstock@north"
HOST = "se.example.org"
DATA = "https://se.example.org:8443/data/services"
# By `systemd-analyze security`, in tenths: 0 is confined to nothing, 100 not at all.
EXPOSURE_MAX = 25
SECRETS = ["admin.token", "ca/ca.key", "host/key.pem", "keys/token-signing.pem", "keys/credential-encryption"]
PROGRAM_FILES = {
    "/usr/bin/penstock": "-rwxr-xr-x",
    "/usr/lib/penstock/serve-notify": "-rwxr-xr-x",
    "/usr/lib/penstock/hsm/directory-hsm": "-rwxr-xr-x",
    "/usr/lib/penstock/hsm/s3-hsm": "-rwxr-xr-x",
    "/usr/lib/systemd/system/penstock@.service": "-rw-r--r--",
    "/usr/lib/sysusers.d/penstock.conf": "-rw-r--r--",
    "/usr/lib/tmpfiles.d/penstock.conf": "-rw-r--r--",
    "/usr/share/man/man1/penstock.1.gz": "-rw-r--r--",
    "/usr/share/man/man1/penstock-trust-add.1.gz": "-rw-r--r--",
    "/usr/share/bash-completion/completions/penstock": "-rw-r--r--",
    "/usr/share/zsh/vendor-completions/_penstock": "-rw-r--r--",
    "/usr/share/fish/vendor_completions.d/penstock.fish": "-rw-r--r--",
    "/etc/default/penstock": "-rw-r--r--",
}
# A server that gives files to everybody.
XROOTD = """
all.export /
all.adminpath /run/xrootd
all.pidpath /run/xrootd
oss.localroot /srv/xrootd
xrd.port 1094
xrd.network nodnr
xrootd.chksum adler32
"""
DOCUMENTS = {"copyright", "changelog.Debian.gz", "third-party-licences.gz", "docs/admin/install.md"}


def package(repository, binary, directory, **variables):
    """Runs `scripts/package.sh` as `make package` does, for this binary; without compression, which takes longest."""
    environment = {
        **os.environ,
        "PENSTOCK_BINARY": str(binary),
        "PACKAGE_DIRECTORY": str(directory),
        "PACKAGE_COMPRESSION": "none",
        **variables,
    }
    done = subprocess.run(
        [repository / "scripts/package.sh"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def only(directory, pattern):
    [found] = directory.glob(pattern)
    return found


@pytest.fixture(scope="module")
def packages(binary, repository, tmp_path_factory):
    """The packages, and beside them one of a later version whose settings differ."""
    directory = package(repository, binary, tmp_path_factory.mktemp("packages"))
    # Whoever reads it there is another account.
    directory.chmod(0o755)
    later = directory / "later"
    subprocess.run(["dpkg-deb", "-R", only(directory, "penstock_*.deb"), later], check=True, timeout=60)
    control = later / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*", "Version: 99.0-1", control.read_text(), flags=re.MULTILINE))
    settings = later / "etc/default/penstock"
    settings.write_text(settings.read_text() + "# A later version.\n")
    line = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", later, directory / "later.deb"]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    shutil.rmtree(later)
    yield directory
    # Half a gigabyte.
    shutil.rmtree(directory)


@pytest.fixture
def unpacked(tmp_path):
    """A directory for what is large, which does not stay."""
    directory = tmp_path / "unpacked"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def machine(packages, tmp_path):
    machine = Machine(tmp_path / "machine", packages)
    try:
        machine.shell(f"echo 127.0.0.2 {HOST} >> /etc/hosts")
        yield machine
    finally:
        machine.close()


@pytest.fixture
def installed(machine):
    """A machine with the package and a site, not yet served."""
    machine.shell("dpkg -i /srv/packages/penstock_*.deb")
    machine.shell(printed("The first site", "penstock init").replace("systemctl enable --now penstock@north", ""))
    return machine


def printed(heading, word):
    """The commands below a heading of the page on installation: the block that has a word."""
    page = (Path(__file__).parents[2] / "docs/admin/install.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    [block] = [block for block in section.split("```")[1::2] if word in block]
    return block


def contents(file):
    """Mode, owner and path of all that a package has."""
    listed = subprocess.run(["dpkg-deb", "-c", file], check=True, capture_output=True, text=True).stdout
    words = [line.split() for line in listed.splitlines()]
    return {line[5].removeprefix("."): (line[0], line[1]) for line in words}


def digests(machine):
    """Of users' data, and of what a site cannot make again."""
    files = machine.run("find", f"{SITE}/pools/disk1/data", f"{SITE}/keys", "-type", "f", "-exec", "sha256sum", "{}", "+")
    assert "/data/" in files and "/keys/" in files
    return files


def is_ready(machine):
    health = f"curl -sS --fail --capath {SITE}/certificates https://{HOST}:%d/health/ready"
    return all(json.loads(machine.shell(health % port))["ready"] for port in (8443, 8446))


def test_the_package_holds_the_program_its_service_and_its_licences(packages):
    file = only(packages, "penstock_*.deb")
    held = contents(file)
    assert {owner for _, owner in held.values()} == {"root/root"}
    assert {path: held[path][0] for path in PROGRAM_FILES} == PROGRAM_FILES
    assert DOCUMENTS <= {path.removeprefix("/usr/share/doc/penstock/") for path in held}
    depends = subprocess.run(["dpkg-deb", "-f", file, "Depends"], check=True, capture_output=True, text=True).stdout
    assert {"libc6", "libssl3"} <= set(re.findall(r"[a-z][a-z0-9.+-]+", depends))
    version = subprocess.run(["dpkg-deb", "-f", file, "Version"], check=True, capture_output=True, text=True).stdout
    assert subprocess.run(["dpkg", "--compare-versions", version.strip(), "lt", "99.0-1"]).returncode == 0


def test_debug_symbols_lie_apart_and_are_found_by_the_number_of_the_build(packages, unpacked):
    for name in ("penstock_*.deb", "penstock-dbgsym_*.deb"):
        subprocess.run(["dpkg-deb", "-x", only(packages, name), unpacked], check=True, timeout=60)
    program, symbols = unpacked / "usr/bin/penstock", only(unpacked, "usr/lib/debug/.build-id/*/*.debug")

    def read(option, file):
        return subprocess.run(["readelf", option, file], check=True, capture_output=True, text=True).stdout

    [number] = re.findall(r"Build ID: ([0-9a-f]+)", read("--notes", program))
    assert f"{symbols.parent.name}{symbols.stem}" == number
    assert ".debug_line" in read("--sections", symbols)
    assert ".debug_line" not in read("--sections", program) and ".symtab" not in read("--sections", program)


def test_lintian_has_no_error(packages):
    quick = "uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball"
    line = ["lintian", "--allow-root", "--fail-on", "error", "--suppress-tags", quick]
    line += [only(packages, "penstock_*.deb")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_command_has_its_manual_page_and_is_completed(packages, unpacked):
    subprocess.run(["dpkg-deb", "-x", only(packages, "penstock_*.deb"), unpacked], check=True, timeout=60)
    pages = unpacked / "usr/share/man/man1"
    listed = subprocess.run([unpacked / "usr/bin/penstock", "--help"], check=True, capture_output=True, text=True).stdout
    groups = listed.split("\nOptions:\n")[0]
    commands = re.findall(r"^  ([a-z][a-z0-9-]*) ", groups, re.MULTILINE)
    assert len(commands) > 50 and {"sync", "trust", "top", "man"} <= set(commands), commands
    assert [command for command in commands if not (pages / f"penstock-{command}.1.gz").is_file()] == []
    for page in ("penstock.1.gz", "penstock-copy.1.gz", "penstock-trust-add.1.gz"):
        line = ["man", "--local-file", "--warnings=w", pages / page]
        shown = subprocess.run(line, capture_output=True, text=True, timeout=60, env={**os.environ, "MANWIDTH": "200"})
        assert shown.returncode == 0 and shown.stderr == "", shown.stderr
        assert "NAME" in shown.stdout and "penstock" in shown.stdout
    script = unpacked / "usr/share/bash-completion/completions/penstock"
    asked = 'source "$1"; COMP_WORDS=(penstock tru) COMP_CWORD=1; _penstock penstock tru penstock; echo "${COMPREPLY[@]}"'
    completed = subprocess.run(["bash", "-c", asked, "bash", script], capture_output=True, text=True, timeout=60)
    assert completed.stdout.split() == ["trust"], completed.stderr


@pytest.mark.soak
def test_the_same_binary_and_commit_give_the_same_bytes(binary, repository, packages, unpacked):
    again = package(repository, binary, unpacked / "again")
    assert (again / "SHA256SUMS").read_text() == (packages / "SHA256SUMS").read_text()


def test_a_site_is_installed_served_reloaded_upgraded_and_outlives_the_package(machine):
    machine.shell("dpkg -i /srv/packages/penstock_*.deb")
    assert machine.run("id", "--name", "--user", "penstock").strip() == "penstock"
    assert machine.shell("getent passwd penstock").strip().endswith(":/var/lib/penstock:/usr/sbin/nologin")
    assert machine.run("stat", "-c", "%A %U %G", "/var/lib/penstock").strip() == "drwxr-xr-x penstock penstock"
    for path, mode in PROGRAM_FILES.items():
        assert machine.run("stat", "-c", "%A %U %G", path).strip() == f"{mode} root root", path

    machine.shell(printed("The first site", "penstock init"))
    assert machine.property(UNIT, "ActiveState") == "active"
    assert machine.run("systemctl", "is-enabled", UNIT).strip() == "enabled"
    assert is_ready(machine), machine.journal(UNIT)
    for name in SECRETS:
        assert machine.run("stat", "-c", "%A %U", f"{SITE}/{name}").strip() == "-rw------- penstock", name
    assert "services" in machine.shell(printed("The first site", "penstock ls"))
    settings = "SERVE_OPTIONS='--log info --drain 3s'"
    machine.shell(f'echo "{settings}" > /etc/default/penstock')

    # What root makes in the site's directory the service could not read.
    for words in (["token", "--admin"], ["key", "rotate", "token"], ["trust", "remove", "x"], ["fsck"]):
        kept = digests(machine)
        refused = machine.ask("penstock", *words, "--dir", SITE)
        assert refused.returncode == 2 and "sudo -u penstock penstock" in refused.stderr, refused.stderr
        assert digests(machine) == kept
    machine.shell(f"sudo -u penstock penstock key rotate token --dir {SITE}")
    machine.shell(f"sudo -u penstock penstock token --admin --dir {SITE} > /dev/null")
    assert machine.shell(f"find {SITE} -not -user penstock") == ""

    machine.run("systemctl", "reload", UNIT)
    eventually("the change is taken over", lambda: "reloaded limits" in machine.journal(UNIT))
    machine.shell(f"cp {SITE}/penstock.toml /tmp/good; echo 'wombats = 1' >> {SITE}/penstock.toml")
    assert machine.ask("systemctl", "reload", UNIT).returncode != 0
    assert "wombats" in machine.journal(UNIT)
    assert machine.property(UNIT, "ActiveState") == "active" and is_ready(machine)
    machine.shell(f"cat /tmp/good > {SITE}/penstock.toml")

    before = machine.property(UNIT, "MainPID")
    kept = digests(machine)
    # The answer to the question whose settings stay: the usual one, mine.
    machine.run("dpkg", "-i", "/srv/packages/later.deb", input="\n")
    assert machine.shell("dpkg-query -W -f '${Version}' penstock") == "99.0-1"
    assert machine.property(UNIT, "ActiveState") == "active" and is_ready(machine)
    process = machine.property(UNIT, "MainPID")
    assert process != before
    assert machine.shell("cat /etc/default/penstock").strip() == settings
    assert "--drain\x003s" in machine.run("cat", f"/proc/{process}/cmdline")
    assert digests(machine) == kept
    machine.shell(f"penstock copy --dir {SITE} {DATA} /tmp/back && cmp /tmp/back /etc/services")

    machine.run("dpkg", "--remove", "penstock")
    assert machine.ask("systemctl", "is-active", UNIT).stdout.strip() == "inactive"
    assert machine.shell("pgrep -x penstock || true") == ""
    assert [path for path in PROGRAM_FILES if machine.ask("test", "-e", path).returncode == 0] == ["/etc/default/penstock"]
    assert digests(machine) == kept
    told = machine.ask("dpkg", "--purge", "penstock")
    assert told.returncode == 0 and "are kept" in told.stderr
    left = machine.shell("find /etc /opt /run /usr /var -name '*penstock*' -not -path '/var/lib/penstock/*' -newer /etc/machine-id")
    assert left.split() == ["/var/lib/penstock"]
    assert digests(machine) == kept
    assert machine.ask("id", "penstock").returncode == 0

    # Whoever comes back finds all in its place.
    machine.shell("dpkg -i /srv/packages/penstock_*.deb && systemctl start penstock@north")
    machine.shell(f"penstock copy --dir {SITE} {DATA} /tmp/again && cmp /tmp/again /etc/services")


def test_the_service_fails_for_good_only_when_its_configuration_is_wrong(installed):
    machine = installed
    refused = machine.ask("systemctl", "start", "penstock@nowhere")
    assert refused.returncode != 0 and machine.property("penstock@nowhere", "AssertResult") == "no"
    machine.run("systemctl", "start", UNIT)
    process = machine.property(UNIT, "MainPID")
    machine.run("kill", "-KILL", process)

    def is_back():
        return machine.property(UNIT, "ActiveState") == "active" and machine.property(UNIT, "MainPID") != process

    eventually("the service is started again after a crash", is_back, 30)
    machine.shell(f"echo 'wombats = 1' >> {SITE}/penstock.toml")
    assert machine.ask("systemctl", "restart", UNIT).returncode != 0
    assert machine.property(UNIT, "ActiveState") == "failed"
    assert machine.property(UNIT, "ExecMainStatus") == "2"


def test_the_service_is_confined(installed):
    machine = installed
    assert machine.ask("systemd-analyze", "verify", f"{UNIT}.service").stderr == ""
    line = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", f"{UNIT}.service"]
    assert machine.ask(*line).returncode == 0, machine.ask(*line).stdout.splitlines()[-1]
    machine.run("systemctl", "start", UNIT)
    process = machine.property(UNIT, "MainPID")
    status = dict(line.split(":\t", 1) for line in machine.shell(f"cat /proc/{process}/status").splitlines())
    assert status["CapBnd"] == status["CapPrm"] == "0" * 16
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    number = machine.run("id", "--user", "penstock").strip()
    assert status["Uid"].split() == [number] * 4
    assert machine.property(UNIT, "LimitNOFILE") == "1048576"

    def inside(script):
        # As root, whom only the service's view of the file system holds back.
        return machine.ask("nsenter", "--target", process, "--mount", "sh", "-c", script)

    assert inside(f"touch {SITE}/state/mine").returncode == 0
    for place in ("/etc", "/usr/bin", "/var/lib", "/srv", "/sys/kernel"):
        refused = inside(f"touch {place}/mine")
        assert refused.returncode != 0 and "Read-only file system" in refused.stderr, place
    machine.shell("echo planted | tee /tmp/of-others /root/of-others")
    assert inside("ls /tmp /root").stdout.split() == ["/root:", "/tmp:"]


def test_disks_are_replaced_while_the_confined_service_runs(installed):
    """A mount that the service's own view held would keep the disk busy."""
    machine = installed
    machine.shell("mkdir -p /disk1 && mount -t tmpfs -o size=200m tmpfs /disk1")
    machine.shell(printed("What the service may reach", "ReadWritePaths"))
    pool = '\\n[[storage.pool]]\\nname = "second"\\npath = "/disk1/penstock"\\n'
    machine.shell(f"printf '{pool}' >> {SITE}/penstock.toml && systemctl restart {UNIT}")
    machine.run("test", "-e", "/disk1/penstock/pool.json")
    machine.shell(f"printf 'mode = \"disabled\"\\n' >> {SITE}/penstock.toml && systemctl reload {UNIT}")
    eventually("the disk is let go", lambda: machine.ask("umount", "/disk1").returncode == 0)
    process = machine.property(UNIT, "MainPID")
    seen = machine.run("cat", f"/proc/{process}/mountinfo")
    assert " /disk1 " not in seen
    machine.shell("mount -t tmpfs -o size=200m tmpfs /disk1 && install -d -o penstock /disk1/penstock")
    assert " /disk1 rw" in machine.run("cat", f"/proc/{process}/mountinfo")


def test_gfal2_and_the_program_of_an_hsm_work_in_the_confined_service(installed):
    """What the unit forbids its children must not be what they need: gfal2's connections are made by the service, for it."""
    machine = installed
    machine.shell(f"""
install -d -o penstock /hsm /hsm/data
cat >> {SITE}/penstock.toml << END
[storage.tape]
program = "/usr/lib/penstock/hsm/directory-hsm"
options = {{ root = "/hsm/data" }}
class = [{{ path = "/tape", family = "first" }}]
collect_time = "1s"
END
sed -i 's/^private_addresses = \\[/&"127.0.0.3:1094", /' {SITE}/penstock.toml
install -d -o nobody /srv/xrootd /run/xrootd && cp /etc/services /srv/xrootd
cat > /etc/xrootd.cfg << END{XROOTD}END
systemd-run --quiet --unit=xrootd --uid=nobody xrootd -c /etc/xrootd.cfg
""")
    machine.shell(printed("What the service may reach", "ReadWritePaths").replace("-/disk1 -/backups", "-/hsm"))
    machine.shell(f"penstock copy --dir {SITE} /etc/services https://{HOST}:8443/tape/services")
    eventually("XRootD listens", lambda: machine.ask("bash", "-c", "< /dev/tcp/127.0.0.3/1094").returncode == 0)
    submit = f"penstock submit --dir {SITE} --wait --retries 0"
    machine.shell(f"{submit} root://127.0.0.3:1094//services https://{HOST}:8443/data/from-xrootd")
    machine.shell(f"penstock copy --dir {SITE} https://{HOST}:8443/data/from-xrootd /tmp/back && cmp /tmp/back /etc/services")
    stored = eventually("the file is in the HSM", lambda: machine.shell("find /hsm/data -type f ! -name '*.*'").split(), 30)
    machine.run("cmp", stored[0], "/etc/services")


def test_the_tarball_installs_upgrades_and_removes_the_same_files(machine):
    machine.shell("cp /srv/packages/SHA256SUMS /srv/packages/*.tar /root")
    commands = printed("From the tarball", "tar -xf").replace(".tar.xz", ".tar")
    machine.shell(f"cd /root && {commands}")
    for path, mode in PROGRAM_FILES.items():
        assert machine.run("stat", "-c", "%A %U %G", path).strip() == f"{mode} root root", path
    machine.shell(printed("The first site", "penstock init"))
    assert is_ready(machine), machine.journal(UNIT)
    machine.shell(printed("The first site", "penstock ls"))
    before = machine.property(UNIT, "MainPID")
    machine.shell("echo SERVE_OPTIONS=--drain=3s > /etc/default/penstock")
    machine.shell("/root/penstock-*/deploy/install.sh")
    assert machine.property(UNIT, "MainPID") != before and is_ready(machine)
    assert "--drain=3s" in machine.shell("cat /etc/default/penstock")
    kept = digests(machine)
    machine.shell("/root/penstock-*/deploy/install.sh --uninstall")
    assert machine.ask("systemctl", "is-active", UNIT).stdout.strip() == "inactive"
    assert [path for path in PROGRAM_FILES if machine.ask("test", "-e", path).returncode == 0] == ["/etc/default/penstock"]
    assert machine.ask("test", "-e", "/usr/lib/penstock").returncode != 0
    assert digests(machine) == kept
    # Two owners of the same files would break each other's.
    machine.shell("dpkg -i /srv/packages/penstock_*.deb", input="\n")
    refused = machine.ask("sh", "-c", "/root/penstock-*/deploy/install.sh")
    assert refused.returncode == 2 and "the Debian package penstock is installed" in refused.stderr


def test_the_container_image_is_whole_and_runs_the_program(packages, repository, unpacked):
    """Of a root file system that has what the program needs, in the place of the one that Debian's mirror would give."""
    root, output = unpacked / "root", unpacked / "images"
    subprocess.run(["dpkg-deb", "-x", only(packages, "penstock_*.deb"), root], check=True, timeout=60)
    linked = subprocess.run(["ldd", root / "usr/bin/penstock"], check=True, capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(", linked):
        (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, root / library[1:])
    variables = {"CONTAINER_ROOT": root, "PENSTOCK_PACKAGE": only(packages, "penstock_*.deb"), "PACKAGE_DIRECTORY": output}
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    line = [repository / "scripts/container.sh"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    image = only(output, "*.oci.tar")
    inspected = subprocess.run(["skopeo", "inspect", "--config", f"oci-archive:{image}"], check=True, capture_output=True)
    config = json.loads(inspected.stdout)["config"]
    assert config["Entrypoint"] == ["/usr/bin/penstock"] and config["User"] == "10001:10001"
    # It compares every digest.
    subprocess.run(["skopeo", "copy", "--quiet", f"oci-archive:{image}", f"dir:{unpacked}/copied"], check=True, timeout=60)
    manifest = json.loads((unpacked / "copied/manifest.json").read_text())
    [layer] = [layer["digest"].removeprefix("sha256:") for layer in manifest["layers"]]
    with tarfile.open(unpacked / "copied" / layer) as archive:
        archive.extractall(unpacked / "run", filter="tar")
    in_root = ["unshare", "--map-root-user", "chroot", unpacked / "run", *config["Entrypoint"], "--version"]
    ran = subprocess.run(in_root, check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.startswith("penstock ")
