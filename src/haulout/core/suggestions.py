"""The word that was meant by one that nobody knows."""

from collections.abc import Iterable


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Return the one of `known` that a person most likely meant; None if none is like it."""
    import difflib  # big, and nobody needs it who makes no mistakes

    matches = difflib.get_close_matches(word, list(known), n=1)
    return matches[0] if matches else None
