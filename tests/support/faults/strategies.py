"""Hypothesis strategies for faults of the sandbox."""

from hypothesis import strategies as st

from support.faults.named_faults import FAULTS, Fault, fault_mixture


def any_fault() -> st.SearchStrategy[Fault]:
    """Return one of the named faults, or a seeded mixture of several; a smaller example is a simpler one."""
    return st.one_of(st.sampled_from(FAULTS), st.integers(0, 2**16).map(fault_mixture))
