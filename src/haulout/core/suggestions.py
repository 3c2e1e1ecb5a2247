"""Suggestions for misspelled words."""

from collections.abc import Iterable


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Return the word in `known` that is most similar to `word`; None if none is similar."""
    import difflib  # a large module, needed only for suggestions

    matches = difflib.get_close_matches(word, list(known), n=1)
    return matches[0] if matches else None
