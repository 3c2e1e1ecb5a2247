"""The actions that a user may execute, as far as known in advance: by access reviews in the user's name.

The reviews also show whether the impersonating ServiceAccount exists. Without it users of a proxy are offered no
actions.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.resources import NODES, Resource
from haulout.core.clock import Clock
from haulout.dashboard.api.types import ActionType
from haulout.dashboard.auth.user_clients import Caller, UserClients
from haulout.errors import KubeError, Unauthorized
from haulout.httpserver.delegated_auth import ExpiringCache, User
from haulout.kube import rbac
from haulout.kube.rbac import Permission

log = logging.getLogger(__name__)

_TTL = timedelta(minutes=1)
_ERROR_TTL = timedelta(seconds=10)
_MAX_CACHED = 1000


def _write(verb: str, resource: Resource[Any]) -> Permission:
    return Permission((verb,), resource.group, resource.plural, None, "act from the dashboard")


# Any of them suffices to offer the action.
REQUIRED_WRITES: Mapping[ActionType, tuple[Permission, ...]] = {
    ActionType.APPROVE: (_write("patch", NODES),),
    ActionType.HOLD: (_write("patch", NODES),),
    ActionType.RELEASE: (_write("patch", NODES),),
    ActionType.START: (_write("create", NODE_MAINTENANCES),),
    ActionType.CANCEL: (_write("delete", NODE_MAINTENANCES), _write("patch", MAINTENANCE_NOTICES)),
}


def all_writes() -> tuple[Permission, ...]:
    """Return all writes of actions, without duplicates."""
    return tuple(dict.fromkeys(write for writes in REQUIRED_WRITES.values() for write in writes))


class AllowedActions:
    """Caches the allowed actions of users."""

    def __init__(self, clock: Clock, delegation: UserClients) -> None:
        self._delegation = delegation
        self._cache: ExpiringCache[User, tuple[ActionType, ...]] = ExpiringCache(clock, max_size=_MAX_CACHED)
        self._logged_problem = ""

    async def for_caller(self, caller: Caller) -> tuple[ActionType, ...]:
        """Return the allowed actions of a user."""
        user = caller.user
        if (cached := self._cache.get(user)) is not None:
            return cached
        try:
            user_client = await self._delegation.client_for(caller)
            refused = await rbac.denied_permissions(user_client.client, all_writes())
        except KubeError as error:
            if isinstance(error, Unauthorized):
                self._delegation.discard_token()
            self._log_problem_once(str(error))
            return self._cache.put(user, (), ttl=_ERROR_TTL)
        self._logged_problem = ""
        allowed = set(all_writes()) - {missing.permission for missing in refused}
        return self._cache.put(user, _permitted(allowed), ttl=_TTL)

    def _log_problem_once(self, problem: str) -> None:
        if problem != self._logged_problem:
            log.warning("cannot check the permissions of the user, so the dashboard offers no actions: %s", problem)
        self._logged_problem = problem


def _permitted(allowed: Iterable[Permission]) -> tuple[ActionType, ...]:
    granted = frozenset(allowed)
    return tuple(act for act, writes in REQUIRED_WRITES.items() if granted.intersection(writes))
