"""Settings of a running transfer service, as FTS's /config has them: by HTTP, the fts3 client, and our commands."""

import itertools
import json
import os
import random
import threading

import pytest
import requests
from fts3.rest.client.context import Context
from fts3.rest.client.exceptions import ClientError, NotFound

from .clients import Service, content
from .fault_server import delayed, stalled
from .waiting import eventually

DATA = content("configuration", 200_000)
KILLS = {"guard": 4, "soak": 25}


@pytest.fixture
def own(own_grid):
    """Two sites of this test, served, with an administrator of the first one's service."""
    for site in own_grid.sites:
        site.start()
    own_grid.admin = admin_of(own_grid.here)
    return own_grid


@pytest.fixture
def admin(grid):
    return admin_of(grid.here)


def admin_of(site):
    return Service(site, site.token("penstock.admin", subject="root"))


def as_user(site, subject):
    return Service(site, site.token(subject=subject))


def link(site, name, expect=201, **fields):
    answer = site.ask("POST", "/config/links", json={"symbolicname": name, **fields})
    assert answer.status_code == expect, answer.text
    return answer.json()


def removed(service, path):
    answer = service.ask("DELETE", path)
    assert (answer.status_code, answer.text) == (204, ""), answer.text


@pytest.fixture
def client(grid):
    """The library under the fts3 commands, which has no verbs for settings but speaks to any path."""
    token = grid.here.token("penstock.admin", subject="root")
    return Context(grid.service.base, verify=True, fts_access_token=token, capath=str(grid.here.certificates))


def test_the_fts3_client_makes_reads_and_removes_a_link(client):
    rule = {"symbolicname": "by-fts3", "source": "https://a.lab", "destination": "*", "max_active": 7}
    made = json.loads(client.post_json("/config/links", rule))
    assert (made["symbolicname"], made["min_active"], made["max_active"]) == ("by-fts3", 2, 7)
    assert json.loads(client.get("/config/links/by-fts3")) == made
    assert made in json.loads(client.get("/config/links"))
    client.delete("/config/links/by-fts3")
    with pytest.raises(NotFound, match="Link by-fts3 does not exist"):
        client.get("/config/links/by-fts3")


def test_the_fts3_client_is_told_what_is_wrong(client):
    for body, why in [
        ({"max_active": 5}, "Missing symbolicname"),
        ({"symbolicname": "x", "min_active": 6, "max_active": 5}, "max_active is lower than min_active"),
        ({"symbolicname": "x", "max_active": "many"}, "Field max_active is expected to be int"),
        ({"symbolicname": "x", "max_activ": 5}, "Field max_activ unknown"),
        ({"symbolicname": "x", "source": "https://a.lab:8443"}, "without port"),
        ({"symbolicname": "x", "optimizer_mode": 4}, "optimizer_mode is 4; it may be 0 to 3"),
        ({"symbolicname": "x", "tuning": "best"}, "tuning = 'best' is not known"),
    ]:
        with pytest.raises(ClientError, match=why):
            client.post_json("/config/links", body)


def test_storage_elements_are_set_as_rucio_does(client):
    se = "https://rucio-sets.lab"
    [info, _] = json.loads(client.post_json("/config/se", {se: {"se_info": {"inbound_max_active": 9}}}))
    assert info["inbound_max_active"] == 9
    client.post_json("/config/se", {se: {"se_info": {"outbound_max_active": 4}, "operations": {}}})
    [shown] = json.loads(client.get("/config/se", {"se": se})).values()
    assert (shown["se_info"]["inbound_max_active"], shown["se_info"]["outbound_max_active"]) == (9, 4)
    assert shown["operations"] == {}
    client.delete(f"/config/se?se={se}")
    assert json.loads(client.get("/config/se", {"se": se})) == {}


def test_nobody_changes_settings_without_a_right(grid, client):
    alice = grid.service
    for method, path, body in [
        ("GET", "/config", None),
        ("GET", "/config/links", None),
        ("GET", "/config/audit", None),
        ("POST", "/config/links", {"symbolicname": "x"}),
        ("DELETE", "/config/links/x", None),
        ("POST", "/config/se", {"*": {"se_info": {"inbound_max_active": 1}}}),
        ("POST", "/config/authorize", {"dn": "alice", "operation": "config"}),
        ("POST", "/config/drain", {"hostname": grid.here.host, "drain": True}),
    ]:
        answer = alice.ask(method, path, json=body)
        assert (answer.status_code, answer.json()["status"]) == (403, "403 Forbidden"), (method, path)
    assert requests.get(f"{alice.base}/config", verify=alice.session.verify, timeout=30).status_code == 401


def test_a_manager_of_a_storage_element_changes_its_links_and_no_others(grid, client, admin):
    mine = "https://managed.lab"
    grant = {"dn": "bob", "operation": "config", "storage": mine}
    client.post_json("/config/authorize", grant)
    assert grant in json.loads(client.get("/config/authorize"))
    bob = as_user(grid.here, "bob")
    link(bob, "bobs", source=mine, max_active=3)
    link(bob, "bobs-too", destination=mine, source="https://else.lab", max_active=3)
    for rule in [{"source": "https://else.lab"}, {"source": "*", "destination": "*"}]:
        refused = link(bob, "not-bobs", 403, **rule)
        assert "you manage neither" in refused["message"]
    assert bob.ask("POST", "/config/se", json={mine: {"se_info": {"site": "Here"}}}).status_code == 200
    assert bob.ask("POST", "/config/authorize", json={**grant, "dn": "eve"}).status_code == 403
    removed(admin, "/config/authorize?dn=bob")
    assert bob.ask("GET", "/config/links").status_code == 403
    for name in ("bobs", "bobs-too"):
        removed(admin, f"/config/links/{name}")
    removed(admin, f"/config/se?se={mine}")


def test_a_namesake_from_another_issuer_has_not_the_grant(grid, client, admin):
    client.post_json("/config/authorize", {"dn": "carol", "operation": "config"})
    assert as_user(grid.here, "carol").ask("GET", "/config/links").status_code == 200
    stranger = Service(grid.here, grid.there.token(subject="carol"))
    assert stranger.ask("GET", "/whoami").status_code == 200, "the issuer is trusted"
    assert stranger.ask("GET", "/config/links").status_code == 403
    removed(admin, "/config/authorize?dn=carol")


def test_a_grant_for_the_whole_service_counts_wherever_rights_do(grid, admin):
    place = content("grants", 8).hex()
    job = grid.service.submit((grid.here_door.url(f"/{place}"), grid.there_door.url(f"/{place}")))
    stranger = Service(grid.here, grid.there.token(subject="dave"))
    issuer = json.loads(requests.get(
        f"{grid.there.door}/.well-known/openid-configuration", verify=str(grid.here.certificates), timeout=30
    ).text)["issuer"]
    for operation, (method, path) in {
        "transfer": ("GET", f"/jobs/{job}"),
        "config": ("GET", "/status/hosts"),
    }.items():
        assert stranger.ask(method, path).status_code == 403
        grant = {"dn": f"{issuer}#dave", "operation": operation}
        assert admin.ask("POST", "/config/authorize", json=grant).json() == {**grant, "storage": None}
        assert stranger.ask(method, path).status_code == 200
    assert stranger.ask("GET", "/whoami").json()["level"] == {"transfer": "all", "config": "all"}
    removed(admin, f"/config/authorize?dn={issuer}%23dave")
    assert stranger.ask("GET", "/status/hosts").status_code == 403
    for operation in ("admin", "deleg", "nonsense"):
        refused = admin.ask("POST", "/config/authorize", json={"dn": "/CN=x", "operation": operation})
        assert refused.status_code == 400


def test_defaults_of_a_vo_count_for_jobs_that_do_not_say(grid, client, admin):
    rows = json.loads(client.post_json("/config/global", {"vo_name": "here", "retry": 0, "max_time_queue": 5}))
    assert (rows["here"]["retry"], rows["here"]["max_time_queue"]) == (0, 5) and rows["*"]["retry"] is None
    pair = (grid.here_door.url("/not-there"), grid.there_door.url("/not-there"))
    job = grid.service.submit(pair)
    assert grid.service.job(job)["max_time_in_queue"]
    grid.service.wait_failed(job)
    client.delete("/config/global?vo_name=here")
    assert "here" not in json.loads(client.get("/config/global"))
    for body in [{"retry": -1}, {"retry": "x"}, {"global_timeout": 100}, {"nonsense": 1}]:
        assert admin.ask("POST", "/config/global", json=body).status_code == 400, body
    assert admin.ask("DELETE", "/config/global?vo_name=*").status_code == 400


def test_cloud_storages_of_other_kinds_are_refused_and_read_as_unset(client):
    keys = {"storage_name": "DROPBOX", "app_key": "k", "app_secret": "s"}
    before = client.get("/config/cloud_storage")
    with pytest.raises(ClientError, match="not offered"):
        client.post_json("/config/cloud_storage", keys)
    assert client.get("/config/cloud_storage") == before


def test_the_fts3_client_gives_vos_and_activities_shares_and_takes_them_back(grid, client, admin):
    share = {"source": "https://a.lab", "destination": "*", "vo": "cms", "share": 80}
    assert json.loads(client.post_json("/config/shares", share)) == share
    client.post_json("/config/shares", {**share, "vo": "public", "share": "0.5"})
    listed = json.loads(client.get("/config/shares"))
    assert share in listed and {**share, "vo": "public", "share": 0.5} in listed
    assert json.loads(client.get("/config/shares?vo=cms&source=https://a.lab")) == [share]
    for vo in ("cms", "public", "cms"):
        client.delete(f"/config/shares?source=https://a.lab&destination=*&vo={vo}")
    assert json.loads(client.get("/config/shares")) == []
    activities = {"vo": "cms", "share": [{"Production": 0.7}, {"default": 0.3}], "active": True}
    client.post_json("/config/activity_shares", activities)
    kept = {"share": {"production": 0.7, "default": 0.3}, "active": True}
    assert json.loads(client.get("/config/activity_shares")) == {"cms": kept}
    assert json.loads(client.get("/config/activity_shares/cms")) == {"vo": "cms", **kept}
    client.delete("/config/activity_shares/cms")
    with pytest.raises(NotFound, match="No activity shares for cms"):
        client.get("/config/activity_shares/cms")
    actions = [row["action"] for row in admin.ask("GET", "/config/audit?limit=6").json()]
    assert actions[:2] == ["activity-share-delete", "activity-share"] and "share-delete" in actions
    for path, body, why in [
        ("shares", {**share, "share": -1}, "a share is a number from 0"),
        ("shares", {"vo": "cms", "share": 1}, "Missing source, destination and/or vo"),
        ("shares", {**share, "weight": 1}, "Field weight unknown"),
        ("activity_shares", {"vo": "cms", "share": {"a": 0}}, "wait forever"),
        ("activity_shares", {"share": {"a": 1}}, "Missing VO"),
    ]:
        with pytest.raises(ClientError, match=why):
            client.post_json(f"/config/{path}", body)
    assert grid.service.ask("GET", "/config/shares").status_code == 403
    assert grid.service.ask("POST", "/config/activity_shares", json=activities).status_code == 403


def test_the_record_says_who_changed_what_and_when(grid, admin):
    link(admin, "audited", source="https://audited.lab", max_active=5)
    link(admin, "audited", max_active=8)
    link(admin, "audited", max_active=8)
    removed(admin, "/config/links/audited")
    gone, changed, made = admin.ask("GET", "/config/audit?limit=3").json()
    assert [entry["action"] for entry in (made, changed, gone)] == ["link", "link", "link-delete"]
    assert (made["old"], gone["new"]) == (None, None)
    assert [changed[side]["max_active"] for side in ("old", "new")] == [5, 8]
    assert changed["new"] == gone["old"] and json.loads(changed["config"]) == changed["new"]
    assert {entry["dn"] for entry in (made, changed, gone)} == {"root"}


def active(service):
    return service.overview()["totals"]["active"]


def waiting_job(own, faulty, files):
    """Files that do not move once they have started."""
    pairs = []
    for number in range(files):
        source = faulty.offer(f"/{number}", DATA, get=stalled(DATA, after=10))
        pairs.append((source, own.there_door.url(f"/{number}")))
    return own.service.submit(*pairs)


def test_a_limit_acts_on_the_queue_at_once_and_counts_more_than_the_file(own, faulty):
    storage = f"https://{faulty.host}"
    link(own.admin, "narrow", source=storage, max_active=1)
    job = waiting_job(own, faulty, files=6)
    eventually("one file moves", lambda: active(own.service) == 1)
    lines = own.service.ask("GET", f"/api/v1/jobs/{job}/explain").text
    assert "the link runs 1 of 1 transfers allowed at once" in lines
    link(own.admin, "narrow", max_active=3)
    eventually("three files move", lambda: active(own.service) == 3)
    own.admin.ask("POST", "/config/se", json={storage: {"se_info": {"outbound_max_active": 4}}})
    removed(own.admin, "/config/links/narrow")
    eventually("the storage element's limit counts", lambda: active(own.service) == 4)
    own.here.configure("[transfer]", active_max_per_storage=2, active_max_per_link=5)
    own.here.reload()
    removed(own.admin, f"/config/se?se={storage}")
    link(own.admin, "wide", max_active=6)

    def limit():
        return own.service.overview()["links"][0]["limit"]

    eventually("a rule for all links counts more than the file's default", lambda: limit() == 6)
    faulty.release()
    own.service.wait_finished(job)


def test_activities_get_the_slots_of_a_link_by_their_shares(own, faulty):
    storage = f"https://{faulty.host}"
    link(own.admin, "narrow", source=storage, max_active=1)
    shares = {"vo": "here", "share": {"Production": 3, "default": 1}}
    assert own.admin.ask("POST", "/config/activity_shares", json=shares).status_code == 200

    # Shares are of the time that transfers take, so these take equally long.
    def job(name, activity, files=8, get=delayed(DATA, seconds=0.5)):
        described = []
        for number in range(files):
            source = faulty.offer(f"/{name}{number}", DATA, get=get)
            end = own.there_door.url(f"/{name}{number}")
            described.append({"sources": [source], "destinations": [end], "activity": activity})
        return own.service.submit(*described)

    first = job("first", "other", files=1, get=stalled(DATA, after=10))
    eventually("the link is full", lambda: active(own.service) == 1)
    urgent, other = job("production", "PRODUCTION"), job("other", "Other")
    told = own.service.ask("GET", f"/api/v1/jobs/{urgent}/explain").text
    assert "the link runs 1 of 1 transfers allowed at once; 'production' gets 75 % of the next slots of here" in told
    faulty.release()
    for one in (first, urgent, other):
        own.service.wait_finished(one)
    started = own.here.journal("SELECT job_id FROM ledger WHERE event LIKE '%started%' ORDER BY sequence")
    order = [row for (row,) in started][1:9]
    assert 5 <= order.count(urgent) <= 7, "three of four"


def test_a_vo_without_a_share_is_told_so(own):
    share = {"source": "*", "destination": own.there.storage_id, "vo": "here", "share": 0}
    own.here_door.put("/a", DATA)
    pair = (own.here_door.url("/a"), own.there_door.url("/b"))
    assert own.admin.ask("POST", "/config/shares", json=share).json()["share"] == 0
    why = own.service.wait_failed(own.service.submit(pair))
    assert why == "GENERAL_FAILURE [1] No share configured for this VO"
    own.admin.ask("POST", "/config/shares", json={**share, "share": 5})
    own.service.wait_finished(own.service.submit(pair))


def test_a_drained_service_accepts_and_starts_nothing_even_after_a_restart(own):
    [host] = own.admin.ask("GET", "/config").json()
    drain = {"hostname": host["hostname"], "drain": True}
    assert own.admin.ask("POST", "/config/drain", json={**drain, "hostname": "other"}).status_code == 400
    assert own.admin.ask("POST", "/config/drain", json=drain).json() is None
    own.here_door.put("/a", DATA)
    job = own.service.submit((own.here_door.url("/a"), own.there_door.url("/b")))
    explained = own.service.ask("GET", f"/api/v1/jobs/{job}/explain").text
    assert "the service is drained" in explained
    own.here.stop()
    own.here.start()
    assert own.admin.ask("GET", "/config").json()[0]["drain"] is True
    assert own.service.job(job)["job_state"] == "SUBMITTED"
    own.admin.ask("POST", "/config/drain", json={**drain, "drain": False})
    own.service.wait_finished(job)
    assert own.there_door.get("/b") == DATA


def test_what_was_acknowledged_survives_kills_and_is_recorded_once(own, tier):
    """Each round changes one rule again and again until the service is killed in the middle of it."""
    draw = random.Random(int.from_bytes(os.urandom(4)))
    values = itertools.count(2)
    told, asked = 0, 1
    for _ in range(KILLS[tier.name]):
        threading.Timer(draw.uniform(0.05, 0.4), own.here.strike).start()
        while True:
            asked = next(values)
            try:
                link(own.admin, "again", max_active=asked, min_active=1)
            except requests.RequestException:
                break
            told = asked
        own.here.kill()
        own.here.start()
        kept = own.admin.ask("GET", "/config/links/again").json()["max_active"]
        assert kept in (told, asked), f"acknowledged {told}, asked for {asked}, kept {kept}"
        told = kept
    rows = own.here.journal("SELECT setting_after FROM setting_change ORDER BY sequence")
    recorded = [json.loads(after)["slots_max"] for (after,) in rows]
    assert recorded == sorted(set(recorded)), "each change once, in order"
    assert recorded[-1] == told


@pytest.fixture
def penstock(grid):
    def run(*words):
        return grid.here.command(*words)

    return run


def test_operators_change_links_and_storage_elements_by_command(penstock, admin):
    line = "cli  https://a.lab -> *  max 9, min 2\n"
    assert penstock("link", "set", "cli", "--from", "https://a.lab", "--max", "9") == line
    assert line in penstock("link", "list") and penstock("link", "show", "cli") == line
    assert json.loads(penstock("--json", "link", "show", "cli"))["max_active"] == 9
    assert "settings removed" in penstock("link", "remove", "cli")
    shown = penstock("se", "set", "https://b.lab", "--in", "5", "--site", "Lyon")
    assert shown == "https://b.lab  in 5, out -  Lyon\n" == penstock("se", "show", "https://b.lab")
    assert penstock("se", "set", "https://b.lab", "--in", "none", "--out", "3").startswith("https://b.lab  in -, out 3")
    penstock("se", "remove", "https://b.lab")
    granted = penstock("authorize", "set", "/DC=lab/CN=Bob", "--storage", "https://b.lab")
    assert granted == "/DC=lab/CN=Bob  config: https://b.lab\n" == penstock("authorize", "list")
    penstock("authorize", "remove", "/DC=lab/CN=Bob")
    assert "is not drained" in penstock("drain", "show")
    lines = penstock("audit", "--limit", "3").splitlines()
    assert lines[2].endswith("--out 3 -> none, --site Lyon -> none")
    assert lines[0].endswith("revoke: /DC=lab/CN=Bob, --operation config -> none, --storage https://b.lab -> none")


def test_operators_change_shares_by_command(penstock):
    line = "cms  * -> https://a.lab  share 7.5\n"
    assert penstock("vo-share", "set", "cms", "7.5", "--to", "https://a.lab") == line == penstock("vo-share", "list")
    assert "settings removed" in penstock("vo-share", "remove", "cms", "--to", "https://a.lab")
    told = penstock("activity", "set", "atlas", "T0 Export=0.7", "default=0.3")
    assert told == "atlas\n  default  0.3\n  t0 export  0.7\n" == penstock("activity", "list")
    assert json.loads(penstock("--json", "activity", "show", "atlas"))["share"]["t0 export"] == 0.7
    penstock("activity", "remove", "atlas")
    assert penstock("activity", "list").strip() == "none"


def test_the_configuration_of_an_fts3_is_taken_over_once(penstock, admin, tmp_path):
    fts3 = {
        "links": [
            {"symbolicname": "imported", "source": "https://i.lab", "destination": "*", "min_active": 2,
             "max_active": 40, "optimizer_mode": 2, "nostreams": 0, "tcp_buffer_size": None}
        ],
        "se": {
            "https://i.lab": {
                "se_info": {"inbound_max_active": 100, "inbound_max_throughput": 5.1, "udt": 0, "tpc_support": "FULL"},
                "operations": {"cms": {"staging": 10, "delete": 3}},
            }
        },
    }
    file = tmp_path / "fts3.json"
    file.write_text(json.dumps(fts3))
    seen = penstock("import-fts3", str(file), "--dry-run")
    assert '+ link imported: destination "*", max_active 40, min_active 2, optimizer_mode 2, source "https://i.lab"' in seen
    assert "- se https://i.lab: limit 3 of the operation 'delete' of VO cms has no counterpart here" in seen
    assert "3 changes found, none applied" in seen
    assert admin.ask("GET", "/config/links/imported").status_code == 404
    assert "3 changed" in penstock("import-fts3", str(file))
    assert admin.ask("GET", "/config/links/imported").json()["max_active"] == 40
    shown = admin.ask("GET", "/config/se?se=https://i.lab").json()["https://i.lab"]
    info = shown["se_info"]
    assert info["inbound_max_throughput"] == pytest.approx(5.1, abs=1e-6) and info["inbound_max_active"] == 100
    assert shown["operations"] == {"cms": {"staging": 10}}
    again = json.loads(penstock("--json", "import-fts3", str(file)))
    assert (again["changes"], again["unchanged"], again["failed"]) == ([], 3, [])
    assert "--in-rate none -> 5347737 B/s" in penstock("audit", "--limit", "3")
    penstock("se", "set", "https://i.lab", "--in-rate", "6 MB/s")
    assert "https://i.lab, --in-rate 5347737 B/s -> 6 MB/s" in penstock("audit", "--limit", "1")
    removed(admin, "/config/links/imported")
    removed(admin, "/config/se?se=https://i.lab")


def test_one_service_s_configuration_is_imported_from_its_url(own, tmp_path):
    link(own.admin, "from-url", source="https://u.lab", max_active=12)
    token = tmp_path / "token"
    token.write_text(own.here.token("penstock.admin"))
    line = ["import-fts3", own.here.service, "--source-token-file", str(token)]
    line += ["--source-capath", str(own.here.certificates)]
    assert "+ link from-url" in own.there.command(*line)
    there = admin_of(own.there)
    assert there.ask("GET", "/config/links/from-url").json()["max_active"] == 12
