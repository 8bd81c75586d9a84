"""Rounds go on where the last run stopped, and the table says which did not pass."""

from .rounds import Rounds, table


def test_a_later_run_goes_on_where_the_last_one_stopped(tmp_path):
    kept = tmp_path / "rounds.jsonl"
    first = list(Rounds(kept).of("disk", "cut", 3))
    [struck, *_] = Rounds(kept).of("disk", "error", 1)
    for _ in Rounds(kept).of("disk", "hang", 2):
        # It fails here.
        break
    assert len(set(first)) == 3
    assert list(Rounds(kept).of("disk", "cut", 3)) == []
    assert len(list(Rounds(kept).of("disk", "cut", 5))) == 2
    assert list(Rounds(kept, minutes=1e-9).of("disk", "hang", 2)) == []
    assert table(Rounds(kept).rows()).splitlines()[2:] == [
        "| disk | cut | 5 | 5 |  |",
        "| disk | error | 1 | 1 |  |",
        f"| disk | hang | 2 | 0 | {struck} |",
    ]
