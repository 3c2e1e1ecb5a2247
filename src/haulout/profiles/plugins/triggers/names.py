"""What labels, annotations and finalizers can be called: a wrong name would only be refused when it is too late."""

from collections.abc import Iterator

from haulout.kube.selectors import is_key, is_value


def key_problems(key: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a name, as `Plugin.problems` wants it."""
    if not is_key(key):
        yield "key", f"found {key!r}, expected a name such as ready or example.com/ready"


def value_problems(value: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a label's value, as `Plugin.problems` wants it."""
    if not is_value(value):
        expected = "at most 63 letters, digits, '-', '_' and '.', that begin and end with a letter or a digit"
        yield "value", f"found {value!r}, expected {expected}"
