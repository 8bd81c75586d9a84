"""What tests ask of Rucio's own core. Runs with the Python that Rucio is installed for, one per lab: a request is a line
of JSON with the name of a function here and its arguments, an answer is a line with what it gave back.

Everything goes through Rucio's functions, as its server's would; the tables are only read.
"""

import json
import os
import sys
import traceback
from datetime import datetime

from rucio.common.types import InternalAccount, InternalScope
from rucio.core import account_limit, did, distance, replica, rse, rule, scope
from rucio.db.sqla import models
from rucio.db.sqla.constants import DIDType, RSEType
from rucio.db.sqla.session import get_session
from rucio.db.sqla.util import build_database, create_base_vo, create_root_account
from rucio.rse import rsemanager
from rucio.transfertool.fts3 import FTS3Transfertool

ROOT, SCOPE = InternalAccount("root"), InternalScope("test")
VO = "def"


def call(function, *words, **named):
    """Calls a function of Rucio's core in a transaction of its own."""
    session = get_session()
    try:
        given = function(*words, session=session, **named)
        session.commit()
        return given
    except BaseException:
        session.rollback()
        raise
    finally:
        session.remove()


def read(query):
    session = get_session()
    try:
        return query(session)
    finally:
        session.remove()


def build():
    """The schema, and the account of the operator."""
    build_database()
    create_base_vo()
    create_root_account()
    call(scope.add_scope, SCOPE, ROOT)


def add_rse(name, scheme, host, port, prefix, attributes, tape=False, is_staging_area=False):
    """A storage with one protocol for everything."""
    kind = RSEType.TAPE if tape else RSEType.DISK
    number = call(rse.add_rse, name, rse_type=kind, staging_area=is_staging_area)
    rights = {"read": 1, "write": 1, "delete": 1}
    protocol = {
        "scheme": scheme,
        "hostname": host,
        "port": port,
        "prefix": prefix,
        "impl": f"rucio.rse.protocols.{'webdav' if scheme == 'https' else 'gfal'}.Default",
        "domains": {"lan": rights, "wan": rights | {"third_party_copy_read": 1, "third_party_copy_write": 1}},
    }
    call(rse.add_protocol, number, protocol)
    for key, value in attributes.items():
        call(rse.add_rse_attribute, number, key, value)
    call(account_limit.set_local_account_limit, ROOT, number, 10**15)


def add_distance(source, destination):
    ends = [call(rse.get_rse_id, name) for name in (source, destination)]
    call(distance.add_distance, *ends, distance=1)


def urls(name, files):
    """Where files stand at a storage, by Rucio's rule for paths."""
    lfns = [{"scope": "test", "name": file} for file in files]
    found = rsemanager.lfns2pfns(rsemanager.get_rse_info(name, vo=VO), lfns, operation="third_party_copy_read")
    return {key.partition(":")[2]: url for key, url in found.items()}


def storage(name, do, *files, **named):
    """What Rucio's clients and its reaper do at a storage: upload, download, exists, rename, delete."""
    described = rsemanager.get_rse_info(name, vo=VO)
    if do == "download":
        protocol = rsemanager.create_protocol(described, "read")
        protocol.connect()
        return [protocol.get(urls(name, [file])[file], path) for file, path in files]
    return getattr(rsemanager, do)(described, [{"scope": "test"} | file for file in files], **named)


def register(storages, dataset, files):
    """A data set whose files are at each of the storages already."""
    entries = [{"scope": SCOPE} | file for file in files]
    call(did.add_did, SCOPE, dataset, DIDType.DATASET, ROOT)
    for name in storages:
        call(replica.add_replicas, call(rse.get_rse_id, name), entries, ROOT)
    first = call(rse.get_rse_id, storages[0])
    call(did.attach_dids, SCOPE, dataset, entries, ROOT, rse_id=first)


def add_rule(dataset, destination, **options):
    dids = [{"scope": SCOPE, "name": dataset}]
    named = {"grouping": "DATASET", "weight": None, "lifetime": None, "locked": False, "subscription_id": None}
    [number] = call(rule.add_rule, dids, ROOT, 1, destination, **(named | options))
    return number


def update_rule(number, **options):
    call(rule.update_rule, number, options)


def show_rule(number):
    found = call(rule.get_rule, number)
    keys = ["locks_ok_cnt", "locks_replicating_cnt", "locks_stuck_cnt", "error", "priority"]
    return {"state": found["state"].name} | {key: found[key] for key in keys}


def requests(dataset):
    """What Rucio wants to be moved of a data set's files, hops included; what is over last."""
    names = f"{dataset}.%"
    keys = ["id", "name", "external_id", "external_host", "err_msg", "retry_count", "previous_attempt_id"]
    keys += ["started_at", "transferred_at", "staging_started_at", "staging_finished_at", "priority"]

    def shown(row):
        found = {key: getattr(row, key) for key in keys if hasattr(row, key)}
        return found | {"state": row.state.name, "source": name_of(row.source_rse_id), "to": name_of(row.dest_rse_id)}

    def query(session):
        tables = [models.Request, models.RequestHistory]
        return [shown(row) for table in tables for row in session.query(table).filter(table.name.like(names))]

    return read(query)


def name_of(number):
    return number and call(rse.get_rse_name, number)


def replicas(dataset):
    """The state of each file of a data set at each storage."""
    table = models.RSEFileAssociation

    def query(session):
        return [
            [name_of(row.rse_id), row.name, row.state.name, row.path]
            for row in session.query(table).filter(table.name.like(f"{dataset}.%"))
        ]

    return read(query)


def transfertool(host, method, *words, **named):
    """What Rucio's operators ask of an FTS by its transfer tool."""
    return getattr(FTS3Transfertool(external_host=host), method)(*words, **named)


def plain(value):
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def main():
    # Rucio and its libraries may print; answers have an output of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": globals()[request["do"]](*request["words"], **request["named"])}
        except Exception as why:
            answer = {"error": f"{type(why).__name__}: {why}", "trace": traceback.format_exc()}
        print(json.dumps(answer, default=plain), file=answers, flush=True)


if __name__ == "__main__":
    main()
