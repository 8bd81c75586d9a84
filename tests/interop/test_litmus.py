"""litmus, the suite of the WebDAV project, on our door: each of its tests passes, with a user's certificate
over TLS and, through a relay that adds it, with a token.
"""

import re
import subprocess

import pytest

from . import golden
from .relay import Relay

SUITES = {"basic": 16, "copymove": 13, "props": 30, "locks": 41, "http": 4}
RESULT = re.compile(r" *(\d+)\. (\w+)\.* (pass|FAIL|SKIPPED|WARNING)\b(.*)")


@pytest.fixture
def litmus(field, place, tmp_path):
    """Runs one suite in a directory of its own."""
    field.door(field.here).ask("MKCOL", place)

    def run(suite, base, *options):
        line = ["litmus", "-k", *options, f"{base}{place}"]
        environment = field.environment("token") | {"TESTS": suite}
        # It writes its own logs to where it is.
        line = [str(word) for word in line]
        options = {"capture_output": True, "text": True, "timeout": 120}
        done = subprocess.run(line, env=environment, cwd=tmp_path, **options)
        results = results_of(done.stdout)
        assert len(results) == SUITES[suite], f"exit {done.returncode}\n{done.stdout}{done.stderr}"
        return results

    return run


def results_of(output):
    """What became of each test, by number and name. A line is written anew when its test has ended."""
    found = {}
    for line in re.split(r"[\r\n]+", output):
        if match := RESULT.match(line):
            number, name, result, why = match.groups()
            found[f"{number} {name}"] = result + why
        else:
            assert "WARNING" not in line, line
    return found


@pytest.mark.parametrize("suite", SUITES)
def test_litmus_passes_with_a_certificate(field, litmus, tmp_path, suite):
    results = litmus(suite, field.here.door, "-c", field.user.pkcs12(tmp_path / "user.p12"))
    failed = {name: result for name, result in results.items() if result != "pass"}
    # This one of its tests knows no TLS; the other way it runs.
    expected = {"2 expect100": "SKIPPED (skipping for SSL server)"} if suite == "http" else {}
    assert failed == expected


def test_litmus_passes_with_a_token(field, litmus, request):
    site = field.here
    with Relay(site.host, site.base + 1, {"Authorization": f"Bearer {field.token}"}) as relay:
        results = {suite: litmus(suite, relay.url) for suite in SUITES}
    assert {result for suite in results.values() for result in suite.values()} == {"pass"}, results
    golden.check("litmus", results, request.config.getoption("--write-golden"))
