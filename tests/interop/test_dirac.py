"""What DIRAC asks of an FTS, as LHCb runs it: with the Python bindings of the fts3 client from PyPI, by proxies. Its agents
submit jobs whose files have a `fileID` in their metadata, ask for one job with all its files, believe the state of a file
only together with that of its job, and add up sizes and durations.
"""

import datetime

import fts3.rest.client.easy as fts3
import pytest
from fts3.rest.client.exceptions import NotFound

from .certificates import VO
from .clients import Door, adler32, content
from .conftest import make_grid
from .fault_server import stalled
from .waiting import eventually

FINAL = {"FINISHED", "FINISHEDDIRTY", "FAILED", "CANCELED"}
NOBODY = "00000000-0000-0000-0000-000000000000"
SEVEN_HOURS = datetime.timedelta(hours=7)
# DIRAC verifies nothing.
pytestmark = pytest.mark.filterwarnings("ignore:Unverified HTTPS request")


class Dirac:
    """An agent of DIRAC with a proxy of its own."""

    def __init__(self, grid, proxy):
        self.here, self.there = grid.here, grid.there
        self.context = fts3.Context(endpoint=grid.here.service, ucert=str(proxy.pem), verify=False)

    def delegate(self):
        return fts3.delegate(self.context, lifetime=SEVEN_HOURS, delegate_when_lifetime_lt=SEVEN_HOURS // 3)

    def transfer(self, number, source, destination, data, hop=False):
        metadata = {"desc": f"{'MultiHop' if hop else 'Transfer'} {number}", "activity": "Data Processing"}
        metadata |= {} if hop else {"fileID": number}
        return fts3.new_transfer(
            source,
            destination,
            checksum=f"ADLER32:{adler32(data)}",
            filesize=len(data),
            metadata=metadata,
            activity="Data Processing",
        )

    def submit(self, *transfers, multihop=False):
        metadata = {"operationID": 17, "rmsReqID": 4, "sourceSE": "HERE-disk", "targetSE": "THERE-disk"}
        job = fts3.new_job(
            transfers=list(transfers),
            overwrite=True,
            source_spacetoken=None,
            destination_spacetoken=None,
            bring_online=None,
            copy_pin_lifetime=None,
            archive_timeout=None,
            retry=3,
            verify_checksum="target",
            multihop=multihop,
            metadata=metadata,
            priority=3,
        )
        return fts3.submit(self.context, job)

    def monitor(self, job):
        """The job with its files, which must not contradict each other."""
        told = fts3.get_job_status(self.context, job, list_files=True)
        if told["job_state"] in FINAL:
            left = {file["file_state"] for file in told["files"]} - FINAL - {"NOT_USED"}
            assert not left, f"the job is {told['job_state']} and files are {left}"
        return told

    def wait(self, job):
        def ended():
            told = self.monitor(job)
            return told if told["job_state"] in FINAL else None

        return eventually(f"DIRAC sees the end of {job}", ended, 60)


@pytest.fixture(scope="module")
def dirac(binary, tmp_path_factory, fault_ca, user_ca):
    grid = make_grid(binary, tmp_path_factory.mktemp("dirac"), fault_ca)
    try:
        for site in grid.sites:
            user_ca.trusted_by(site)
            site.append(f'\n[[storage.group]]\ngroup = "/{VO}"\npath = "/{VO}"\nrights = ["read", "modify"]\n')
            site.start()
        dirac = Dirac(grid, user_ca.voms_proxy(user_ca.user("LHCb Robot")))
        dirac.delegate()
        yield dirac
    finally:
        for site in grid.sites:
            site.kill()


@pytest.fixture
def at(place):
    return f"/{VO}{place}"


def test_it_delegates_once_for_hours(dirac):
    first = dirac.delegate()
    assert dirac.delegate() == first == fts3.whoami(dirac.context)["delegation_id"]


def test_it_replicates_and_accounts_for_what_arrived(dirac, at):
    contents = {number: content(f"{at} {number}", 40_000 + number) for number in range(1, 5)}
    transfers = []
    for number, data in contents.items():
        Door(dirac.here).put(f"{at}/{number}", data)
        urls = dirac.here.door + f"{at}/{number}", dirac.there.door + f"{at}/copies/{number}"
        transfers.append(dirac.transfer(number, *urls, data))
    missing = dirac.here.door + f"{at}/none", dirac.there.door + f"{at}/copies/none"
    job = dirac.submit(*transfers, dirac.transfer(9, *missing, b"x"))
    told = dirac.wait(job)
    assert told["job_state"] == "FINISHEDDIRTY"
    assert told["job_metadata"]["sourceSE"] == "HERE-disk" and told["job_metadata"]["operationID"] == 17
    states = {file["file_metadata"]["fileID"]: file["file_state"] for file in told["files"]}
    assert states == dict.fromkeys(contents, "FINISHED") | {9: "FAILED"}
    good = [file for file in told["files"] if file["file_state"] == "FINISHED"]
    assert sum(file["filesize"] for file in good) == sum(map(len, contents.values()))
    assert all(int(file["tx_duration"]) >= 0 for file in good)
    [bad] = [file for file in told["files"] if file["file_state"] == "FAILED"]
    assert bad["reason"].startswith("SOURCE [2]")
    for number, data in contents.items():
        assert Door(dirac.there).get(f"{at}/copies/{number}") == data


def test_it_knows_the_file_of_the_last_hop_only(dirac, at):
    data = content(at, 30_000)
    Door(dirac.here).put(f"{at}/source", data)
    hops = [dirac.here.door + f"{at}/source", dirac.there.door + f"{at}/hop", dirac.there.door + f"{at}/end"]
    job = dirac.submit(
        dirac.transfer(5, hops[0], hops[1], data, hop=True), dirac.transfer(5, hops[1], hops[2], data), multihop=True
    )
    told = dirac.wait(job)
    assert told["job_state"] == "FINISHED", told
    assert [file["file_metadata"].get("fileID") for file in told["files"]] == [None, 5]
    assert Door(dirac.there).get(f"{at}/end") == data


def test_it_cancels_and_learns_that_a_job_is_unknown(dirac, at, faulty):
    source = faulty.offer(f"{at}/stuck", b"y" * 500, get=stalled(b"y" * 500, after=1))
    job = dirac.submit(dirac.transfer(6, source, dirac.there.door + f"{at}/stuck", b"y" * 500))
    eventually("it runs", lambda: dirac.monitor(job)["job_state"] == "ACTIVE", 20)
    assert fts3.cancel(dirac.context, job)["job_state"] == "CANCELED"
    told = dirac.wait(job)
    assert [file["file_state"] for file in told["files"]] == ["CANCELED"]
    assert fts3.cancel(dirac.context, job)["job_state"] == "CANCELED"
    for ask in (fts3.get_job_status, fts3.cancel):
        with pytest.raises(NotFound):
            ask(dirac.context, NOBODY)


def test_it_asks_for_several_jobs_at_once(dirac, at):
    data = content(at, 10_000)
    Door(dirac.here).put(f"{at}/source", data)
    source = dirac.here.door + f"{at}/source"
    jobs = [dirac.submit(dirac.transfer(n, source, dirac.there.door + f"{at}/{n}", data)) for n in (1, 2)]
    for job in jobs:
        dirac.wait(job)
    told = fts3.get_jobs_statuses(dirac.context, jobs, list_files=True)
    assert [job["job_state"] for job in told] == ["FINISHED"] * 2
    assert [job["files"][0]["file_metadata"]["fileID"] for job in told] == [1, 2]
    assert [job["files"][0]["dest_surl"] for job in told] == [dirac.there.door + f"{at}/{n}" for n in (1, 2)]
