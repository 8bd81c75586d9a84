"""What else FTS's REST interface answers: lists of files, everything stopped at once, the archive, completions."""

import json

import fts3.rest.client.easy as fts3
import pytest
from fts3.rest.client.exceptions import Unauthorized

from .clients import Endpoint, Service, content
from .fault_server import stalled
from .waiting import eventually

DATA = content("surface", 20_000)


@pytest.fixture
def own(own_grid, monkeypatch):
    """Two sites of this test, served, with an administrator of the first one's service."""
    for site in own_grid.sites:
        site.start()
    own_grid.admin = Service(own_grid.here, own_grid.here.token("penstock.admin", subject="root"))
    monkeypatch.setenv("X509_CERT_DIR", str(own_grid.here.certificates))
    return own_grid


@pytest.fixture
def admin(grid):
    return Service(grid.here, grid.here.token("penstock.admin", subject="root"))


def bindings(site, token):
    return fts3.Context(site.service, fts_access_token=token, verify=True, no_creds=False)


def waiting(own, faulty, number, files=3):
    """A job whose files do not move."""
    pairs = []
    for index in range(files):
        source = faulty.offer(f"/{number}-{index}", DATA, get=stalled(DATA, after=10))
        pairs.append((source, own.there_door.url(f"/{number}-{index}")))
    return own.service.submit(*pairs)


def test_the_bindings_stop_everything_of_a_vo_and_of_all(own, faulty):
    jobs = [waiting(own, faulty, number) for number in range(2)]
    own.service.wait_state(jobs[0], "ACTIVE")
    member = bindings(own.here, own.here.token())
    for refused in (lambda: fts3.cancel_all(member), lambda: fts3.cancel_all(member, vo_name="here")):
        with pytest.raises(Unauthorized, match="Not enough permissions"):
            refused()
    root = bindings(own.here, own.here.token("penstock.admin", subject="root"))
    nothing = {"affected_files": 0, "affected_dm": 0, "affected_jobs": 0}
    assert counts(fts3.cancel_all(root, vo_name="nobody")) == nothing
    stopped = {"affected_files": 6, "affected_dm": 0, "affected_jobs": 2}
    assert counts(fts3.cancel_all(root, vo_name="here")) == stopped
    assert [own.service.job(job)["job_state"] for job in jobs] == ["CANCELED"] * 2
    assert {file["reason"] for file in own.service.files(jobs[0])} == {"Job canceled by the user"}
    job = waiting(own, faulty, "last", files=1)
    assert counts(fts3.cancel_all(root))["affected_jobs"] == 1
    assert own.service.job(job)["job_state"] == "CANCELED"
    faulty.release()
    own.service.wait_idle()


def counts(told):
    return json.loads(told) if isinstance(told, str) else told


def test_files_of_several_jobs_are_listed_by_what_they_are(grid, place, admin):
    for number in range(2):
        grid.here_door.put(f"{place}/{number}", DATA)
    pairs = [(grid.here_door.url(f"{place}/{n}"), grid.there_door.url(f"{place}/{n}")) for n in range(3)]
    jobs = [grid.service.submit(pairs[0], pairs[1]), grid.service.submit(pairs[2])]
    for job in jobs:
        grid.service.wait(job)

    def listed(query, service=grid.service):
        answer = service.ask("GET", f"/files?{query}")
        assert answer.status_code == 200, answer.text
        return [row["dest_surl"] for row in answer.json() if f"{place}/" in row["dest_surl"]]

    ended = "state_in=FINISHED,FAILED,CANCELED"
    urls = [pair[1] for pair in pairs]
    assert listed("") == [], "without a state: those that have not ended"
    assert listed(ended) == [urls[2], urls[1], urls[0]]
    assert listed("time_window=1") == [urls[2], urls[1], urls[0]]
    assert listed("state_in=FAILED&vo_name=here") == [urls[2]]
    assert listed(f"{ended}&dest_surl={urls[1]}") == [urls[1]]
    assert listed(f"{ended}&source_se={grid.here.storage_id}:443&limit=1") == [urls[2]]
    assert listed(f"{ended}&dest_se=https://else.lab") == []
    assert listed(ended, admin) == listed(ended)
    [whole] = [row for row in grid.service.ask("GET", "/files?state_in=FINISHED&limit=1").json()]
    assert whole["file_state"] == "FINISHED" and whole["filesize"] == len(DATA)
    stranger = Service(grid.here, grid.there.token())
    assert listed(ended, stranger) == []
    for query, status in [("vo_name=here", 403), ("limit=many", 400), ("time_window=x", 400)]:
        assert stranger.ask("GET", f"/files?{query}").status_code == status


def test_a_job_that_has_ended_is_in_the_archive(grid, faulty, place):
    grid.here_door.put(f"{place}/f", DATA)
    job = grid.service.submit((grid.here_door.url(f"{place}/f"), grid.there_door.url(f"{place}/f")))
    grid.service.wait_finished(job)
    archived = grid.service.ask("GET", f"/archive/{job}").json()
    assert archived["job_state"] == "FINISHED" and len(archived["files"]) == 1
    assert grid.service.ask("GET", f"/archive/{job}/vo_name").json() == "here"
    assert "_links" in grid.service.ask("GET", "/archive").json()
    source = faulty.offer(f"{place}/open", DATA, get=stalled(DATA, after=10))
    job = grid.service.submit((source, grid.there_door.url(f"{place}/open")))
    assert grid.service.ask("GET", f"/archive/{job}").status_code == 404, "it has not ended"
    grid.service.ask("DELETE", f"/jobs/{job}")
    faulty.release()
    grid.service.wait_idle()


def test_what_is_decided_about_links_is_told_to_those_who_may_configure(grid, admin):
    assert grid.service.ask("GET", "/optimizer").json() is True
    decided = {"datetime", "source_se", "dest_se", "active", "throughput", "success", "rationale", "diff", "actual_active"}
    assert all(set(row) >= decided for row in admin.ask("GET", "/optimizer/evolution").json())
    current = admin.ask("GET", "/optimizer/current").json()
    assert all(set(row) >= {"source_se", "dest_se", "active", "ema", "nostreams"} for row in current)
    refused = admin.ask("POST", "/optimizer/current", json={"active": 5})
    assert refused.status_code == 400 and "/config/links" in refused.json()["message"]


def test_names_are_completed(grid, place, admin):
    grid.here_door.put(f"{place}/f", DATA)
    job = grid.service.submit((grid.here_door.url(f"{place}/f"), grid.there_door.url(f"{place}/f")))
    grid.service.wait_finished(job)

    def completed(kind, term, who=grid.service):
        return who.ask("GET", f"/autocomplete/{kind}?term={term}").json()

    eventually("the link is seen", lambda: grid.here.storage_id in completed("source", "https://127"))
    assert grid.there.storage_id in completed("destination", "")
    assert grid.there.storage_id in completed("storage", grid.there.storage_id)
    assert completed("storage", "gopher") == []
    assert completed("vo", "he") == ["here"] == completed("vo", "he", admin)
    assert completed("dn", "") == ["alice"] and set(completed("dn", "", admin)) >= {"alice", "root"}
    assert grid.service.ask("GET", "/autocomplete/nothing").status_code == 404


def test_nothing_is_started_beyond_a_limit(grid, admin):
    [row] = admin.ask("POST", "/admin/force-start", json=[7]).json()
    assert row["file_id"] == 7 and "does not exceed limits" in row["error"]
    assert grid.service.ask("POST", "/admin/force-start", json=[7]).status_code == 403
    assert admin.ask("POST", "/admin/force-start", json={"7": 1}).status_code == 400


def test_the_form_of_a_submission_is_published(grid):
    anyone = Endpoint(grid.service.base, grid.here.certificates)
    schema = anyone.ask("GET", "/api-docs/schema/submit").json()
    assert schema["required"] == ["files"] and "null" in schema["properties"]["params"]["type"]
    assert anyone.ask("GET", "/api-docs").status_code == 404


def test_a_job_may_ask_for_a_version_of_the_internet_protocol(grid, place):
    grid.here_door.put(f"{place}/f", DATA)
    pair = (grid.here_door.url(f"{place}/f"), grid.there_door.url(f"{place}/f"))
    job = grid.service.submit(pair, ipv4=True, timeout=100, nostreams="2")
    done = grid.service.wait_finished(job)
    assert done["internal_job_params"] == "nostreams:2,timeout:100,ipv4"
    pair = (pair[0], grid.there_door.url(f"{place}/g"))
    why = grid.service.wait_failed(grid.service.submit(pair, ipv6=True, retry=-1))
    assert "is no ipv6 address, and the job asks for ipv6" in why, "the sites listen on IPv4 only"
