"""Clients with which users act: never with the operator's own credentials.

    user = await user_clients.client_for(caller)
    await user.client.create(…)

A user with a token acts with that token: the API server sees only the user. A user behind a proxy has none. For these,
requests carry a token of the ServiceAccount `haulout-dashboard`, the only account that may impersonate users. The
operator requests such a token when the first of them acts (TokenRequest). It is valid for minutes, and is used for
nothing else. So the operator's own account never has permission to impersonate anyone.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

from haulout.api.objects import Base
from haulout.api.resources import Resource
from haulout.dashboard.auth.settings import SERVICE_ACCOUNT
from haulout.errors import Forbidden, ImpersonationUnavailable, NotFound
from haulout.httpserver.delegated_auth import FIELD_MANAGER, User
from haulout.kube.client import Client
from haulout.kube.transport import Token

TOKEN_LIFETIME = timedelta(minutes=10)  # the minimum of the API server
_RENEW_AFTER = TOKEN_LIFETIME / 2


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated user, and the token if there is one."""

    user: User
    token: Token | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class UserClient:
    """A user, and a client that acts as the user."""

    user: User
    client: Client

    @property
    def name(self) -> str:
        return self.user.name


class UserClients:
    """Creates clients that act as users; operator and impersonating account are in `namespace`."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._token: Token | None = None
        self._renew_at = 0.0  # monotonic
        self._token_lock = asyncio.Lock()

    async def client_for(self, caller: Caller) -> UserClient:
        """Return a client for a user; raise `ImpersonationUnavailable` if there is no impersonating account."""
        if caller.token is not None:
            return UserClient(caller.user, self._client.with_token(caller.token, field_manager=FIELD_MANAGER))
        account_client = self._client.with_token(await self._account_token(), field_manager=FIELD_MANAGER)
        return UserClient(caller.user, caller.user.impersonating_client(account_client))

    def discard_token(self) -> None:
        """Request a new token next time: the API server refused the last one, as for a recreated account."""
        self._token = None

    async def _account_token(self) -> Token:
        async with self._token_lock:
            now = self._client.clock.monotonic()
            if self._token is None or now >= self._renew_at:
                self._token = Token(await self._request_token())
                self._renew_at = now + _RENEW_AFTER.total_seconds()
            return self._token

    async def _request_token(self) -> str:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": int(TOKEN_LIFETIME.total_seconds())},
        }
        try:
            found = await self._client.create(
                _ACCOUNTS, body, namespace=self._namespace, name=SERVICE_ACCOUNT, subresource="token"
            )
        except (Forbidden, NotFound) as error:
            raise ImpersonationUnavailable(
                "users of the proxy cannot act: ServiceAccount "
                f"{self._namespace}/{SERVICE_ACCOUNT}, or the right to get "
                "its token, is missing; "
                "`haulout manifests --dashboard-auth proxy --dashboard-actions constrained` prints both;"
                f" with the chart, set dashboard.actions ({error})"
            ) from error
        return found.status.token


class _TokenStatus(Base, frozen=True):
    token: str = ""


class _TokenRequest(Base, frozen=True):
    status: _TokenStatus = _TokenStatus()


_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, model=_TokenRequest)
