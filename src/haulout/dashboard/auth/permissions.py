"""What it takes to act in the names of people whom a proxy names, and what people need to look and to act.

Whoever shows a token acts with that, which takes no right of ours. For those whom a proxy names there is a
ServiceAccount of its own, `haulout-dashboard`, that may impersonate people; the operator may only get its token. There
are two ways to let that account impersonate:

- narrow: only what acts from the dashboard consist of may be done in somebody's name, and in no name of a cluster
  administrator (`impersonate-on:…`, Kubernetes 1.36 and later; older servers refuse it, as they know no such verbs).
  Tokens of OpenShift that are for some scopes only cannot act then;
- wide: anything, in anybody's name. Every version knows it. Who has it can do whatever anybody can.
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

_WHY = "act in the names of people whom a proxy names"
_AUTHENTICATION = "authentication.k8s.io"
_SCOPES = "userextras/scopes.authorization.openshift.io"  # a token for less must not get more here
_READ = ["get", "list", "watch"]


class Impersonation(StrEnum):
    """What the account may do in people's names."""

    NARROW = "narrow"
    WIDE = "wide"


def operator_permissions(namespace: str) -> tuple[Permission, ...]:
    """Return what the operator needs: a token of that account, and of no other."""
    return (Permission(("create",), "", "serviceaccounts/token", namespace, _WHY, names=(SERVICE_ACCOUNT,)),)


def permissions(mode: Impersonation) -> tuple[Permission, ...]:
    """Return what the account needs."""
    if mode is Impersonation.WIDE:
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
    """Return the rules of ClusterRoles that people are bound to, by their names."""
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
