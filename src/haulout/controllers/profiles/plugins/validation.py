"""Options that are texts of some form: what is wrong with them, for `Plugin.problems`."""

from collections.abc import Callable, Iterable, Iterator


def parse_problems(key: str, text: str, read: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Yield what `read` finds wrong with a text, by raising a ValueError."""
    try:
        read(text)
    except ValueError as error:
        yield key, str(error)


def parse_problems_each(key: str, texts: Iterable[str], read: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with each text of a list."""
    for number, text in enumerate(texts):
        yield from parse_problems(f"{key}[{number}]", text, read)
