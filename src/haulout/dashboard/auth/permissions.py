"""RBAC for the dashboard: of the impersonating ServiceAccount, and of users who read and act.

A user with a token acts with that token, which needs no permission of ours. For users that a proxy authenticates, the
separate ServiceAccount `haulout-dashboard` may impersonate users; the operator may only request its token. That account
has one of two sets of permissions:

- constrained: it may impersonate only for the writes of dashboard actions, and never a cluster administrator
  (`impersonate-on:…`, Kubernetes 1.36 and later; older servers refuse it, because they do not know these verbs).
  Users of OpenShift tokens with scopes cannot act then;
- unrestricted: it may impersonate anyone for anything, on every version. Its token is as powerful as all users
  together.
"""

from collections.abc import Mapping
from enum import StrEnum

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.api.resources import NODES, SELF_SUBJECT_ACCESS_REVIEWS
from haulout.dashboard.auth.allowed_actions import all_writes
from haulout.dashboard.auth.settings import DASHBOARD_URL, SERVICE_ACCOUNT
from haulout.kube.rbac import Permission

VIEWER_ROLE, OPERATOR_ROLE = "haulout-dashboard-viewer", "haulout-dashboard-operator"

_WHY = "act as users whom a trusted proxy authenticated"
_AUTHENTICATION = "authentication.k8s.io"
_SCOPES = "userextras/scopes.authorization.openshift.io"  # a token with restricted scopes must not gain rights here
_READ = ["get", "list", "watch"]


class Impersonation(StrEnum):
    """What the account may do when it impersonates."""

    CONSTRAINED = "constrained"
    UNRESTRICTED = "unrestricted"


def operator_permissions(namespace: str) -> tuple[Permission, ...]:
    """Return the operator's permissions: request tokens of that account, and of no other."""
    return (Permission(("create",), "", "serviceaccounts/token", namespace, _WHY, names=(SERVICE_ACCOUNT,)),)


def permissions(mode: Impersonation) -> tuple[Permission, ...]:
    """Return the permissions of the account."""
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
