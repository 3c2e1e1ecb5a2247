"""What a request is about, and on whose behalf."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from haulout_sandbox.apiserver.admission.webhook import WebhookResult
from haulout_sandbox.apiserver.auth.rbac import User
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind

_T = TypeVar("_T")


@dataclass(slots=True)
class AdmissionState:
    """What the server remembers of a request from run to run, while webhooks think about it."""

    results: dict[str, WebhookResult] = field(default_factory=dict)
    _memo: dict[str, Any] = field(default_factory=dict)

    def memoize(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` made when it was called for the first time."""
        if name not in self._memo:
            self._memo[name] = make()
        value: _T = self._memo[name]
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionContext:
    """Who asks for a write and how, for those who have a say in it."""

    user: User
    state: AdmissionState
    options: JsonObject  # those of the request
    is_named: bool = True  # no: it is about a whole collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which object a request is about, and on whose behalf."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""
    username: str
    verb: str
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)  # what the answer will warn of
    admission: AdmissionContext | None = None  # None: nobody has a say in it

    @property
    def key(self) -> str:
        """Return where the object lies among its kind."""
        return self.kind.key(self.namespace, self.name)

    def memoize(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` makes, the same in every run of the request."""
        return make() if self.admission is None else self.admission.state.memoize(name, make)
