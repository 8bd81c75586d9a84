"""A real Prometheus of one test: started on loopback, asked by its HTTP interface, ended by its process id."""

import re
import subprocess

import requests

from .site import free_port
from .waiting import eventually

HOST = "127.0.0.63"
START_SECONDS = 20
# Metrics that Prometheus makes itself.
OWN_METRICS = {"up", "ALERTS"}
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
# What stands before a selector or a range is a metric; so are names with the prefixes that a site's page has.
METRIC = re.compile(
    r"(?<![\w:$])([a-zA-Z_:][\w:]*)(?=\s*[{\[])"
    r"|(?<![\w:$])((?:penstock|process)[_:][\w:]*|up|ALERTS)(?![\w:(])"
)
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


class Prometheus:
    """A server with a configuration of its own in a directory of its own."""

    def __init__(self, directory, config):
        self.url = f"http://{HOST}:{free_port(HOST)}"
        self.log = directory / "prometheus.log"
        line = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}"]
        line += [f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"]
        self.session = requests.Session()
        self.session.trust_env = False
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            eventually("Prometheus is ready", self.is_ready, START_SECONDS)
        except BaseException:
            self.close()
            raise

    def is_ready(self):
        code = self.process.poll()
        assert code is None, f"Prometheus ended with {code}\n{self.log.read_text()}"
        try:
            return self.session.get(f"{self.url}/-/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    def ask(self, path, **params):
        answer = self.session.get(f"{self.url}/api/v1/{path}", params=params, timeout=20)
        body = answer.json()
        assert answer.ok and body["status"] == "success", f"{path} {params}: {body}"
        assert not body.get("warnings"), body
        return body["data"]

    def query(self, expression):
        """Samples as pairs of labels and a value. An expression that cannot be parsed fails."""
        data = self.ask("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def firing(self, name, job):
        """Alerts of a name that fire for targets of a job."""
        wanted = {"alertname": name, "job": job}
        alerts = self.ask("alerts")["alerts"]
        return [alert for alert in alerts if alert["state"] == "firing" and wanted.items() <= alert["labels"].items()]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def metrics_of(expression):
    """Names of the metrics in an expression of PromQL."""
    bare = GROUPING.sub(" ", STRING.sub('""', expression))
    return {one or other for one, other in METRIC.findall(bare)}


def matchers_of(expression):
    """What an expression demands of labels: metric, label, and each value that is spelt out."""
    for metric, matchers in SELECTOR.findall(expression):
        for label, how, value in MATCHER.findall(matchers):
            values = value.strip('"').split("|") if how in ("=~", "!~") else [value.strip('"')]
            yield metric, label, [one for one in values if re.fullmatch(r"[\w/:-]+", one)]


def labels_grouped_by(expression):
    """Labels that an expression names outside of selectors."""
    return {label.strip() for labels in GROUPING.findall(expression) for label in labels.split(",") if label.strip()}


def samples_of(page):
    """Labels of each sample of a page of metrics, by the metric's name; families without samples have none."""
    samples = {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            samples |= {name + part: [] for part in parts}
        elif line and not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            samples[name].append(dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))
    return samples


def helps_of(page):
    """What the page says of each metric."""
    helps = (line.split(" ", 3)[2:] for line in page.splitlines() if line.startswith("# HELP "))
    return {name: text for name, text in helps}
