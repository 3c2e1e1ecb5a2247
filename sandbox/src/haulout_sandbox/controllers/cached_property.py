"""Properties that are found out once, of objects that never change.

As `functools.cached_property`, but without its lock, which takes longer than most of what is found out: there is one
thread. The object needs a `__dict__`, which a struct has with `dict=True`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    cached_property = property
else:

    class cached_property:  # noqa: N801 - a decorator, named like `property`
        """A property that is found out once."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._find = compute
            self._name = compute.__name__
            self.__doc__ = compute.__doc__

        def __get__(self, obj: Any, owner: type) -> Any:
            """Find it out; from then on the object has it as an attribute, and this is not asked any more."""
            if obj is None:
                return self
            value = obj.__dict__[self._name] = self._find(obj)
            return value
