"""Faults of real services are explained: copies of two real sites go on as usual, something befalls a disk, a way, a process or
a setting, and the first cause that `penstock explain` names is the right one.

Of each fault a mild trial, which is harder to tell, guards a change; ten at either strength are the soak. One trial in twenty is
told wrongly on a busy machine, and the table of the soak counts it; what is told wrongly three times in a row is a defect.
"""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from .live import Answer, world_for
from .live_faults import FAULTS

# Faults that are tried side by side: copies need little of a machine, and most of the time is waiting.
SIDE_BY_SIDE = 5
# How often a fault is tried until it is told rightly.
TRIES = 3
BATCHES = [FAULTS[at : at + SIDE_BY_SIDE] for at in range(0, len(FAULTS), SIDE_BY_SIDE)]


def try_fault(stack, world, fault, strength):
    """What is explained of one fault."""
    with stack:
        if fault.prepare:
            fault.prepare(world)
        world.start()
        return world.run(
            lambda world: fault.strike(world, strength), relieve=fault.relieve, hidden_seconds=fault.hidden_seconds
        )


def try_together(faults, strength, make_world, seed):
    """Sites are made one after the other, and run side by side."""
    worlds = [(fault, *make_world(fault, seed + number)) for number, fault in enumerate(faults)]
    with ThreadPoolExecutor(len(worlds)) as threads:
        trials = [threads.submit(try_fault, stack, world, fault, strength) for fault, stack, world in worlds]
        return [(fault, answer_of(trial)) for fault, trial in zip(faults, trials)]


def answer_of(trial):
    """A trial may come to nothing on a busy machine: a rate was not reached in time, or a site did not answer in time."""
    try:
        return trial.result()
    except AssertionError as why:
        return Answer({}, {"text": f"no answer: {why}"})


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"from {batch[0].name} to {batch[-1].name}")
def test_the_first_cause_of_a_fault_is_the_right_one(batch, binary, disk_program, tmp_path, request, tier):
    results = request.config.getoption("--live-results")
    draw, numbers = random.Random(20261126), count()

    def wrong_of(faults, strength):
        """Those that were told wrongly, and what was told."""
        number, wrong = next(numbers), {}

        def make_world(fault, seed):
            name = f"{number}-{fault.name}".replace(" ", "-")
            return world_for(fault, binary, disk_program, tmp_path / name, seed)

        for fault, answer in try_together(faults, strength, make_world, draw.randrange(1 << 30)):
            print(f"{fault.name}, {strength}: {answer}")
            if results:
                note(results, fault, strength, answer)
            if answer.first not in fault.right:
                wrong[fault] = f"{fault.name}, {strength}: {answer}\n{answer.detail.get('text', '')}"
        return wrong

    wrong = []
    tried = [fault for fault in batch if tier.name == "soak" or not fault.needs_quiet]
    for strength in tier.live_trials:
        left, told = tried, {fault: [] for fault in tried}
        for _ in range(TRIES):
            for fault, text in (found := wrong_of(left, strength)).items():
                told[fault].append(text)
            if not (left := list(found)):
                break
        wrong += ["\n".join(told[fault]) for fault in left]
    assert not wrong, "\n\n".join(wrong)


def note(path, fault, strength, answer):
    row = {"fault": fault.name, "what": fault.what, "right": fault.right, "strength": strength, "told": answer.first}
    with open(Path(path), "a") as file:
        file.write(json.dumps(row) + "\n")
