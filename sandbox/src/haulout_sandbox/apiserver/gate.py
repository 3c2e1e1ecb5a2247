"""Who asks, and whether they may: what stands before every request.

    gate = Gate(store, tokens, enforces=True)
    user = gate.identified(headers, now=…)          # whose token is it? 401
    user = gate.admitted(user, request)             # as whom, and may they? 403

A gate that does not enforce lets everybody do everything, as a server with `--authorization-mode=AlwaysAllow` does. One
that enforces reads its policy from the roles and bindings in the store, again when one of them was written.

To act as somebody else there are two kinds of rights, as in Kubernetes 1.36: the old verb `impersonate`, and
constrained ones, which say both whom (`impersonate:user-info` on users, uids, groups and userextras;
`impersonate:serviceaccount`) and for what (`impersonate-on:user-info:list` on what the request itself is about). Either
is enough.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from urllib.parse import unquote

import msgspec

from haulout.kube.transport import Request
from haulout_sandbox.apiserver.builtin_kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.paths import parameters
from haulout_sandbox.apiserver.rbac import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    Attributes,
    Policy,
    User,
    account_name,
    account_user,
    forbidden,
    request_attributes,
)
from haulout_sandbox.apiserver.reviews import ALLOW_ALL, AUTHENTICATION, Authorizer
from haulout_sandbox.apiserver.status import Refused, bad_request, failure
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.tokens import BadToken, Tokens

NOBODY = User(ANONYMOUS, (UNAUTHENTICATED,))

_Write = tuple[str, tuple[str, ...], str, str]  # a user, their groups, a method and a path
_PREFIX, _EXTRA = "impersonate-", "impersonate-extra-"
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_REMEMBERED = 1_000
_DECIDES = (ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING)


def administrator(name: str) -> User:
    """Return a user who may do everything."""
    return User(name, (MASTERS, AUTHENTICATED))


class Gate:
    """Tells users apart, and lets through what they may do."""

    def __init__(self, store: Store, tokens: Tokens, *, enforces: bool) -> None:
        self.tokens = tokens
        self.enforces = enforces
        self._store = store
        self._policy: Policy | None = None
        self._allowed: set[_Write] = set()  # by the policy
        self._seen = store.revision  # how far we have looked for changes of roles and bindings

    @property
    def authorizer(self) -> Authorizer:
        """Return who decides now."""
        return self._current_policy() if self.enforces else ALLOW_ALL

    def identified(self, authorization: str, *, now: datetime) -> User:
        """Return whose `Authorization` header this is; refuses with 401."""
        token = bearer_token(authorization)
        if not token:
            if self.enforces:  # as in the real server, where nobody must be somebody if everybody may do everything
                return NOBODY
            raise _unauthorized()
        try:
            return self.tokens.holder(token, now=now)[0]
        except BadToken:
            raise _unauthorized() from None

    def admitted(self, user: User, request: Request) -> User:
        """Return in whose name the request is made, if they may; refuses with 403."""
        wanted = wanted_user(request.headers) if request.headers else None
        if wanted is None and (not self.enforces or MASTERS in user.groups):
            return user
        authorizer = self.authorizer  # first: a policy that has changed allows nothing yet
        write = (user.name, user.groups, request.method, request.path)
        if wanted is None and write in self._allowed:
            return user
        asked = request_attributes(user, request.method, request.path, parameters(request))
        if wanted is not None:
            user = impersonated(wanted, asked, authorizer)
            asked = replace(asked, user=user.name, groups=user.groups)
        if not authorizer.allows(asked):
            raise Refused(forbidden(asked))
        if wanted is None and request.method in _WRITES:  # what a read asks for depends on its query, too
            self._remember(write)
        return user

    def _remember(self, write: _Write) -> None:
        if len(self._allowed) >= _REMEMBERED:
            self._allowed.clear()
        self._allowed.add(write)

    def check_may_create(self, user: User, request: Request) -> None:
        """Refuse an update of what does not exist, where that creates, from somebody who may only update."""
        if not self.enforces or MASTERS in user.groups:
            return
        asked = replace(request_attributes(user, request.method, request.path), verb="create")
        if not self.authorizer.allows(asked):
            raise Refused(forbidden(asked))

    def _current_policy(self) -> Policy:
        if self._seen != self._store.revision:
            if any(self._store.has_changed(kind, since=self._seen) for kind in _DECIDES):
                self._policy = None
                self._allowed.clear()
            self._seen = self._store.revision
        if self._policy is None:
            roles, cluster_roles, bindings, cluster_bindings = (self._objects(kind) for kind in _DECIDES)
            self._policy = Policy(
                roles=_sound(roles, _Role),
                cluster_roles=_sound(cluster_roles, _Role),
                role_bindings=_sound(bindings, _Binding),
                cluster_role_bindings=_sound(cluster_bindings, _Binding),
            )
        return self._policy

    def _objects(self, kind: Kind) -> Iterable[JsonObject]:
        return self._store.at(kind, self._store.revision).values()


def bearer_token(authorization: str) -> str:
    """Return the token of an `Authorization` header, or nothing; further words are passed over, further spaces not."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


# Acting as somebody else


def wanted_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """Return whom a request wants to be, as its headers say it; None if it is content with who it is."""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    single: dict[str, str] = {}
    for name, value in ((name.lower(), value) for name, value in headers):
        if name == "impersonate-group":
            groups.append(value)
        elif name.startswith(_EXTRA):
            extra.setdefault(unquote(name.removeprefix(_EXTRA)), []).append(value)
        elif name.startswith(_PREFIX):
            single.setdefault(name, value)
    user = User(single.get("impersonate-user", ""), tuple(groups), single.get("impersonate-uid", ""), extra)
    if user.name:
        return user
    if groups or extra or user.uid:
        raise bad_request("impersonation of groups, uid or extra without impersonating a user name")
    return None


def impersonated(wanted: User, asked: Attributes, authorizer: Authorizer) -> User:
    """Return who the request is from, in the name of `wanted`, if whoever `asked` may take that place."""
    refused = _first_refused(wanted, asked, authorizer, mode=_mode(wanted))
    if refused is not None and _first_refused(wanted, asked, authorizer, mode="") is not None:
        raise Refused(forbidden(refused))
    account = account_name(wanted.name)
    groups = wanted.groups or (account_user(*account).groups if account else ())
    if wanted.name == ANONYMOUS:
        groups = (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return replace(wanted, groups=tuple(dict.fromkeys(groups)))


def _mode(wanted: User) -> str:
    """Return the constrained way to become `wanted`; a service account with groups of its own has none."""
    if not account_name(wanted.name):
        return "user-info"
    return "" if wanted.groups or wanted.uid or wanted.extra else "serviceaccount"


def _first_refused(wanted: User, asked: Attributes, authorizer: Authorizer, *, mode: str) -> Attributes | None:
    """Return what is missing to become `wanted`; the mode without a name is the old verb."""
    needed = [replace(asked, verb=f"impersonate-on:{mode}:{asked.verb}")] if mode else []
    needed += _parts(wanted, asked, mode)
    return next((it for it in needed if not authorizer.allows(it) or (mode and it.name == MASTERS)), None)


def _parts(wanted: User, asked: Attributes, mode: str) -> Iterable[Attributes]:
    verb = f"impersonate:{mode}" if mode else "impersonate"
    base = Attributes(user=asked.user, groups=asked.groups, verb=verb, group=AUTHENTICATION)
    people = base if mode else replace(base, group="")
    if account := account_name(wanted.name):
        yield replace(people, resource="serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield replace(people, resource="users", name=wanted.name)
    if wanted.uid:
        yield replace(base, resource="uids", name=wanted.uid)
    for group in wanted.groups:
        yield replace(people, resource="groups", name=group)
    for key, values in wanted.extra.items():
        for value in values:
            yield replace(base, resource="userextras", subresource=key, name=value)


# Roles and bindings that make sense


class _Rule(msgspec.Struct, rename="camel"):
    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    non_resource_urls: list[str] | None = msgspec.field(name="nonResourceURLs", default=None)


class _Role(msgspec.Struct):
    rules: list[_Rule] | None = None


class _Named(msgspec.Struct):
    kind: str
    name: str
    namespace: str = ""


class _Binding(msgspec.Struct, rename="camel"):
    role_ref: _Named
    subjects: list[_Named] | None = None


def _sound(objects: Iterable[JsonObject], shape: type[msgspec.Struct]) -> Iterator[JsonObject]:
    """Yield those that make sense: tests can put anything into the store, and one bad role must not lock all out."""
    for obj in objects:
        try:
            msgspec.convert(obj, shape)
        except msgspec.ValidationError:
            continue
        yield obj


def _unauthorized() -> Refused:
    return Refused(failure(401, "Unauthorized", "Unauthorized"))
