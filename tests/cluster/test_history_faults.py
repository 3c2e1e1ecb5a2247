"""On a real API server that is killed, with rights that come and go and clocks that are set, no change is missing.

Fifty rounds of each, which take about a quarter of an hour a fault:

    pytest tests/cluster/test_history_faults.py --rounds 50 -o log_cli=true -o log_cli_level=INFO
"""

from pathlib import Path

import pytest

from controlplane import ControlPlane
from support.faults.history_rounds import FAULTS, run_rounds
from support.operators.profiles import ANNOTATION_CONFIGURATION, a_configuration_file

pytestmark = pytest.mark.real_time
_ROUNDS = 2


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_change_is_missing_in_the_record_whatever_happens_meanwhile(
    control_plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest, fault: str
) -> None:
    wanted = request.config.getoption("--rounds")
    rounds = _ROUNDS if wanted is None else wanted
    with ControlPlane(control_plane.assets) as own:
        file = a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)
        judge = await run_rounds(own, fault, rounds=rounds, seed=1, file=file)
    assert judge.problems() == []
    assert (judge.changes, judge.missing_count()) == (rounds * 6, 0)
