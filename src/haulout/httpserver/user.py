"""Who somebody is, as the API server or a proxy says; and how the API server is asked for something in their name."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from haulout.kube import impersonation
from haulout.kube.client import Client

FIELD_MANAGER = "haulout-dashboard"  # who changed something, as `managedFields` tells

_AUTHENTICATED = "system:authenticated"
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):[^:]+")
_CREDENTIAL_EXTRA_PREFIX = (
    "authentication.kubernetes.io/"  # what they tell is where a token comes from, and grants nothing
)


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who is known."""

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    uid: str = ""

    @classmethod
    def of(
        cls, name: str, *, groups: Iterable[str] = (), extra: Mapping[str, Iterable[str]] | None = None, uid: str = ""
    ) -> "User":
        """Return a user; raises `ValueError` if nobody can act in their name, as headers cannot say it."""
        extra_items = {key: tuple(values) for key, values in sorted((extra or {}).items())}
        groups = tuple(dict.fromkeys(groups))
        if not name:
            raise ValueError("expected a name")
        impersonation.headers(name, groups=groups, extra=extra_items)
        return cls(name, groups, tuple(extra_items.items()), uid)

    def impersonating_client(self, client: Client) -> Client:
        """Return a client that asks in this user's name.

        The API server adds by itself what all users have, and all service accounts: it is left out, as rights to act
        in the name of a service account may be for its bare name only. Everything else counts, such as the scopes of
        an OpenShift token: whoever has a token for less must not get more here.
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
