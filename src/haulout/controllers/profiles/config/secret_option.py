"""Options that must not be shown: tokens, passwords, and URLs to which anyone who knows them can post."""

from typing import Any

from haulout.controllers.profiles.config.options import option


def secret_option(description: str, **kwargs: Any) -> Any:
    """Return an option, as `option` does, that is excluded from `repr`, so that no log and no error shows it."""
    field = option(description, **kwargs)
    field.repr = False
    return field
