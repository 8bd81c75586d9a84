"""Why a rate fell: asked of a service over REST and by command, and of the record of a site that is stopped."""

import json
import time

import pytest

from .clients import Service, content
from .waiting import eventually

DATA = content("explained", 200_000)
MANY, FEW = 8, 2
# Long enough for a usual rate, and for a low one, with an interval of a second.
USUAL_SECONDS, LOW_SECONDS = 9, 7


def slowly(exchange):
    """A file that takes a while, so that a rate follows from the number of transfers."""
    time.sleep(0.35)
    exchange.reply(200, DATA)


@pytest.fixture
def admin(own_grid):
    for site in own_grid.sites:
        site.start()
    return Service(own_grid.here, own_grid.here.token("penstock.admin", subject="root"))


def limit(admin, grid, faulty, slots):
    rule = {
        "symbolicname": "explained",
        "source": faulty.url.rsplit(":", 1)[0],
        "destination": grid.there.storage_id,
        "min_active": 1,
        "max_active": slots,
    }
    answer = admin.ask("POST", "/config/links", json=rule)
    assert answer.ok, answer.text


@pytest.fixture
def lowered(own_grid, admin, faulty, place):
    """A link whose limit was lowered while files were queued."""
    limit(admin, own_grid, faulty, MANY)
    source = faulty.offer(f"{place}/source", DATA, get=slowly)
    pairs = [(source, own_grid.there_door.url(f"{place}/{number}")) for number in range(300)]
    job = own_grid.service.submit(*pairs)
    eventually("copies run", lambda: own_grid.service.overview()["totals"]["finished"] > 0)
    time.sleep(USUAL_SECONDS)
    limit(admin, own_grid, faulty, FEW)
    time.sleep(LOW_SECONDS)
    return job


def test_a_lowered_limit_is_found_explained_and_told_to_everybody_as_far_as_they_may_see(own_grid, admin, lowered):
    grid = own_grid
    window = "seconds=60&resolution=1"

    def asked(who=admin, path=""):
        answer = who.ask("GET", f"/api/v1/explain{path}?{window}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    told = eventually("the drop is found", lambda: asked() if asked()["drops"] else None)
    [drop] = told["drops"]
    assert drop["population"]["link"]["destination"] == grid.there.storage_id
    assert drop["low_bytes_per_second"] < drop["usual_bytes_per_second"] / 2
    first = drop["causes"][0]
    assert (first["code"], first["share_percent"] > 50) == ("SLOTS", True), drop
    shares = sum(cause["share_percent"] for cause in drop["causes"]) + drop["unexplained_percent"]
    assert abs(shares - 100) < 0.5, drop

    # The id still names it a little later.
    whole = asked(path=f"/{drop['id']}")
    assert whole["id"] == drop["id"] and whole["causes"][0]["code"] == "SLOTS"
    [change] = [row for row in whole["details"][0]["evidence"] if "instead of 8" in row["text"]]
    assert change["text"].endswith("by root"), change
    assert whole["details"][0]["fix"]["gain_percent"] > 50
    assert f"drop {drop['id']}" in whole["text"]
    # Who set it is for administrators.
    shown = asked(grid.service, f"/{drop['id']}")
    # The drop goes on, so that shares may move a little.
    assert shown["causes"][0]["code"] == "SLOTS" and "by root" not in json.dumps(shown)

    for name in ("00000000-00000000", "x"):
        unknown = admin.ask("GET", f"/api/v1/explain/{name}")
        assert unknown.status_code == 404 and "penstock explain --since" in unknown.text
    for query in ("?seconds=0", "?resolution=x", "?until=-1", "?link=nowhere", "?link=" + "-" * 30_000):
        assert admin.ask("GET", f"/api/v1/explain{query}").status_code == 400, query

    # By command.
    fine = ("--since", "1m", "--resolution", "1s")
    listed = grid.here.command("explain", *fine)
    assert f"drop {drop['id']}" in listed and "[SLOTS]" in listed, listed
    one = grid.here.command("explain", "drop", drop["id"], *fine)
    assert "instead of 8" in one and "expected gain of the first fix" in one, one
    other_way = f"{grid.there.storage_id.split('//')[1]}-*"
    none = grid.here.command("explain", *fine, "--link", other_way)
    assert f"no transfers on a link '{other_way}'" in none, none
    [transfer] = json.loads(grid.here.command("find", "--json", "--limit", "1"))["transfers"]

    # All that goes into the storage element, and each link of the VO.
    into = json.loads(grid.here.command("explain", "server", grid.there.storage_id.split("//")[1], *fine, "--json"))
    [into] = [row for row in into["drops"] if row["population"] == {"into": grid.there.storage_id}]
    assert into["causes"][0]["code"] == "SLOTS" and into["id"] != drop["id"], into
    one = grid.here.command("explain", "drop", into["id"], *fine)
    assert f"into {grid.there.storage_id}" in one and "expected gain of the first fix" in one, one
    of_vo = json.loads(grid.here.command("explain", *fine, "--vo", transfer["vo"], "--json"))
    assert drop["id"] in [row["id"] for row in of_vo["drops"]], of_vo
    for option, text in (("--vo", "no transfers of VO"), ("--server", "to or from"), ("--pool", "no pool 'nowhere'")):
        assert text in grid.here.command("explain", *fine, option, "nowhere"), option
    story = json.loads(grid.here.command("explain", "file", transfer["destination"], "--json"))
    assert story["transfer"] == transfer["transfer"]

    # The record alone tells the same.
    grid.service.ask("DELETE", f"/jobs/{lowered}")
    begin = drop["from"] - (USUAL_SECONDS + 2) * 1000
    grid.here.stop()
    since = f"{int(time.time() - begin / 1000)}s"
    told = json.loads(grid.here.command("explain", "--offline", "--json", "--since", since, "--resolution", "1s"))
    assert "SLOTS" in [row["causes"][0]["code"] for row in told["drops"] if row["from"] <= drop["to"]], told
