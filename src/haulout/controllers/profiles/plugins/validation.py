"""Validation of options whose text has a format, for `Plugin.problems`."""

from collections.abc import Callable, Iterable, Iterator


def parse_problems(key: str, text: str, read: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Yield the message of the ValueError that `read` raises for a text, if any."""
    try:
        read(text)
    except ValueError as error:
        yield key, str(error)


def parse_problems_each(key: str, texts: Iterable[str], read: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Yield the messages for each text of a list."""
    for number, text in enumerate(texts):
        yield from parse_problems(f"{key}[{number}]", text, read)
