"""Which faults a test goes through: all of them where there is time, else a third, another one in each of three files.

    @pytest.mark.parametrize("fault", faults_for(1), ids=str)

What each third leaves out the others have, so that a whole run of the tests has every fault several times.
"""

from collections.abc import Sequence

from support.faults.crash_test import CRASH_SAMPLING
from support.faults.named_faults import FAULTS, Fault

_THIRDS = 3


def faults_for_turn(turn: int) -> Sequence[Fault]:
    """Return the faults of a turn, which is any number; `--crashes=all` makes them all."""
    return FAULTS if CRASH_SAMPLING.max_crashes is None else FAULTS[turn % _THIRDS :: _THIRDS]
