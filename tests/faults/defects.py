"""Defects that are known: a test that shows one fails as expected, and turns red as soon as the defect is gone."""

import pytest


def known(reason):
    """For a test that fails for this reason alone."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)


def cases(faults):
    """Each fault as a case of a test, with its known defect."""
    for fault in faults:
        marks = [known(fault.known)] if fault.known else []
        yield pytest.param(fault, id=fault.name.replace(",", "").replace(" ", "-"), marks=marks)


def shows(reason):
    """For a defect that a round meets by chance. Whoever mends it removes the call."""
    pytest.xfail(reason)
