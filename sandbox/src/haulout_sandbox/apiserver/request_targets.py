"""The target of a request: which object it is about, and for which user."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from haulout_sandbox.apiserver.admission.webhook import WebhookResult
from haulout_sandbox.apiserver.auth.rbac import User
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind

_T = TypeVar("_T")


@dataclass(slots=True)
class AdmissionState:
    """State of a request that the server keeps between its runs, while webhooks are called."""

    results: dict[str, WebhookResult] = field(default_factory=dict)
    _memo: dict[str, Any] = field(default_factory=dict)

    def memoize(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` returned when this name was first used."""
        if name not in self._memo:
            self._memo[name] = make()
        value: _T = self._memo[name]
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionContext:
    """The user and the options of a write, for admission."""

    user: User
    state: AdmissionState
    options: JsonObject  # of the request
    is_named: bool = True  # False: the request is about a collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The object that a request is about, and the user who sent it."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""
    username: str
    verb: str
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)  # warnings of the response
    admission: AdmissionContext | None = None  # None: no webhook applies

    @property
    def key(self) -> str:
        """Return the storage key of the object."""
        return self.kind.key(self.namespace, self.name)

    def memoize(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` returns, the same value in every run of the request."""
        return make() if self.admission is None else self.admission.state.memoize(name, make)
