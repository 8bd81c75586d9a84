"""Rucio 41.5's own conveyor over Penstock: rules become OK, replicas AVAILABLE, and what arrived is what was sent.

Submitter, poller, finisher and receiver are Rucio's commands; a test adds a rule and waits for what becomes of it.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from .brokers import RabbitMq
from .certificates import VO
from .clients import Door, adler32, content
from .rucio_daemons import TOLD, RucioError
from .rucio_lab import Lab, Shipment
from .token_issuer import EXCHANGE
from .waiting import eventually

FILES_OF_A_LARGE_RULE = 500
MISSING = "SOURCE [2]"
IN_THE_WAY = "Destination file exists and overwrite is not enabled"


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, fault_ca, user_ca):
    broker = RabbitMq(fault_ca)
    lab = Lab(tmp_path_factory.mktemp("rucio"), binary, user_ca, fault_ca)
    try:
        with ThreadPoolExecutor() as pool:
            ready = pool.submit(broker.start)
            lab.start(broker)
            ready.result()
        yield lab
        lab.rucio.assert_unharmed()
    finally:
        lab.close()
        broker.close()


@dataclass
class Slow:
    """What takes Rucio a while: it is under way from the start, and looked at in the end."""

    large: Shipment
    missing: Shipment
    missing_hop: Shipment
    in_the_way: Shipment


@pytest.fixture(scope="module")
def slow(lab):
    in_the_way = lab.load()
    lab.put_in_the_way(in_the_way, "VAULT", b"written before")
    return Slow(
        missing=lab.ship("FAR", absent=["NEAR"]),
        missing_hop=lab.ship("REMOTE", absent=["NEAR"]),
        in_the_way=lab.want(in_the_way, "VAULT"),
        large=lab.ship("FAR", count=FILES_OF_A_LARGE_RULE, size=500),
    )


@pytest.mark.usefixtures("slow")
def test_a_rule_is_ok_when_its_files_have_arrived(lab):
    shipment = lab.ship("FAR", count=3)
    lab.wait_ok(shipment)
    requests = lab.requests(shipment)
    assert {request["state"] for request in requests} == {"DONE"}
    assert {request["source"] for request in requests} == {"NEAR"}
    [job] = {request["external_id"] for request in requests}
    shown = lab.job(requests[0])
    assert (shown["vo_name"], shown["user_dn"]) == (VO, lab.alice.subject)
    assert shown["job_metadata"]["issuer"] == "rucio"


def test_rucio_knows_the_id_of_a_job_before_it_asks(lab):
    shipment = lab.ship("FAR")
    lab.wait_ok(shipment)
    [request] = lab.requests(shipment)
    who = lab.rucio.ask("transfertool", lab.near.service, "whoami")
    assert who["vos"][0] == VO
    expected = uuid.uuid5(uuid.uuid5(uuid.UUID(who["base_id"]), VO), request["id"])
    assert request["external_id"] == str(expected)


def test_a_job_is_made_once_when_the_answer_to_its_submission_is_lost(lab):
    lab.way.loses.set()
    shipment = lab.ship("BEHIND", count=2)
    eventually("the answer is lost", lambda: lab.way.lost, 60)
    lab.way.loses.clear()
    lab.wait_ok(shipment)
    assert lab.way.lost == 1
    assert [request["state"] for request in lab.requests(shipment)] == ["DONE"] * 2


def test_tokens_submit_what_a_certificate_polls(lab):
    shipment = lab.ship("TOKEN-FAR", sources=["TOKEN-NEAR"], count=2)
    lab.wait_ok(shipment)
    near, far = lab.near.host, lab.far.host
    asked = {(form["scope"], form["audience"]) for form in lab.issuer.asked("client_credentials")}
    source, destination = (lab.storages[name].prefix for name in ("TOKEN-NEAR", "TOKEN-FAR"))
    of_files = {
        (f"offline_access storage.read:{source}", near),
        (f"offline_access storage.modify:{destination} storage.read:{destination}", far),
    }
    assert asked == of_files | {("fts", near)}
    # The tokens of files are renewed in the service's own name.
    exchanged = {(form["scope"], form["audience"]) for form in lab.issuer.asked(EXCHANGE)}
    assert exchanged == of_files
    shown = lab.job(lab.requests(shipment)[0])
    assert (shown["vo_name"], shown["job_metadata"]["auth_method"]) == (VO, "oauth2")


def test_the_next_source_is_used_when_one_has_not_the_file(lab):
    shipment = lab.ship("FAR", sources=["NEAR", "SPARE"], absent=["NEAR"])
    lab.wait_ok(shipment)
    [request] = lab.requests(shipment)
    assert (request["state"], request["source"]) == ("DONE", "SPARE")
    assert lab.job(request)["job_type"] == "R"


def test_what_has_no_way_of_its_own_goes_by_hops(lab):
    shipment = lab.ship("REMOTE", count=2)
    lab.wait_ok(shipment)
    assert lab.replicas(shipment, "STEP") == dict.fromkeys(shipment.contents, "AVAILABLE")
    lab.assert_arrived("STEP", shipment.contents)
    requests = lab.requests(shipment)
    assert sorted(request["to"] for request in requests) == ["REMOTE"] * 2 + ["STEP"] * 2
    assert lab.job(requests[0])["job_type"] == "H"


def test_a_rule_brings_files_from_tape(lab):
    shipment = lab.ship("FAR", sources=["TAPE"], count=3)
    lab.wait_ok(shipment)
    requests = lab.requests(shipment)
    assert all(request["staging_started_at"] <= request["staging_finished_at"] for request in requests)
    [call] = lab.library.called("stage")
    assert len(call.paths) == 3
    assert call.body["files"][0]["targetedMetadata"] == {"default": {"activity": "User Subscriptions"}}
    assert lab.job(requests[0])["bring_online"] == 43_200


def test_a_rule_to_tape_is_ok_when_its_files_are_on_tape(lab):
    lab.library.archive_seconds = None
    shipment = lab.ship("TAPE", count=2)
    request, _ = lab.wait_submitted(shipment)
    eventually("the copies wait for tape", lambda: lab.job(request)["job_state"] == "ARCHIVING", 60)
    assert lab.rule(shipment)["state"] == "REPLICATING"
    for path in lab.paths("TAPE", shipment.contents).values():
        lab.library.files[path].on_tape = True
    lab.wait_ok(shipment)


def test_a_rule_to_a_tape_storage_of_ours_is_ok_when_its_files_are_on_tape(lab):
    lab.gate.unlink(missing_ok=True)
    shipment = lab.ship("ARCHIVE", count=3)
    request, *_ = lab.wait_submitted(shipment)
    eventually("the copies wait for tape", lambda: lab.job(request)["job_state"] == "ARCHIVING", 60)
    assert (lab.rule(shipment)["state"], lab.localities("ARCHIVE", shipment.contents)) == ("REPLICATING", {"DISK"})
    assert set(lab.replicas(shipment).values()) == {"COPYING"}
    lab.gate.touch()
    lab.wait_ok(shipment)
    assert lab.job(request)["archive_timeout"] == 86_400
    lab.wait_only_on_tape(shipment, "ARCHIVE")


@pytest.mark.parametrize("source", ["ARCHIVE", pytest.param("NEARLINE", marks=pytest.mark.soak)])
def test_a_rule_brings_files_from_a_tape_storage_of_ours(lab, source):
    """Of type TAPE, or with the attribute that says that files may be there."""
    lab.gate.touch()
    shipment = lab.load(sources=[source], count=3)
    lab.wait_only_on_tape(shipment, source)
    lab.wait_ok(lab.want(shipment, "NEAR"))
    requests = lab.requests(shipment)
    assert all(request["staging_started_at"] <= request["staging_finished_at"] for request in requests)
    assert lab.job(requests[0])["bring_online"] == 43_200
    # They are let go again.
    lab.wait_only_on_tape(shipment, source)


def test_a_rule_brings_files_to_the_disk_of_a_tape_storage_of_ours(lab):
    """Rucio's stager asks for them where they are."""
    lab.gate.touch()
    shipment = lab.load(sources=["ARCHIVE"], count=2)
    lab.wait_only_on_tape(shipment, "ARCHIVE")
    lab.want(shipment, "ARCHIVE-BUFFER", lifetime=3600)
    lab.wait_rule(shipment, "OK")
    assert set(lab.replicas(shipment).values()) == {"AVAILABLE"}
    assert lab.localities("ARCHIVE", shipment.contents) == {"DISK_AND_TAPE"}


def test_what_is_on_tape_already_is_as_good_as_copied(lab):
    """Rucio asks what is in the way, and takes the file for its own when it is the right one."""
    shipment = lab.load()
    [data] = shipment.contents.values()
    lab.put_in_the_way(shipment, "TAPE", data)
    lab.wait_ok(lab.want(shipment, "TAPE"))
    [request] = lab.requests(shipment)
    assert (request["state"], lab.job(request)["job_state"]) == ("DONE", "FAILED")


def test_what_rucio_does_not_know_of_is_replaced(lab):
    """Rucio allows disks to be overwritten: what is there without a replica is nobody's."""
    shipment = lab.load()
    lab.put_in_the_way(shipment, "FAR", b"left by somebody")
    lab.wait_ok(lab.want(shipment, "FAR"))


def test_a_job_that_the_service_has_lost_is_submitted_again(lab):
    with lab.drained(lab.third):
        shipment = lab.ship("ELSEWHERE")
        [lost] = lab.wait_submitted(shipment)
    lab.lose_jobs(lab.third)
    lab.wait_ok(shipment)
    states = {request["external_id"]: request["state"] for request in lab.requests(shipment)}
    assert states.pop(lost["external_id"]) == "LOST"
    assert list(states.values()) == ["DONE"]


def test_a_service_that_was_killed_goes_on_with_rucios_jobs(lab):
    shipment = lab.ship("ELSEWHERE", count=60, size=100_000)
    jobs = {request["external_id"] for request in lab.wait_submitted(shipment)}
    lab.third.kill()
    lab.third.start()
    lab.wait_ok(shipment)
    requests = lab.requests(shipment)
    assert {request["external_id"] for request in requests} == jobs
    assert {request["state"] for request in requests} == {"DONE"}


def test_what_was_not_delegated_for_is_tried_again(lab):
    lab.forget_delegation(lab.third)
    shipment = lab.ship("ELSEWHERE")
    eventually("Rucio finds no job", lambda: "LOST" in {request["state"] for request in lab.requests(shipment)}, 60)
    assert '"419 ' in lab.rucio.log("submitter").read_text()
    lab.delegate(lab.third)
    lab.wait_ok(shipment)


def test_a_priority_is_changed_and_requests_are_canceled(lab):
    with lab.drained(lab.near):
        shipment = lab.ship("FAR", priority=2)
        [request] = lab.wait_submitted(shipment)
        assert lab.job(request)["priority"] == 2
        lab.rucio.ask("update_rule", shipment.rule, priority=5)
        assert lab.job(request)["priority"] == 5
        lab.rucio.ask("update_rule", shipment.rule, state="STUCK", cancel_requests=True)
        assert (lab.rule(shipment)["state"], lab.job(request)["job_state"]) == ("STUCK", "CANCELED")


def test_files_are_uploaded_fetched_moved_and_removed_by_rucios_own_protocol(lab, tmp_path):
    def at_spare(do, *files, **named):
        return lab.rucio.ask("storage", "SPARE", do, *files, **named)

    lab.make_prefix("SPARE")
    data = content("own protocol", 70_000)
    (tmp_path / "one").write_bytes(data)
    one, two = {"name": "own.one"}, {"name": "own.two"}
    described = one | {"filename": "one", "filesize": len(data), "adler32": adler32(data)}
    assert not at_spare("exists", one)
    said = at_spare("upload", described, source_dir=str(tmp_path))
    assert said["success"], said
    with pytest.raises(RucioError, match="FileReplicaAlreadyExists"):
        at_spare("upload", described, source_dir=str(tmp_path))
    assert at_spare("exists", one)
    at_spare("download", ["own.one", str(tmp_path / "fetched")])
    assert (tmp_path / "fetched").read_bytes() == data
    assert at_spare("rename", one | {"new_name": "own.two"}) is True
    assert (at_spare("exists", one), at_spare("exists", two)) == (False, True)
    assert at_spare("delete", two) is True
    assert not at_spare("exists", two)


def test_operators_ban_and_limit_storages_by_rucios_transfer_tool(lab):
    def tool(method, *words, **named):
        return lab.rucio.ask("transfertool", lab.near.service, method, *words, **named)

    storage = lab.third.storage_id
    assert tool("version")["api"]["major"] >= 3
    assert tool("set_se_status", storage, "being repaired", timeout=3600) == 0
    [ban] = [ban for ban in tool("list_se_status") if ban["se"] == storage]
    assert (ban["message"], ban["status"].upper()) == ("being repaired", "WAIT")
    assert tool("set_se_status", storage, "", ban=False) == 0
    tool("set_se_config", storage, inbound_max_active=7, outbound_max_active=8)
    kept = tool("get_se_config", storage)["se_info"]
    assert (kept["inbound_max_active"], kept["outbound_max_active"]) == (7, 8)


@pytest.mark.soak
def test_a_large_rule_goes_as_a_few_jobs(lab, slow):
    lab.wait_ok(slow.large)
    jobs = {request["external_id"] for request in lab.requests(slow.large)}
    assert len(jobs) == 3


def test_what_is_in_the_way_at_a_tape_storage_stays(lab, slow):
    """There Rucio forbids to overwrite, and knows our refusal by its words."""
    lab.wait_rule(slow.in_the_way, "STUCK")
    assert IN_THE_WAY in lab.rule(slow.in_the_way)["error"]
    [path] = lab.paths("VAULT", slow.in_the_way.contents).values()
    assert Door(lab.far).get(path) == b"written before"


def test_a_rule_is_stuck_with_our_reason_when_no_source_has_its_file(lab, slow):
    lab.wait_rule(slow.missing, "STUCK")
    requests = lab.requests(slow.missing)
    # Rucio tries four times.
    assert [request["state"] for request in requests] == ["FAILED"] * 4
    assert all(MISSING in request["err_msg"] for request in requests)
    assert MISSING in lab.rule(slow.missing)["error"]


def test_a_hop_that_never_started_fails_with_the_one_before_it(lab, slow):
    lab.wait_rule(slow.missing_hop, "STUCK")
    requests = lab.requests(slow.missing_hop)
    assert {request["state"] for request in requests} == {"FAILED"}
    first, last = ([request["err_msg"] for request in requests if request["to"] == at] for at in ("STEP", "REMOTE"))
    assert len(first) == len(last) == 4
    assert all(MISSING in why for why in first)
    assert all("Unused hop in multi-hop" in why for why in last)


def test_the_receiver_learns_everything_from_messages(lab):
    lab.rucio.run("receiver")
    good = [
        lab.ship("FAR", count=3, activity=TOLD),
        lab.ship("FAR", sources=["NEAR", "SPARE"], absent=["NEAR"], activity=TOLD),
        lab.ship("REMOTE", activity=TOLD),
    ]
    bad = lab.ship("FAR", absent=["NEAR"], activity=TOLD)
    for shipment in good:
        lab.wait_ok(shipment)
        assert all(request["started_at"] for request in lab.requests(shipment))
    [request] = lab.requests(good[1])
    assert request["source"] == "SPARE"
    lab.wait_failed(bad, "No such file or directory")
