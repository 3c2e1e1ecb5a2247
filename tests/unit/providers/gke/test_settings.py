"""What can be set about labels of GKE."""

import pytest

from haulout.errors import ConfigError
from haulout.providers.gcp.settings import GoogleEarlyStart
from haulout.providers.gke.settings import GkeSettings, read


@pytest.mark.parametrize("variables", [{}, {"HAULOUT_GKE": "false"}, {"HAULOUT_GKE_START": "drained"}])
def test_labels_are_not_looked_at_unless_that_is_switched_on(variables: dict[str, str]) -> None:
    assert read(variables) is None


def test_when_a_maintenance_begins_early_can_be_set() -> None:
    assert read({"HAULOUT_GKE": "true"}) == GkeSettings(early_start=GoogleEarlyStart.NEVER)
    for begin in GoogleEarlyStart:
        assert read({"HAULOUT_GKE": "true", "HAULOUT_GKE_START": f" {begin.upper()} "}) == GkeSettings(
            early_start=begin
        )


def test_anything_else_is_refused_with_what_was_found_and_expected() -> None:
    with pytest.raises(ConfigError, match=r"HAULOUT_GKE_START.*expected .* found 'soon'"):
        read({"HAULOUT_GKE": "true", "HAULOUT_GKE_START": "soon"})
