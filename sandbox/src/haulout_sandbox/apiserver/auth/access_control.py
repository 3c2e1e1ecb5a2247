"""Authentication and authorization of every request.

    access = AccessControl(store, tokens, enforces_rbac=True)
    user = access.authenticate(authorization, now=…)      # whose token is it? 401
    user = access.authorize(user, request)                # impersonation, and permission? 403

Without `enforces_rbac` everything is allowed, as by a server with `--authorization-mode=AlwaysAllow`. With it, the
policy is read from the roles and bindings in the store, and again after one of them was written.

Impersonation has two kinds of permissions, as in Kubernetes 1.36: the legacy verb `impersonate`, and constrained ones,
which say both whom (`impersonate:user-info` on users, uids, groups and userextras; `impersonate:serviceaccount`) and
for what (`impersonate-on:user-info:list` on what the request itself is about). Either is enough.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from urllib.parse import unquote

from haulout.kube.transport import Request
from haulout_sandbox.apiserver.auth.rbac import (
    ANONYMOUS,
    AUTHENTICATED,
    SYSTEM_MASTERS,
    UNAUTHENTICATED,
    Attributes,
    Policy,
    User,
    forbidden_status,
    parse_service_account,
    request_attributes,
    service_account_user,
)
from haulout_sandbox.apiserver.auth.reviews import ALLOW_ALL, AUTHENTICATION, Authorizer
from haulout_sandbox.apiserver.auth.tokens import InvalidToken, TokenAuthenticator
from haulout_sandbox.apiserver.kinds.builtin import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.request_paths import query_parameters
from haulout_sandbox.apiserver.status import StatusError, bad_request, failure_status
from haulout_sandbox.apiserver.storage.store import Store

ANONYMOUS_USER = User(ANONYMOUS, (UNAUTHENTICATED,))

_WriteKey = tuple[str, tuple[str, ...], str, str]  # user, groups, method and path
_IMPERSONATE_PREFIX, _IMPERSONATE_EXTRA_PREFIX = "impersonate-", "impersonate-extra-"
_WRITE_METHODS = ("POST", "PUT", "PATCH", "DELETE")
_MAX_CACHED = 1_000
_RBAC_KINDS = (ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING)


def admin_user(name: str) -> User:
    return User(name, (SYSTEM_MASTERS, AUTHENTICATED))


class AccessControl:
    def __init__(self, store: Store, tokens: TokenAuthenticator, *, enforces_rbac: bool) -> None:
        self.tokens = tokens
        self.enforces_rbac = enforces_rbac
        self._store = store
        self._policy: Policy | None = None
        self._allowed_writes: set[_WriteKey] = set()  # writes that the current policy allows
        self._policy_revision = store.revision  # roles and bindings have been checked for changes up to this revision

    @property
    def authorizer(self) -> Authorizer:
        return self._current_policy() if self.enforces_rbac else ALLOW_ALL

    def authenticate(self, authorization: str, *, now: datetime) -> User:
        """Return the user of an `Authorization` header; refuse with 401."""
        token = bearer_token(authorization)
        if not token:
            if self.enforces_rbac:  # as in the real server, which admits no anonymous users with AlwaysAllow
                return ANONYMOUS_USER
            raise _unauthorized()
        try:
            return self.tokens.authenticate(token, now=now)[0]
        except InvalidToken:
            raise _unauthorized() from None

    def authorize(self, user: User, request: Request) -> User:
        """Return the user on whose behalf the request is made, if it is allowed; refuse with 403."""
        impersonated = impersonation_of(request.headers) if request.headers else None
        if impersonated is None and (not self.enforces_rbac or SYSTEM_MASTERS in user.groups):
            return user
        authorizer = self.authorizer  # first, because it clears the cache if the policy has changed
        write = (user.name, user.groups, request.method, request.path)
        if impersonated is None and write in self._allowed_writes:
            return user
        attributes = request_attributes(user, request.method, request.path, query_parameters(request))
        if impersonated is not None:
            user = impersonate(impersonated, attributes, authorizer)
            attributes = replace(attributes, user=user.name, groups=user.groups)
        if not authorizer.allows(attributes):
            raise StatusError(forbidden_status(attributes))
        if impersonated is None and request.method in _WRITE_METHODS:  # permissions for reads also depend on the query
            self._cache_allowed(write)
        return user

    def _cache_allowed(self, write: _WriteKey) -> None:
        if len(self._allowed_writes) >= _MAX_CACHED:
            self._allowed_writes.clear()
        self._allowed_writes.add(write)

    def check_may_create(self, user: User, request: Request) -> None:
        """Refuse an update that would create the object, from a user who may only update."""
        if not self.enforces_rbac or SYSTEM_MASTERS in user.groups:
            return
        attributes = replace(request_attributes(user, request.method, request.path), verb="create")
        if not self.authorizer.allows(attributes):
            raise StatusError(forbidden_status(attributes))

    def _current_policy(self) -> Policy:
        if self._policy_revision != self._store.revision:
            if any(self._store.has_changed(kind, since=self._policy_revision) for kind in _RBAC_KINDS):
                self._policy = None
                self._allowed_writes.clear()
            self._policy_revision = self._store.revision
        if self._policy is None:
            roles, cluster_roles, bindings, cluster_bindings = (self._objects(kind) for kind in _RBAC_KINDS)
            self._policy = Policy(
                roles=roles,
                cluster_roles=cluster_roles,
                role_bindings=bindings,
                cluster_role_bindings=cluster_bindings,
            )
        return self._policy

    def _objects(self, kind: Kind) -> Iterable[JsonObject]:
        return self._store.objects_at(kind, self._store.revision).values()


def bearer_token(authorization: str) -> str:
    """Return the token of an `Authorization` header, or nothing. Further words are ignored; further spaces are not."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


# Impersonation


def impersonation_of(headers: Iterable[tuple[str, str]]) -> User | None:
    """Return the user that the headers of a request impersonate, or None."""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    single: dict[str, str] = {}
    for name, value in ((name.lower(), value) for name, value in headers):
        if name == "impersonate-group":
            groups.append(value)
        elif name.startswith(_IMPERSONATE_EXTRA_PREFIX):
            extra.setdefault(unquote(name.removeprefix(_IMPERSONATE_EXTRA_PREFIX)), []).append(value)
        elif name.startswith(_IMPERSONATE_PREFIX):
            single.setdefault(name, value)
    user = User(single.get("impersonate-user", ""), tuple(groups), single.get("impersonate-uid", ""), extra)
    if user.name:
        return user
    if groups or extra or user.uid:
        raise bad_request("impersonation of groups, uid or extra without impersonating a user name")
    return None


def impersonate(requested: User, attributes: Attributes, authorizer: Authorizer) -> User:
    """Return the user `requested` if the user of `attributes` may impersonate it; refuse with 403."""
    denied = _first_denied(requested, attributes, authorizer, mode=_constrained_mode(requested))
    if denied is not None and _first_denied(requested, attributes, authorizer, mode="") is not None:
        raise StatusError(forbidden_status(denied))
    account = parse_service_account(requested.name)
    groups = requested.groups or (service_account_user(*account).groups if account else ())
    if requested.name == ANONYMOUS:
        groups = (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return replace(requested, groups=tuple(dict.fromkeys(groups)))


def _constrained_mode(requested: User) -> str:
    """Return the constrained mode for `requested`; a service account with groups of its own has none."""
    if not parse_service_account(requested.name):
        return "user-info"
    return "" if requested.groups or requested.uid or requested.extra else "serviceaccount"


def _first_denied(requested: User, attributes: Attributes, authorizer: Authorizer, *, mode: str) -> Attributes | None:
    """Return the first permission that impersonation lacks; an empty mode is the legacy verb."""
    checks = [replace(attributes, verb=f"impersonate-on:{mode}:{attributes.verb}")] if mode else []
    checks += _impersonation_checks(requested, attributes, mode)
    return next(
        (check for check in checks if not authorizer.allows(check) or (mode and check.name == SYSTEM_MASTERS)), None
    )


def _impersonation_checks(requested: User, attributes: Attributes, mode: str) -> Iterable[Attributes]:
    verb = f"impersonate:{mode}" if mode else "impersonate"
    base = Attributes(user=attributes.user, groups=attributes.groups, verb=verb, group=AUTHENTICATION)
    identity = base if mode else replace(base, group="")
    if account := parse_service_account(requested.name):
        yield replace(identity, resource="serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield replace(identity, resource="users", name=requested.name)
    if requested.uid:
        yield replace(base, resource="uids", name=requested.uid)
    for group in requested.groups:
        yield replace(identity, resource="groups", name=group)
    for key, values in requested.extra.items():
        for value in values:
            yield replace(base, resource="userextras", subresource=key, name=value)


def _unauthorized() -> StatusError:
    return StatusError(failure_status(401, "Unauthorized", "Unauthorized"))
