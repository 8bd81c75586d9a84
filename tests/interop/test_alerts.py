"""Alerts of a drop: a webhook and an Alertmanager are told once, through an outage, and told of its end; mutes."""

import json
import subprocess
import time

import pytest

from .clients import Service, content
from .waiting import eventually

DATA = content("alerts", 200_000)
MANY, FEW = 8, 2
# Long enough for a usual rate with an interval of a second.
USUAL_SECONDS = 9
SECRET = "word-that-only-the-receiver-knows"
SETTINGS = """
[observe.alerts]
webhook = "{webhook}/hook"
webhook_secret_file = "keys/webhook-secret"
alertmanager = "{alertmanager}"
lasting = "4s"
over_after = "5s"
look_every = "1s"
resolution = "1s"
window = "2m"
"""


def slowly(exchange):
    """A file that takes a while, so that a rate follows from the number of transfers."""
    time.sleep(0.35)
    exchange.reply(200, DATA)


class Inbox:
    """What a receiver was sent; while it is away it answers 503."""

    def __init__(self, server, path):
        self.taken, self.refused, self.is_away = [], 0, False
        self.headers = []
        server.answers["POST", path] = self.take

    def take(self, exchange):
        body = json.loads(exchange.read_body())
        self.headers.append(dict(exchange.headers.items()))
        if self.is_away:
            self.refused += 1
            return exchange.reply(503, b"away\n")
        self.taken.append(body)
        return exchange.reply(200)


@pytest.fixture
def hook(elsewhere):
    return Inbox(elsewhere, "/hook")


@pytest.fixture
def manager(faulty):
    return Inbox(faulty, "/api/v2/alerts")


@pytest.fixture
def admin(own_grid, faulty, elsewhere, hook, manager):
    secret = own_grid.here.directory / "keys" / "webhook-secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    own_grid.here.append(SETTINGS.format(webhook=elsewhere.url, alertmanager=faulty.url))
    for site in own_grid.sites:
        site.start()
    return Service(own_grid.here, own_grid.here.token("penstock.admin", subject="root"))


def limit(admin, grid, source, slots, name="alerted"):
    rule = {
        "symbolicname": name,
        "source": source.url.rsplit(":", 1)[0],
        "destination": grid.there.storage_id,
        "min_active": 1,
        "max_active": slots,
    }
    answer = admin.ask("POST", "/config/links", json=rule)
    assert answer.ok, answer.text


def code_of(site, *words):
    line = [str(site.binary), "mute", *words, "--dir", str(site.directory)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def mutes(site):
    return json.loads(site.command("mute", "list", "--json"))


def test_a_drop_is_told_once_through_a_mute_and_an_outage_and_so_is_its_end(
    own_grid, admin, faulty, hook, manager, place
):
    grid, site = own_grid, own_grid.here
    site.command("mute", "add", "--link", "*-*", "--for", "1h", "--why", "the test begins")
    limit(admin, grid, faulty, MANY)
    source = faulty.offer(f"{place}/source", DATA, get=slowly)
    pairs = [(source, grid.there_door.url(f"{place}/{number}")) for number in range(700)]
    job = grid.service.submit(*pairs)
    eventually("copies run", lambda: grid.service.overview()["totals"]["finished"] > 0)
    time.sleep(USUAL_SECONDS)
    limit(admin, grid, faulty, FEW)

    # Nobody hears of it while it is muted, and that is counted.
    eventually("it is held back", lambda: mutes(site)[0]["suppressed_alerts"], 40)
    assert "1 alert suppressed" in site.command("mute", "list")
    assert hook.taken == [] and manager.taken == []

    # Without the mute both are told, one of them when it is back.
    hook.is_away = True
    site.command("mute", "remove", "--link", "*-*")
    eventually("it was tried more than once", lambda: hook.refused > 1)
    eventually("the manager is told", lambda: manager.taken)
    hook.is_away = False
    told = eventually("the webhook is told", lambda: hook.taken and hook.taken[0])
    assert (told["status"], told["is_repeated"], told["ends_at"]) == ("firing", False, None), told
    incident = told["incident"]
    assert incident["drops"] >= 1 and incident["is_open"], told
    assert "instead of" in told["explanation"] and told["ticket"].startswith("Subject"), told
    assert told["starts_at"].endswith("Z") and told["site"], told

    def managed():
        alerts = [alert for body in manager.taken for alert in body]
        return [alert for alert in alerts if alert["labels"]["incident"] == incident["id"]]

    alert = eventually("the manager is told of the same", managed)[0]
    labels = alert["labels"]
    assert labels["alertname"] == "PenstockIncident" and labels["class"] == incident["class"], alert
    assert alert["startsAt"] < alert["endsAt"] and alert["annotations"]["summary"], alert
    assert {head["Authorization"] for head in hook.headers} == {f"Bearer {SECRET}"}

    # Both are told of its end by the same names.
    limit(admin, grid, faulty, MANY)

    def resolved():
        bodies = [body for body in hook.taken if body["incident"]["id"] == incident["id"]]
        return [body for body in bodies if body["status"] == "resolved"]

    [end] = eventually("its end is told", resolved, 60)
    assert end["ends_at"] >= end["starts_at"] == told["starts_at"], end
    same = eventually("the manager is told, too", lambda: managed()[1:], 60)
    assert same[-1]["labels"] == labels and same[-1]["startsAt"] == alert["startsAt"], same
    assert same[-1]["endsAt"] < alert["endsAt"], same
    firing = [body["incident"]["id"] for body in hook.taken if body["status"] == "firing"]
    assert len(firing) == len(set(firing)), hook.taken
    grid.service.ask("DELETE", f"/jobs/{job}")
    assert SECRET not in site.log_tail(100_000)


def test_a_mute_outlives_a_restart_and_expires(own_grid, admin):
    site = own_grid.here
    assert "no mutes" in site.command("mute", "list")
    for words in (
        ("--class", "tape", "--for", "8h", "--why", "the library is serviced"),
        ("--vo", "dteam", "--for", "2d", "--why", "tests"),
        ("--link", "a.example.org-*", "--for", "2s", "--why", "soon over"),
    ):
        site.command("mute", "add", *words)
    site.stop()
    site.start()
    known = eventually("one has expired", lambda: len(mutes(site)) == 2 and mutes(site))
    [tape] = [row for row in known if row.get("class") == "tape"]
    assert tape["why"] == "the library is serviced" and tape["suppressed_alerts"] == 0, tape
    assert 8 * 3600 - 120 < tape["until"] / 1000 - time.time() <= 8 * 3600
    assert "mute" in site.command("audit")

    # What was said again counts alone.
    site.command("mute", "add", "--class", "tape", "--for", "1h", "--why", "almost done")
    assert [row["why"] for row in mutes(site) if row.get("class") == "tape"] == ["almost done"]
    site.command("mute", "remove", "--class", "tape")
    assert code_of(site, "remove", "--class", "tape")[0] == 4
    for words in (
        ("add", "--for", "1h", "--why", "x"),
        ("add", "--class", "storm", "--for", "1h", "--why", "x"),
        ("add", "--link", "foo", "--for", "1h", "--why", "x"),
        ("add", "--class", "tape", "--vo", "dteam", "--for", "1h", "--why", "x"),
        ("add", "--class", "tape", "--for", "1h"),
    ):
        assert code_of(site, *words)[0] == 2, words
    for form in (
        {"class": "tape", "why": "x"},
        {"class": "tape", "seconds": 0, "why": "x"},
        {"seconds": 60, "why": "x"},
        {"link": "foo", "seconds": 60, "why": "x"},
    ):
        assert admin.ask("POST", "/api/v1/mutes", json=form).status_code == 400, form
    # Users do not see who does what here.
    assert own_grid.service.ask("GET", "/api/v1/mutes").status_code == 403


def test_no_redirect_of_a_receiver_is_followed(own_grid, elsewhere, faulty, hook, admin, place):
    """Whoever answers for the configured address cannot send the service elsewhere."""
    grid = own_grid
    asked = []

    def away(exchange):
        exchange.read_body()
        asked.append(exchange.path)
        exchange.reply(307, headers={"Location": f"{elsewhere.url}/inside"})

    elsewhere.answers["POST", "/hook"] = away
    elsewhere.answers["POST", "/inside"] = lambda exchange: exchange.reply(200)
    limit(admin, grid, faulty, MANY)
    source = faulty.offer(f"{place}/source", DATA, get=slowly)
    pairs = [(source, grid.there_door.url(f"{place}/{number}")) for number in range(400)]
    job = grid.service.submit(*pairs)
    eventually("copies run", lambda: grid.service.overview()["totals"]["finished"] > 0)
    time.sleep(USUAL_SECONDS)
    limit(admin, grid, faulty, FEW)
    eventually("it was asked more than once", lambda: len(asked) > 1, 40)
    assert elsewhere.requests("POST", "/inside") == []
    eventually("that is logged", lambda: "redirects are not followed" in grid.here.log_tail(100_000))
    grid.service.ask("DELETE", f"/jobs/{job}")


def test_an_alert_that_is_refused_for_good_holds_up_no_other(own_grid, elsewhere, faulty, hook, admin, place):
    grid = own_grid
    refused, taken = [], []

    def choosy(exchange):
        body = json.loads(exchange.read_body())
        of_first = faulty.host in json.dumps(body["incident"])
        (refused if of_first else taken).append(body)
        exchange.reply(413 if of_first else 200)

    elsewhere.answers["POST", "/hook"] = choosy
    pairs = []
    for server, name in ((faulty, "first"), (elsewhere, "second")):
        limit(admin, grid, server, MANY, name)
        source = server.offer(f"{place}/{name}", DATA, get=slowly)
        pairs += [(source, grid.there_door.url(f"{place}/{name}{number}")) for number in range(450)]
    job = grid.service.submit(*pairs)
    eventually("copies run", lambda: grid.service.overview()["totals"]["finished"] > 0)
    time.sleep(USUAL_SECONDS)
    limit(admin, grid, faulty, FEW, "first")
    eventually("it is refused", lambda: refused, 90)
    limit(admin, grid, elsewhere, FEW, "second")
    eventually("the other is taken", lambda: taken, 40)
    # What was refused is not sent again at once.
    assert len({body["incident"]["id"] for body in refused}) >= len(refused) - 1, refused
    assert "an alert is refused" in grid.here.log_tail(100_000)
    grid.service.ask("DELETE", f"/jobs/{job}")
