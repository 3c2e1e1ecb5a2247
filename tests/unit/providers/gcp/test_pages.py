"""The page about Google Cloud says what the code does."""

import re
from pathlib import Path

from haulout.providers.gcp import compute_api, settings
from haulout.providers.gke import event_source
from haulout.providers.gke import settings as gke_settings

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/reference/notices-gcp.md").read_text(encoding="utf-8")


def test_each_variable_that_is_read_is_told_of() -> None:
    names = {
        *settings.VARIABLES,
        settings.METADATA_HOST_VARIABLE,
        settings.CREDENTIALS_VARIABLE,
        *gke_settings.VARIABLES,
    }
    assert [variable for variable in sorted(names) if f"| `{variable}` |" not in PAGE] == []


def test_each_value_of_a_variable_is_told_of() -> None:
    assert [item for item in settings.GoogleEarlyStart if f"`{item}`" not in PAGE] == []


def test_what_the_page_says_of_errors_is_what_is_said() -> None:
    hints = set(compute_api._HINTS.values())
    told = re.findall(r"… \d+ \w+ … \(([^)]+)\)`", PAGE)
    assert len(told) == 4
    assert set(told) <= hints


def test_each_label_that_counts_is_told_of() -> None:
    names = (
        event_source.START,
        event_source.LATEST_START,
        event_source.ACTIVE,
        event_source.TERMINATING,
        event_source.PERFORM,
    )
    assert [variable for variable in names if f"`{variable}" not in PAGE] == []
