"""A user as the API server or a proxy reports it, and clients that impersonate the user."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from haulout.kube import impersonation
from haulout.kube.client import Client

FIELD_MANAGER = "haulout-dashboard"  # as shown in `managedFields`

_AUTHENTICATED = "system:authenticated"
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):[^:]+")
_CREDENTIAL_EXTRA_PREFIX = (
    "authentication.kubernetes.io/"  # such entries describe the origin of a token and grant nothing
)


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    uid: str = ""

    @classmethod
    def of(
        cls, name: str, *, groups: Iterable[str] = (), extra: Mapping[str, Iterable[str]] | None = None, uid: str = ""
    ) -> "User":
        """Return a user; raise `ValueError` if impersonation headers cannot carry its name, groups or extra."""
        extra_items = {key: tuple(values) for key, values in sorted((extra or {}).items())}
        groups = tuple(dict.fromkeys(groups))
        if not name:
            raise ValueError("expected a name")
        impersonation.headers(name, groups=groups, extra=extra_items)
        return cls(name, groups, tuple(extra_items.items()), uid)

    def impersonating_client(self, client: Client) -> Client:
        """Return a client that impersonates this user.

        The API server adds the groups of all users and of all service accounts itself. They are left out, because RBAC
        may allow to impersonate a service account by name only. Everything else is sent, such as the scopes of an
        OpenShift token: a restricted token must not gain rights here.
        """
        account = _SERVICE_ACCOUNT.fullmatch(self.name)
        implicit_groups = {_AUTHENTICATED}
        implicit_groups |= {"system:serviceaccounts", f"system:serviceaccounts:{account[1]}"} if account else set()
        headers = impersonation.headers(
            self.name,
            groups=[group for group in self.groups if group not in implicit_groups],
            extra={key: values for key, values in self.extra if not key.startswith(_CREDENTIAL_EXTRA_PREFIX)},
        )
        return client.impersonate(headers, field_manager=FIELD_MANAGER)
