"""The options of a plugin: fields of a dataclass that say what they are for."""

from dataclasses import MISSING, field
from typing import Any

DESCRIPTION = "description"


def option(description: str, *, default: Any = MISSING) -> Any:
    """Return a field of a plugin, with what it is for; without a default it is required."""
    return field(default=default, metadata={DESCRIPTION: description})
