"""No history entry is missing after faults of a real API server, of permissions and of clocks.

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
async def test_no_history_entry_is_lost_under_faults(
    control_plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest, fault: str
) -> None:
    wanted = request.config.getoption("--rounds")
    rounds = _ROUNDS if wanted is None else wanted
    with ControlPlane(control_plane.assets) as own:
        file = a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)
        audit = await run_rounds(own, fault, rounds=rounds, seed=1, file=file)
    assert audit.problems() == []
    assert (audit.changes, audit.missing_count()) == (rounds * 6, 0)
