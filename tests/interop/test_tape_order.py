"""`penstock tape order`: files of one tape, in the order in which they are read soonest."""

import json
import random
import subprocess

GB = 1_000_000_000
POLICIES = ("fifo", "position", "scan", "nearest-locate", "nearest-service", "best")


def order(binary, path, *options, code=0):
    line = [str(binary), "tape", "order", str(path), *options]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_scattered_files_are_read_in_half_the_time_of_the_order_of_positions(binary, tmp_path):
    draw = random.Random(1)
    files = [
        {"name": f"f{number}", "begin_bytes": draw.randrange(11_900 * GB), "size_bytes": 1_300_000_000}
        for number in range(60)
    ]
    path = tmp_path / "recall.json"
    path.write_text(json.dumps({"files": files}))
    told = {policy: json.loads(order(binary, path, "--policy", policy, "--json")) for policy in POLICIES}
    for policy, report in told.items():
        assert sorted(file["name"] for file in report["files"]) == sorted(file["name"] for file in files), policy
        assert report["drive_seconds"] >= told["best"]["drive_seconds"] - 1, policy
    assert told["position"]["locate_seconds"] > 2 * told["best"]["locate_seconds"]
    assert told["best"]["above_best_known_percent"] < 5
    text = order(binary, path)
    assert "above the best order known" in text and "% of the native rate" in text


def test_a_few_files_are_ordered_exactly_and_bad_lists_are_refused(binary, tmp_path):
    path = tmp_path / "recall.json"
    files = [{"name": name, "begin_bytes": at * 1_000 * GB, "size_bytes": GB} for name, at in (("a", 9), ("b", 1), ("c", 5))]
    path.write_text(json.dumps({"files": files}))
    assert "no order is better" in order(binary, path, "--goal", "mean-wait")
    for wrong, words in [
        ({"files": [files[0] | {"size_bytes": 9_999 * GB}]}, "'a' ends at"),
        ({"files": files, "wrap_ends_bytes": [5, 5]}, "must rise"),
        ({"file": []}, "unknown field `file`"),
        ({"files": []}, 'the list "files" is empty'),
    ]:
        path.write_text(json.dumps(wrong))
        assert words in order(binary, path, code=2)
    path.write_text(json.dumps({"files": files}))
    assert "there are lto7" in order(binary, path, "--model", "qic80", code=2)
