"""RBAC for the dashboard: of the impersonating ServiceAccount, and of users who read and act.

A user with a token acts with that token, which needs no permission of ours. For users that a proxy authenticates, the
separate ServiceAccount `haulout-dashboard` may impersonate users; the operator may only request its token. That account
has one of two sets of permissions:

- constrained: it may impersonate only for the writes of dashboard actions, and never a cluster administrator
  (`impersonate-on:…`, Kubernetes 1.36 and later; older servers refuse it, because they do not know these verbs).
  Users of OpenShift tokens with scopes cannot act then;
- unrestricted: it may impersonate anyone for anything, on every version. Its token is as powerful as all users
  together.

The actions that a user may execute, as far as known in advance: by access reviews in the user's name. The reviews also
show whether the impersonating ServiceAccount exists. Without it users of a proxy are offered no actions.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.api.resources import NODES, SELF_SUBJECT_ACCESS_REVIEWS, Resource
from haulout.core.clock import Clock
from haulout.dashboard.api.types import ActionType
from haulout.dashboard.auth.settings import DASHBOARD_URL, SERVICE_ACCOUNT
from haulout.dashboard.auth.user_clients import Caller, UserClients
from haulout.errors import KubeError, Unauthorized
from haulout.httpserver.delegated_auth import ExpiringCache, User
from haulout.kube import rbac
from haulout.kube.rbac import Permission

log = logging.getLogger(__name__)

VIEWER_ROLE, OPERATOR_ROLE = "haulout-dashboard-viewer", "haulout-dashboard-operator"

_WHY = "act as users whom a trusted proxy authenticated"
_AUTHENTICATION = "authentication.k8s.io"
_SCOPES = "userextras/scopes.authorization.openshift.io"  # a token with restricted scopes must not gain rights here
_READ = ["get", "list", "watch"]

_TTL = timedelta(minutes=1)
_ERROR_TTL = timedelta(seconds=10)
_MAX_CACHED = 1000


class Impersonation(StrEnum):
    """What the account may do when it impersonates."""

    CONSTRAINED = "constrained"
    UNRESTRICTED = "unrestricted"


def operator_permissions(namespace: str) -> tuple[Permission, ...]:
    """Return the operator's permissions: request tokens of that account, and of no other."""
    return (Permission(("create",), "", "serviceaccounts/token", namespace, _WHY, names=(SERVICE_ACCOUNT,)),)


def permissions(mode: Impersonation) -> tuple[Permission, ...]:
    """Return what the ServiceAccount that impersonates users needs."""
    if mode is Impersonation.UNRESTRICTED:
        return (
            *(Permission(("impersonate",), "", item, None, _WHY) for item in ("users", "groups", "serviceaccounts")),
            Permission(("impersonate",), _AUTHENTICATION, _SCOPES, None, _WHY),
        )
    review = Permission(("create",), SELF_SUBJECT_ACCESS_REVIEWS.group, SELF_SUBJECT_ACCESS_REVIEWS.plural, None, _WHY)
    return (
        *(Permission(("impersonate:user-info",), _AUTHENTICATION, item, None, _WHY) for item in ("users", "groups")),
        Permission(("impersonate:serviceaccount",), _AUTHENTICATION, "serviceaccounts", None, _WHY),
        *(
            Permission(
                tuple(
                    f"impersonate-on:{impersonated}:{verb}"
                    for impersonated in ("user-info", "serviceaccount")
                    for verb in item.verbs
                ),
                item.group,
                item.resource,
                None,
                _WHY,
            )
            for item in (review, *all_writes())
        ),
    )


def user_roles() -> Mapping[str, list[RawObject]]:
    """Return the rules of ClusterRoles for users, by name."""
    view_rule: RawObject = {"nonResourceURLs": [DASHBOARD_URL], "verbs": ["get"]}
    return {
        VIEWER_ROLE: [view_rule],
        OPERATOR_ROLE: [
            view_rule,
            _rule(NODE_MAINTENANCES.group, NODE_MAINTENANCES.plural, [*_READ, "create", "delete"]),
            _rule(MAINTENANCE_NOTICES.group, MAINTENANCE_NOTICES.plural, [*_READ, "patch"]),
            _rule(NODES.group, NODES.plural, [*_READ, "patch"]),
        ],
    }


def _rule(group: str, resource: str, verbs: list[str]) -> RawObject:
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs}


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
