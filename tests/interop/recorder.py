"""Asks a service what FTS clients were recorded to ask it, and keeps the exchanges for golden files."""

from . import golden

# What the client's command line always sends, most of it null or false.
PARAMS = {
    "overwrite": False,
    "overwrite_on_retry": False,
    "overwrite_when_only_on_disk": False,
    "overwrite_hop": False,
    "reuse": False,
    "job_metadata": None,
    "gridftp": None,
    "spacetoken": None,
    "source_spacetoken": None,
    "verify_checksum": "n",
    "copy_pin_lifetime": -1,
    "bring_online": -1,
    "dst_file_report": False,
    "archive_timeout": -1,
    "timeout": None,
    "fail_nearline": False,
    "retry": 0,
    "priority": None,
    "multihop": False,
    "credential": None,
    "nostreams": None,
    "s3alternate": False,
    "ipv4": False,
    "ipv6": False,
    "buffer_size": None,
    "strict_copy": False,
    "disable_cleanup": False,
    "unmanaged_tokens": False,
}
FILE = {
    "checksum": "ADLER32",
    "filesize": None,
    "activity": None,
    "scitag": None,
    "metadata": None,
    "staging_metadata": None,
    "archive_metadata": None,
}
FIELDS_OF_RUCIO = (
    "file_state,dest_surl,finish_time,start_time,staging_start,staging_finished,"
    "reason,source_surl,file_metadata"
)
NOBODY = "00000000-0000-0000-0000-000000000000"


class Recorder:
    """Sends requests and keeps what was asked and answered, without what varies between runs."""

    def __init__(self, service, grid, faulty, **named):
        self.service = service
        self.exchanges = []
        # Files of this service's life are numbered across tests, so a path is unique but an id is not.
        self.normalised = golden.Normalised(
            door=grid.here.door, other=grid.there.door, faulty=faulty.url, **named
        )

    def ask(self, method, path, body=None, agent="fts-rest-cli/3.14.2", service=None):
        headers = {"Accept": "application/json", "User-Agent": agent}
        answer = (service or self.service).ask(method, path, json=body, headers=headers)
        exchange = {"request": f"{method} {path}"}
        if body is not None:
            exchange["body"] = {key: value for key, value in body.items() if key != "params"}
            exchange["params that are set"] = set_params(body.get("params", {}))
        exchange |= {
            "status": answer.status_code,
            "type": answer.headers.get("Content-Type", "").split(";")[0],
            "answer": answer.json() if answer.content else None,
        }
        self.exchanges.append(self.normalised.value(exchange))
        return exchange["answer"]

    def submit(self, params=None, agent="fts-rest-cli/3.14.2", **file):
        body = {"params": PARAMS | (params or {}), "files": [FILE | file]}
        return self.ask("POST", "//jobs", body, agent)["job_id"]


def set_params(params):
    return {key: value for key, value in params.items() if key not in PARAMS or value != PARAMS[key]}
