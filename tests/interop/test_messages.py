"""FTS3's monitoring messages to real brokers and to a file: every message once at least, in order for each transfer,
whatever happens to the broker and to the service meanwhile.
"""

import json
from itertools import groupby

import pytest

from .brokers import PASSWORD, USER, Nats, RabbitMq
from .clients import Door, Service, content
from .site import Site
from .waiting import eventually

HOST = "127.0.3.1"
START, COMPLETE, STATE, QUEUE = (
    f"transfer.fts_monitoring_{kind}" for kind in ("start", "complete", "state", "queue_state")
)
WHOLE_LIFE = [
    (STATE, "SUBMITTED"),
    (START, None),
    (STATE, "ACTIVE"),
    (COMPLETE, "Ok"),
    (STATE, "FINISHED"),
]
START_KEYS = """transfer_id job_id file_id endpnt timestamp src_srm_v dest_srm_v vo src_url dst_url src_hostname
    dst_hostname src_site_name dst_site_name t_channel srm_space_token_src srm_space_token_dst user_dn is_archiving
    file_metadata job_metadata"""
COMPLETE_KEYS = """tr_id job_id file_id endpnt vo src_url dst_url src_se dst_se src_hostname dst_hostname protocol
    t_channel channel_type timestamp_tr_st timestamp_tr_comp timestamp_chk_src_st timestamp_chk_src_ended
    timestamp_checksum_dest_st timestamp_checksum_dest_ended timestamp_checksum_src_diff timestamp_checksum_dst_diff
    t_timeout chk_timeout t_error_code tr_error_scope t_failure_phase tr_error_category t_final_transfer_state
    t_final_transfer_state_flag tr_bt_transfered nstreams buf_size tcp_buf_size block_size scitag f_size file_size
    time_srm_prep_st time_srm_prep_end time_srm_fin_st time_srm_fin_end srm_preparation_time srm_finalization_time
    srm_overhead_time srm_overhead_percentage t__error_message tr_timestamp_start tr_timestamp_complete transfer_time
    operation_time throughput user_dn file_metadata job_metadata activity retry retry_max job_m_replica job_multihop
    transfer_lasthop is_archiving job_state is_recoverable ipver eviction_code cleanup_code final_destination
    transfer_type auth_method overwrite_on_disk_flag overwrite_on_disk_deletion_code src_protocol dst_protocol
    src_transfer_protocol dst_transfer_protocol protocol_translation"""
STATE_KEYS = """user_dn src_url dst_url vo_name source_se dest_se job_id file_id job_state file_state retry_counter
    retry_max user_filesize timestamp submit_time staging_start staging_finished staging archiving_start
    archiving_finished archiving reason job_metadata file_metadata"""
QUEUE_KEYS = """source_se dest_se throughput throughput_ema duration_avg filesize_avg filesize_stddev success_rate
    retry_count active_count submitted_count connections diff rationale timestamp"""
KEYS = {START: START_KEYS, COMPLETE: COMPLETE_KEYS, STATE: STATE_KEYS, QUEUE: QUEUE_KEYS}


class FileSink:
    """Not a broker, but it keeps what it is told, too."""

    def __init__(self, path):
        self.path = path

    def collect(self, count):
        eventually(f"{count} messages came", lambda: len(self.lines()) >= count, 60)
        return [(line["message"], line["body"], line) for line in self.lines()]

    def lines(self):
        if not self.path.exists():
            return []
        # The last line may be half written at this moment.
        whole = self.path.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]


@pytest.fixture(scope="module")
def rabbitmq(fault_ca):
    broker = RabbitMq(fault_ca)
    try:
        yield broker.start()
    finally:
        broker.close()


@pytest.fixture
def site(binary, tmp_path, fault_ca):
    """A site that copies within itself."""
    site = Site(binary, tmp_path / "site", "teller", HOST)
    site.trust(fault_ca.certificate)
    site.configure("[transfer]", retries=0)
    yield site
    site.kill()


def tell(site, **sink):
    """Adds a sink to the configuration. Links are told when a test asks for it, so that messages can be counted."""
    sink = {"optimizer_every": "1h"} | sink
    lines = ["", "[[transfer.messages]]", 'name = "test"', *(f"{key} = {json.dumps(sink[key])}" for key in sink)]
    site.append("\n".join(lines) + "\n")


def tell_broker(site, urls, password=PASSWORD, **more):
    secret = site.directory / "keys/broker"
    secret.write_text(password + "\n")
    secret.chmod(0o600)
    tell(site, brokers=urls, user=USER, password_file="keys/broker", **more)


@pytest.fixture(params=["file", "stomp", "stomp+tls", "nats", "nats+tls"])
def sink(request, site, fault_ca):
    """A sink that the site tells; gives back what it has kept."""
    if request.param == "file":
        tell(site, file="state/told.jsonl")
        yield FileSink(site.directory / "state/told.jsonl")
    elif request.param.startswith("stomp"):
        rabbitmq = request.getfixturevalue("rabbitmq")
        tell_broker(site, [rabbitmq.url(tls=request.param.endswith("tls"))], prefix="/queue/")
        yield rabbitmq
    else:
        broker = Nats(fault_ca, tls=request.param.endswith("tls"))
        try:
            broker.start()
            tell_broker(site, [broker.url()])
            yield broker
        finally:
            broker.close()


def copies(site, count, name="f", **params):
    """Submits a job of files that exist, with one that does not when `missing` is asked for."""
    door, service = Door(site), Service(site)
    missing = params.pop("missing", 0)
    door.put(f"/messages/{name}", content(name, 10_000))
    files = [(door.url(f"/messages/{name}"), door.url(f"/copies/{name}/{number}")) for number in range(count)]
    files += [(door.url("/messages/none"), door.url(f"/copies/{name}/none"))] * missing
    return service, service.submit(*files, **params)


def lives(messages):
    """What was told of each transfer, in order; a message that came twice counts once."""
    told = {}
    for topic, body, _ in messages:
        word = body.get("file_state") or body.get("t_final_transfer_state")
        told.setdefault(body["file_id"], []).append((topic, word))
    return told


def without_repeats(life):
    """A message may come again, together with those after it."""
    kept = []
    for message in life:
        if message not in kept:
            kept.append(message)
    return kept


def by_topic(messages):
    """RabbitMQ keeps the order of one queue, not of several."""
    ordered = sorted(messages, key=lambda message: message[0])
    return {topic: [body for _, body, _ in some] for topic, some in groupby(ordered, key=lambda message: message[0])}


def test_a_transfer_is_told_from_its_submission_to_its_end(site, sink):
    site.start()
    service, job = copies(site, 3, missing=1, job_metadata={"issuer": "rucio"}, retry=-1)
    service.wait(job)
    ours = [message for message in sink.collect(20) if message[1].get("job_id") == job]
    told = by_topic(ours)
    assert {topic: len(bodies) for topic, bodies in told.items()} == {START: 4, COMPLETE: 4, STATE: 12}
    if not isinstance(sink, RabbitMq):
        files = {file["file_id"]: file["file_state"] for file in service.files(job)}
        for file, life in lives(ours).items():
            failed = files[file] == "FAILED"
            end = [(COMPLETE, "Error"), (STATE, "FAILED")] if failed else WHOLE_LIFE[3:]
            assert life == WHOLE_LIFE[:3] + end
    for topic, bodies in told.items():
        for body in bodies:
            missing = set(KEYS[topic].split()) - set(body)
            assert not missing, f"{topic} lacks {missing}"
            assert body["job_metadata"]["issuer"] == "rucio"
    last = [body["job_state"] for body in told[STATE] if body["file_state"] in ("FINISHED", "FAILED")]
    assert sorted(last)[-1] == "FINISHEDDIRTY" and last.count("FINISHEDDIRTY") == 1
    [failure] = [body for body in told[COMPLETE] if body["t_final_transfer_state"] == "Error"]
    assert (failure["t_error_code"], failure["tr_error_scope"]) == (2, "SOURCE")
    assert failure["tr_id"].endswith(f"__{failure['file_id']}__{job}")
    landed = next(body for body in told[COMPLETE] if body["t_final_transfer_state"] == "Ok")
    assert (landed["f_size"], landed["tr_bt_transfered"]) == (10_000, 10_000)
    assert 0 < landed["tr_timestamp_start"] <= landed["tr_timestamp_complete"]
    assert landed["job_state"] == "UNKNOWN" and landed["vo"] == "teller"


def completed(sink, job, count):
    """Final state, state of the job, and whether it was the last hop, of each attempt of a job."""

    def told():
        bodies = [body for topic, body, _ in sink.collect(1) if topic == COMPLETE and body["job_id"] == job]
        return bodies if len(bodies) == count else None

    bodies = eventually(f"{count} attempts were told", told)
    return [(body["t_final_transfer_state"], body["job_state"], body["transfer_lasthop"]) for body in bodies]


def test_jobs_of_replicas_and_hops_say_in_each_message_whether_they_are_over(site):
    """What a client needs that hears of attempts only: a replica that failed while another is left is not the end."""
    tell(site, file="state/told.jsonl")
    site.start()
    sink, door, service = FileSink(site.directory / "state/told.jsonl"), Door(site), Service(site)
    door.put("/messages/a", b"data")
    missing, there = door.url("/messages/none"), door.url("/messages/a")

    def replicas(name, *sources):
        file = {"sources": list(sources), "destinations": [door.url(f"/copies/{name}")]}
        job = service.submit(file | {"selection_strategy": "orderly"}, retry=-1)
        service.wait(job)
        return job

    arrived = replicas("arrived", missing, there)
    assert completed(sink, arrived, 2) == [("Error", "ACTIVE", True), ("Ok", "FINISHED", True)]
    failed = replicas("failed", missing, door.url("/messages/neither"))
    assert completed(sink, failed, 2) == [("Error", "ACTIVE", True), ("Error", "FAILED", True)]
    hops = [(there, door.url("/copies/hop1")), (door.url("/copies/hop1"), door.url("/copies/hop2"))]
    job = service.submit(*hops, multihop=True)
    service.wait_finished(job)
    assert completed(sink, job, 2) == [("Ok", "ACTIVE", False), ("Ok", "FINISHED", True)]


def test_stomp_messages_look_as_those_of_fts(site, rabbitmq):
    """A blank behind the JSON, a day to live, and the VO as a header of the messages that name it so."""
    tell_broker(site, [rabbitmq.url()], prefix="/queue/")
    site.start()
    service, job = copies(site, 1)
    service.wait_finished(job)
    found = [message for message in rabbitmq.collect(5) if message[1].get("job_id") == job]
    for topic, _, frame in found:
        assert frame.body.endswith("} ")
        assert frame.headers["expiration"] == "86400000"
        assert frame.headers.get("vo") == ("teller" if topic == STATE else None)


@pytest.mark.parametrize("kind", [RabbitMq, Nats])
def test_what_happens_while_a_broker_is_away_is_told_when_it_is_back(site, fault_ca, kind):
    broker = kind(fault_ca)
    try:
        broker.start()
        url = broker.url()
        tell_broker(site, [url], **({"prefix": "/queue/"} if kind is RabbitMq else {}))
        site.start()
        service, first = copies(site, 5, name="first")
        service.wait_finished(first)
        before = broker.collect(25)
        broker.stop()
        service, second = copies(site, 30, name="second")
        service.wait_finished(second)
        eventually("the log tells it", lambda: "messages are not taken" in site.log_text())
        site.kill()
        site.start()
        third = copies(site, 5, name="third")[1]
        Service(site).wait_finished(third)
        site.kill()
        broker.start(**({"stream": False} if kind is Nats else {}))
        site.start()
        # A stream keeps what it has given.
        after = broker.collect(200) if kind is Nats else broker.collect(175, besides=before)
        told = {body["job_id"] for _, body, _ in before + after if "job_id" in body}
        assert {first, second, third} <= told
        for topic, expected in ((START, 40), (COMPLETE, 40), (STATE, 120)):
            ids = {
                (body["file_id"], body.get("file_state"))
                for kind_of, body, _ in before + after
                if kind_of == topic
            }
            assert len(ids) == expected, f"{topic}: {len(ids)}"
        if kind is Nats:
            assert all(without_repeats(life) == WHOLE_LIFE for life in lives(after).values())
        else:
            states = [message for message in after if message[0] == STATE]
            expected = [message for message in WHOLE_LIFE if message[0] == STATE]
            assert all(without_repeats(life) == expected for life in lives(states).values())
    finally:
        broker.close()


def test_a_killed_service_forgets_to_tell_nothing(site):
    tell(site, file="state/told.jsonl")
    site.start()
    jobs = []
    for round_number in range(4):
        jobs.append(copies(site, 20, name=f"round{round_number}")[1])
        site.kill()
        site.start()
    service = Service(site)
    for job in jobs:
        service.wait(job)
    sink = FileSink(site.directory / "state/told.jsonl")

    def ended():
        bodies = [body for topic, body, _ in sink.collect(1) if topic == STATE]
        return {body["file_id"] for body in bodies if body["file_state"] == "FINISHED"}

    eventually("the end of all 80 transfers was told", lambda: len(ended()) == 80, 60)
    ids = [line["id"] for line in sink.lines()]
    numbers = [int(line.split("-")[0]) for line in dict.fromkeys(ids)]
    assert numbers == sorted(numbers), "in the order of the record"


def test_messages_wait_for_a_position_that_cannot_be_read_and_are_told_when_it_can(site):
    tell(site, file="state/told.jsonl")
    sink = FileSink(site.directory / "state/told.jsonl")
    site.start()
    service, first = copies(site, 2, name="first")
    service.wait_finished(first)
    told = len(sink.collect(10))
    site.stop()
    position = next(path for path in (site.directory / "state").rglob("*") if path.is_file() and path.stem == "test")
    aside = position.with_name("aside")
    position.rename(aside)
    position.mkdir()
    site.start()
    service, second = copies(site, 3, name="second")
    service.wait_finished(second)
    eventually("the log tells it", lambda: "messages wait until" in site.log_text())
    assert len(sink.lines()) == told, "it is not known which messages are due"
    position.rmdir()
    aside.rename(position)
    messages = sink.collect(told + 15)
    assert len(lives(messages)) == 5
    assert all(without_repeats(life) == WHOLE_LIFE for life in lives(messages).values())


def test_the_second_broker_is_used_while_the_first_is_away(site, rabbitmq):
    tell_broker(site, ["stomp://127.0.0.1:9", rabbitmq.url()], prefix="/queue/")
    site.start()
    service, job = copies(site, 1)
    service.wait_finished(job)
    assert [body for _, body, _ in rabbitmq.collect(5) if body.get("job_id") == job]


def test_a_wrong_password_is_said_and_kept_out_of_the_log(site, rabbitmq):
    tell_broker(site, [rabbitmq.url()], password="wrong-word", prefix="/queue/")
    site.start()
    service, job = copies(site, 1)
    service.wait_finished(job)
    eventually("the log tells it", lambda: "refuses" in site.log_text())
    assert "wrong-word" not in site.log_text()


def test_a_nats_server_without_a_stream_is_told_what_to_do(site, fault_ca):
    broker = Nats(fault_ca)
    try:
        broker.start(stream=False)
        tell_broker(site, [broker.url()])
        site.start()
        service, job = copies(site, 2)
        service.wait_finished(job)
        eventually("the log tells the remedy", lambda: "nats stream add" in site.log_text())
        broker.make_stream()
        assert len([body for _, body, _ in broker.collect(10) if body.get("job_id") == job]) == 10
    finally:
        broker.close()


def test_links_are_told_while_something_runs_on_them(site, rabbitmq):
    tell(site, file="state/told.jsonl", optimizer_every="1s")
    site.configure("[transfer]", active_max_per_link=1)
    site.start()
    copies(site, 1500)
    sink = FileSink(site.directory / "state/told.jsonl")
    link = eventually(
        "a link is told", lambda: next((line for line in sink.lines() if line["message"] == QUEUE), None), 30
    )["body"]
    assert set(link) == set(QUEUE_KEYS.split())
    assert link["connections"] == 1 and link["source_se"] == f"https://{HOST}"
    assert link["active_count"] + link["submitted_count"] > 0


@pytest.mark.parametrize(
    "sink, expected",
    [
        ({"brokers": ["amqp://mq"]}, "scheme is none of stomp"),
        ({"brokers": ["stomp://me:secret@mq"]}, "do not belong into the URL"),
        ({"brokers": ["stomp://a", "nats://b"]}, "speak different languages"),
        ({}, "needs either brokers or a file"),
        ({"file": "x", "user": "me"}, "belong together"),
    ],
)
def test_a_sink_that_cannot_be_is_refused_by_name(site, sink, expected):
    tell(site, **sink)
    with pytest.raises(AssertionError, match=expected) as refused:
        site.command("check")
    assert "transfer.messages 'test'" in str(refused.value) and "secret" not in str(refused.value)
