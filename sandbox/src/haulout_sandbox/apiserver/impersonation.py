"""Acting as somebody else: what the Impersonate headers of a request ask for, and who may have it.

Follows `apiserver/pkg/endpoints/filters/impersonation` of Kubernetes 1.36, which knows two kinds of rights: the old
verb `impersonate`, and constrained ones, which say both whom (`impersonate:user-info` on users, uids, groups and
userextras) and for what (`impersonate-on:user-info:list` on what the request itself is about). The constrained ones are
tried first, and their refusal is the one told. Left out is the mode by which an agent takes the place of its own node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote

from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.names import subdomain_problems
from haulout_sandbox.apiserver.rbac import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    Attributes,
    User,
    account_name,
    account_user,
    forbidden,
)
from haulout_sandbox.apiserver.reviews import AUTHENTICATION, Authorizer
from haulout_sandbox.apiserver.status import Refused, bad_request

_PREFIX = "impersonate-"
_EXTRA = "impersonate-extra-"
_NODE = "system:node:"


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
        raise bad_request(f"requested {_as_go(user)} without impersonating a user name")
    return None


class Impersonation:
    """Lets some users take the place of others; the way that a user was last allowed it is tried first."""

    def __init__(self) -> None:
        self._last: dict[str, _Mode] = {}

    def impersonated(self, wanted: User, asked: Attributes, authorizer: Authorizer) -> User:
        """Return who the request is from, in the name of `wanted`, if whoever `asked` may take that place."""
        modes = _modes(wanted)
        last = self._last.get(asked.user)
        if last in modes:
            modes = [last, *(mode for mode in modes if mode != last)]
        refusals: list[Refused] = []
        for mode in modes:
            try:
                mode.check(wanted, asked, authorizer)
            except Refused as refused:
                refusals.append(refused)
                continue
            self._last[asked.user] = mode
            return _completed(wanted, fixed_groups=mode.fixed_groups(wanted))
        raise refusals[0]


def _modes(wanted: User) -> "list[_Mode]":
    only_name = not (wanted.groups or wanted.uid or wanted.extra)
    if account_name(wanted.name):
        found = [_Mode("serviceaccount")] if only_name else []
    elif wanted.name.startswith(_NODE) and not subdomain_problems(wanted.name.removeprefix(_NODE)):
        found = [_Mode("arbitrary-node")] if only_name else []
    else:
        found = [_Mode("user-info")]
    return [*found, _Mode("")]


@dataclass(frozen=True, slots=True)
class _Mode:
    """One way to be allowed it; the one without a name is the old verb."""

    name: str

    def check(self, wanted: User, asked: Attributes, authorizer: Authorizer) -> None:
        """Refuse unless all that `wanted` consists of may be taken."""
        if self.name:
            _require(replace(asked, verb=f"impersonate-on:{self.name}:{asked.verb}"), authorizer)
        for each in self._parts(wanted, asked):
            if self.name and each.resource == "groups" and each.name in ("", MASTERS):
                what = f"{MASTERS} group" if each.name else "empty string group"
                raise Refused(forbidden(each, f"impersonating the {what} is not allowed"))
            if self.name and each.resource == "userextras":
                _check_extra_key(each)
            _require(each, authorizer)

    def fixed_groups(self, wanted: User) -> tuple[str, ...]:
        """Return the groups that such a user always has, unless others are asked for."""
        if account := account_name(wanted.name):
            return account_user(*account).groups
        return ("system:nodes",) if self.name == "arbitrary-node" else ()

    def _parts(self, wanted: User, asked: Attributes) -> Iterable[Attributes]:
        verb = f"impersonate:{self.name}" if self.name else "impersonate"
        base = Attributes(user=asked.user, groups=asked.groups, verb=verb, group=AUTHENTICATION)
        people = base if self.name else replace(base, group="")
        if account := account_name(wanted.name):
            yield replace(people, resource="serviceaccounts", namespace=account[0], name=account[1])
        elif self.name == "arbitrary-node":
            yield replace(people, resource="nodes", name=wanted.name.removeprefix(_NODE))
        else:
            yield replace(people, resource="users", name=wanted.name)
        if wanted.uid:
            yield replace(base, resource="uids", name=wanted.uid)
        for group in wanted.groups:
            yield replace(people, resource="groups", name=group)
        for key, values in wanted.extra.items():
            for value in values:
                yield replace(base, resource="userextras", subresource=key, name=value)


def _check_extra_key(asked: Attributes) -> None:
    host, _, path = asked.subresource.partition("/")
    if host and path:
        return
    why = f'Invalid value: {fields.quoted(asked.subresource)}: must be a domain-prefixed path (such as "acme.io/foo")'
    said = f"impersonating an invalid key in extra is not allowed: extra.key: {why}"
    raise Refused(forbidden(replace(asked, subresource="", name=""), said))


def _require(asked: Attributes, authorizer: Authorizer) -> None:
    decision = authorizer.decide(asked)
    if not decision.allowed:
        raise Refused(forbidden(asked, decision.reason))


def _completed(wanted: User, *, fixed_groups: tuple[str, ...]) -> User:
    groups = wanted.groups or fixed_groups
    if wanted.name == ANONYMOUS:
        groups = (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return replace(wanted, groups=tuple(dict.fromkeys(groups)))


def _as_go(user: User) -> str:
    """Return a user as Go's %#v prints one."""
    groups = f"[]string{_go_list(user.groups)}" if user.groups else "[]string(nil)"
    extra = _go_extra(user.extra) if user.extra else "map[string][]string(nil)"
    name, uid = fields.quoted(user.name), fields.quoted(user.uid)
    return f"&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}"


def _go_list(values: Iterable[str]) -> str:
    return "{" + ", ".join(map(fields.quoted, values)) + "}"


def _go_extra(extra: Mapping[str, Iterable[str]]) -> str:
    told = (f"{fields.quoted(key)}:[]string{_go_list(values)}" for key, values in sorted(extra.items()))
    return f"map[string][]string{{{', '.join(told)}}}"
