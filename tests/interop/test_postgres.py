"""A site whose record is in PostgreSQL: the same answers, nothing lost when it is killed, nothing lost or written twice
when the database is.
"""

import random
import re

import pytest

from . import test_kill
from .clients import content
from .conftest import Grid, make_grid, served
from .postgres import Postgres
from .site import Site, free_port

# These run again, on the grid of this file.
from .test_fts3_golden import check, ends, recorder, stuck  # noqa: F401
from .test_fts3_golden import (  # noqa: F401
    test_a_bulk_submission,
    test_a_deterministic_id_is_accepted_once,
    test_a_priority_is_changed,
    test_a_submission_with_every_option,
    test_a_submission_with_separate_tokens,
    test_cancels_of_files,
    test_lists_of_jobs,
    test_the_status_of_a_running_and_of_a_finished_job,
    test_the_status_of_an_unknown_job,
)
from .waiting import eventually

KILLS = 2
CRASHES = 3
FILES = 60
SEED = 20261121


@pytest.fixture(scope="module")
def postgres():
    server = Postgres("penstock")
    try:
        yield server.start()
    finally:
        server.close()


def on_postgres(grid, server, database):
    """The first site keeps its record in a database of its own."""
    server.create(database)
    nodes = f"{grid.here.host}:{free_port(grid.here.host)}"
    grid.here.configure("[transfer]", database=server.url_of(database), nodes=nodes)
    grid.here.__class__ = SiteOnPostgres
    grid.here.postgres, grid.here.database = server, database
    return grid


class SiteOnPostgres(Site):
    """A site that tells of its record as one with SQLite does."""

    def journal(self, query, *values):
        assert not values
        query = re.sub(r"json_extract\((\w+), '\$\.(\w+)'\)", r"\1::json->>'\2'", query)
        numeric = re.compile(r"-?\d+")
        rows = self.postgres.ask(self.database, query)
        return [tuple(int(text) if numeric.fullmatch(text) else text for text in row) for row in rows]


@pytest.fixture(scope="module")
def grid(binary, tmp_path_factory, fault_ca, postgres):
    grid = make_grid(binary, tmp_path_factory.mktemp("postgres-grid"), fault_ca)
    yield from served(on_postgres(grid, postgres, "shared"))


@pytest.fixture
def own_grid(binary, tmp_path, fault_ca, postgres, request):
    name = "own" + str(abs(hash(request.node.nodeid)) % 10**8)
    grid: Grid = on_postgres(make_grid(binary, tmp_path, fault_ca), postgres, name)
    yield grid
    for site in grid.sites:
        site.kill()


def test_check_tells_whether_the_database_can_be_used(own_grid, postgres):
    here = own_grid.here
    assert "without tables as yet" in here.command("check")
    here.start()
    assert re.search(r"database: PostgreSQL \d+.*, schema \d+", here.command("check"))
    assert here.stop()[0] == 0
    for address, why in [
        (postgres.url_of("nowhere"), 'database "nowhere" does not exist'),
        ("postgres://penstock@%2Fnowhere/x", "cannot be reached"),
        ("postgres://penstock:hunter2@127.0.0.1/x", "database_password_file"),
    ]:
        here.configure("[transfer]", database=address)
        with pytest.raises(AssertionError) as told:
            here.command("check")
        # The address stands in the site's own file, and is shown as what is in effect; the finding does not repeat it.
        findings = [line for line in str(told.value).splitlines() if line.startswith("error: ")]
        assert why in " ".join(findings), findings
        assert "hunter2" not in " ".join(findings)


def test_kills_at_random_instants_lose_nothing(own_grid):
    draw = random.Random(SEED)
    run = test_kill.Run(own_grid, draw, FILES)
    for site in own_grid.sites:
        site.configure("[transfer]", retry_delay="1s", retries=100, active_max_per_link=6)
        site.start()
    run.upload()
    with run.submitting(), run.watching():
        test_kill.kill_again_and_again(own_grid, draw, run, KILLS)
    run.assert_all_arrived()
    run.assert_nothing_was_half_there()
    run.assert_nothing_counts_twice()


def test_a_database_that_crashes_in_the_middle_of_traffic_loses_nothing_and_counts_nothing_twice(
    own_grid, postgres
):
    draw = random.Random(SEED)
    run = test_kill.Run(own_grid, draw, FILES)
    for site in own_grid.sites:
        site.configure("[transfer]", retry_delay="1s", retries=100, active_max_per_link=6)
        site.start()
    run.upload()
    with run.submitting(), run.watching():
        for number in range(CRASHES):
            run.may_submit(number + 1 + test_kill.SHARES_AHEAD, CRASHES)
            test_kill.wait_for_an_instant(draw, run, (number + 1) / (CRASHES + 1), in_recovery=False)
            postgres.crash()
            postgres.launch()
            postgres.wait_ready()
    run.assert_all_arrived()
    run.assert_nothing_counts_twice()
    assert own_grid.here.is_running()
    # The sequence has no gap, so that whoever follows it misses nothing.
    [(first, last, count)] = own_grid.here.journal("SELECT min(sequence), max(sequence), count(*) FROM ledger")
    assert (first, last) == (1, count)


def test_a_service_whose_database_is_away_says_so_and_goes_on_when_it_is_back(own_grid, postgres):
    grid = own_grid
    for site in grid.sites:
        site.start()
    grid.here_door.put("/source", content("away", 1000))
    postgres.crash()
    answer = grid.service.ask("GET", "/jobs")
    assert answer.status_code == 503, answer.text
    postgres.launch()
    postgres.wait_ready()
    ends = {"sources": [grid.here_door.url("/source")], "destinations": [grid.there_door.url("/copy")]}

    def accepted():
        answer = grid.service.try_submit(ends)
        assert answer.status_code in (200, 503), answer.text
        return answer.json().get("job_id") if answer.status_code == 200 else None

    job = eventually("the service accepts again", accepted)
    grid.service.wait_finished(job)
