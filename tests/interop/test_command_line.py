"""Our own command line against running sites: what it prints, and the exit codes that scripts rely on."""

import json
import os
import subprocess

import pytest

from .clients import adler32, content
from .fault_server import Throttle
from .waiting import eventually

NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def penstock(grid, binary):
    """Runs a command; gives back what it printed, as a value with `json=True`."""

    def run(*words, exit_code=0, dir=grid.here.directory, json_output=False, **environment):
        line = [binary, *(["--json"] if json_output else []), *words, *(["--dir", dir] if dir else [])]
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment}
        done = subprocess.run(
            list(map(str, line)), env=environment, capture_output=True, text=True, timeout=90
        )
        assert done.returncode == exit_code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout) if json_output else done.stdout + done.stderr

    return run


@pytest.fixture
def job_list(grid, place, tmp_path):
    """A list of five files, as people write it."""
    lines = ["# source destination checksum"]
    for number in range(5):
        data = content((place, number), 10_000 * number)
        grid.here_door.put(f"{place}/in/{number}", data)
        source, destination = f"{place}/in/{number}", f"{place}/out/{number}"
        lines.append(
            f"{grid.here_door.url(source)} {grid.there_door.url(destination)} ADLER32:{adler32(data)}"
        )
    path = tmp_path / "list.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_list_is_submitted_waited_for_and_told(penstock, grid, place, job_list):
    told = penstock("submit", "--jobfile", job_list, "--files-per-job", "2", "--wait", json_output=True)
    jobs = job_ids(told)
    assert len(jobs) == 3
    for number in range(5):
        assert grid.there_door.get(f"{place}/out/{number}") == content((place, number), 10_000 * number)
    shown = penstock("status", "--files", *jobs)
    assert shown.count("FINISHED") >= 3
    assert all(job in json.dumps(penstock("status", *jobs, json_output=True)) for job in jobs)


def job_ids(value):
    """Every job id in an answer, whatever its shape."""
    if isinstance(value, dict):
        own = [value["job_id"]] if isinstance(value.get("job_id"), str) else []
        return list(dict.fromkeys(own + [job for item in value.values() for job in job_ids(item)]))
    if isinstance(value, list):
        ids = [
            item
            for item in value
            if isinstance(item, str) and len(item) == len(NOBODY) and item.count("-") == 4
        ]
        return list(dict.fromkeys(ids + [job for item in value for job in job_ids(item)]))
    return []


def test_a_submission_that_fails_ends_with_1_and_its_reason(penstock, grid, place):
    source, destination = grid.here_door.url(f"{place}/nothing"), grid.there_door.url(f"{place}/b")
    shown = penstock("submit", "--wait", source, destination, exit_code=1)
    assert "No such file or directory" in shown


def test_a_waiting_job_is_listed_explained_and_canceled(penstock, grid, faulty, place):
    data = content(place, 1_000_000)
    throttle = Throttle(data, bytes_per_second=20_000)
    source = faulty.offer(f"{place}/a", data, get=throttle)
    [job] = job_ids(penstock("submit", source, grid.there_door.url(f"{place}/b"), json_output=True))
    grid.service.wait_state(job, "ACTIVE")
    assert job in penstock("list")
    assert job in json.dumps(penstock("list", json_output=True))
    assert job not in penstock("list", "--state", "FAILED")
    told = penstock("explain", job, json_output=True)
    assert told["job_id"] == job and told["job_state"] == "ACTIVE"
    assert source in penstock("explain", job)
    assert "CANCELED" in penstock("cancel", job)
    assert penstock("status", job, json_output=True) and "CANCELED" in penstock("status", job)
    grid.service.wait_idle()


def test_submit_and_status_tell_the_same_numbers_of_a_job(penstock, grid, place, tmp_path):
    sizes = [10_000, 20_000]
    for number, size in enumerate(sizes):
        grid.here_door.put(f"{place}/in/{number}", content((place, number), size))
    ends = [(f"{place}/in/{number}", f"{place}/out/{number}") for number in range(3)]
    lines = [f"{grid.here_door.url(source)} {grid.there_door.url(destination)}" for source, destination in ends]
    path = tmp_path / "list.txt"
    path.write_text("\n".join(lines) + "\n")
    told = penstock("submit", "--jobfile", path, "--wait", exit_code=1, json_output=True)
    [ended] = told["report"]
    [status] = penstock("status", ended["job_id"], json_output=True)
    assert ended["totals"] == status["totals"]
    totals = status["totals"]
    counts = [totals[name] for name in ("files", "arrived", "failed", "canceled", "not_used", "arrived_bytes")]
    assert counts == [3, 2, 1, 0, 0, sum(sizes)]
    assert (totals["bytes_per_second"] is None) == (totals["seconds"] == 0), totals
    assert "2 of 3 files arrived, 30.0 kB in" in penstock("status", ended["job_id"])


def test_the_message_of_a_ban_reaches_users(penstock, grid, place):
    banned, why = grid.there.storage_id, "disks are replaced"
    ends = grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/b")
    grid.here_door.put(f"{place}/a", b"data")
    penstock("ban", "se", banned, "--wait", "--allow-submit", "--message", why)
    try:
        [job] = job_ids(penstock("submit", *ends, json_output=True))
        for words in (["status"], ["status", "--files"], ["explain"]):
            assert "has been banned by the operators" in (shown := penstock(*words, job)) and why in shown
        [told] = penstock("status", job, json_output=True)
        [group] = told["waiting"]
        assert (group["files"], group["state"]) == (1, "ON_HOLD") and why in group["text"]
        penstock("ban", "se", banned, "--message", why)
        assert f"Storage banned: {why}" in penstock("status", "--files", job)
        assert f"{banned} is banned: {why}" in penstock("submit", *ends, exit_code=3)
    finally:
        penstock("ban", "remove", banned)


@pytest.mark.parametrize("command", ["status", "cancel", "explain"])
def test_an_unknown_job_ends_with_4(penstock, command):
    penstock(command, NOBODY, exit_code=4)


def test_a_list_that_cannot_be_read_ends_with_2_and_names_the_line(penstock, tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("https://127.0.0.2/a https://127.0.0.3/b\nonly-one-word\n")
    shown = penstock("submit", "--jobfile", path, exit_code=2)
    assert "line 2" in shown and "only-one-word" in shown


def test_no_token_and_a_weak_one_end_with_3(penstock, grid, place):
    trust = ["--capath", str(grid.here.certificates)]
    penstock("ls", grid.here_door.url("/"), *trust, dir=None, exit_code=3, XDG_RUNTIME_DIR="/nonexistent")
    weak = grid.here.token("storage.read:/elsewhere")
    penstock("ls", grid.here_door.url("/"), *trust, dir=None, exit_code=3, BEARER_TOKEN=weak)
    penstock("ls", grid.here_door.url("/"), *trust, dir=None, BEARER_TOKEN=grid.token)


def test_a_service_that_is_not_there_ends_with_5(penstock):
    penstock("list", "--service", "https://127.0.0.2:9", exit_code=5)


def test_an_unknown_option_ends_with_2(penstock):
    penstock("list", "--no-such-option", exit_code=2)


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "tree"
    for number, name in enumerate(["a", "b c", "d/e", "d/f/g%41", "empty"]):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(name, 50_000 * number) if name != "empty" else b"")
    return top


def files_of(top):
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_a_tree_is_copied_up_and_down_again(penstock, grid, place, tree, tmp_path):
    penstock("copy", tree, grid.here_door.url(place))
    back = tmp_path / "back"
    penstock("copy", grid.here_door.url(place), back)
    assert files_of(back) == files_of(tree)
    again = penstock("copy", tree, grid.here_door.url(place), json_output=True)
    assert again, "a second copy finds everything there"


def test_a_copy_that_meets_other_content_fails_unless_it_may_replace(penstock, grid, place, tree):
    penstock("copy", tree, grid.here_door.url(place))
    (tree / "a").write_bytes(b"changed")
    code = penstock("copy", tree / "a", grid.here_door.url(f"{place}/a"), exit_code=1)
    assert "a" in code
    penstock("copy", "--overwrite", tree / "a", grid.here_door.url(f"{place}/a"))
    assert grid.here_door.get(f"{place}/a") == b"changed"


def test_files_are_listed_shown_and_removed(penstock, grid, place):
    url = grid.here_door.url
    penstock("mkdir", "-p", url(f"{place}/x/y"))
    grid.here_door.put(f"{place}/x/y/f", b"hello\n")
    assert "f" in penstock("ls", "-r", url(place)).split("/")[-1]
    assert "6" in penstock("stat", url(f"{place}/x/y/f"))
    assert penstock("cat", url(f"{place}/x/y/f")) == "hello\n"
    assert adler32(b"hello\n") in penstock("checksum", url(f"{place}/x/y/f"))
    for word in ("cat", "checksum"):
        said = penstock(word, url(f"{place}/x"), exit_code=2)
        assert "is a directory" in said and "<" not in said, said
    penstock("rm", url(f"{place}/x/y/nothing"), exit_code=4)
    penstock("rm", "-r", url(f"{place}/x"))
    penstock("stat", url(f"{place}/x"), exit_code=4)


def test_check_finds_nothing_wrong_and_a_misspelt_key(penstock, grid, own_grid):
    penstock("check")
    own_grid.here.configure("[[storage.pool]]", mover_max=3)
    assert "mover_max" in penstock("check", dir=own_grid.here.directory, exit_code=2)


def test_a_waiting_submission_can_be_interrupted_and_the_job_goes_on(grid, binary, faulty, place):
    data = content(place, 500_000)
    throttle = Throttle(data, bytes_per_second=50_000)
    source = faulty.offer(f"{place}/a", data, get=throttle)
    line = [
        binary,
        "submit",
        "--wait",
        "--dir",
        grid.here.directory,
        source,
        grid.there_door.url(f"{place}/b"),
    ]
    waiting = subprocess.Popen(
        list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        eventually("bytes move", lambda: throttle.sent > 0)
        waiting.send_signal(2)
        shown, _ = waiting.communicate(timeout=20)
        assert waiting.returncode == 130, shown
    finally:
        waiting.kill()
        waiting.wait()
    throttle.open()
    eventually("it arrives all the same", lambda: grid.there_door.exists(f"{place}/b"))
    assert grid.there_door.get(f"{place}/b") == data
