"""Tokens of jobs: exchanged while transfers wait, refreshed when they are used, never used up by a crash, and told
nowhere. The issuer is one of the tests; what it is asked is what INDIGO IAM and its kind understand."""

import base64
import itertools
import json
import time

import pytest

from .clients import Service, adler32, content
from .conftest import make_grid, served
from .fault_server import FaultServer
from .token_issuer import EXCHANGE, TokenIssuer
from .waiting import eventually

ISSUER_HOST, SLOW_HOST = "127.0.0.6", "127.0.0.7"
NUMBERS = itertools.count(1)
LASTING = "storage.read:/ storage.modify:/ offline_access"


@pytest.fixture(scope="module")
def whole_issuer(fault_ca):
    issuer = TokenIssuer(ISSUER_HOST, fault_ca)
    yield issuer
    issuer.close()


@pytest.fixture
def issuer(whole_issuer):
    """An issuer that answers as it should, and has been asked nothing."""
    whole_issuer.lifetime = 3600
    whole_issuer.answers.clear()
    whole_issuer.seen.clear()
    return whole_issuer


@pytest.fixture(scope="module")
def robot(user_ca):
    return user_ca.user("Robot")


@pytest.fixture(scope="module")
def renewing(binary, tmp_path_factory, fault_ca, user_ca, whole_issuer, robot):
    """Two sites that trust an issuer; the first one is its client, and knows a robot of the same VO."""
    grid = make_grid(binary, tmp_path_factory.mktemp("renewing"), fault_ca)
    whole_issuer.trusted_by(grid.here)
    whole_issuer.trusted_by(grid.there, client=None)
    user_ca.trusted_by(grid.here)
    grid.here.append(f'\n[[trust.member]]\ndn = "{robot.subject}"\nvo = "dteam"\n')
    # A service that submits for its VO, with tokens of other subjects.
    grid.service = Service(grid.here, whole_issuer.token("fts", audience=grid.here.service, life=7200, sub="rucio"))
    yield from served(grid)


def with_tokens(grid, issuer, name, scope=LASTING, life=None):
    """A file object with tokens of the issuer for both ends."""
    name = f"{name}-{next(NUMBERS)}"
    grid.here_door.put(f"/{name}", content(name, 1000))
    source = issuer.token(scope, audience=grid.here.door, life=life)
    destination = issuer.token(scope, audience=grid.there.door, life=life)
    return {
        "sources": [grid.here_door.url(f"/{name}")],
        "destinations": [grid.there_door.url(f"/{name}")],
        "source_tokens": [source],
        "destination_tokens": [destination],
    }


def states(grid, job):
    return [file["file_state"] for file in grid.service.files(job)]


def test_tokens_are_exchanged_with_their_own_rights_before_anything_starts(renewing, issuer):
    file = with_tokens(renewing, issuer, "exchanged")
    job = renewing.service.submit(file)
    renewing.service.wait_finished(job)
    forms = {form["audience"]: form for form in issuer.asked(EXCHANGE)}
    assert set(forms) == {renewing.here.door, renewing.there.door}
    for form, token in zip(
        (forms[renewing.here.door], forms[renewing.there.door]),
        (file["source_tokens"][0], file["destination_tokens"][0]),
    ):
        assert form["subject_token"] == token
        assert form["scope"] == LASTING
    assert issuer.asked("refresh_token") == [], "the first tokens live long enough"


def test_a_token_that_ends_while_its_transfer_waits_is_refreshed_and_the_next_refresh_token_is_used(
    renewing, issuer, fault_ca
):
    slow = FaultServer(SLOW_HOST, fault_ca)
    try:
        tries = []

        def busy(exchange):
            tries.append(exchange.headers["Authorization"])
            if len(tries) < 4:
                return exchange.reply(503)
            found = {"Content-Length": "4", "Digest": f"adler32={adler32(b'slow')}"}
            return exchange.reply(200, headers=found)

        slow.offer("/slow", b"slow")
        slow.answers["HEAD", "/slow"] = busy
        issuer.lifetime = 3
        source = issuer.token(LASTING, audience=slow.url)
        destination = issuer.token(LASTING, audience=renewing.there.door)
        file = {
            "sources": [f"{slow.url}/slow"],
            "destinations": [renewing.there_door.url("/slow")],
            "source_tokens": [source],
            "destination_tokens": [destination],
        }
        job = renewing.service.submit(file, retry=5, retry_delay=2)
        renewing.service.wait_finished(job, within=90)
    finally:
        slow.close()
    assert len(set(tries)) >= 3, "each try shows a token that is alive"
    refreshed = issuer.asked("refresh_token")
    used = [form["refresh_token"] for form in refreshed]
    assert len(used) == len(set(used)) >= 2, "each refresh token is used once"
    assert {form["scope"] for form in refreshed} == {LASTING}


def test_transfers_wait_in_token_prep_while_the_issuer_is_away_and_say_so(renewing, issuer):
    issuer.answers[EXCHANGE] = lambda form: (503, {})
    job = renewing.service.submit(with_tokens(renewing, issuer, "waiting"))
    eventually("it was asked", lambda: len(issuer.asked(EXCHANGE)) >= 3)
    assert states(renewing, job) == ["TOKEN_PREP"]
    assert renewing.service.job(job)["job_state"] == "SUBMITTED"
    told = renewing.here.command("explain", job, "--service", renewing.service.base)
    assert "the issuer of one of its tokens has been asked for a refresh token" in told
    del issuer.answers[EXCHANGE]
    renewing.service.wait_finished(job)
    assert states(renewing, job) == ["FINISHED"]


def test_a_refused_exchange_fails_the_transfer_in_ftss_words(renewing, issuer):
    issuer.answers[EXCHANGE] = lambda form: (
        400,
        {"error": "invalid_grant", "error_description": f"not this: {form['subject_token']}"},
    )
    file = with_tokens(renewing, issuer, "refused")
    job = renewing.service.submit(file)
    reason = renewing.service.wait_failed(job)
    assert "[TokenExchange]" in reason and "invalid_grant" in reason
    assert file["source_tokens"][0][:20] not in reason


@pytest.mark.parametrize(
    ("scope", "params"), [("storage.read:/ storage.modify:/", {}), (LASTING, {"unmanaged_tokens": True})]
)
def test_tokens_that_are_not_to_be_renewed_are_used_as_they_are(renewing, issuer, scope, params):
    job = renewing.service.submit(with_tokens(renewing, issuer, "unmanaged", scope), **params)
    renewing.service.wait_finished(job)
    assert issuer.seen == []


def test_a_submission_with_a_token_that_has_ended_is_refused(renewing, issuer):
    file = with_tokens(renewing, issuer, "ended", life=-5)
    answer = renewing.service.try_submit(file)
    assert answer.status_code == 400 and "expired at" in answer.text, answer.text
    assert file["source_tokens"][0][:20] not in answer.text


def test_an_unmanaged_token_that_ends_while_it_waits_is_not_tried_and_the_reason_says_what_to_do(
    renewing, issuer
):
    renewing.here.command("drain", "on", "--service", renewing.service.base)
    file = with_tokens(renewing, issuer, "ends", "storage.read:/ storage.modify:/", life=2)
    job = renewing.service.submit(file, retry=3)
    source = file["source_tokens"][0]
    eventually("the token has ended", lambda: time.sleep(0.5) or time.time() > issued_until(source))
    renewing.here.command("drain", "off", "--service", renewing.service.base)
    reason = renewing.service.wait_failed(job)
    assert "expired at" in reason and "submit again" in reason


def test_after_a_kill_the_refresh_token_is_still_known_and_used(renewing, issuer):
    """A refresh token that was used and not kept would be lost for good."""
    issuer.lifetime = 3
    source = issuer.token(LASTING, audience=renewing.here.door)
    file = with_tokens(renewing, issuer, "killed", LASTING) | {"source_tokens": [source]}
    # Held back until after the kill.
    renewing.here.command("drain", "on", "--service", renewing.service.base)
    job = renewing.service.submit(file)
    eventually("both are exchanged", lambda: states(renewing, job) == ["SUBMITTED"])
    assert len(issuer.asked(EXCHANGE)) == 2
    renewing.here.kill()
    renewing.here.start()
    eventually("the first token has ended", lambda: time.sleep(0.5) or time.time() > issued_until(source))
    renewing.here.command("drain", "off", "--service", renewing.service.base)
    renewing.service.wait_finished(job)
    assert len(issuer.asked(EXCHANGE)) == 2, "not asked again"
    assert len(issuer.asked("refresh_token")) >= 1


def issued_until(token):
    claims = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(claims + "=="))["exp"]


def test_neither_tokens_nor_secrets_are_told_anywhere(renewing, issuer):
    issuer.answers["refresh_token"] = lambda form: (400, {"error": "invalid_grant"})
    issuer.lifetime = 2
    file = with_tokens(renewing, issuer, "secret")
    job = renewing.service.submit(file)
    renewing.service.wait(job)
    given = [*issuer.refresh_tokens, *file["source_tokens"], *file["destination_tokens"]]
    given += [issuer.clients["penstock"]]
    texts = [renewing.here.log_text(), str(renewing.service.files(job)), str(renewing.service.job(job))]
    texts += [str(renewing.here.ledger(job))]
    for secret in given:
        assert not any(secret in text for text in texts)
    stored = b"".join(path.read_bytes() for path in renewing.here.directory.glob("state/transfer.sqlite*"))
    for secret in given:
        assert secret.encode() not in stored


def test_a_job_of_a_token_is_seen_and_stopped_with_a_certificate_of_the_same_vo(
    renewing, issuer, user_ca, robot
):
    """Rucio submits with tokens and polls with its robot certificate."""
    stranger = user_ca.user("Stranger")
    by_token = Service(renewing.here, issuer.token("fts", audience=renewing.service.base))
    assert by_token.ask("GET", "/whoami").json()["vos"] == ["dteam"]
    file = with_tokens(renewing, issuer, "polled", "storage.read:/ storage.modify:/")
    job = by_token.submit(file)

    def polled(credential):
        answer = by_token.session.request(
            "GET",
            f"{by_token.base}/jobs/{job}",
            cert=credential.requests,
            headers={"Authorization": None},
        )
        return answer.status_code

    assert polled(robot) == 200
    assert polled(stranger) == 403
    by_token.wait_finished(job)


def test_a_token_that_its_issuer_has_not_signed_leads_to_no_question(renewing, issuer):
    """Whoever forges tokens would make the service ask for each in its own name, and others wait."""
    file = with_tokens(renewing, issuer, "forged")
    for end in ("source_tokens", "destination_tokens"):
        file[end] = [file[end][0].rsplit(".", 1)[0] + ".AAAA"]
    job = renewing.service.submit(file)
    assert states(renewing, job) != ["TOKEN_PREP"]
    renewing.service.wait_failed(job)
    assert issuer.seen == []


def test_a_token_is_not_renewed_for_a_stranger_who_has_got_hold_of_it(renewing, issuer):
    """A storage element is shown tokens of many users; who runs it submits jobs as everybody does."""
    renewing.here.command("drain", "on", "--service", renewing.service.base)
    file = with_tokens(renewing, issuer, "stolen", life=4)
    job = renewing.service.submit(file)
    eventually("it is exchanged for its VO", lambda: len(issuer.asked(EXCHANGE)) == 2)
    stranger = Service(renewing.here)
    assert stranger.ask("GET", "/whoami").json()["vos"] != ["dteam"]
    stolen = stranger.submit(file | {"destinations": [renewing.there_door.url("/stolen")]}, retry=3)
    eventually("the token has ended", lambda: time.sleep(0.5) or time.time() > issued_until(file["source_tokens"][0]))
    renewing.here.command("drain", "off", "--service", renewing.service.base)
    reason = stranger.wait_failed(stolen)
    assert "expired at" in reason and "neither the submitter's" in reason
    renewing.service.wait_finished(job)
    assert len(issuer.asked(EXCHANGE)) == 2
