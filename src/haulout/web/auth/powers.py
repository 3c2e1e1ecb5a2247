"""What somebody may do, as far as can be told beforehand: the API server is asked in their name.

That also tells whether there is an account that may act for people whom a proxy names. If not, they are offered
nothing.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import KubeError, Unauthorized
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kube import access
from haulout.kube.access import Permission
from haulout.kube.resources import NODES, Resource
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.web.api.shapes import ActKind
from haulout.web.auth.delegation import Caller, Delegation
from haulout.web.auth.memory import Memory
from haulout.web.auth.users import User

log = logging.getLogger(__name__)

_COUNTS_FOR = timedelta(minutes=1)
_TROUBLE_COUNTS_FOR = timedelta(seconds=10)
_REMEMBERED = 1000


def _write(verb: str, resource: Resource[Any]) -> Permission:
    return Permission((verb,), resource.group, resource.plural, None, "act from the dashboard")


# Any of them is enough to be offered an act.
WRITES: Mapping[ActKind, tuple[Permission, ...]] = {
    ActKind.APPROVE: (_write("patch", NODES),),
    ActKind.HOLD: (_write("patch", NODES),),
    ActKind.RELEASE: (_write("patch", NODES),),
    ActKind.START: (_write("create", NODE_MAINTENANCES),),
    ActKind.CANCEL: (_write("delete", NODE_MAINTENANCES), _write("patch", MAINTENANCE_NOTICES)),
}


def all_writes() -> tuple[Permission, ...]:
    """Return all writes that acts consist of, each once."""
    return tuple(dict.fromkeys(it for each in WRITES.values() for it in each))


class Powers:
    """Knows what people may do."""

    def __init__(self, clock: Clock, delegation: Delegation) -> None:
        self._delegation = delegation
        self._known: Memory[User, tuple[ActKind, ...]] = Memory(clock, most=_REMEMBERED)
        self._complained_of = ""

    async def of(self, caller: Caller) -> tuple[ActKind, ...]:
        """Return what somebody may do."""
        user = caller.user
        if (known := self._known.get(user)) is not None:
            return known
        try:
            actor = await self._delegation.actor(caller)
            refused = await access.missing(actor.client, all_writes())
        except KubeError as error:
            if isinstance(error, Unauthorized):
                self._delegation.forget()
            self._complain(str(error))
            return self._known.put(user, (), counts_for=_TROUBLE_COUNTS_FOR)
        self._complained_of = ""
        allowed = set(all_writes()) - {it.permission for it in refused}
        return self._known.put(user, _offered(allowed), counts_for=_COUNTS_FOR)

    def _complain(self, of: str) -> None:
        if of != self._complained_of:
            log.warning("nothing is offered on the dashboard: %s", of)
        self._complained_of = of


def _offered(allowed: Iterable[Permission]) -> tuple[ActKind, ...]:
    there = frozenset(allowed)
    return tuple(act for act, writes in WRITES.items() if there.intersection(writes))
