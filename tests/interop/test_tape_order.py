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
    assert "there are 9940B" in order(binary, path, "--model", "qic80", code=2)


def calibrate(binary, path, *options, code=0):
    line = [str(binary), "tape", "calibrate", str(path), *options]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_drive_is_calibrated_from_observed_locates_and_orders_take_it(binary, tmp_path):
    """The locates that `tape order` computes for one drive are observed; from them another is calibrated."""
    draw = random.Random(2)
    slower = {"base_ns": 5_000_000_000, "wrap_ns": 8_000_000_000, "band_ns": 3_200_000_000, "half_ns": -5_000_000_000}
    slower |= {"direction_ns": 6_000_000_000, "back_ns": 11_320_000_000, "longitudinal_ns": 743_000}
    drive = {"native_rate": 360_000_000, "capacity_bytes": 12_000 * GB, "wraps": 208, "longitudinal_range": [2_696, 171_097]}
    drive |= {"locate": slower, "load_ns": 0, "rewind_ns": 0, "unload_ns": 0, "turn_ns": 0}
    files = [{"name": str(draw.randrange(11_900 * GB)), "size_bytes": GB} for _ in range(250)]
    for file in files:
        file["begin_bytes"] = int(file["name"])
    path = tmp_path / "recall.json"
    path.write_text(json.dumps({"files": files, "drive": drive}))
    told = json.loads(order(binary, path, "--policy", "fifo", "--json"))
    lines, head = ["tape,from_bytes,to_bytes,seconds"], 0
    for turn in told["files"]:
        begin = int(turn["name"])
        lines.append(f"A1,{head},{begin},{turn['locate_seconds']}")
        head = begin + GB
    observed = tmp_path / "observed.csv"
    observed.write_text("\n".join(lines) + "\n")
    text = calibrate(binary, observed)
    assert "along the whole tape" in text and "250 locates on 1 tapes" in text, text
    found = json.loads(calibrate(binary, observed, "--json"))
    # Some 125 s along the whole tape, instead of 104 s.
    assert abs(found["drive"]["locate"]["longitudinal_ns"] - 743_000) < 15_000, found["drive"]
    assert len(found["wrap_ends_bytes"]["A1"]) == 208
    model = tmp_path / "ours.json"
    model.write_text(json.dumps(found))
    path.write_text(json.dumps({"files": files[:50], "tape": "A1"}))
    usual = json.loads(order(binary, path, "--policy", "position", "--json"))
    ours = json.loads(order(binary, path, "--policy", "position", "--model", str(model), "--json"))
    assert 1.1 < ours["locate_seconds"] / usual["locate_seconds"] < 1.4
    observed.write_text("tape,from_bytes,to_bytes,seconds\nA1,5,x,3\n")
    assert "line 2: from_bytes and to_bytes are whole numbers" in calibrate(binary, observed, code=2)
    observed.write_text("A1,5,7,3\n")
    assert "line 1: it must be tape,from_bytes" in calibrate(binary, observed, code=2)
