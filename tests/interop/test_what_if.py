"""What another limit would have brought, told from the record of a real site that is stopped."""

import json
import subprocess
import time
from datetime import UTC, datetime

from .test_explanations import DATA, FEW, LOW_SECONDS, MANY, USUAL_SECONDS, slowly
from .test_explanations import admin, lowered  # noqa: F401: fixtures
from .waiting import eventually


def moment(milliseconds):
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def what_if(site, *words, code=0):
    line = [str(site.binary), "what-if", "--dir", str(site.directory), *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"{' '.join(line)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def test_a_recorded_site_is_replayed_and_a_limit_brings_what_it_did_bring(own_grid, lowered):  # noqa: F811
    grid = own_grid
    fine = ("--since", "1m", "--resolution", "1s")

    def drops():
        return json.loads(grid.here.command("explain", "--offline", "--json", *fine))["drops"]

    [drop, *_] = eventually("the drop is found", drops)
    grid.service.ask("DELETE", f"/jobs/{lowered}")
    grid.here.stop()

    window = ("--since", moment(drop["from"] - (USUAL_SECONDS + 2) * 1000), "--until", moment(drop["to"] + 1000))
    link = f"{drop['population']['link']['source']} {grid.there.storage_id}"
    words = (*window, "--set", f"link {link} active={MANY}", "--set", f"storage {grid.there.storage_id} rate=x2")
    told = json.loads(what_if(grid.here, *words, "--json"))
    assert told["transfers"] > 60 and told["error_percent"] <= 25, told
    [lifted, faster] = told["alternatives"]
    # For half of the time a quarter of the transfers could run.
    assert lifted["gain_percent"] > 15, told
    assert lifted["links"][0]["limiting"]["slots"] == "link", told
    assert abs(faster["gain_percent"]) < 15, told
    assert json.loads(what_if(grid.here, *words, "--json")) == told
    text = what_if(grid.here, *words)
    assert "replayed within" in text and f"link {link} active={MANY}: +" in text, text

    # The fix that the explainer has for the drop.
    fixed = ("--fix", drop["id"], "--resolution", "1s")
    [fix] = json.loads(what_if(grid.here, *window, *fixed, "--json"))["alternatives"]
    assert fix["change"].startswith(f"link {link} active=") and fix["gain_percent"] > 15, fix

    # Without a time the drop alone is replayed …
    [alone] = json.loads(what_if(grid.here, *fixed, "--json"))["alternatives"]
    assert alone["change"] == fix["change"] and alone["gain_percent"] > 0.5, alone
    # … and who does not say in which intervals it was found is told to.
    refused = what_if(grid.here, "--fix", drop["id"], code=4)
    assert f"no drop '{drop['id']}'" in refused and "in intervals of 60 s; give --resolution" in refused, refused
    refused = what_if(grid.here, "--since", "2030-01-01T00:00:00Z", "--until", "2030-01-02T00:00:00Z", code=4)
    assert "0 transfers" in refused and "longer window" in refused, refused
    refused = what_if(grid.here, "--fix", "00000000-00000000", code=4)
    assert "no drop '00000000-00000000' in the record of this time" in refused, refused
    refused = what_if(grid.here, *window, "--set", "link nowhere-elsewhere active=1", code=2)
    assert "there are" in refused, refused


def test_a_lowered_limit_of_a_storage_element_is_named(own_grid, admin, faulty, place):  # noqa: F811
    grid, element = own_grid, own_grid.there.storage_id

    def limit(slots):
        answer = admin.ask("POST", "/config/se", json={element: {"se_info": {"inbound_max_active": slots}}})
        assert answer.ok, answer.text

    limit(MANY)
    source = faulty.offer(f"{place}/source", DATA, get=slowly)
    pairs = [(source, grid.there_door.url(f"{place}/{number}")) for number in range(300)]
    job = grid.service.submit(*pairs)
    eventually("copies run", lambda: grid.service.overview()["totals"]["finished"] > 0)
    time.sleep(USUAL_SECONDS)
    limit(FEW)
    time.sleep(LOW_SECONDS)
    fine = ("--since", "1m", "--resolution", "1s")

    def drops():
        return json.loads(grid.here.command("explain", "--offline", "--json", *fine))["drops"]

    [drop, *_] = eventually("the drop is found", drops)
    one = grid.here.command("explain", "drop", drop["id"], "--offline", *fine)
    assert f"inbound limit at {element}: {FEW} instead of {MANY}" in one, one
    grid.service.ask("DELETE", f"/jobs/{job}")
    grid.here.stop()
    # A limit of a storage element is replayed as it was at the end, so that a window over its change does not fit.
    begin, end = drop["from"] - (USUAL_SECONDS + 2) * 1000, drop["to"] + 1000
    refused = what_if(grid.here, "--since", moment(begin), "--until", moment(end), code=6)
    assert "the window cannot be replayed" in refused, refused
