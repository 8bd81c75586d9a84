"""How large the suites are: `guard` for every change, `soak` for what a promise is made for."""

from dataclasses import dataclass

from .fault import MILD, STRONG


@dataclass(frozen=True)
class Tier:
    name: str
    # Runs that are recorded, and power cuts that each of them is tried with.
    recorded_runs: int
    cuts_per_run: int
    # Rounds of a service or database that is cut while others go on.
    live_cuts: int
    # Rounds of each other fault.
    rounds: int
    # Rounds of each fault that meets files on their way to tape and back.
    tape_rounds: int
    # Trials of each fault of copies that go on: how strong they are.
    live_trials: tuple[str, ...]


TIERS = {
    "guard": Tier("guard", recorded_runs=2, cuts_per_run=8, live_cuts=2, rounds=1, tape_rounds=1, live_trials=(MILD,)),
    "soak": Tier(
        "soak",
        recorded_runs=10,
        cuts_per_run=20,
        live_cuts=200,
        rounds=25,
        tape_rounds=100,
        live_trials=(MILD, STRONG) * 10,
    ),
}
