"""A transfer service whose journal is on a disk of a test, with ends that are well, and a book of what it has promised."""

import json
import random
import threading
import time
from collections import Counter

import requests
from interop.clients import TERMINAL, Door, Service, content
from interop.site import Site
from interop.test_delegation import Lab, Signing
from interop.waiting import eventually

HOSTS = ("127.0.9.11", "127.0.9.12")
FILES_PER_JOB = 3
SIZES = [0, 500, 40_000, 300_000]
# Some sources take their time, so that transfers run whenever something happens.
SLOW_SECONDS = 0.5
SETTLE_SECONDS = 120
CANCELED_SHARE = 0.2


class ServiceSite(Site):
    """A transfer service without a storage element. Its databases are on the disk."""

    def __init__(self, binary, directory, name, host, disk, peers):
        super().__init__(binary, directory, name, host, peers=peers)
        self.remove("storage")
        self.configure("[transfer]", retry_delay="1s", retries=30, active_max_per_link=8)
        self.disk = disk
        original = self.directory / "state"
        if original.exists():
            original.rename(disk.backing / "state")
        else:
            (disk.backing / "state").mkdir()
        original.symlink_to(disk.path / "state")

    def tell(self):
        """Messages to a file on the disk. Only what is recorded as told must be there after a cut."""
        self.append('\n[[transfer.messages]]\nname = "file"\nfile = "state/told.jsonl"\noptimizer_every = "1h"\n')

    def told_ends(self):
        """The states of transfers that messages have told, of whole lines."""
        whole = (self.directory / "state/told.jsonl").read_text().rpartition("\n")[0]
        bodies = [json.loads(line)["body"] for line in whole.splitlines()]
        return {(body["job_id"], body["file_id"], body["file_state"]) for body in bodies if "file_state" in body}

    def health(self):
        answer = Service(self, self.admin_token()).ask("GET", "/health", timeout=10)
        return answer.status_code, answer.json().get("findings", [])

    def findings(self, about):
        return [finding["text"] for finding in self.health()[1] if finding["about"] == about]

    def wait_healthy(self, within=30.0):
        def healthy():
            try:
                status, findings = self.health()
            except requests.RequestException:
                return False
            return status == 200 and not [finding for finding in findings if finding["about"] != "expiry"]

        eventually(f"{self.name} is healthy", healthy, within)


class Delegator(Lab):
    """A user who delegates a proxy to the service."""

    def __init__(self, site, ca, directory):
        self.here, self.ca, self.directory = site, ca, directory
        self.alice = ca.user("Alice Lab")
        self.proxy = ca.proxy(self.alice)
        ca.trusted_by(site)

    def delegate(self):
        """Gives back when it ends, once the service has taken it."""
        signing = Signing(self, self.directory)
        answer = signing.deliver(signing.sign(signing.fetch(), self.proxy))
        assert answer.status_code in (200, 201), answer.text
        return self.termination_time()

    def termination_time(self):
        told = self.ask("GET", f"//delegation/{self.delegation_id()}").json()
        return told and told["termination_time"]


class Job:
    """One job: what was asked, what was told."""

    def __init__(self, number, files):
        self.number, self.files = number, files
        self.id, self.is_canceled, self.ended = None, False, None


class ServiceRun:
    """Jobs that are submitted, canceled and watched, whatever befalls the service."""

    def __init__(self, site, store, source, seed):
        self.site, self.store, self.source = site, store, source
        self.draw = random.Random(seed)
        self.token = store.token(lifetime="1d")
        self.door = Door(store, self.token)
        self.jobs, self.violations = [], []
        self.stopping = threading.Event()
        self.refusals = Counter()

    def service(self):
        return Service(self.site, self.token)

    def new_job(self, is_slow=True):
        number = len(self.jobs)
        files = {}
        for at in range(FILES_PER_JOB):
            path, data = f"/job-{number}/{at}", content((number, at), self.draw.choice(SIZES))
            slow = slowly(data) if is_slow and self.draw.random() < 0.5 else None
            files[path] = (self.source.offer(path, data, get=slow), data)
        self.jobs.append(Job(number, files))
        return self.jobs[-1]

    def submit(self, job):
        """Asks once; whether it was taken."""
        pairs = [(url, self.door.url(path)) for path, (url, _) in job.files.items()]
        params = {"id_generator": "deterministic", "sid": f"faults-{job.number}", "verify_checksum": "both"}
        try:
            answer = self.service().try_submit(*pairs, **params)
        except requests.RequestException:
            return False
        if answer.status_code == 409:
            job.id = answer.json()["message"].split("the job ")[1].split()[0]
            known = self.service().ask("GET", f"/jobs/{job.id}")
            if known.status_code == 404:
                self.violations.append(f"job {job.id} was submitted before, it says, and it does not know it")
        elif answer.status_code == 200:
            job.id = answer.json()["job_id"]
        else:
            self.refusals[answer.status_code] += 1
            assert answer.status_code in (500, 503), f"{answer.status_code} {answer.text}"
        return job.id is not None

    def submit_until(self, is_over):
        """One job after the other, each until it is acknowledged; cancels some."""
        while not is_over() and not self.stopping.is_set():
            job = self.new_job()
            while not self.submit(job):
                if self.stopping.wait(0.1):
                    return
            if self.draw.random() < CANCELED_SHARE:
                self.cancel(job)
            self.stopping.wait(0.2)

    def cancel(self, job):
        try:
            answer = self.service().ask("DELETE", f"/jobs/{job.id}")
        except requests.RequestException:
            job.is_canceled = None
            return
        job.is_canceled = True if answer.status_code == 200 else None

    def watch(self):
        """What a client was told once is so for ever."""
        while not self.stopping.is_set():
            for job in [job for job in self.jobs if job.id is not None]:
                try:
                    self.look(job)
                except (requests.RequestException, AssertionError):
                    # It is down or has a fault, which is not judged here.
                    break
            self.stopping.wait(0.1)

    def look(self, job):
        state = self.service().job(job.id)["job_state"]
        if job.ended is not None and state != job.ended:
            self.violations.append(f"job {job.id} was told to be {job.ended}, and now to be {state}")
        if state in TERMINAL:
            job.ended = state

    def judge(self):
        """Everything that was acknowledged came to its end, by content."""
        taken = [job for job in self.jobs if job.id is not None]
        assert taken, "no job was taken, so this proves nothing"
        for job in taken:
            ended = self.service().wait(job.id, SETTLE_SECONDS)["job_state"]
            if job.is_canceled is False:
                states = [(file["file_state"], file["reason"]) for file in self.service().files(job.id)]
                assert ended == "FINISHED", f"job {job.id} is {ended}: {states}"
            self.judge_files(job)
        self.service().wait_idle(30)
        assert not self.violations, self.violations
        self.store.wait_tidy()
        landed = Counter(
            number for (number,) in self.site.journal(
                "SELECT transfer_id FROM ledger WHERE json_extract(event, '$.event') = 'landed'"
            )
        )
        assert set(landed.values()) <= {1}, [number for number, times in landed.items() if times > 1]
        ends = self.ends_of(taken)
        eventually("each transfer's end was told", lambda: not ends - self.site.told_ends(), 30)

    def ends_of(self, jobs):
        return {
            (job.id, file["file_id"], file["file_state"])
            for job in jobs
            for file in self.service().files(job.id)
        }

    def judge_files(self, job):
        states = [file["file_state"] for file in self.service().files(job.id)]
        for state, (path, (_, data)) in zip(states, job.files.items()):
            if state == "FINISHED":
                assert self.door.get(path) == data, f"{path} has other bytes"
            else:
                self.judge_absence(path, state)

    def judge_absence(self, path, state):
        eventually(f"nothing is left at {path}, whose transfer is {state}", lambda: not self.door.exists(path))


def slowly(data):
    """Half of the bytes, a moment, and the rest."""

    def answer(exchange):
        exchange.start(200, {"Content-Length": str(len(data))})
        exchange.wfile.write(data[: len(data) // 2])
        exchange.wfile.flush()
        time.sleep(SLOW_SECONDS)
        exchange.wfile.write(data[len(data) // 2 :])

    return answer
