"""The documentation about Google Cloud matches the code."""

import re
from pathlib import Path

from haulout.providers.gcp import compute_api, settings
from haulout.providers.gke import event_source
from haulout.providers.gke import settings as gke_settings

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/reference/notices-gcp.md").read_text(encoding="utf-8")


def test_reference_documents_each_environment_variable() -> None:
    names = {
        *settings.VARIABLES,
        settings.METADATA_HOST_VARIABLE,
        settings.CREDENTIALS_VARIABLE,
        *gke_settings.VARIABLES,
    }
    assert [variable for variable in sorted(names) if f"| `{variable}` |" not in PAGE] == []


def test_reference_documents_each_early_start_value() -> None:
    assert [item for item in settings.GoogleEarlyStart if f"`{item}`" not in PAGE] == []


def test_documented_error_hints_match_the_code() -> None:
    hints = set(compute_api._HINTS.values())
    documented = re.findall(r"… \d+ \w+ … \(([^)]+)\)`", PAGE)
    assert len(documented) == 4
    assert set(documented) <= hints


def test_reference_documents_each_label() -> None:
    names = (
        event_source.START,
        event_source.LATEST_START,
        event_source.ACTIVE,
        event_source.TERMINATING,
        event_source.PERFORM,
    )
    assert [variable for variable in names if f"`{variable}" not in PAGE] == []
