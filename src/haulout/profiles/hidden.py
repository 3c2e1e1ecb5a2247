"""Options that must not be shown: tokens, passwords, and addresses that whoever knows them can post to."""

from typing import Any

from haulout.profiles.options import option


def secret(description: str, **more: Any) -> Any:
    """Return an option, as `option` does, that is in no `repr`, so that no log and no error shows it."""
    hidden = option(description, **more)
    hidden.repr = False
    return hidden
