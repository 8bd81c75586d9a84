"""Storage elements that speak no HTTP: real GridFTP servers, an XRootD with `root://` and third-party copy, and an
sftp server. Each is a process of the test, on loopback, with files in a directory of its own.

GridFTP and XRootD know the users' authority alone, and the certificate of `localhost` that it has issued.
"""

import getpass
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from .site import free_port
from .waiting import eventually
from .xrootd import ACCOUNT, SHIM, Xrootd, answers, run

HOST = "localhost"
ADDRESS = "127.0.0.1"
START_SECONDS = 60
STOP_SECONDS = 20
# What the host's name is compared with; by default Globus wants names that DNS gives back, which loopback has not.
NAMES = "HYBRID"


class Server:
    """A process with a directory that everybody may look into."""

    def __init__(self, kind):
        self.kind = kind
        self.port = free_port(ADDRESS)
        # Not below pytest's directory, into which only its owner can look.
        self.directory = Path(tempfile.mkdtemp(prefix=f"interop-{kind}-"))
        self.directory.chmod(0o755)
        self.process = None

    @property
    def files(self):
        return self.directory / "files"

    def launch(self, line, **environment):
        with open(self.directory / "output", "ab") as output:
            self.process = subprocess.Popen(
                [str(word) for word in line],
                cwd=self.directory,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        eventually(f"{self.kind} listens", self.is_ready, START_SECONDS)
        return self

    def is_ready(self):
        code = self.process.poll()
        assert code is None, f"{self.kind} ended with {code}\n{self.log_tail()}"
        return answers(ADDRESS, self.port)

    def log_tail(self, lines=40):
        texts = [path.read_text(errors="replace") for path in self.logs if path.exists()]
        return "\n".join("\n".join(texts).splitlines()[-lines:])

    @property
    def logs(self):
        return [self.directory / "output", self.directory / "server.log"]

    def write(self, name, data):
        """Puts a file there, beside the server."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
        self.give_away(path.parent)
        return path

    def give_away(self, path):
        """The account that the server works under may write there."""
        path.chmod(0o777)

    def close(self):
        """Ends the process, and those that it has started for its clients: they are a session of their own."""
        if self.process is not None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            self.signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


class GridFtp(Server):
    """A `globus-gridftp-server`. Its paths are those of the machine."""

    def __init__(self, ca, users, data_address=ADDRESS):
        super().__init__("gridftp")
        self.data_address = data_address
        host = ca.host(HOST)
        for source, name in ((host.certificate, "host.pem"), (host.key, "host.key")):
            shutil.copy(source, self.directory / name)
            (self.directory / name).chmod(0o400)
        account = "nobody" if os.geteuid() == 0 else getpass.getuser()
        lines = [f'"{subject}" {account}\n' for subject in users]
        (self.directory / "gridmap").write_text("".join(lines))
        self.trust = ca.hashed
        self.files.mkdir()
        self.give_away(self.files)

    def url(self, name):
        return f"gsiftp://{HOST}:{self.port}{self.files}/{name}"

    def start(self):
        here = self.directory
        # It starts a process for each client, and none that leaves us.
        line = ["globus-gridftp-server", "-s", "-p", self.port, "-control-interface", ADDRESS]
        line += ["-data-interface", self.data_address, "-log-level", "error,warn,info", "-l", here / "server.log"]
        return self.launch(
            line,
            X509_USER_CERT=str(here / "host.pem"),
            X509_USER_KEY=str(here / "host.key"),
            X509_CERT_DIR=str(self.trust),
            GRIDMAP=str(here / "gridmap"),
            GLOBUS_HOSTNAME=HOST,
            GLOBUS_GSSAPI_NAME_COMPATIBILITY=NAMES,
        )


class Sftp(Server):
    """An OpenSSH server for the account that runs the tests."""

    subsystem = "internal-sftp"

    def __init__(self):
        super().__init__("sftp")
        here = self.directory
        # The library that gfal2 uses in Debian 12 signs by ssh-rsa alone where it uses RSA.
        for name in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ecdsa", "-m", "PEM", "-N", "", "-f", here / name)
        shutil.copy(here / "user.pub", here / "authorized")
        (here / "sshd.conf").write_text(
            f"ListenAddress {ADDRESS}\nPort {self.port}\nHostKey {here}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {here}/authorized\nStrictModes no\nPasswordAuthentication no\n"
            "PermitRootLogin prohibit-password\n"
            f"Subsystem sftp {self.subsystem}\n"
        )
        self.files.mkdir()

    @property
    def user(self):
        return getpass.getuser()

    @property
    def key(self):
        return self.directory / "user"

    def url(self, name):
        return f"sftp://{HOST}:{self.port}{self.files}/{name}"

    def start(self):
        # sshd wants this directory, which its service would make.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        return self.launch(["/usr/sbin/sshd", "-D", "-e", "-f", self.directory / "sshd.conf"])


class RootXrootd(Xrootd):
    """An XRootD that lets users in by proxy over `root://`, and copies from others like it."""

    def __init__(self, ca, users, copies=True):
        super().__init__(ADDRESS, LocalhostCa(ca), ca.hashed, users)
        here = self.directory
        text = (here / "xrootd.cfg").read_text()
        text = text.replace(
            "sec.protocol unix\n",
            f"sec.protocol gsi -certdir:{here}/certificates -cert:{here}/host.pem -key:{here}/host.key "
            f"-gridmap:{here}/gridmap -crl:0 -gmapopt:1\nsec.protocol unix\n",
        )
        # Who fetches shows what the client has agreed with the source, and no credential.
        text += "ofs.tpc ttl 60 60 xfr 9 pgm /usr/bin/xrdcp --server\n" if copies else ""
        (here / "xrootd.cfg").write_text(text)

    def url(self, path):
        return f"root://{HOST}:{self.root_port}/{path}"


class XrootdCluster:
    """A manager and one data server that has registered with it (`cmsd`), both without authentication. The manager knows
    where files are, and sends clients there."""

    CONFIGURATION = """\
all.role {role}
all.manager {manager}:{cluster_port}
all.export /
all.adminpath {here}/admin
all.pidpath {here}/run
oss.localroot {here}/files
xrd.network nodnr
cms.delay startup 2 servers 1
if exec cmsd
xrd.port {cmsd_port}
else
xrd.port {port}
fi
"""

    def __init__(self, manager):
        self.manager = manager
        self.directory = Path(tempfile.mkdtemp(prefix="interop-cluster-"))
        self.directory.chmod(0o755)
        self.cluster_port = free_port(manager)
        # The data server is known by the address from which it registers, which is this one on loopback.
        self.hosts = {"manager": manager, "server": ADDRESS}
        self.ports = {"manager": free_port(manager), "server": free_port(ADDRESS)}
        self.processes = []
        run("cc", "-shared", "-fPIC", "-O1", "-o", self.directory / "loopback.so", SHIM, "-ldl")

    @property
    def files(self):
        return self.directory / "server/files"

    def url(self, name):
        return f"root://{self.manager}:{self.ports['manager']}//{name}"

    def start(self):
        for role, host in self.hosts.items():
            here = self.directory / role
            for part in ("admin", "run", "files", "home"):
                (here / part).mkdir(parents=True)
            cmsd_port = self.cluster_port if role == "manager" else free_port(host)
            text = self.CONFIGURATION.format(
                role=role, manager=self.manager, cluster_port=self.cluster_port, here=here,
                cmsd_port=cmsd_port, port=self.ports[role],
            )
            (here / "xrootd.cfg").write_text(text)
        if os.geteuid() == 0:
            run("chown", "-R", "-h", ACCOUNT, self.directory)
        for role in self.hosts:
            for program in ("cmsd", "xrootd"):
                self.launch(program, role)
        eventually("the manager sends clients on", self.is_ready, START_SECONDS)
        return self

    def launch(self, program, role):
        here = self.directory / role
        line = [program, "-n", role, "-I", "v4", "-c", str(here / "xrootd.cfg"), "-l", str(here / f"{program}.log")]
        line += ["-R", ACCOUNT] if os.geteuid() == 0 else []
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(here / "home"),
            "LD_PRELOAD": str(self.directory / "loopback.so"),
            "LOOPBACK_ADDRESS": self.hosts[role],
        }
        with open(here / f"{program}.output", "wb") as output:
            self.processes.append(
                subprocess.Popen(
                    line, cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            )

    def is_ready(self):
        ended = [process.args for process in self.processes if process.poll() is not None]
        assert not ended, f"{ended}\n{self.log_tail()}"
        self.write("ready", b"ready")
        line = ["xrdfs", f"root://{self.manager}:{self.ports['manager']}", "locate", "-r", "/ready"]
        try:
            return subprocess.run(line, capture_output=True, timeout=20).returncode == 0
        except subprocess.TimeoutExpired:
            # A question put before the server has registered can be left without an answer: ask again.
            return False

    def write(self, name, data):
        path = self.files / name
        path.write_bytes(data)
        path.chmod(0o644)

    def log_tail(self, lines=40):
        texts = [path.read_text(errors="replace") for path in self.directory.rglob("*.log")]
        return "\n".join("\n".join(texts).splitlines()[-lines:])

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


class LocalhostCa:
    """The users' authority, where a server asks for a certificate by address."""

    def __init__(self, ca):
        self.ca = ca

    def issue(self, _host):
        host = self.ca.host(HOST)
        return host.certificate, host.key
