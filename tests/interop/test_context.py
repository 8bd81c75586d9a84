"""Named sites, PENSTOCK_DIR, completion and manual pages: what spares people typing."""

import json
import os
import shutil
import stat
import subprocess

import pytest

from .fault_server import FaultServer

COMMANDS_MIN = 40
OTHER_HOST = "127.0.36.21"


@pytest.fixture
def penstock(binary, tmp_path):
    """Runs a command as a user whose settings lie in a directory of this test."""

    def run(*words, exit_code=0, json_output=False, **environment):
        line = [binary, *(["--json"] if json_output else []), *words]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), **environment}
        done = subprocess.run(list(map(str, line)), env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == exit_code, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout) if json_output else done.stdout + done.stderr

    return run


def test_a_context_spares_the_directory_and_gives_way_to_what_is_typed(penstock, grid, tmp_path):
    here, there = grid.here.directory, grid.there.directory

    def name(*words, **options):
        return penstock("check", *words, json_output=True, **options)["config"]["site"]["name"]

    penstock("check", exit_code=2)
    assert name(PENSTOCK_DIR=str(there)) == "there"
    penstock("context", "add", "one", "--dir", here)
    penstock("check", exit_code=2)
    assert name("--context", "one") == "here"
    assert name("--context", "one", PENSTOCK_DIR=str(there)) == "here"
    penstock("context", "add", "two", "--dir", there, "--use")
    assert name() == "there"
    assert name(PENSTOCK_DIR=str(here)) == "here"
    assert name("--dir", here) == "here"
    # As long as the command needs a service, it is that of the context.
    assert penstock("list", json_output=True) == json.loads(json.dumps(penstock("list", "--dir", there, json_output=True)))
    told = penstock("context", "list", json_output=True)
    assert told["current"] == "two" and [one["name"] for one in told["contexts"]] == ["one", "two"]
    assert "* two" in penstock("context", "list")
    file = tmp_path / "home/.config/penstock/contexts.toml"
    assert told["file"] == str(file) and stat.S_IMODE(file.stat().st_mode) == 0o600
    penstock("context", "use")
    penstock("check", exit_code=2)
    penstock("context", "use", "one")
    penstock("context", "remove", "one")
    penstock("check", exit_code=2)
    penstock("context", "remove", "one", exit_code=4)
    penstock("check", "--context", "one", exit_code=4)
    penstock("context", "add", "x", "--dir", tmp_path, exit_code=2)
    penstock("context", "add", "a b", "--dir", here, exit_code=2)
    penstock("context", "add", "empty", exit_code=2)
    elsewhere = tmp_path / "elsewhere"
    penstock("context", "add", "two", "--dir", there, XDG_CONFIG_HOME=str(elsewhere))
    assert (elsewhere / "penstock/contexts.toml").exists()


def test_a_context_of_a_site_elsewhere_brings_its_token(penstock, grid, tmp_path):
    token = tmp_path / "token"
    token.write_text(grid.token)
    words = ["--service", grid.here.service, "--token-file", token, "--capath", grid.here.certificates]
    penstock("context", "add", "remote", *words)
    assert isinstance(penstock("list", "--context", "remote", json_output=True), (list, dict))
    penstock("list", "--context", "remote", "--token", "garbage", exit_code=3)


def test_the_token_of_a_context_goes_to_no_other_server(binary, penstock, grid, fault_ca, tmp_path):
    token, certificates = tmp_path / "token", tmp_path / "certificates"
    token.write_text(grid.token)
    shutil.copytree(grid.here.certificates, certificates)
    (certificates / "faulty.pem").write_bytes(fault_ca.certificate.read_bytes())
    other = FaultServer(OTHER_HOST, fault_ca)
    context = ["--service", grid.here.service, "--token-file", token, "--capath", certificates, "--use"]
    penstock("context", "add", "remote", *context)

    def sent_by(*words):
        """What a command says, and the tokens that it has shown the other server."""
        other.seen.clear()
        line = [binary, *words]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
        done = subprocess.run(list(map(str, line)), env=environment, capture_output=True, text=True, timeout=60)
        assert other.seen, done.stdout + done.stderr
        return done.stderr, {seen.headers.get("Authorization") for seen in other.seen}

    commands = [["ls", f"{other.url}/x"], ["copy", f"{other.url}/x", tmp_path / "x"], ["list", "--service", other.url]]
    try:
        for words in commands:
            told, tokens = sent_by(*words)
            assert tokens == {None} and "is no server of the context" in told, words
        # As long as nobody has typed it, or said so once.
        for words in commands:
            assert sent_by(*words, "--token-file", token)[1] == {f"Bearer {grid.token}"}, words
        penstock("context", "add", "remote", *context, "--token-for", other.url)
        for words in commands:
            assert sent_by(*words)[1] == {f"Bearer {grid.token}"}, words
    finally:
        other.close()
    penstock("context", "add", "nowhere", "--token-file", token, exit_code=2)


def test_a_broken_file_is_told_with_its_name(penstock, tmp_path, grid):
    file = tmp_path / "home/.config/penstock/contexts.toml"
    file.parent.mkdir(parents=True)
    file.write_text("current = 7\n")
    told = penstock("check", exit_code=2, json_output=True)
    assert str(file) in told["error"]
    # It says nothing where something else counts.
    penstock("check", json_output=True, PENSTOCK_DIR=str(grid.here.directory))


def test_shells_complete_commands_and_options(penstock):
    bash = penstock("completion", "bash")
    assert "trust" in bash and "--fingerprint" in bash and "--token-file" in bash
    checked = subprocess.run(["bash", "-n"], input=bash, text=True, capture_output=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    typed = "COMP_WORDS=(penstock tru); COMP_CWORD=1; _penstock penstock tru penstock; echo ${COMPREPLY[@]}"
    # As one argument it would be too long.
    offered = subprocess.run(["bash"], input=f"{bash}\n{typed}\n", text=True, capture_output=True, timeout=60)
    assert offered.stdout.split() == ["trust"], offered.stderr
    assert penstock("completion", "zsh").startswith("#compdef penstock")
    assert "complete -c penstock" in penstock("completion", "fish")
    assert penstock("completion", "fish", json_output=True)["shell"] == "fish"
    penstock("completion", "nosuch", exit_code=2)


def test_each_command_has_a_manual_page(penstock, tmp_path):
    told = penstock("man", tmp_path / "man1", json_output=True)
    pages = {path.name for path in (tmp_path / "man1").iterdir()}
    assert set(told["pages"]) == pages and len(pages) > COMMANDS_MIN
    assert {"penstock.1", "penstock-trust-add.1", "penstock-top.1"} <= pages
    assert not any("gfal" in page for page in pages)
    page = (tmp_path / "man1/penstock-trust-add.1").read_text()
    assert page.startswith(".ie") or ".TH" in page
    assert "fingerprint" in page and "Examples" in page
    if shutil.which("man"):
        shown = subprocess.run(
            ["man", "-l", str(tmp_path / "man1/penstock-trust-add.1")], text=True, capture_output=True, timeout=60
        )
        assert shown.returncode == 0, shown.stderr


def test_the_help_groups_commands_and_tells_of_access_once(penstock):
    whole = penstock("--help")
    for heading in ["Site:", "Files:", "Jobs:", "Settings:", "Explain:", "Tape:", "Tools:", "Access ("]:
        assert f"\n{heading}" in whole, heading
    assert "Further:" not in whole and "bt_u$UID" in whole
    of_one = penstock("ls", "--help")
    assert "bt_u$UID" not in of_one and "--dir" in of_one and "penstock --help" in of_one
