"""Files between storage elements and cloud storages that speak S3, through the transfer service: every way there is,
with and without TLS, what can go wrong, and that no secret is ever told.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote as quoted

import pytest

from .clients import Service, adler32, content
from .cloud_servers import ACCESS_KEY, BUCKET, SECRET_KEY
from .conftest import make_grid
from .fault_server import redirected, stalled
from .waiting import eventually

KINDS = ["moto", "s3s-fs"]
TOOLS = Path(sys.executable).parent
PART = 16 * 1024 * 1024


class Lab:
    """Two sites, of which one runs the service and has keys for both cloud storages."""

    def __init__(self, grid, clouds):
        self.grid = grid
        self.clouds = clouds
        self.admin = Service(grid.here, grid.here.admin_token())
        self.service = grid.service
        self.vo = self.service.ask("GET", "/whoami").json()["vos"][0]
        for cloud in clouds.values():
            self.add(cloud.name)
            self.grant(cloud.name)

    def ask(self, method, name="", expect=None, **body):
        path = "/config/cloud_storage" + (f"/{name}" if name else "")
        answer = self.admin.ask(method, path, **({"json": body} if body else {}))
        assert expect is None or answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def add(self, name, **more):
        return self.ask("POST", expect=201, storage_name=name, **more)

    def grant(self, name, access_key=ACCESS_KEY, secret_key=SECRET_KEY, **more):
        whom = {} if "user_dn" in more or "vo_name" in more else {"vo_name": self.vo}
        keys = {"access_key": access_key, "secret_key": secret_key}
        return self.ask("POST", name, expect=201, **keys, **whom, **more)


@pytest.fixture(scope="module")
def lab(binary, tmp_path_factory, fault_ca, clouds):
    grid = make_grid(binary, tmp_path_factory.mktemp("cloud"), fault_ca)
    # Whatever is said is looked through for secrets in the end.
    grid.here.append('\n[[transfer.messages]]\nname = "all"\nfile = "state/messages.jsonl"\n')
    for site in grid.sites:
        site.log_levels = "trace"
    try:
        for site in grid.sites:
            site.start()
        lab = Lab(grid, clouds)
        yield lab
        assert_no_answer_tells(lab.admin)
        codes = [site.stop()[0] for site in grid.sites]
        assert codes == [0, 0], f"{grid.here.log_tail()}\n{grid.there.log_tail()}"
        for site in grid.sites:
            assert_nothing_told(site)
        assert (grid.here.directory / "state/messages.jsonl").stat().st_size > 0
    finally:
        for site in grid.sites:
            site.kill()


SECRETS = [SECRET_KEY, "X-Amz-Signature", "X-Amz-Credential", "AWS4-HMAC"]


def assert_no_answer_tells(admin):
    """No answer of the service holds a secret or a signature, whatever it is asked of its jobs and settings."""
    states = "FINISHED,FAILED,CANCELED,FINISHEDDIRTY"
    jobs = admin.ask("GET", f"/jobs?state_in={states}&time_window=1&limit=500").json()
    assert len(jobs) > 10
    paths = ["/config/cloud_storage", "/config/audit?limit=1000", "/api/v1/overview", "/metrics"]
    for job in jobs:
        own = [f"/jobs/{job['job_id']}", f"/jobs/{job['job_id']}/files", f"/api/v1/jobs/{job['job_id']}/explain"]
        file = admin.ask("GET", own[1]).json()[0]["file_id"]
        paths += [*own, f"{own[1]}/{file}/retries"]
    for path in paths:
        text = admin.ask("GET", path).text
        found = [secret for secret in SECRETS if secret in text]
        assert not found, f"{path} tells {found}"


def assert_nothing_told(site):
    """Neither the log nor any file of the site holds a secret or a signature."""
    for path in site.directory.rglob("*"):
        if path.is_file():
            found = [secret for secret in SECRETS if secret.encode() in path.read_bytes()]
            assert not found, f"{path} holds {found}"


@pytest.fixture(params=KINDS)
def cloud(request, lab):
    cloud = lab.clouds[request.param]
    cloud.forget_uploads()
    return cloud


@pytest.fixture
def key(place):
    return f"{place.strip('/')}/a file+ü$.bin"


@pytest.mark.parametrize("tls", [True, False], ids=["s3s", "s3"])
@pytest.mark.parametrize("size", [0, 5_000_000])
def test_a_storage_element_pulls_from_a_cloud_storage(lab, cloud, place, key, size, tls):
    data = content(place, size)
    cloud.put(key, data)
    there = lab.grid.there_door
    job = lab.service.submit((cloud.url(quoted(key), tls=tls), there.url(f"{place}/b")), s3alternate=True)
    lab.service.wait_finished(job)
    assert lab.grid.here.landed_modes(job) == ["pull"]
    assert there.get(f"{place}/b") == data


@pytest.mark.parametrize("tls", [True, False], ids=["s3s", "s3"])
@pytest.mark.parametrize("size", [0, 5_000_000])
def test_a_storage_element_pushes_to_a_cloud_storage(lab, cloud, place, key, size, tls):
    data = content(place, size)
    lab.grid.here_door.put(f"{place}/a", data)
    job = lab.service.submit((lab.grid.here_door.url(f"{place}/a"), cloud.url(quoted(key), tls=tls)))
    lab.service.wait_finished(job)
    assert lab.grid.here.landed_modes(job) == ["push"]
    assert cloud.get(key) == data


@pytest.mark.parametrize("size", [0, PART, 2 * PART + 7])
def test_what_is_to_be_verified_passes_through_the_service(lab, cloud, place, key, size):
    data = content(place, size)
    lab.grid.here_door.put(f"{place}/a", data)
    job = lab.service.submit(
        (lab.grid.here_door.url(f"{place}/a"), cloud.url(quoted(key))), verify_checksum="both"
    )
    lab.service.wait_finished(job)
    assert lab.grid.here.landed_modes(job) == ["streamed"]
    assert cloud.get(key) == data
    assert cloud.head(key)["Metadata"]["adler32"] == adler32(data)
    [landed] = [event for event in lab.grid.here.ledger(job) if event["event"] == "landed"]
    assert landed["report"]["verified"] == "in_passing"
    assert cloud.uploads() == []


@pytest.mark.parametrize("size", [1, 2 * PART + 5])
@pytest.mark.parametrize("kinds", [KINDS, KINDS[::-1]], ids="-to-".join)
def test_between_two_cloud_storages_the_bytes_pass_through(lab, place, key, size, kinds):
    source, destination = (lab.clouds[kind] for kind in kinds)
    data = content(place, size)
    source.put(key, data)
    job = lab.service.submit(
        {
            "sources": [source.url(quoted(key))],
            "destinations": [destination.url(quoted(key))],
            "checksum": f"ADLER32:{adler32(data)}",
        },
        verify_checksum="target",
    )
    lab.service.wait_finished(job)
    assert lab.grid.here.landed_modes(job) == ["streamed"]
    assert destination.get(key) == data
    words = lab.service.ask("GET", f"/api/v1/jobs/{job}/explain").text
    assert "copies nothing from or to others" in words and "checked the MD5 of each part" in words


@pytest.mark.parametrize("mode", ["none", "target"])
def test_what_exists_is_replaced_only_when_the_job_allows_it(lab, cloud, place, key, mode):
    old, new = b"what was there", content(place, 100_000)
    cloud.put(key, old)
    lab.grid.here_door.put(f"{place}/a", new)
    file = {
        "sources": [lab.grid.here_door.url(f"{place}/a")],
        "destinations": [cloud.url(quoted(key))],
        "checksum": f"ADLER32:{adler32(new)}",
    }
    reason = lab.service.wait_failed(lab.service.submit(file, verify_checksum=mode, retry=-1))
    assert reason == "DESTINATION [17] Destination file exists and overwrite is not enabled"
    assert cloud.get(key) == old
    lab.service.wait_finished(lab.service.submit(file, verify_checksum=mode, overwrite=True))
    assert cloud.get(key) == new


@pytest.mark.parametrize("size", [1000, 2 * PART])
def test_bytes_that_are_not_those_of_the_job_are_not_stored(lab, cloud, place, key, size):
    lab.grid.here_door.put(f"{place}/a", content(place, size))
    job = lab.service.submit(
        {
            "sources": [lab.grid.here_door.url(f"{place}/a")],
            "destinations": [cloud.url(quoted(key))],
            "checksum": "ADLER32:00000001",
        },
        verify_checksum="target",
        retry=-1,
    )
    assert "checksum do not match" in lab.service.wait_failed(job)
    assert key not in cloud.keys() and cloud.uploads() == []


def test_a_missing_bucket_or_object_is_named_with_the_remedy(lab, cloud, place):
    data = content(place, 10)
    lab.grid.here_door.put(f"{place}/a", data)
    there = lab.grid.there_door.url(f"{place}/b")
    none = lab.service.submit((cloud.url("f", bucket="no-such-bucket"), there))
    reason = lab.service.wait_failed(none)
    assert reason.startswith("SOURCE [2] No such file or directory: ")
    # s3s-fs says of an object only that it is not there, and makes buckets.
    if cloud.kind == "moto":
        assert "the bucket 'no-such-bucket' does not exist" in reason
        into = cloud.url("f", bucket="no-such-bucket")
        into = lab.service.submit((lab.grid.here_door.url(f"{place}/a"), into))
        assert "the bucket 'no-such-bucket' does not exist" in lab.service.wait_failed(into)
    missing = lab.service.submit((cloud.url("not/there"), there))
    assert lab.service.wait_failed(missing).startswith("SOURCE [2] No such file or directory")


def test_a_users_own_keys_count_before_the_vos_and_new_ones_at_once(lab, place, key):
    cloud = lab.clouds["s3s-fs"]
    data = content(place, 1000)
    cloud.put(key, data)
    pair = (cloud.url(quoted(key)), lab.grid.there_door.url(f"{place}/b"))
    lab.grant(cloud.name, user_dn="alice", secret_key="wrong-secret-of-alice")
    reason = lab.service.wait_failed(lab.service.submit(pair, retry=-1))
    assert "SignatureDoesNotMatch" in reason and "penstock cloud-storage grant S3:127.0.0.42" in reason
    lab.grant(cloud.name, user_dn="alice")
    lab.service.wait_finished(lab.service.submit(pair))
    lab.grant(cloud.name, user_dn="alice", access_key="AKIANOBODY", secret_key="x")
    reason = lab.service.wait_failed(lab.service.submit((pair[0], pair[1] + "2"), retry=-1))
    assert "the keys of user" in reason and "are wrong" in reason
    [own] = [row for row in lab.ask("GET", cloud.name).json() if row["user_dn"]]
    assert own["user_dn"].endswith("#alice") and own["access_token"] == "AKIANOBODY"
    assert own["access_token_secret"] is None
    lab.ask("DELETE", f"{cloud.name}/{quoted(own['user_dn'], safe='')}", expect=204)
    lab.service.wait_finished(lab.service.submit((pair[0], pair[1] + "3")))


def test_a_job_that_nobody_gave_keys_for_is_refused_with_the_remedy(lab, place):
    door = lab.grid.here_door.url(f"{place}/a")
    unknown = lab.service.try_submit((door, "s3s://unknown.example.org/b/f"))
    assert unknown.status_code == 400
    assert "penstock cloud-storage add S3:UNKNOWN.EXAMPLE.ORG" in unknown.json()["message"]
    lab.add("S3:empty.example.org")
    for url in ("s3s://empty.example.org/b/f", "s3s://bucket.empty.example.org/f"):
        refused = lab.service.try_submit((door, url))
        assert refused.status_code == 400
        assert "penstock cloud-storage grant S3:EMPTY.EXAMPLE.ORG" in refused.json()["message"]
    lab.grant("S3:empty.example.org")
    for url in ("s3s://empty.example.org/b", "s3s://empty.example.org/b/f?x=1"):
        assert lab.service.try_submit((door, url)).status_code == 400
    lab.ask("DELETE", "S3:empty.example.org", expect=204)
    lab.ask("DELETE", "S3:empty.example.org", expect=404)


def test_keys_that_make_no_sense_are_refused_and_not_repeated(lab):
    name = lab.clouds["moto"].name
    for body in [
        {"access_key": "a", "secret_key": "b"},
        {"vo_name": "x", "user_dn": "y", "access_key": "a", "secret_key": "b"},
        {"vo_name": "x", "access_key": "a"},
        {"vo_name": "x", "access_key": "a/b", "secret_key": "b"},
        {"vo_name": "x", "access_key": "a", "secret_key": "b\r\nX: y"},
        {"vo_name": "x", "access_key": "a", "access_token": "a", "secret_key": "b"},
        {"vo_name": "x", "access_key": "a", "secret_key": "b", "nonsense": 1},
    ]:
        refused = lab.ask("POST", name, expect=400, **body)
        assert "b\r\n" not in refused.text
    assert lab.ask("POST", "S3:nowhere", access_key="a", secret_key="b", vo_name="x").status_code == 404


def test_the_command_line_takes_secrets_from_files_only_and_tells_none(lab, tmp_path):
    here = lab.grid.here
    keys = tmp_path / "keys"
    keys.write_text("aws_access_key_id = AKIAFILE\naws_secret_access_key = hidden-in-a-file\n")
    keys.chmod(0o600)
    here.command("cloud-storage", "add", "S3:cli.example.org", "--region", "eu-west-3")
    here.command("cloud-storage", "grant", "S3:cli.example.org", "--vo", "dteam", "--keys", str(keys))
    words = ["cloud-storage", "grant", "S3:cli.example.org", "--user", "/DC=org/CN=Bob", "--keys", "-"]
    told = here.command(*words, input="access_key=AKIASTDIN\nsecret_key=hidden-in-a-pipe\nsession_token=hidden-too\n")
    assert told.split() == "S3:CLI.EXAMPLE.ORG user /DC=org/CN=Bob: key AKIASTDIN, temporary".split()
    listed = here.command("cloud-storage", "list")
    assert "VO dteam: key AKIAFILE" in listed and "region eu-west-3" in listed
    here.command("cloud-storage", "revoke", "S3:cli.example.org", "--user", "/DC=org/CN=Bob")
    audited = here.command("audit", "--limit", "10")
    assert "cloud-key" in audited and "cloud-key-delete" in audited and "AKIASTDIN" in audited
    here.command("cloud-storage", "remove", "S3:cli.example.org")
    assert "CLI.EXAMPLE" not in here.command("cloud-storage", "list")
    for path in here.directory.rglob("*"):
        assert not path.is_file() or b"hidden-" not in path.read_bytes(), path
    assert "hidden-" not in listed + audited + told


def test_keys_are_sealed_anew_when_the_sealing_key_changes(lab, cloud, place, key):
    here = lab.grid.here
    cloud.put(key, b"x")
    here.command("key", "rotate", "credential")
    here.reload()
    for number in range(3):
        pair = (cloud.url(quoted(key)), lab.grid.there_door.url(f"{place}/{number}"))
        lab.service.wait_finished(lab.service.submit(pair))


def test_the_fts3_client_submits_with_paths_of_alternate_style(lab, cloud, place, key, tmp_path):
    cloud.put(key, b"by the client")
    there = lab.grid.there_door
    line = [TOOLS / "fts-rest-transfer-submit", "-s", lab.grid.here.service, "--access-token", lab.grid.token]
    line += ["--capath", lab.grid.here.certificates, "--s3alternate", "--json"]
    line += [cloud.url(quoted(key)), there.url(f"{place}/b")]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    lab.service.wait_finished(json.loads(done.stdout))
    assert there.get(f"{place}/b") == b"by the client"


def copy(lab, path, **headers):
    """A COPY as anybody may send it to a door, with an address that somebody else signed."""
    token = {"Authorization": f"Bearer {lab.grid.token}", "Credential": "none"}
    return lab.grid.here_door.ask("COPY", path, headers=token | headers)


def test_a_door_takes_presigned_addresses_of_others_as_they_are(lab, cloud, place, key):
    data = content(place, 200_000)
    cloud.put(key, data)
    named = {"Bucket": BUCKET, "Key": key}
    source = cloud.client.generate_presigned_url("get_object", Params=named)
    pulled = copy(lab, f"{place}/a", Source=source)
    assert pulled.status_code == 201 or "success" in pulled.text, pulled.text
    assert lab.grid.here_door.get(f"{place}/a") == data
    destination = cloud.client.generate_presigned_url("put_object", Params=named | {"Key": f"{key}2"})
    pushed = copy(lab, f"{place}/a", Destination=destination)
    assert "success" in pushed.text, pushed.text
    assert cloud.get(f"{key}2") == data
    expired = cloud.client.generate_presigned_url("get_object", Params=named, ExpiresIn=-1)
    failed = copy(lab, f"{place}/c", Source=expired)
    assert cloud.kind == "moto" or "failure" in failed.text, failed.text
    assert "X-Amz-" not in pulled.text + pushed.text + failed.text


@pytest.mark.parametrize("way", ["to XRootD", "from XRootD"])
def test_a_real_xrootd_copies_from_and_to_a_cloud_storage(field, clouds, place, way):
    admin, cloud = Service(field.here, field.here.admin_token()), clouds["s3s-fs"]
    vo = field.service.ask("GET", "/whoami").json()["vos"][0]
    keys = {"vo_name": vo, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    for path, body in [("", {"storage_name": cloud.name}), (f"/{cloud.name}", keys)]:
        answer = admin.ask("POST", f"/config/cloud_storage{path}", json=body)
        assert answer.status_code == 201, answer.text
    data, key, door = content(place, 300_000), f"{place.strip('/')}/a", field.door(field.xrootd)
    if way == "to XRootD":
        cloud.put(key, data)
        job = field.service.submit((cloud.url(key), door.url(f"{place}/a")))
    else:
        door.put(f"{place}/a", data, expect=200)
        job = field.service.submit((door.url(f"{place}/a"), cloud.url(key)))
    field.service.wait_finished(job)
    arrived = door.get(f"{place}/a") if way == "to XRootD" else cloud.get(key)
    assert arrived == data
    assert field.here.landed_modes(job) == ["pull" if way == "to XRootD" else "push"]
    assert "X-Amz" not in json.dumps(field.here.ledger(job))


S3_ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>"


def says(status, code, message="told by the test", more="", **headers):
    """An answer in the words of S3."""
    body = S3_ERROR.format(code=code, message=message, more=more).encode()

    def answer(exchange):
        if exchange.command != "HEAD":
            list(exchange.body_pieces())
        exchange.reply(status, body, headers)

    return answer


@pytest.fixture
def odd(lab, faulty):
    """A cloud storage that misbehaves as told, with keys for it."""
    lab.add(f"S3:{faulty.host}")
    lab.grant(f"S3:{faulty.host}")
    faulty.s3 = faulty.url.replace("https", "s3s")
    return faulty


def requests_to(server, method):
    return [seen for seen in server.seen if seen.method == method]


def test_the_other_end_gets_one_signed_address_and_no_credentials(lab, odd, place):
    data = content(place, 1000)
    path = "/data/f"
    odd.offer(path, data)
    there = lab.grid.there_door
    lab.service.wait_finished(lab.service.submit((odd.s3 + path, there.url(f"{place}/b"))))
    [pulled] = [seen for seen in requests_to(odd, "GET") if "Range" not in seen.headers]
    assert pulled.path.startswith(f"{path}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={ACCESS_KEY}%2F")
    assert "Authorization" not in pulled.headers and "&X-Amz-Signature=" in pulled.path
    [looked] = requests_to(odd, "HEAD")
    assert looked.path == path and looked.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=")
    assert not any("Bearer" in str(seen.headers) for seen in odd.seen)


def test_a_storage_element_that_cannot_use_the_address_leaves_it_to_the_service(lab, odd, place):
    data = content(place, 1000)

    def only_with_header(exchange):
        allowed = "Authorization" in exchange.headers
        exchange.reply(*((200, data) if allowed else (403, b"<Error><Code>AccessDenied</Code></Error>")))

    odd.offer("/data/f", data, get=only_with_header)
    there = lab.grid.there_door
    job = lab.service.submit((odd.s3 + "/data/f", there.url(f"{place}/b")))
    lab.service.wait_finished(job)
    assert lab.grid.here.landed_modes(job) == ["streamed"]
    assert "X-Amz" not in json.dumps(lab.grid.here.ledger(job))


@pytest.mark.parametrize(
    "answer, expected",
    [
        (
            says(403, "RequestTimeTooSkewed", more="<ServerTime>2020-01-01T00:00:00Z</ServerTime>"),
            ["SOURCE [13]", "theirs says 2020-01-01T00:00:00Z", "chrony"],
        ),
        (says(503, "SlowDown", **{"Retry-After": "7"}), ["SOURCE [11]", "SlowDown", "7 s of pause"]),
        (says(403, "ExpiredToken"), ["SOURCE [1]", "temporary keys", "penstock cloud-storage grant S3:127.0.0.4"]),
        (
            says(403, "SignatureDoesNotMatch", more="<StringToSign>AWS4-HMAC-SHA256 x</StringToSign>"),
            ["SOURCE [1]", "are wrong"],
        ),
        (says(500, "InternalError", message="x" * 100_000), ["SOURCE [5]"]),
    ],
    ids=["skew", "slow down", "expired", "signature", "huge"],
)
def test_errors_are_explained_with_what_to_do(lab, odd, place, answer, expected):
    odd.answers["HEAD", "/data/f"] = odd.answers["GET", "/data/f"] = answer
    job = lab.service.submit((odd.s3 + "/data/f", lab.grid.there_door.url(f"{place}/b")), retry=-1)
    reason = lab.service.wait_failed(job)
    assert all(words in reason for words in expected), reason
    assert "AWS4" not in reason and len(reason) < 2000


def test_a_part_that_is_refused_for_the_moment_is_sent_again(lab, odd, place):
    tried = []

    def busy_once(exchange):
        data = exchange.read_body()
        tried.append(exchange.headers.get("Content-MD5"))
        if len(tried) == 1:
            return exchange.reply(503, b"<Error><Code>SlowDown</Code></Error>")
        exchange.fault.files[exchange.path] = data
        return exchange.reply(200, headers={"ETag": f'"{hashlib.md5(data).hexdigest()}"'})

    data = content(place, 1000)
    odd.answers["PUT", "/data/f"] = busy_once
    lab.grid.here_door.put(f"{place}/a", data)
    odd.answers["GET", "/data/f"] = says(404, "NoSuchKey")
    job = lab.service.submit(
        (lab.grid.here_door.url(f"{place}/a"), odd.s3 + "/data/f"), verify_checksum="target"
    )
    lab.service.wait_finished(job)
    assert len(tried) == 2 and tried[0] == tried[1]


def test_keys_follow_a_redirect_within_their_provider_only(lab, odd, elsewhere, place):
    data = content(place, 1000)
    odd.offer("/other/f", data)
    for method in ("HEAD", "GET"):
        odd.answers[method, "/data/f"] = redirected(odd.url + "/other/f")
        odd.answers[method, "/data/g"] = redirected(elsewhere.url + "/data/g")
    there = lab.grid.there_door
    lab.service.wait_finished(lab.service.submit((odd.s3 + "/data/f", there.url(f"{place}/f"))))
    assert there.get(f"{place}/f") == data
    reason = lab.service.wait_failed(lab.service.submit((odd.s3 + "/data/g", there.url(f"{place}/g")), retry=-1))
    assert "where its keys are not sent" in reason and elsewhere.seen == []


def stuck_upload(grid, cloud, faulty, key):
    """A job whose source stops after two parts were stored."""
    data = content(key, 4 * PART)
    source = faulty.offer("/slow", data, get=stalled(data, after=3 * PART + 1000))
    job = grid.service.submit((source, cloud.url(quoted(key))), retry=-1)
    eventually("parts are stored", lambda: progress(grid, job) >= 2 * PART, 60)
    assert cloud.uploads() != []
    return job, data


def progress(grid, job):
    active = grid.service.ask("GET", "/api/v1/overview").json()["active_transfers"]
    return sum(row["moved_bytes"] for row in active if row["job"] == job)


def test_an_upload_that_is_canceled_leaves_nothing(lab, cloud, faulty, key):
    job, _ = stuck_upload(lab.grid, cloud, faulty, key)
    lab.service.ask("DELETE", f"/jobs/{job}")
    lab.service.wait(job)
    eventually("the upload is ended", lambda: cloud.uploads() == [], 30)
    assert key not in cloud.keys()


@pytest.mark.parametrize("then", ["goes on", "is canceled"])
def test_a_kill_in_an_upload_leaves_nothing(own_grid, clouds, faulty, key, then):
    grid, cloud = own_grid, clouds["s3s-fs"]
    grid.here.start()
    lab = Lab(grid, {"s3s-fs": cloud})
    job, data = stuck_upload(grid, cloud, faulty, key)
    grid.here.kill()
    assert cloud.uploads() != []
    if then == "goes on":
        faulty.released.set()
        faulty.offer("/slow", data)
    grid.here.start()
    if then == "goes on":
        lab.service.wait_finished(job)
        assert cloud.get(key) == data
    else:
        lab.service.ask("DELETE", f"/jobs/{job}")
        lab.service.wait(job)
        eventually("the upload is ended", lambda: key not in cloud.keys(), 30)
    eventually("no upload is left", lambda: cloud.uploads() == [], 30)
    grid.here.stop()
    assert_nothing_told(grid.here)
