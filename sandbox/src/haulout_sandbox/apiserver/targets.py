"""What a request is about, and on whose behalf."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.rbac import User
from haulout_sandbox.apiserver.webhooks import Verdict

_T = TypeVar("_T")


@dataclass(slots=True)
class Case:
    """What the server remembers of a request from run to run, while webhooks think about it."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    _memory: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` made when it was called for the first time."""
        if name not in self._memory:
            self._memory[name] = make()
        made: _T = self._memory[name]
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """Who asks for a write and how, for those who have a say in it."""

    user: User
    case: Case
    options: JsonObject  # those of the request
    names_objects: bool = True  # no: it is about a whole collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which object a request is about, and on whose behalf."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""
    who: str
    verb: str
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)  # what the answer will warn of
    asks: Asks | None = None  # None: nobody has a say in it

    @property
    def key(self) -> str:
        """Return where the object lies among its kind."""
        return self.kind.key(self.namespace, self.name)

    def once(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` makes, the same in every run of the request."""
        return make() if self.asks is None else self.asks.case.once(name, make)
