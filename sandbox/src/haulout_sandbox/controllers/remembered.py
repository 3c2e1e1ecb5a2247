"""Properties that are found out once, of objects that never change.

As `functools.cached_property`, but without its lock, which takes longer than most of what is found out: there is one
thread. The object needs a `__dict__`, which a struct has with `dict=True`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    remembered = property
else:

    class remembered:  # noqa: N801 - a decorator, named like `property`
        """A property that is found out once."""

        def __init__(self, find: Callable[[Any], Any]) -> None:
            self._find = find
            self._name = find.__name__
            self.__doc__ = find.__doc__

        def __get__(self, thing: Any, kind: type) -> Any:
            """Find it out; from then on the object has it as an attribute, and this is not asked any more."""
            if thing is None:
                return self
            found = thing.__dict__[self._name] = self._find(thing)
            return found
