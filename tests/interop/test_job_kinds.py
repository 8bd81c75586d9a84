"""Jobs whose files depend on each other, as Rucio submits them: several replicas of one file, and several hops."""

import pytest

from .clients import adler32, content
from .fault_server import refused

DATA = content("kinds", 200_000)


def states(grid, job):
    return [file["file_state"] for file in grid.service.files(job)]


@pytest.fixture
def replicas(grid, faulty, place):
    """One file at a source that is broken and at one that works; the destination."""
    broken = faulty.offer(f"{place}/broken", DATA)
    faulty.answers["HEAD", f"{place}/broken"] = refused(404)
    grid.here_door.put(f"{place}/good", DATA)
    return broken, grid.here_door.url(f"{place}/good"), grid.there_door.url(f"{place}/copy")


def test_the_next_replica_is_taken_when_one_fails(grid, place, replicas):
    broken, good, target = replicas
    entry = {"sources": [broken, good], "destinations": [target], "selection_strategy": "orderly"}
    job = grid.service.submit(entry)
    seen = grid.service.wait_finished(job)
    assert seen["job_type"] == "R"
    assert states(grid, job) == ["FAILED", "FINISHED"]
    assert [file["file_index"] for file in grid.service.files(job)] == [0, 0]
    assert grid.there_door.get(f"{place}/copy") == DATA


def test_what_is_not_needed_stays_unused(grid, place, replicas):
    broken, good, target = replicas
    entry = {"sources": [good, broken], "destinations": [target], "selection_strategy": "orderly"}
    job = grid.service.submit(entry)
    grid.service.wait_finished(job)
    assert states(grid, job) == ["FINISHED", "NOT_USED"]
    unused = grid.service.files(job)[1]
    assert unused["finish_time"] is None and unused["start_time"] is None


def test_a_job_fails_when_no_replica_works(grid, faulty, replicas):
    broken, _, target = replicas
    job = grid.service.submit({"sources": [broken, broken + "2"], "destinations": [target]}, retry=-1)
    assert grid.service.wait(job)["job_state"] == "FAILED"
    assert states(grid, job) == ["FAILED", "FAILED"]


def test_a_file_goes_its_way_hop_by_hop(grid, place):
    grid.here_door.put(f"{place}/a", DATA)
    way = [
        grid.here_door.url(f"{place}/a"),
        grid.there_door.url(f"{place}/b"),
        grid.here_door.url(f"{place}/c"),
        grid.there_door.url(f"{place}/d"),
    ]
    job = grid.service.submit(*zip(way, way[1:]), multihop=True)
    seen = grid.service.wait_finished(job)
    assert (seen["job_type"], seen["source_se"], seen["dest_se"]) == (
        "H",
        grid.here.storage_id,
        grid.there.storage_id,
    )
    assert states(grid, job) == ["FINISHED"] * 3
    assert grid.there_door.get(f"{place}/d") == DATA


def test_a_hop_that_fails_leaves_those_after_it_unused(grid, place):
    way = [grid.here_door.url(f"{place}/missing"), grid.there_door.url(f"{place}/b")]
    way.append(grid.here_door.url(f"{place}/c"))
    job = grid.service.submit(*zip(way, way[1:]), multihop=True)
    assert grid.service.wait(job)["job_state"] == "FAILED"
    assert states(grid, job) == ["FAILED", "NOT_USED"]


def test_what_is_in_the_way_of_a_hop_is_replaced_when_asked_and_the_last_one_is_spared(grid, place):
    grid.here_door.put(f"{place}/a", DATA)
    grid.there_door.put(f"{place}/b", b"old")
    way = [grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/b")]
    way.append(grid.here_door.url(f"{place}/c"))
    job = grid.service.submit(*zip(way, way[1:]), multihop=True, overwrite_hop=True)
    seen = grid.service.wait_finished(job)
    assert seen["overwrite_flag"] == "M"
    assert grid.here_door.get(f"{place}/c") == DATA
    again = grid.service.submit(*zip(way, way[1:]), multihop=True, overwrite_hop=True)
    assert grid.service.wait(again)["job_state"] == "FAILED"
    assert states(grid, again) == ["FINISHED", "FAILED"]


def test_what_does_not_fit_together_is_refused(grid, replicas):
    broken, good, target = replicas
    two = {"sources": [broken, good], "destinations": [target]}
    for files, params, text in [
        ([two], {"multihop": True}, "multihop"),
        ([two, (good, target)], {}, "that file only"),
        ([two | {"selection_strategy": "best"}], {}, "selection_strategy"),
        ([two | {"source_tokens": ["one"]}], {}, "source_tokens"),
        ([(good, target)], {"overwrite_hop": True}, "overwrite_hop"),
    ]:
        answer = grid.service.try_submit(*files, **params)
        assert answer.status_code == 400 and text in answer.json()["message"], answer.text


def test_files_of_one_session_stand_for_themselves(grid, place):
    """FTS loses a whole session with one process; its label is kept, its penalty is not."""
    grid.here_door.put(f"{place}/a", DATA)
    pairs = [(grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/session/{n}")) for n in range(5)]
    pairs.append((grid.here_door.url(f"{place}/none"), grid.there_door.url(f"{place}/session/none")))
    job = grid.service.submit(*pairs, reuse=True, retry=-1)
    seen = grid.service.wait(job)
    assert (seen["job_type"], seen["job_state"]) == ("Y", "FINISHEDDIRTY")
    assert states(grid, job) == ["FINISHED"] * 5 + ["FAILED"]


@pytest.mark.parametrize("given, expected", [(None, {}), ({"scope": "x"}, {"scope": "x"})])
def test_a_file_that_was_in_the_way_is_told_when_asked(grid, place, given, expected):
    grid.here_door.put(f"{place}/a", DATA)
    grid.there_door.put(f"{place}/b", b"older")
    pair = {"sources": [grid.here_door.url(f"{place}/a")], "destinations": [grid.there_door.url(f"{place}/b")]}
    pair["metadata"] = given
    silent = grid.service.submit(pair, retry=-1)
    job = grid.service.submit(pair, retry=-1, dst_file_report=True)
    assert grid.service.wait_failed(silent) == grid.service.wait_failed(job)
    assert "dst_file" not in (grid.service.files(silent)[0]["file_metadata"] or {})
    told = grid.service.files(job)[0]["file_metadata"]
    found = told.pop("dst_file")
    assert told == expected
    assert found == {
        "file_size": 5,
        "checksum_type": "ADLER32",
        "checksum_value": adler32(b"older"),
        "file_on_tape": False,
        "file_on_disk": True,
    }
    assert grid.service.job(job)["dst_file_report"] is True
