"""Cached properties of immutable objects.

Like `functools.cached_property` without its lock, which costs more than computing most of these values: there is only
one thread. The object needs a `__dict__`, which a struct has with `dict=True`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    cached_property = property
else:

    class cached_property:  # noqa: N801 - a decorator, named like `property`
        """A property that is computed once per object."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._find = compute
            self._name = compute.__name__
            self.__doc__ = compute.__doc__

        def __get__(self, obj: Any, owner: type) -> Any:
            """Compute the value and set it as an instance attribute, which from then on hides this descriptor."""
            if obj is None:
                return self
            value = obj.__dict__[self._name] = self._find(obj)
            return value
