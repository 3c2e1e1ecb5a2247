"""Settings of GKE label events."""

import pytest

from haulout.errors import ConfigError
from haulout.providers.gcp.settings import GoogleEarlyStart
from haulout.providers.gke.settings import GkeSettings, read


@pytest.mark.parametrize("variables", [{}, {"HAULOUT_GKE": "false"}, {"HAULOUT_GKE_START": "drained"}])
def test_gke_is_disabled_by_default(variables: dict[str, str]) -> None:
    assert read(variables) is None


def test_gke_early_start_is_configurable() -> None:
    assert read({"HAULOUT_GKE": "true"}) == GkeSettings(early_start=GoogleEarlyStart.NEVER)
    for early_start in GoogleEarlyStart:
        assert read({"HAULOUT_GKE": "true", "HAULOUT_GKE_START": f" {early_start.upper()} "}) == GkeSettings(
            early_start=early_start
        )


def test_invalid_gke_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"HAULOUT_GKE_START.*expected .* found 'soon'"):
        read({"HAULOUT_GKE": "true", "HAULOUT_GKE_START": "soon"})
