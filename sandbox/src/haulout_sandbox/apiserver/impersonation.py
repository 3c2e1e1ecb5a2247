"""Acting as somebody else: what the Impersonate headers of a request ask for, and who may have it.

There are two kinds of rights, as in Kubernetes 1.36: the old verb `impersonate`, and constrained ones, which say both
whom (`impersonate:user-info` on users, uids, groups and userextras; `impersonate:serviceaccount`) and for what
(`impersonate-on:user-info:list` on what the request itself is about). Either is enough.
"""

from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import unquote

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
