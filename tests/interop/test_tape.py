"""Files that come from tape and files that go there: staging and archiving through the WLCG Tape REST API.

The tape system is `tape_endpoint.py`, which serves files and the interface at one address, and does as a test tells it.
Looks follow each other quickly here, so that tests see them; how often real systems are looked at is in `decide`.
"""

import json
import re
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from pathlib import Path

import pytest

from .clients import adler32, content
from .conftest import TAPE_HOST, make_grid
from .tape_endpoint import SITE, TapeEndpoint
from .waiting import eventually

TOOLS = Path(sys.executable).parent
JOB_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
QUICK = {
    "quiet": "100ms",
    "fill_max": "1s",
    "poll_min": "100ms",
    "poll_max": "1s",
    "replica_interval": "1s",
    "timeout": "1s",
    "files_per_request_max": 500,
}
DATA = content("tape", 50_000)


def hurry(site):
    """Looks that tests can wait for."""
    site.append("\n[transfer.staging]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in QUICK.items()))


@pytest.fixture(scope="module")
def grid(binary, tmp_path_factory, fault_ca):
    """Two sites that look at tape systems often."""
    grid = make_grid(binary, tmp_path_factory.mktemp("tape"), fault_ca)
    for site in grid.sites:
        hurry(site)
        site.start()
    yield grid
    for site in grid.sites:
        site.stop()


def states(grid, job):
    return [file["file_state"] for file in grid.service.files(job)]


def wait_states(grid, job, *expected, within=20.0):
    eventually(f"{job} is {expected}", lambda: tuple(states(grid, job)) == expected, within)


def texts(grid, job):
    told = grid.service.ask("GET", f"/api/v1/jobs/{job}/explain").json()
    return [file["text"] for file in told["files"]]


def header_of(tape, path, name):
    """Of the request that wrote a file."""
    headers = {header.lower(): value for header, value in tape.files[path].headers.items()}
    return headers[name]


def test_a_file_is_staged_copied_and_let_go(grid, tape, place):
    source = tape.put_on_tape(f"{place}/f", DATA)
    note = {"default": {"activity": "x"}}
    file = {"sources": [source], "destinations": [grid.there_door.url(f"{place}/f")], "staging_metadata": note}
    tape.holds.set()
    job = grid.service.submit(file, bring_online=600, copy_pin_lifetime=3600)
    assert grid.service.job(job)["job_state"] == "STAGING"
    wait_states(grid, job, "STARTED")
    assert grid.service.job(job)["job_state"] == "STAGING"
    eventually("it says why", lambda: "0 of 1 files are on disk" in texts(grid, job)[0])
    [request] = tape.requests
    assert request in texts(grid, job)[0]
    admin = {"Authorization": f"Bearer {grid.here.admin_token()}"}

    def staging():
        hosts = grid.service.ask("GET", "/status/hosts", headers=admin).json()
        return sum(host["staging"] for host in hosts.values())

    eventually("it is counted", lambda: staging() == 1)
    ends = (f"https://{TAPE_HOST}", grid.there.storage_id)
    links = lambda: grid.service.overview()["links"]
    of_link = lambda: [link["staging"] for link in links() if (link["source"], link["destination"]) == ends]
    eventually("on its link, too", lambda: of_link() == [1])
    told = grid.service.ask("GET", f"/fts3/ftsmon/linkinfo?source_se={ends[0]}&dest_se={ends[1]}").json()
    assert (told["staging"], told["queued"], told["active"]) == (1, 0, 0), told
    tape.holds.clear()
    seen = grid.service.wait_finished(job)
    assert grid.there_door.get(f"{place}/f") == DATA
    assert (seen["bring_online"], seen["copy_pin_lifetime"], seen["archive_timeout"]) == (600, 3600, -1)
    [file] = grid.service.files(job)
    assert file["staging_start"] <= file["staging_finished"] <= file["start_time"] <= file["finish_time"]
    assert (file["bringonline_token"], file["staging_metadata"]) == (request, note)
    [call] = tape.called("stage")
    assert call.body == {"files": [{"path": f"{place}/f", "diskLifetime": "PT3600S", "targetedMetadata": note}]}
    assert call.headers["Authorization"] == f"Bearer {grid.token}"
    eventually("it is let go", lambda: tape.where(f"{place}/f") == "TAPE")
    assert [call.request for call in tape.called("release")] == [request]


def test_a_file_that_is_on_disk_already_is_copied_at_once(grid, tape, place):
    source = tape.put_on_disk(f"{place}/f", DATA, on_tape=True)
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=60)
    grid.service.wait_finished(job)
    assert grid.service.job(job)["copy_pin_lifetime"] == 604_800


def test_a_thousand_files_are_asked_for_in_a_few_requests(grid, tape, place):
    names = [f"{place}/f{n:04}" for n in range(1000)]
    sources = [tape.put_on_tape(name, b"x") for name in names]
    tape.recall_seconds = 0.5
    job = grid.service.submit(*((source, source) for source in sources), bring_online=600)
    assert grid.service.wait_finished(job, within=120)["job_state"] == "FINISHED"
    requests = tape.called("stage")
    assert len(requests) <= 4 and max(len(call.paths) for call in requests) == 500
    assert set(tape.staged().values()) == {1}
    assert len(tape.called("poll")) < 60
    assert not tape.called("release"), "they shall stay on disk"
    assert {tape.where(name) for name in names} == {"DISK_AND_TAPE"}


def test_files_of_one_request_are_copied_as_they_come(grid, tape, place):
    sources = [tape.put_on_tape(f"{place}/{name}", DATA) for name in ("early", "late")]
    tape.holds.set()
    tape.files[f"{place}/early"].on_disk = True
    pairs = [(source, grid.there_door.url(f"{place}/copy/{n}")) for n, source in enumerate(sources)]
    job = grid.service.submit(*pairs, bring_online=600)
    wait_states(grid, job, "FINISHED", "STARTED")
    assert grid.service.job(job)["job_state"] == "ACTIVE"
    eventually("it counts", lambda: "1 of 2 files are on disk" in texts(grid, job)[1])
    tape.holds.clear()
    grid.service.wait_finished(job)
    assert len(tape.called("stage")) == 1


def test_one_that_fails_leaves_the_others_and_says_why(grid, tape, place):
    good = tape.put_on_tape(f"{place}/good", DATA)
    bad = tape.put_on_tape(f"{place}/bad", DATA)
    tape.errors[f"{place}/bad"] = "Cannot recall: bad tape"
    missing = tape.url + f"{place}/missing"
    pairs = [(source, grid.there_door.url(f"{place}/copy/{n}")) for n, source in enumerate([good, bad, missing])]
    job = grid.service.submit(*pairs, bring_online=600, retry=1)
    assert grid.service.wait(job)["job_state"] == "FINISHEDDIRTY"
    assert states(grid, job) == ["FINISHED", "FAILED", "FAILED"]
    reasons = [file["reason"] for file in grid.service.files(job)]
    assert reasons[1] == "STAGING [5] Cannot recall: bad tape"
    assert reasons[2].startswith("STAGING [2] no such file")
    assert tape.staged() == Counter({f"{place}/good": 1, f"{place}/bad": 2, f"{place}/missing": 1})


def test_what_takes_too_long_fails_in_fts_s_words_and_is_canceled_there(grid, tape, place):
    source = tape.put_on_tape(f"{place}/f", DATA)
    tape.holds.set()
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=2)
    assert grid.service.wait_failed(job) == "STAGING [110] bring-online timeout has been exceeded"
    [request] = tape.requests
    eventually("it is canceled there", lambda: tape.called("cancel"))
    [call] = tape.called("cancel")
    assert (call.request, call.paths) == (request, [f"{place}/f"])


def test_a_cancel_in_the_middle_reaches_the_tape_system_in_bulk(grid, tape, place):
    sources = [tape.put_on_tape(f"{place}/f{n}", DATA) for n in range(20)]
    tape.holds.set()
    pairs = [(source, grid.there_door.url(f"{place}/copy/{n}")) for n, source in enumerate(sources)]
    job = grid.service.submit(*pairs, bring_online=600)
    wait_states(grid, job, *["STARTED"] * 20)
    assert grid.service.ask("DELETE", f"/jobs/{job}").json()["job_state"] == "CANCELED"
    eventually("they are canceled there", lambda: tape.called("release"))
    [canceled], [released] = tape.called("cancel"), tape.called("release")
    assert len(canceled.paths) == 20 and set(released.paths) == set(canceled.paths)
    [request] = tape.requests.values()
    assert {file.state for file in request.files.values()} == {"CANCELLED"}
    grid.service.wait_idle()


def test_a_request_that_the_tape_system_forgets_is_made_again(grid, tape, place):
    source = tape.put_on_tape(f"{place}/f", DATA)
    tape.holds.set()
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=600, retry=-1)
    wait_states(grid, job, "STARTED")
    tape.forget_requests()
    eventually("it is asked again", lambda: tape.requests)
    tape.holds.clear()
    grid.service.wait_finished(job)
    assert tape.staged()[f"{place}/f"] == 2


@pytest.mark.parametrize("call", ["discovery", "stage", "poll", "release"])
def test_trouble_with_a_call_is_survived(grid, tape, place, call):
    tape.trouble[call] = [503, "cut", b"nonsense", "hang"]
    source = tape.put_on_tape(f"{place}/f", DATA)
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=600, retry=-1)
    grid.service.wait_finished(job)
    # What is said to `release` is believed whatever it is: the file has been copied.
    left = 1 if call == "release" else 0
    eventually("every trouble was met", lambda: len(tape.trouble[call]) <= left)


@pytest.mark.parametrize("call", ["discovery", "stage", "poll"])
def test_answers_that_are_no_answers_are_not_believed(grid, tape, place, call):
    tape.trouble[call] = [b"[]", b'{"files":5}', b'{"requestId":"../.."}', b'{"id":"other","files":[]}', b"{}" * 99_999]
    source = tape.put_on_tape(f"{place}/f", DATA)
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=600, retry=-1)
    grid.service.wait_finished(job)


def test_an_answer_that_is_lost_costs_a_second_request_and_nothing_else(grid, tape, place):
    tape.trouble["stage"] = ["lost"]
    source = tape.put_on_tape(f"{place}/f", DATA)
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=600, retry=-1)
    grid.service.wait_finished(job)
    assert len(tape.called("stage")) == 2


def test_one_path_that_is_refused_does_not_fail_the_request(grid, tape, place, monkeypatch):
    sources = [tape.put_on_tape(f"{place}/f{n}", DATA) for n in range(8)]
    true_stage = tape.stage

    def stage(request, body):
        if any(file["path"].endswith("f5") for file in body["files"]):
            return 400, {"status": 400, "title": "f5 is a directory"}
        return true_stage(request, body)

    monkeypatch.setattr(tape, "stage", stage)
    pairs = [(source, grid.there_door.url(f"{place}/copy/{n}")) for n, source in enumerate(sources)]
    job = grid.service.submit(*pairs, bring_online=600)
    grid.service.wait(job)
    assert Counter(states(grid, job)) == {"FINISHED": 7, "FAILED": 1}
    failed = grid.service.files(job)[5]
    assert failed["reason"].startswith("STAGING [22] POST ") and "f5 is a directory" in failed["reason"]


def test_a_storage_element_without_tape_fails_the_file_and_the_next_replica_is_taken(grid, tape, place):
    tape.offers_tape = False
    nowhere = tape.put_on_disk(f"{place}/f", DATA)
    target = grid.there_door.url(f"{place}/f")
    job = grid.service.submit((nowhere, target), bring_online=60)
    assert "offers no tape interface" in grid.service.wait_failed(job)
    with_tape = TapeEndpoint("127.0.0.5", None)
    try:
        good = with_tape.put_on_tape(f"{place}/f", DATA)
        entry = {"sources": [nowhere, good], "destinations": [target], "selection_strategy": "orderly"}
        job = grid.service.submit(entry, bring_online=60)
        grid.service.wait_finished(job)
        assert states(grid, job) == ["FAILED", "FINISHED"]
    finally:
        with_tape.close()


@pytest.mark.parametrize("elsewhere", ["a storage element without tape", "another tape system"])
def test_a_replica_that_appears_on_disk_is_copied_in_place_of_one_that_waits_for_tape(grid, tape, place, elsewhere):
    tape.holds.set()
    on_tape = tape.put_on_tape(f"{place}/f", DATA)
    target = grid.there_door.url(f"{place}/copy")
    other = TapeEndpoint("127.0.0.5", None)
    other.offers_tape = elsewhere == "another tape system"
    try:
        appears = f"{other.url}{place}/f"
        entry = {"sources": [on_tape, appears], "destinations": [target], "selection_strategy": "orderly"}
        job = grid.service.submit(entry, bring_online=600)
        wait_states(grid, job, "STARTED", "NOT_USED")
        [request] = tape.requests
        other.put_on_disk(f"{place}/f", DATA)
        grid.service.wait_finished(job)
        assert states(grid, job) == ["NOT_USED", "FINISHED"]
        assert grid.there_door.get(f"{place}/copy") == DATA
        eventually("its recall is withdrawn", lambda: tape.called("cancel"))
        [call] = tape.called("cancel")
        assert (call.request, call.paths) == (request, [f"{place}/f"])
        assert "waits" not in texts(grid, job)[0]
    finally:
        other.close()


def test_credentials_go_to_no_interface_on_a_strange_host(grid, tape, place):
    tape.api = "https://127.0.0.99:1/api/v1"
    source = tape.put_on_tape(f"{place}/f", DATA)
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=60)
    assert "may not have credentials that are for" in grid.service.wait_failed(job)
    tape.api = tape.url.replace("https://", "http://") + "/api/v1"


def test_a_copy_that_times_out_is_staged_again(grid, tape, place):
    """dCache lets readers of a file wait that has gone from disk."""
    source = tape.put_on_tape(f"{place}/f", DATA)
    tape.trouble["GET"] = ["hang"]
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=600, timeout=2, retry=3)
    grid.service.wait_finished(job)
    assert tape.staged()[f"{place}/f"] == 2
    events = [event["event"] for event in grid.here.ledger(job)]
    assert events.count("staged") == 2 and events.count("landed") == 1


def test_a_copy_waits_until_it_is_on_tape(grid, tape, place):
    grid.here_door.put(f"{place}/f", DATA)
    tape.archive_seconds = None
    note = {"scheduling_hints": {"archive_priority": "5"}}
    file = {"sources": [grid.here_door.url(f"{place}/f")], "destinations": [tape.url + f"{place}/f"]}
    job = grid.service.submit(file | {"archive_metadata": note}, archive_timeout=600)
    wait_states(grid, job, "ARCHIVING")
    assert grid.service.job(job)["job_state"] == "ARCHIVING"
    grid.service.wait_idle()
    eventually("it says why", lambda: "to write it to tape" in texts(grid, job)[0])
    assert json.loads(b64decode(header_of(tape, f"{place}/f", "archivemetadata"))) == note
    tape.files[f"{place}/f"].on_tape = True
    grid.service.wait_finished(job)
    [file] = grid.service.files(job)
    assert file["archive_start_time"] <= file["archive_finish_time"] == file["finish_time"]
    assert (file["archive_metadata"], file["filesize"]) == (note, len(DATA))


@pytest.mark.parametrize(
    "locality, expected",
    [
        ("DISK", "ARCHIVING [110] archive timeout has been exceeded"),
        ("LOST", "ARCHIVING [2] the tape system says that the file is lost"),
        ("MOON", "ARCHIVING [5] it is in a place called 'MOON'"),
    ],
)
def test_a_copy_that_does_not_get_to_tape_fails(grid, tape, place, locality, expected):
    grid.here_door.put(f"{place}/f", DATA)
    tape.archive_seconds = None
    job = grid.service.submit((grid.here_door.url(f"{place}/f"), tape.url + f"{place}/f"), archive_timeout=3)
    wait_states(grid, job, "ARCHIVING")
    tape.files[f"{place}/f"].locality = locality
    assert grid.service.wait_failed(job) == expected
    assert tape.files[f"{place}/f"].data == DATA, "the copy is whole, and stays"


def test_from_tape_to_tape_over_a_hop(grid, tape, place):
    """As Rucio does it: the first hop is staged, the last one archived."""
    source = tape.put_on_tape(f"{place}/f", DATA)
    way = [source, grid.there_door.url(f"{place}/hop"), tape.url + f"{place}/archived"]
    job = grid.service.submit(
        *zip(way, way[1:]), multihop=True, bring_online=600, archive_timeout=600, dst_file_report=True
    )
    grid.service.wait_finished(job)
    assert states(grid, job) == ["FINISHED"] * 2
    first, last = grid.service.files(job)
    assert first["staging_finished"] and not first["archive_finish_time"]
    assert last["archive_finish_time"] and not last["staging_start"]


def test_what_is_on_tape_is_not_overwritten_and_what_is_on_disk_only_is(grid, tape, place):
    grid.here_door.put(f"{place}/f", DATA)
    source, target = grid.here_door.url(f"{place}/f"), tape.url + f"{place}/old"
    wanted = {"archive_timeout": 600, "overwrite_when_only_on_disk": True, "dst_file_report": True}
    tape.put_on_disk(f"{place}/old", b"old", on_tape=True)
    job = grid.service.submit((source, target), **wanted)
    reason = grid.service.wait_failed(job)
    on_tape = "Destination file exists and is on tape (overwrite-when-only-on-disk requested)"
    assert reason == f"DESTINATION [30] {on_tape}"
    [file] = grid.service.files(job)
    assert grid.service.job(job)["overwrite_flag"] == "D"
    assert file["file_metadata"]["dst_file"] == {
        "file_size": 3,
        "checksum_type": "ADLER32",
        "checksum_value": adler32(b"old"),
        "file_on_tape": True,
        "file_on_disk": True,
    }
    tape.files[f"{place}/old"].locality = "UNAVAILABLE"
    job = grid.service.submit((source, target), **wanted)
    assert "Destination file location unknown: UNAVAILABLE" in grid.service.wait_failed(job)
    tape.put_on_disk(f"{place}/old", b"old")
    job = grid.service.submit((source, target), **wanted)
    grid.service.wait_finished(job)
    assert tape.files[f"{place}/old"].data == DATA


def test_what_does_not_fit_together_is_refused(grid, tape, place):
    source = tape.put_on_tape(f"{place}/f", DATA)
    target = grid.there_door.url(f"{place}/f")
    for files, params, text in [
        ([(source, source)], {}, "'bring_online'"),
        ([(source, source), (source, target)], {"bring_online": 60, "multihop": True}, "replicas or hops"),
        ([(source, target)], {"overwrite_when_only_on_disk": True}, "archive_timeout"),
        ([(source, target)], {"overwrite_when_only_on_disk": True, "overwrite": True, "archive_timeout": 9}, "at most one"),
        ([{"sources": [source], "destinations": [target], "staging_metadata": []}], {}, "must be an object"),
    ]:
        answer = grid.service.try_submit(*files, **params)
        assert answer.status_code == 400 and text in answer.json()["message"], answer.text


def test_operators_bound_what_comes_from_tape_at_once(grid, tape, place):
    sources = [tape.put_on_tape(f"{place}/f{n}", DATA) for n in range(4)]
    tape.holds.set()
    storage = f"https://{TAPE_HOST}"
    admin = {"Authorization": f"Bearer {grid.here.admin_token()}"}
    limit = {storage: {"operations": {"*": {"staging": 3}}}}
    answer = grid.service.ask("POST", "/config/se", json=limit, headers=admin)
    assert answer.json() == [grid.service.ask("GET", "/config/se", headers=admin).json()[storage]["se_info"], limit[storage]["operations"]]
    try:
        job = grid.service.submit(*((source, source) for source in sources), bring_online=600)
        eventually("three are asked for", lambda: Counter(states(grid, job)) == {"STARTED": 3, "STAGING": 1})
        eventually("it says why", lambda: any("which is the limit" in text for text in texts(grid, job)))
        tape.holds.clear()
        grid.service.wait_finished(job)
        assert sorted(len(call.paths) for call in tape.called("stage")) == [1, 3]
    finally:
        grid.service.ask("DELETE", f"/config/se?se={storage}", headers=admin)


def test_a_ban_holds_back_what_waits_for_tape(grid, tape, place):
    source = tape.put_on_tape(f"{place}/f", DATA)
    storage = f"https://{TAPE_HOST}"
    admin = {"Authorization": f"Bearer {grid.here.admin_token()}"}
    ban = {"storage": storage, "status": "wait", "allow_submit": True}
    assert grid.service.ask("POST", "/ban/se", json=ban, headers=admin).status_code == 200
    try:
        job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), bring_online=600)
        copy = grid.service.submit((grid.there_door.url(f"{place}/none"), tape.url + f"{place}/g"), retry=-1)
        assert states(grid, job) == ["ON_HOLD_STAGING"]
        assert states(grid, copy) == ["ON_HOLD"]
        assert grid.service.job(job)["job_state"] == "STAGING"
        assert "has been banned" in texts(grid, job)[0]
    finally:
        grid.service.ask("DELETE", f"/ban/se?storage={storage}", headers=admin)
    grid.service.wait_finished(job)
    assert not tape.called("archiveinfo")


def test_kills_in_the_middle_stage_nothing_twice_and_lose_nothing(own_grid, tape, place):
    for site in own_grid.sites:
        hurry(site)
        site.start()
    names = [f"{place}/f{n}" for n in range(30)]
    sources = [tape.put_on_tape(name, DATA) for name in names]
    tape.holds.set()
    pairs = [(source, own_grid.there_door.url(f"{place}/copy/{n}")) for n, source in enumerate(sources)]
    job = own_grid.service.submit(*pairs, bring_online=600, archive_timeout=-1)
    wait_states(own_grid, job, *["STARTED"] * 30)
    for number in range(3):
        own_grid.here.kill()
        if number == 1:
            tape.holds.clear()
        own_grid.here.start()
        if number == 1:
            eventually("some arrive", lambda: "FINISHED" in states(own_grid, job))
    own_grid.service.wait_finished(job, within=120)
    assert tape.staged() == Counter(dict.fromkeys(names, 1))
    assert all(own_grid.there_door.get(f"{place}/copy/{n}") == DATA for n in range(30))


class Tools:
    """The command line client of fts3."""

    def __init__(self, grid, tmp_path):
        self.grid = grid
        self.environment = {"PATH": "/usr/bin:/bin", "X509_CERT_DIR": str(grid.here.certificates)}
        self.environment["HOME"] = str(tmp_path)

    def run(self, command, *words):
        line = [str(TOOLS / f"fts-rest-{command}"), "-s", self.grid.here.service]
        line += ["--access-token", self.grid.token, *words]
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout


def test_the_fts3_client_brings_a_file_from_tape_and_archives_it(grid, tape, place, tmp_path):
    tools = Tools(grid, tmp_path)
    source, target = tape.put_on_tape(f"{place}/f", DATA), tape.url + f"{place}/g"
    line = ["--bring-online", "600", "--copy-pin-lifetime", "3600", "--archive-timeout", "900"]
    line += ["--staging-metadata", json.dumps({SITE: {"activity": "x"}})]
    job = JOB_ID.search(tools.run("transfer-submit", *line, source, target)).group()
    grid.service.wait_finished(job)
    assert "Status: FINISHED" in tools.run("transfer-status", job)
    [call] = tape.called("stage")
    assert call.body["files"][0]["targetedMetadata"] == {SITE: {"activity": "x"}}
    assert tape.where(f"{place}/g") == "DISK_AND_TAPE"


def test_messages_tell_when_tape_systems_were_at_it(own_grid, tape, place):
    own_grid.here.append('\n[[transfer.messages]]\nname = "told"\nfile = "state/told.jsonl"\n')
    for site in own_grid.sites:
        hurry(site)
        site.start()
    source, target = tape.put_on_tape(f"{place}/f", DATA), tape.url + f"{place}/g"
    job = own_grid.service.submit((source, target), bring_online=600, archive_timeout=600)
    own_grid.service.wait_finished(job)
    file = own_grid.here.directory / "state/told.jsonl"

    def told():
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [(line["message"].rpartition("_")[2], line["body"]) for line in lines]

    def ended():
        return [body for kind, body in told() if kind == "state" and body["file_state"] == "FINISHED"]

    eventually("the end is told", ended)
    states = [body for kind, body in told() if kind == "state"]
    assert [body["file_state"] for body in states] == [
        "STAGING",
        "STARTED",
        "SUBMITTED",
        "ACTIVE",
        "ARCHIVING",
        "FINISHED",
    ]
    assert [body["job_state"] for body in states] == [
        "STAGING",
        "STAGING",
        "SUBMITTED",
        "ACTIVE",
        "ARCHIVING",
        "FINISHED",
    ]
    last = states[-1]
    assert last["staging"] is True and last["archiving"] is True
    assert last["submit_time"] <= last["staging_start"] <= last["staging_finished"] <= last["archiving_start"]
    assert last["archiving_start"] <= last["archiving_finished"] == last["timestamp"]
    [complete] = [body for kind, body in told() if kind == "complete"]
    assert (complete["is_archiving"], complete["t_final_transfer_state"]) == (True, "Ok")
