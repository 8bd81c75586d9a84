"""`deploy/monitoring`: alert rules for Prometheus and boards for Grafana. Their metrics and labels are those of a live site;
each alert fires when it should and not otherwise; the commands and keys that their texts name exist."""

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass

import pytest
import yaml

from .clients import Door, Endpoint, Service, content
from .conftest import REPOSITORY, make_grid
from .prometheus import (
    OWN_METRICS,
    Prometheus,
    helps_of,
    labels_grouped_by,
    matchers_of,
    metrics_of,
    samples_of,
)
from .test_files_on_tape import STAGING, with_tape
from .waiting import eventually

DEPLOYED = REPOSITORY / "deploy/monitoring"
BOARDS = sorted((DEPLOYED / "boards").glob("*.json"))
UNIT_TESTS = ["rules_test.yml", "rules_days_test.yml"]
SEVERITIES = {"critical", "warning", "info"}
# What Prometheus adds to each sample.
TARGET_LABELS = {"job", "instance"}
# Grafana's variables, as a test fills them in.
VARIABLES = {"$__rate_interval": "2m", "$__range": "2m"}
VARIABLES |= {name: ".*" for name in ("$instance", "$pool", "$source", "$destination")}
PLACEHOLDERS = {
    "DIR": "no-such-site",
    "FILE": "no-such-file",
    "JOB": "01920000-0000-7000-8000-000000000000",
    "URL": "https://127.0.0.63/f",
    "PATH": "/f",
    "INCIDENT": "6931bd80-1c9a44f2",
    "SE": "https://127.0.0.63",
    "NAME": "rule",
}
COMMAND = re.compile(r"`(penstock [^`]+)`")
CONFIGURATION_KEY = re.compile(r"`((?:site|tls|issuer|transfer|storage|observe|limits)\.[a-z_]+)`")
# How the command line says that it was not understood. What is wrong for another reason is said differently.
MISUNDERSTOOD = re.compile(r"^error: ", re.M)


def rules():
    groups = yaml.safe_load((DEPLOYED / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts():
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def board(path):
    return json.loads(path.read_text())


def panels(path):
    return board(path)["panels"]


def board_expressions(path):
    """With the panel's title, as Grafana sends them."""
    asked = [(panel["title"], target["expr"]) for panel in panels(path) for target in panel.get("targets", [])]
    annotations = board(path)["annotations"]["list"]
    asked += [(f"annotation {one['name']}", one["target"]["expr"]) for one in annotations]
    for title, expression in asked:
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        assert "$" not in expression, f"{title}: {expression}"
        yield title, expression


def expressions():
    """Every expression of rules and boards with its place."""
    found = [(rule.get("alert", rule.get("record")), rule["expr"]) for rule in rules()]
    return found + [(f"{path.stem}: {title}", asked) for path in BOARDS for title, asked in board_expressions(path)]


def promtool(*words, cwd=DEPLOYED):
    done = subprocess.run(["promtool", *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_rules_and_the_example_of_a_configuration_are_valid(tmp_path):
    code, said = promtool("check", "rules", "rules.yml")
    assert code == 0 and f"{len(rules())} rules found" in said, said
    for file in ("prometheus.yml", "rules.yml"):
        shutil.copy(DEPLOYED / file, tmp_path)
    code, said = promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert code != 0 and "penstock.token" in said, "an example without its files is told apart"
    for file in ("penstock.token", "penstock-ca.pem"):
        (tmp_path / file).touch()
    code, said = promtool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert code == 0, said


def fired_by_tests():
    """By alert, the labels with which each is expected to fire, and how many times none is expected."""
    fired, quiet = {}, {}
    for test in (test for file in UNIT_TESTS for test in yaml.safe_load((DEPLOYED / file).read_text())["tests"]):
        instances = {re.search(r'instance="([^"]+)"', one["series"])[1] for one in test["input_series"]}
        assert instances >= {"ill", "well"}, test["name"]
        for asked in test["promql_expr_test"]:
            assert f'alertname="{test["name"]}"' in asked["expr"]
            samples = asked.get("exp_samples", [])
            quiet[test["name"]] = quiet.get(test["name"], 0) + (not samples)
            for sample in samples:
                fired[test["name"]] = dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
    return fired, quiet


def test_each_alert_fires_in_its_unit_test_and_not_for_a_site_that_is_well():
    fired, quiet = fired_by_tests()
    assert set(fired) == set(alerts()) == set(quiet)
    assert all(labels["instance"] == "ill" and quiet[name] for name, labels in fired.items())
    code, said = promtool("test", "rules", *UNIT_TESTS)
    assert code == 0 and said.count("SUCCESS") == len(UNIT_TESTS), said


def test_a_unit_test_of_an_alert_fails_when_its_rule_is_another_one(tmp_path):
    text = (DEPLOYED / "rules.yml").read_text()
    assert "penstock_journal_writable == 0" in text
    changed = text.replace("penstock_journal_writable == 0", "penstock_journal_writable == 2")
    (tmp_path / "rules.yml").write_text(changed)
    tests = yaml.safe_load((DEPLOYED / "rules_test.yml").read_text())
    tests["tests"] = [test for test in tests["tests"] if test["name"] == "PenstockJournalNotWritable"]
    (tmp_path / "rules_test.yml").write_text(yaml.safe_dump(tests))
    code, said = promtool("test", "rules", "rules_test.yml", cwd=tmp_path)
    assert code != 0 and "PenstockJournalNotWritable" in said, said


def test_each_alert_says_how_urgent_it_is_what_it_is_and_which_command_tells_more():
    fired, _ = fired_by_tests()
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in SEVERITIES, name
        texts = rule["annotations"]
        assert set(texts) == {"summary", "description"}, name
        assert COMMAND.search(texts["description"]) or "GET /health" in texts["description"], f"{name} names no command"
        assert len(texts["summary"]) < 150 and "\n" not in texts["summary"], name
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(texts.values())))
        assert used & {"instance", "source"} and used <= set(fired[name]), f"{name}: {used} {fired[name]}"


def test_the_page_lists_each_alert_with_its_severity_and_each_board():
    page = (DEPLOYED / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(Penstock\w+)` \| (\w+) \|", page, re.M))
    assert rows == {name: rule["labels"]["severity"] for name, rule in alerts().items()}
    assert all(f"`boards/{path.name}`" in page for path in BOARDS)
    assert all(f"`{rule['record']}`" in page for rule in rules() if "record" in rule)


def texts():
    """Everything here that people read."""
    for name, rule in alerts().items():
        yield name, " ".join(rule["annotations"].values())
    for path in BOARDS:
        for panel in panels(path):
            content_of_text = panel.get("options", {}).get("content", "")
            yield f"{path.stem}: {panel['title']}", panel.get("description", "") + content_of_text
    yield "README.md", (DEPLOYED / "README.md").read_text()


def commands():
    """Each command that a text names, as it would be typed, with its place."""
    for place, text in texts():
        named = COMMAND.findall(text) + re.findall(r"^\s*(?:TOKEN=\$\()?(penstock [^)#>|\n]+)", text, re.M)
        for command in named:
            yield place, re.sub(r"\{\{[^}]*\}\}", "transfer", command)


def typed(binary, command, cwd):
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)[1:]]
    options = {"capture_output": True, "text": True, "timeout": 30, "stdin": subprocess.DEVNULL}
    return subprocess.run([str(binary), *words], cwd=cwd, **options)


def test_texts_name_commands_and_options_that_exist(binary, tmp_path):
    seen = {command: place for place, command in commands()}
    assert len(seen) > 25, seen
    for command, place in seen.items():
        assert "DIR" in command.split() or "FILE" in command.split(), f"{place}: {command}"
        done = typed(binary, command, tmp_path)
        # It must fail because there is no such site or file, and not because it is misunderstood.
        said = f"{place}: {command}\n{done.stdout}{done.stderr}"
        assert done.returncode != 0 and "no-such" in said, said
        assert not MISUNDERSTOOD.search(done.stderr), said
    for wrong in ("tape status --dir DIR --wombat", "wombat --dir DIR", "find --dir DIR --state GONE"):
        wrong = f"penstock {wrong}"
        assert MISUNDERSTOOD.search(typed(binary, wrong, tmp_path).stderr), wrong


@dataclass
class Monitored:
    """A site with all that a site can have, a second one to copy to, and a Prometheus that looks at the first."""

    here: object
    there: object
    prometheus: Prometheus
    page: str


def targets(text, site):
    """The deployed configuration, for a live site and with short intervals."""
    for old, new in {
        "penstock.example.org:8446": site.service.removeprefix("https://"),
        "scrape_interval: 15s": "scrape_interval: 500ms",
        "evaluation_interval: 30s": "evaluation_interval: 500ms",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def configuration(directory, site, certificate):
    """The deployed files with a token, an authority and a certificate. Other jobs show the certificate, or nothing."""
    rules_text, count = re.subn(r"^( +)for: \w+$", r"\1for: 0s", (DEPLOYED / "rules.yml").read_text(), flags=re.M)
    assert count > 30
    (directory / "rules.yml").write_text(rules_text)
    token = site.command("token", "--scope", "penstock.monitor", "--lifetime", "30d")
    (directory / "penstock.token").write_text(token)
    shutil.copy(site.directory / "ca/ca.pem", directory / "penstock-ca.pem")
    shutil.copy(certificate.certificate, directory / "prometheus-cert.pem")
    shutil.copy(certificate.key, directory / "prometheus-key.pem")
    text = targets((DEPLOYED / "prometheus.yml").read_text(), site)
    config = yaml.safe_load(text)
    uncommented = text.replace("# cert_file", "cert_file").replace("# key_file", "key_file")
    [with_certificate] = yaml.safe_load(uncommented)["scrape_configs"]
    del with_certificate["authorization"]
    without_any = {**config["scrape_configs"][0], "job_name": "nobody"}
    del without_any["authorization"]
    config["scrape_configs"] += [{**with_certificate, "job_name": "certificate"}, without_any]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    return directory / "prometheus.yml"


def with_everything(site, monitor):
    """Tape, backups, a bound of the pool, an interface to the HSM; nobody sees metrics by the address alone."""
    with_tape(site)
    site.append('\n[transfer.backup]\nto = "backups"\n[storage.backup]\nto = "backups"\n')
    site.configure("[[storage.pool]]", capacity="10 GB")
    site.configure("[observe]", monitor_addresses=[], monitors=[monitor.subject])
    text = (site.directory / "penstock.toml").read_text()
    assert '# interfaces = {' in text
    text = re.sub(r"^# interfaces = .*$", 'interfaces = { lo = "hsm" }', text, flags=re.M)
    (site.directory / "penstock.toml").write_text(text)


def move_files(grid, prometheus):
    """Files that arrive, one that does not exist, one for tape, and one that waits because the service is drained."""
    door, service = Door(grid.here, grid.token), Service(grid.here, grid.token)
    for path in ("/f", "/tape/f"):
        door.put(path, content(path, 300_000))
    url = grid.there.door
    service.wait_finished(service.submit((door.url("/f"), f"{url}/first")))
    # What counts up before it is first seen is no rate.
    waits_for(prometheus, "the link is seen", 'penstock_link_attempts_total{job="penstock"}')
    service.wait_finished(service.submit((door.url("/f"), f"{url}/second")))
    service.wait(service.submit((door.url("/missing"), f"{url}/missing"), retry=0))
    grid.here.command("drain", "on")
    service.submit((door.url("/f"), f"{url}/waits"))


@pytest.fixture(scope="module")
def monitored(binary, tmp_path_factory, fault_ca, user_ca):
    directory = tmp_path_factory.mktemp("monitored")
    grid = make_grid(binary, directory, fault_ca)
    monitor = user_ca.user("Prometheus")
    user_ca.trusted_by(grid.here)
    with_everything(grid.here, monitor)
    grid.token = grid.here.token(STAGING)
    prometheus = None
    try:
        for site in grid.sites:
            site.start()
        prometheus = Prometheus(directory, configuration(directory, grid.here, monitor))
        waits_for(prometheus, "the first scrape", 'penstock_ready{job="penstock"} == 1')
        move_files(grid, prometheus)
        backed_up = 'count(penstock_backup_age_seconds{job="penstock"}) == 2'
        waiting = 'penstock_transfers_waiting{job="penstock",reason="drained"} == 1'
        waits_for(prometheus, "backups and a waiting transfer", f"{waiting} and on () ({backed_up})")
        token = (directory / "penstock.token").read_text().strip()
        answer = Endpoint(grid.here.service, grid.here.certificates, token).ask("GET", "/metrics")
        assert answer.status_code == 200, answer.text
        yield Monitored(grid.here, grid.there, prometheus, answer.text)
    finally:
        if prometheus:
            prometheus.close()
        for site in grid.sites:
            site.kill()


def waits_for(prometheus, what, expression):
    return eventually(what, lambda: prometheus.query(expression), 30)


def test_prometheus_gets_metrics_by_token_and_by_certificate_and_not_without(monitored):
    up = eventually("all jobs were scraped", lambda: has_jobs(monitored.prometheus.query("up")))
    assert up == {"penstock": 1, "certificate": 1, "nobody": 0}
    errors = {one["labels"]["job"]: one["lastError"] for one in monitored.prometheus.ask("targets")["activeTargets"]}
    assert "401" in errors["nobody"], errors


def has_jobs(samples):
    jobs = {labels["job"]: value for labels, value in samples}
    return jobs if len(jobs) == 3 else None


def test_each_rule_is_evaluated_without_an_error(monitored):
    def evaluated():
        found = [rule for group in monitored.prometheus.ask("rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else None

    found = eventually("all rules were evaluated", evaluated)
    assert {rule["name"] for rule in found} == set(alerts()) | {rule["record"] for rule in rules() if "record" in rule}
    assert not [rule for rule in found if rule["health"] != "ok"], found


@dataclass
class Known:
    """The metrics of a site, and what else expressions may use."""

    samples: dict
    helps: dict
    recorded: set
    code: str

    def may_be_absent(self, name):
        """The site itself says so of the metric."""
        return "absent" in self.helps.get(name, "")

    def labels(self):
        of_samples = {label for those in self.samples.values() for labels in those for label in labels}
        return of_samples | TARGET_LABELS | {"alertname", "severity"}

    def missing(self, expression):
        """Metrics, labels and values of labels in an expression that nothing ever has."""
        named = metrics_of(expression)
        for name in named - self.recorded - OWN_METRICS:
            if name not in self.samples or not (self.samples[name] or self.may_be_absent(name)):
                yield f"metric {name}"
        yield from (f"label {label}" for label in labels_grouped_by(expression) - self.labels())
        for name, label, values in matchers_of(expression):
            if name not in self.samples or label in TARGET_LABELS:
                continue
            known = {labels[label] for labels in self.samples[name] if label in labels}
            if self.samples[name] and not known:
                yield f"label {label} of {name}"
            # A value that does not occur now is written in the code.
            yield from (f"{label}={one}" for one in set(values) - known if f'"{one}"' not in self.code)


@pytest.fixture(scope="module")
def known(monitored):
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    code = "\n".join(path.read_text() for path in (REPOSITORY / "crates").rglob("*.rs"))
    samples = samples_of(monitored.page)
    assert len(samples) > 85 and len(code) > 1_000_000
    return Known(samples, helps_of(monitored.page), recorded, code)


def test_each_expression_uses_metrics_labels_and_values_that_a_site_has(monitored, known):
    assert len(expressions()) > 130
    for place, expression in expressions():
        monitored.prometheus.query(expression)
        missing = list(known.missing(expression))
        assert metrics_of(expression) and not missing, f"{place}: {missing}"


@pytest.mark.parametrize(
    ("expression", "missing"),
    [
        ("penstock_wombats > 0", ["metric penstock_wombats"]),
        ("rate(node_disk_x[5m]) / up", ["metric node_disk_x"]),
        ("sum by (wombat) (penstock_transfers)", ["label wombat"]),
        ('penstock_transfers{wombat="wombats"}', ["label wombat of penstock_transfers", "wombat=wombats"]),
        ('penstock_transfers{state=~"staging|wombats"}', ["state=wombats"]),
        ('penstock_transfers_waiting{reason=~"drained|link_halted|wombats"}', ["reason=wombats"]),
        ('max without (pool) (penstock_pool_enabled{pool=~".*"}) == 0 and on () penstock:pool_used:ratio > 1', []),
    ],
)
def test_what_no_site_has_is_noticed(known, expression, missing):
    assert list(known.missing(expression)) == missing


# A site of this test has certificates of some weeks, and is drained; what the machine does is not its doing.
EXPECTED = {"PenstockExpirySoon", "PenstockDrainForgotten"}
OF_THE_MACHINE = {"PenstockDiskSaturated", "PenstockMemoryPressure", "PenstockSegmentsSentAgain", "PenstockJournalSlow"}


def test_no_other_alert_fires_for_a_site_that_is_well(monitored):
    def fired():
        samples = monitored.prometheus.query('count_over_time(ALERTS{job="penstock",alertstate="firing"}[5m])')
        return {labels["alertname"] for labels, _ in samples}

    eventually("what must fire fires", lambda: fired() >= EXPECTED)
    assert fired() - OF_THE_MACHINE == EXPECTED


# What a site that has not restarted shows nothing of, and one with an HSM: it has no libraries, and its buffer is not told.
EMPTY_PANELS = {"annotation Restarts", "Drives", "Mounts per second", "Buffer of the HSM, full"}


def test_each_panel_of_the_boards_shows_something(monitored):
    empty = []

    def fill():
        empty[:] = [
            (path.stem, title, asked)
            for path in BOARDS
            for title, asked in board_expressions(path)
            if title not in EMPTY_PANELS and not monitored.prometheus.query(asked)
        ]
        return not empty

    try:
        eventually("each panel has data", fill, 20)
    except AssertionError:
        raise AssertionError(f"panels without data: {empty}") from None


def test_boards_are_such_that_grafana_can_take_them():
    uids = [board(path)["uid"] for path in BOARDS]
    assert len(set(uids)) == len(uids) == 4 and uids == [path.stem for path in BOARDS]
    for path in BOARDS:
        made, ids = board(path), [panel["id"] for panel in panels(path)]
        assert made["schemaVersion"] >= 39 and len(set(ids)) == len(ids) > 8
        variables = {one["name"] for one in made["templating"]["list"]}
        assert {"datasource", "instance"} <= variables <= {"datasource", *(name.strip("$") for name in VARIABLES)}
        taken = set()
        for panel in panels(path):
            at = panel["gridPos"]
            columns, lines = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
            cells = {(x, y) for x in columns for y in lines}
            assert not cells & taken and columns.stop <= 24, f"{path.name}: {panel['title']} lies over another panel"
            taken |= cells
            sources = [panel, *panel.get("targets", [])] if "targets" in panel else []
            assert all(one["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for one in sources)
            used = set(re.findall(r"\$(\w+)", json.dumps(panel.get("targets", [])))) - {"__rate_interval", "__range"}
            assert used <= variables, f"{path.name}: {panel['title']} uses {used - variables}"
            refs = [target["refId"] for target in panel.get("targets", [])]
            assert len(set(refs)) == len(refs)


def test_names_of_configuration_keys_in_texts_exist(monitored):
    config = json.loads(monitored.here.command("check", "--json"))["config"]
    named = {(place, key) for place, text in texts() for key in CONFIGURATION_KEY.findall(text)}
    assert len({key for _, key in named}) > 5
    for place, key in named:
        section, name = key.split(".")
        assert name in config[section], f"{place}: {key}"


def test_alerts_fire_for_a_drained_pool_and_a_stopped_site_and_end_after_it(monitored):
    """The last test of this file: it stops the site."""
    site = monitored.here

    def firing(name):
        return monitored.prometheus.firing(name, "penstock")

    name = "PenstockNoPoolTakesFiles"
    assert not firing(name)
    site.configure("[[storage.pool]]", mode="drained")
    site.reload()
    [alert] = eventually(f"{name} fires", lambda: firing(name), 15)
    assert alert["labels"]["severity"] == "critical"
    instance = site.service.removeprefix("https://")
    assert alert["annotations"]["summary"] == f"No pool of {instance} takes new files"
    site.configure("[[storage.pool]]", mode="enabled")
    site.reload()
    eventually(f"{name} has ended", lambda: not firing(name), 15)
    assert not firing("PenstockDown")
    site.kill()
    eventually("PenstockDown fires", lambda: firing("PenstockDown"), 15)
