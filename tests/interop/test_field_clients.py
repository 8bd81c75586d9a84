"""What people have installed: curl, rclone and davix, each with a token on our door."""

import os
import subprocess

import pytest

from .clients import Door, content

DATA = content("field clients", 400_000)


@pytest.fixture
def local(tmp_path):
    path = tmp_path / "local"
    path.write_bytes(DATA)
    return path


def run(*line, **environment):
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment}
    return subprocess.run(list(map(str, line)), env=environment, capture_output=True, text=True, timeout=60)


def succeed(*line, **environment):
    done = run(*line, **environment)
    assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def curl(grid):
    def ask(*words):
        common = ["curl", "-sS", "--fail-with-body", "--capath", grid.here.certificates]
        return succeed(*common, "-H", f"Authorization: Bearer {grid.token}", *words)

    return ask


def test_curl_puts_lists_gets_moves_and_deletes(grid, place, curl, local, tmp_path):
    url = grid.here_door.url
    curl("-X", "MKCOL", url(place))
    curl("-T", local, url(f"{place}/a"))
    assert f"{place}/a" in curl("-X", "PROPFIND", "-H", "Depth: 1", url(place))
    curl("-o", tmp_path / "back", url(f"{place}/a"))
    assert (tmp_path / "back").read_bytes() == DATA
    curl("-X", "MOVE", "-H", f"Destination: {url(place)}/b", url(f"{place}/a"))
    assert grid.here_door.list(place) == {place: None, f"{place}/b": len(DATA)}
    curl("-X", "DELETE", url(f"{place}/b"))
    assert grid.here_door.list(place) == {place: None}


def test_curl_resumes_and_reads_parts(grid, place, curl, tmp_path):
    grid.here_door.put(f"{place}/a", DATA)
    half = tmp_path / "half"
    half.write_bytes(DATA[:200_000])
    curl("-C", "-", "-o", half, grid.here_door.url(f"{place}/a"))
    assert half.read_bytes() == DATA
    curl("-r", "1000-1999", "-o", tmp_path / "part", grid.here_door.url(f"{place}/a"))
    assert (tmp_path / "part").read_bytes() == DATA[1000:2000]


def test_curl_with_a_file_of_unknown_length_puts_all_of_it(grid, place):
    line = [
        "curl",
        "-sS",
        "--fail-with-body",
        "--capath",
        str(grid.here.certificates),
        "-H",
        f"Authorization: Bearer {grid.token}",
        "-T",
        "-",
        grid.here_door.url(f"{place}/a"),
    ]
    done = subprocess.run(line, input=DATA, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert grid.here_door.get(f"{place}/a") == DATA


@pytest.fixture
def rclone(grid, place, tmp_path):
    def ask(*words):
        return succeed(
            "rclone",
            "--config",
            tmp_path / "rclone.conf",
            "--ca-cert",
            grid.here.directory / "ca/ca.pem",
            "--webdav-vendor",
            "other",
            "--webdav-url",
            grid.here_door.url(place),
            "--webdav-bearer-token",
            grid.token,
            "--retries",
            "1",
            "--low-level-retries",
            "1",
            *words,
        )

    return ask


def test_rclone_copies_lists_moves_and_deletes(grid, place, rclone, local, tmp_path):
    grid.here_door.ask("MKCOL", place)
    rclone("copyto", local, ":webdav:d/a")
    assert "400000" in rclone("lsl", ":webdav:d")
    rclone("copyto", ":webdav:d/a", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == DATA
    rclone("moveto", ":webdav:d/a", ":webdav:d/b")
    assert grid.here_door.list(f"{place}/d") == {f"{place}/d": None, f"{place}/d/b": len(DATA)}
    rclone("deletefile", ":webdav:d/b")
    assert grid.here_door.list(f"{place}/d") == {f"{place}/d": None}


def test_rclone_syncs_a_tree_with_odd_names(grid, place, rclone, tmp_path):
    tree = tmp_path / "tree"
    names = ["plain", "two words", "percent%41", "plus+and&", "ünïcode", "sub/deeper/file", "hash#question?"]
    for name in names:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    grid.here_door.ask("MKCOL", place)
    rclone("sync", tree, ":webdav:t")
    rclone("sync", ":webdav:t", tmp_path / "back")
    back = tmp_path / "back"
    assert {str(path.relative_to(back)) for path in back.rglob("*") if path.is_file()} == set(names)
    assert all((back / name).read_bytes() == name.encode() for name in names)
    rclone("purge", ":webdav:t")
    assert not grid.here_door.exists(f"{place}/t/plain")


@pytest.fixture
def davix(grid):
    """davix has no option for a token, but one for any header."""

    def ask(command, *words, check=True):
        line = [
            f"davix-{command}",
            "--capath",
            grid.here.certificates,
            "-H",
            f"Authorization: Bearer {grid.token}",
        ]
        return succeed(*line, *words) if check else run(*line, *words)

    return ask


def test_davix_puts_lists_gets_moves_and_deletes(grid, place, davix, local, tmp_path):
    url = grid.here_door.url
    davix("mkdir", url(place))
    davix("put", local, url(f"{place}/a"))
    assert f"{len(DATA)}" in davix("ls", "-l", url(place))
    davix("get", url(f"{place}/a"), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == DATA
    # Its exit code is 255 although MOVE was answered by 201 and is done: judged by the file.
    davix("mv", url(f"{place}/a"), url(f"{place}/b"), check=False)
    assert grid.here_door.list(place) == {place: None, f"{place}/b": len(DATA)}
    davix("rm", url(f"{place}/b"))
    assert grid.here_door.list(place) == {place: None}


def test_two_clients_see_each_other_s_files_at_once(grid, place, curl, davix, local, tmp_path):
    curl("-T", local, grid.here_door.url(f"{place}/from-curl"))
    davix("get", grid.here_door.url(f"{place}/from-curl"), tmp_path / "by-davix")
    assert (tmp_path / "by-davix").read_bytes() == DATA
    assert Door(grid.here).list(place) == {place: None, f"{place}/from-curl": len(DATA)}
