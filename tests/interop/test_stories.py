"""Any transfer, found and told: by the REST interface, by command, and by the questions of FTS's web monitor."""

import json

import pytest

from .clients import Endpoint, Service, content
from .fault_server import stalled
from .waiting import eventually

DATA = content("stories", 30_000)


@pytest.fixture
def admin(grid):
    return Service(grid.here, grid.here.token("penstock.admin", subject="root"))


@pytest.fixture
def stranger(grid):
    return Service(grid.here, grid.there.token())


@pytest.fixture
def ended(grid, place):
    """A job of a file that arrived and one that failed."""
    grid.here_door.put(f"{place}/good", DATA)
    pairs = [(grid.here_door.url(f"{place}/{name}"), grid.there_door.url(f"{place}/{name}")) for name in ("good", "gone")]
    job = grid.service.submit(*pairs, retry=-1)
    assert grid.service.wait(job)["job_state"] == "FINISHEDDIRTY"
    return job


def numbers(answer):
    assert answer.status_code == 200, answer.text
    return [row["transfer"] for row in answer.json()["transfers"]]


def test_a_transfer_is_found_by_what_is_known_of_it(grid, ended, place, admin, stranger):
    good, gone = [file["file_id"] for file in grid.service.files(ended)]

    def found(query, who=grid.service):
        return numbers(who.ask("GET", f"/api/v1/transfers?{query}"))

    assert found(f"q={ended}") == [gone, good]
    assert found(f"q={place}/ GOOD") == [good]
    assert found(f"q={place}&state=failed") == [gone]
    assert found(f"q={place}&host=127.0.0.3&limit=1") == [gone]
    assert found(f"q={place}&before={gone}") == [good]
    assert found(f"q={place}&source={grid.there.storage_id}") == []
    assert found(f"q={good}")[0] == good
    assert found(f"q={place}&within=0", admin) == [gone, good]
    assert found(f"q={place}", stranger) == [] == found(f"q={good}", stranger), "another VO's"
    for query, status in [("limit=x", 400), ("before=-1", 400), ("within=1.5", 400), ("vo=here", 403)]:
        assert stranger.ask("GET", f"/api/v1/transfers?{query}").status_code == status, query
    page = grid.service.ask("GET", f"/api/v1/transfers?q={place}&limit=1").json()
    assert page["next"] == gone and page["transfers"][0]["reason"].startswith("SOURCE [2]")


def test_a_story_tells_each_step_and_the_log_is_the_same(grid, ended, stranger):
    good, gone = [file["file_id"] for file in grid.service.files(ended)]
    story = grid.service.ask("GET", f"/api/v1/transfers/{good}").json()
    assert [step["kind"] for step in story["steps"]] == ["accepted", "attempted", "attempted", "arrived"]
    assert (story["job"], story["state"], story["copied"]["mode"]) == (ended, "FINISHED", "pull")
    last = story["steps"][-1]["text"]
    for part in (f"({len(DATA)} bytes)", "pull, 1 stream", "adler32:", "the time went to", "commit"):
        assert part in last, last
    log = grid.service.ask("GET", f"/jobs/{ended}/files/{gone}/log")
    assert log.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "failed: attempt 1 failed: SOURCE [2]" in log.text and "no further retry" in log.text
    [named] = [file for file in grid.service.files(ended) if file["file_id"] == gone]
    assert named["log_file"] == f"/jobs/{ended}/files/{gone}/log" and named["log_debug"] == 0
    # A number of others is as one that nobody has; a job's id cannot be guessed.
    for path, status in ((f"/api/v1/transfers/{good}", 404), (f"/jobs/{ended}/files/{good}/log", 403)):
        assert stranger.ask("GET", path).status_code == status
        assert Endpoint(grid.service.base, grid.here.certificates).ask("GET", path).status_code == 401
    for path in ("/api/v1/transfers/999999999", "/api/v1/transfers/x", f"/jobs/{ended}/files/1x/log"):
        assert grid.service.ask("GET", path).status_code == 404


def test_no_secret_of_an_address_is_told(grid, faulty, place):
    source = faulty.offer(f"{place}/f", DATA, get=stalled(DATA, after=10)) + "?authz=topsecret"
    job = grid.service.submit((source, grid.there_door.url(f"{place}/f")), timeout=2, retry=-1)
    grid.service.wait(job)
    [file] = grid.service.files(job)
    log = grid.service.ask("GET", f"/jobs/{job}/files/{file['file_id']}/log").text
    story = grid.service.ask("GET", f"/api/v1/transfers/{file['file_id']}").text
    assert f"{place}/f" in log and "authz" not in log + story and "topsecret" not in log + story
    assert numbers(grid.service.ask("GET", "/api/v1/transfers?q=topsecr")) == [], "nobody guesses it either"
    faulty.release()
    grid.service.wait_idle()


def test_what_waits_says_why_and_what_became_of_its_link(own_grid, faulty):
    grid = own_grid
    # Before the start: a running site learns it some time after the signal, when all may have failed by the usual limits.
    grid.here.configure("[transfer]", halt_after=2, halt_delay="10m", retry_delay="1s", active_max_per_link=1)
    for site in grid.sites:
        site.start()
    pairs = []
    for number in range(3):
        pairs.append((f"https://{faulty.host}:1/{number}", grid.there_door.url(f"/{number}")))
    job = grid.service.submit(*pairs, retry=5)
    ids = [file["file_id"] for file in grid.service.files(job)]

    def halted():
        steps = grid.service.ask("GET", f"/api/v1/transfers/{ids[0]}").json()["steps"]
        return [step["text"] for step in steps if step["text"].startswith("the link was halted after ")]

    [text] = eventually("the story tells of the halt", halted)
    assert "a trial transfer starts in" in text

    def last():
        step = grid.service.ask("GET", f"/api/v1/transfers/{ids[0]}").json()["steps"][-1]
        return step["kind"] == "present" and "the link is halted" in step["text"]

    eventually("it waits for the link after its own back-off", last)
    ends = f"source_se=https://{faulty.host}&dest_se={grid.there.storage_id}"
    told = grid.service.ask("GET", f"/fts3/ftsmon/linkinfo?{ends}").json()
    assert told["changes"][0]["event"] == "halted" and told["changes"][0]["last"]["detail"] is None
    grid.service.ask("DELETE", f"/jobs/{job}")


def test_operators_find_and_read_by_command(grid, ended, place):
    good, gone = [file["file_id"] for file in grid.service.files(ended)]
    lines = grid.here.command("find", place).splitlines()
    assert lines[0].startswith(f"{gone}  ") and "FAILED  here" in lines[0] and "SOURCE [2]" in lines[2]
    told = json.loads(grid.here.command("--json", "find", place, "--state", "FINISHED", "--since", "1h"))
    assert [row["transfer"] for row in told["transfers"]] == [good] and told["next"] is None
    assert "older transfers may match: continue with --before" in grid.here.command("find", place, "--limit", "1")
    assert "no match in" in grid.here.command("find", f"{place}-nothing")
    story = grid.here.command("explain", str(good))
    assert f"transfer {good} is FINISHED, 30.0 kB" in story and "arrived by attempt 1" in story
    assert "arrived" in grid.here.command("explain", ended), "a job is still explained as one"


def test_the_monitor_s_questions_are_answered(grid, ended, place, admin, stranger):
    def asked(path, who=grid.service):
        answer = who.ask("GET", f"/fts3/ftsmon/{path}")
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json()

    here, there = grid.here.storage_id, grid.there.storage_id
    ends = f"source_se={here}&dest_se={there}"
    seen = asked(f"overview?{ends}")
    [row] = seen["overview"]["items"]
    assert (row["source_se"], row["dest_se"], row["vo_name"]) == (here, there, "here") and seen["complete"]
    assert row["finished"] >= 1 and row["failed"] >= 1 and 0 < row["rate"] < 100
    assert asked("overview/activities")["activities"]["default"]["finished"] >= 1
    jobs = asked("jobs?page_size=2")
    assert jobs["items"][0]["job_id"] == ended and (jobs["page"], jobs["pageSize"]) == (1, 2)
    assert asked(f"jobs/{ended}")["states"] == {"FAILED": 1, "FINISHED": 1}
    assert len(asked(f"jobs/{ended}/files?page_size=1")["files"]["items"]) == 1
    assert asked("transfers?page_size=1")["items"][0]["job"] == ended
    assert asked(f"errors?{ends}")["items"][0]["count"] >= 1
    listed = asked("errors/list?reason=No such file")["errors"]["items"]
    assert f"{place}/gone" in {row["destination"].partition(":8")[2] for row in listed} or any(
        f"{place}/gone" in row["destination"] for row in listed
    )
    assert asked("stats")["summary"]["finished"] >= 1 and "here" in asked("stats/vo")["vos"]
    [server] = asked("stats/servers", admin).values()
    assert server["status"] == "running"
    assert here in asked("unique/sources") and asked("unique/vos") == ["here"]
    assert "default" in asked("unique/activities") and len(asked("unique/hostnames")) == 1
    assert asked("version")["name"] == "penstock"
    assert {row["dest_se"] for row in asked(f"optimizer?{ends}", admin)["items"]} == {there}
    for kind in ("links", "storages", "audit", "server", "ops", "gfal2", "activities"):
        asked(f"config/{kind}", admin)
        assert grid.service.ask("GET", f"/fts3/ftsmon/config/{kind}").status_code == 403
    assert asked("transfers", stranger)["items"] == [], "another VO's"
    assert stranger.ask("GET", f"/fts3/ftsmon/jobs/{ended}").status_code == 403
    for path, status in [("page=0", 400), ("page_size=9999", 400), ("time_window=x", 400), ("vo=here", 403)]:
        assert stranger.ask("GET", f"/fts3/ftsmon/jobs?{path}").status_code == status
    anyone = Endpoint(grid.service.base, grid.here.certificates)
    assert anyone.ask("GET", "/fts3/ftsmon/overview").status_code == 401
    led = anyone.ask("GET", "/fts3/ftsmon/")
    assert (led.status_code, led.headers["Location"]) == (307, "/live/")
