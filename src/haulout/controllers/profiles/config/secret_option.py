"""Options that must not be shown: tokens, passwords, and addresses that whoever knows them can post to."""

from typing import Any

from haulout.controllers.profiles.config.options import option


def secret_option(description: str, **kwargs: Any) -> Any:
    """Return an option, as `option` does, that is in no `repr`, so that no log and no error shows it."""
    field = option(description, **kwargs)
    field.repr = False
    return field
