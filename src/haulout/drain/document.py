"""A drain policy as people write it: `spec.drain` of a custom resource, or a YAML file.

    policy = read(document, base=Policy.like_nmo(), path="spec.drain")
    policy = load(Path("night.yaml").read_bytes(), file="night.yaml")

Whatever is wrong is told at once, each with where it stands, what was found and what was expected. A key that nobody
knows is wrong too: a `timeuot` that is silently ignored is a drain that never ends. What is left out is as in `base`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import yaml

from haulout.core import duration, marked
from haulout.core.similar import closest
from haulout.drain.policy import MOST_PARALLEL, Behavior, Order, Policy, Rule
from haulout.drain.selection import Filters
from haulout.errors import ConfigError, ConfigErrors, PolicyError
from haulout.kube import selectors
from haulout.kube.selectors import Selector

T = TypeVar("T")

_LARGEST_ORDER = 2**31 - 1  # as in Cluster API


class _Wrong(ValueError):
    """A value that is not what its key wants; `path` is where, within the value."""

    def __init__(self, found: Any, expected: str, path: str = "") -> None:
        self.path = path
        super().__init__(f"found {_shown(found)}, expected {expected}")


def read(data: Any, *, base: Policy | None = None, path: str = "", file: str | None = None) -> Policy:
    """Return the policy that `data` describes; raise `PolicyError` with all that is wrong."""
    policy, problems = _understood(data, Policy() if base is None else base, path)
    if problems:
        raise PolicyError([f"{key}: {problem}" if key else problem for key, problem in problems], file=file)
    return policy


def load(data: bytes, *, file: str) -> Policy:
    """Return the policy that a YAML file describes; raise `ConfigErrors`, each with its line."""
    node = marked.first_node(data, file=file)
    if node is None:
        raise ConfigError("expected a drain policy, found nothing", file=file)
    try:
        plain = marked.plain(node)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"expected plain values: {' '.join(str(error).split())}", file=file) from None
    policy, problems = _understood(plain, Policy(), "")
    if problems:
        lines = marked.lines_of(node)
        raise ConfigErrors(
            [ConfigError(it, file=file, line=marked.line_at(lines, key), key=key or None) for key, it in problems]
        )
    return policy


def _understood(data: Any, base: Policy, path: str) -> tuple[Policy, list[tuple[str, str]]]:
    """Return the policy, and what is wrong with it: where, and what."""
    reader = _Reader(path)
    policy = _policy(reader.section(data), base)
    wrong = reader.problems or [(_joined(path, key), problem) for key, problem in policy.problems()]
    return policy, wrong


def _policy(section: "_Section", base: Policy) -> Policy:
    of = base.filters
    filters = Filters(
        force=section.get("force", _flag, of.force),
        ignore_daemonsets=section.get("ignoreDaemonSets", _flag, of.ignore_daemonsets),
        delete_emptydir_data=section.get("deleteEmptyDirData", _flag, of.delete_emptydir_data),
        skip_wait_for_delete=section.get("skipWaitForDelete", _span, of.skip_wait_for_delete),
    )
    filters = replace(filters, spare_daemonsets=of.spare_daemonsets and filters.ignore_daemonsets)
    policy = replace(
        base,
        filters=filters,
        pod_selector=section.get("podSelector", _selector, base.pod_selector),
        grace_period=section.get("gracePeriod", _span, base.grace_period),
        timeout=section.get("timeout", _limit, base.timeout),
        eviction_timeout=section.get("evictionTimeout", _limit, base.eviction_timeout),
        deletion_timeout=section.get("deletionTimeout", _limit, base.deletion_timeout),
        wait_completed_timeout=section.get("waitCompletedTimeout", _limit, base.wait_completed_timeout),
        volume_detach_timeout=section.get("volumeDetachTimeout", _limit, base.volume_detach_timeout),
        force_delete=section.get("forceDelete", _flag, base.force_delete),
        disable_eviction=section.get("disableEviction", _flag, base.disable_eviction),
        eviction_requests=section.get("evictionRequests", _flag, base.eviction_requests),
        parallel=section.get("parallel", _between(1, MOST_PARALLEL), base.parallel),
        order=_order(section.below("order"), base.order),
        rules=tuple(map(_rule, section.items("rules"))) or base.rules,
    )
    section.close()
    return policy


def _order(section: "_Section", base: Order) -> Order:
    order = Order(
        by_priority=section.get("byPriority", _flag, base.by_priority),
        storage_last=section.get("storageLast", _flag, base.storage_last),
        daemon_sets_last=section.get("daemonSetsLast", _flag, base.daemon_sets_last),
    )
    section.close()
    return order


def _rule(section: "_Section") -> Rule:
    rule = Rule(
        name=section.get("name", _name, "", required=True),
        pods=section.get("podSelector", _selector, selectors.EVERYTHING),
        namespaces=section.get("namespaces", _names, ()),
        namespace_selector=section.get("namespaceSelector", _selector, None),
        behavior=section.get("behavior", _behavior, Behavior.DRAIN),
        order=section.get("order", _between(-_LARGEST_ORDER - 1, _LARGEST_ORDER), None),
        grace_period=section.get("gracePeriod", _span, None),
        eviction_timeout=section.get("evictionTimeout", _limit, None),
        deletion_timeout=section.get("deletionTimeout", _limit, None),
        wait_completed_timeout=section.get("waitCompletedTimeout", _limit, None),
    )
    section.close()
    return rule


# What values mean


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(value, "true or false")
    return value


def _span(value: Any) -> timedelta:
    try:
        span = duration.parse(value) if isinstance(value, str) else None
    except duration.DurationError:
        span = None
    if span is None or span < timedelta():
        raise _Wrong(value, "a duration such as 90s or 1h30m")
    return span


def _limit(value: Any) -> timedelta:
    span = _span(value)
    if not span:
        raise _Wrong(value, "a duration above zero, or nothing at all for no limit")
    return span


def _between(least: int, most: int) -> Callable[[Any], int]:
    def number(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _Wrong(value, f"a whole number from {least} to {most}")
        return value

    return number


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Wrong(value, "a name")
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise _Wrong(value, "a list of names, or nothing at all for all namespaces")
    return tuple(map(_name, value))


def _behavior(value: Any) -> Behavior:
    words = [str(it) for it in Behavior]
    if value not in words:
        raise _Wrong(value, f"one of {', '.join(words)}{_meant(value, words)}")
    return Behavior(value)


def _selector(value: Any) -> Selector:
    try:
        if isinstance(value, str):
            return selectors.parse(value)
        if isinstance(value, Mapping):
            return selectors.from_object(value)
    except selectors.SelectorError as error:
        wrong = _Wrong(value, "", error.path)
        wrong.args = (error.problem,)
        raise wrong from None
    raise _Wrong(value, "a label selector, as text or with matchLabels and matchExpressions")


# How a document is walked through


class _Reader:
    """Collects what is wrong."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[tuple[str, str]] = []  # where, and what

    def section(self, data: Any, path: str | None = None) -> "_Section":
        """Return `data` as a section, an empty one if it is none."""
        path = self.path if path is None else path
        if data is None:
            data = {}
        elif not isinstance(data, Mapping):
            self.note(path, str(_Wrong(data, "keys and values")))
            data = {}
        return _Section(self, path, data)

    def note(self, path: str, problem: str) -> None:
        """Remember a problem."""
        self.problems.append((path, problem))


class _Section:
    """Some keys and values, of which those that are asked for are known."""

    def __init__(self, reader: _Reader, path: str, data: Mapping[Any, Any]) -> None:
        self._reader = reader
        self._path = path
        self._data = data
        self._known: list[str] = []

    def get(self, key: str, meaning: Callable[[Any], T], default: T, *, required: bool = False) -> T:
        """Return what `key` means, or `default` if it is not there or wrong."""
        self._known.append(key)
        value = self._data.get(key)
        if value is None and not required:
            return default
        try:
            return meaning(value)
        except _Wrong as wrong:
            self._reader.note(_joined(self._path, _joined(key, wrong.path)), str(wrong))
            return default

    def below(self, key: str) -> "_Section":
        """Return the section under `key`."""
        self._known.append(key)
        return self._reader.section(self._data.get(key), _joined(self._path, key))

    def items(self, key: str) -> list["_Section"]:
        """Return the sections in the list under `key`."""
        self._known.append(key)
        path, value = _joined(self._path, key), self._data.get(key)
        if value is not None and not isinstance(value, list):
            self._reader.note(path, str(_Wrong(value, "a list")))
            value = None
        return [self._reader.section(it, f"{path}[{number}]") for number, it in enumerate(value or ())]

    def close(self) -> None:
        """Note the keys that nobody asked for."""
        for key in self._data:
            if key not in self._known:
                meant = _meant(key, self._known) or f", expected one of {', '.join(self._known)}"
                self._reader.note(_joined(self._path, str(key)), f"unknown{meant}")


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def _meant(word: Any, known: list[str]) -> str:
    by_case = {it.lower(): it for it in known}
    near = closest(str(word).lower(), by_case)
    return f", did you mean {by_case[near]}?" if near else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_SHOWN = 80
