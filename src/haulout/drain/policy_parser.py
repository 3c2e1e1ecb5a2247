"""Parses a drain policy: `spec.drain` of a custom resource, or a YAML file.

    policy = parse_policy(document, base=DrainPolicy.like_nmo(), path="spec.drain")
    policy = load_policy(Path("night.yaml").read_bytes(), file="night.yaml")

All errors are reported at once, each with its path, the value found and the value expected. An unknown key is an error,
too: a `timeuot` that is silently ignored is a drain that never ends. Missing keys have the value of `base`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import yaml

from haulout.core import duration, yaml_nodes
from haulout.core.text import closest_match
from haulout.drain.pod_filters import PodFilters
from haulout.drain.policy import MAX_PARALLEL, Behavior, DrainOrder, DrainPolicy, DrainRule
from haulout.errors import ConfigError, ConfigErrors, PolicyError
from haulout.kube import selectors
from haulout.kube.selectors import Selector

T = TypeVar("T")

_LARGEST_ORDER = 2**31 - 1  # as in Cluster API


class _InvalidValue(ValueError):
    """An invalid value. `path` is the place within the value."""

    def __init__(self, found: Any, expected: str, path: str = "") -> None:
        self.path = path
        super().__init__(f"found {format_value(found)}, expected {expected}")


def parse_policy(data: Any, *, base: DrainPolicy | None = None, path: str = "", file: str | None = None) -> DrainPolicy:
    """Return the policy in `data`; raise `PolicyError` with all problems."""
    policy, problems = _parse(data, DrainPolicy() if base is None else base, path)
    if problems:
        raise PolicyError([f"{key}: {problem}" if key else problem for key, problem in problems], file=file)
    return policy


def load_policy(data: bytes, *, file: str) -> DrainPolicy:
    """Return the policy in a YAML file; raise `ConfigErrors`, each with its line."""
    node = yaml_nodes.compose_first(data, file=file)
    if node is None:
        raise ConfigError("expected a drain policy, found nothing", file=file)
    try:
        plain = yaml_nodes.to_plain(node)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"expected plain values: {' '.join(str(error).split())}", file=file) from None
    policy, problems = _parse(plain, DrainPolicy(), "")
    if problems:
        lines = yaml_nodes.lines_of(node)
        raise ConfigErrors(
            [
                ConfigError(problem, file=file, line=yaml_nodes.line_at(lines, key), key=key or None)
                for key, problem in problems
            ]
        )
    return policy


def _parse(data: Any, base: DrainPolicy, path: str) -> tuple[DrainPolicy, list[tuple[str, str]]]:
    """Return the policy and its problems as pairs of path and message."""
    reader = _ProblemCollector(path)
    policy = _parse_policy_section(reader.section(data), base)
    found_problems = reader.problems or [(_join_path(path, key), problem) for key, problem in policy.problems()]
    return policy, found_problems


def _parse_policy_section(section: "_Section", base: DrainPolicy) -> DrainPolicy:
    base_filters = base.filters
    filters = PodFilters(
        force=section.get("force", _parse_flag, base_filters.force),
        ignore_daemonsets=section.get("ignoreDaemonSets", _parse_flag, base_filters.ignore_daemonsets),
        delete_emptydir_data=section.get("deleteEmptyDirData", _parse_flag, base_filters.delete_emptydir_data),
        skip_wait_for_delete=section.get("skipWaitForDelete", _parse_duration, base_filters.skip_wait_for_delete),
    )
    # A document that sets ignoreDaemonSets to false wants them to refuse the drain, as in kubectl.
    filters = replace(filters, keep_any_daemonset=base_filters.keep_any_daemonset and filters.ignore_daemonsets)
    policy = replace(
        base,
        filters=filters,
        pod_selector=section.get("podSelector", _parse_selector, base.pod_selector),
        grace_period=section.get("gracePeriod", _parse_duration, base.grace_period),
        timeout=section.get("timeout", _parse_limit, base.timeout),
        eviction_timeout=section.get("evictionTimeout", _parse_limit, base.eviction_timeout),
        deletion_timeout=section.get("deletionTimeout", _parse_limit, base.deletion_timeout),
        wait_completed_timeout=section.get("waitCompletedTimeout", _parse_limit, base.wait_completed_timeout),
        volume_detach_timeout=section.get("volumeDetachTimeout", _parse_limit, base.volume_detach_timeout),
        force_delete=section.get("forceDelete", _parse_flag, base.force_delete),
        disable_eviction=section.get("disableEviction", _parse_flag, base.disable_eviction),
        eviction_requests=section.get("evictionRequests", _parse_flag, base.eviction_requests),
        parallel=section.get("parallel", _integer_between(1, MAX_PARALLEL), base.parallel),
        order=_parse_order(section.subsection("order"), base.order),
        rules=tuple(map(_parse_rule, section.items("rules"))) or base.rules,
    )
    section.report_unknown_keys()
    return policy


def _parse_order(section: "_Section", base: DrainOrder) -> DrainOrder:
    order = DrainOrder(
        by_priority=section.get("byPriority", _parse_flag, base.by_priority),
        storage_last=section.get("storageLast", _parse_flag, base.storage_last),
        daemon_sets_last=section.get("daemonSetsLast", _parse_flag, base.daemon_sets_last),
    )
    section.report_unknown_keys()
    return order


def _parse_rule(section: "_Section") -> DrainRule:
    rule = DrainRule(
        name=section.get("name", _parse_name, "", required=True),
        pods=section.get("podSelector", _parse_selector, selectors.EVERYTHING),
        namespaces=section.get("namespaces", _parse_names, ()),
        namespace_selector=section.get("namespaceSelector", _parse_selector, None),
        behavior=section.get("behavior", _parse_behavior, Behavior.DRAIN),
        order=section.get("order", _integer_between(-_LARGEST_ORDER - 1, _LARGEST_ORDER), None),
        grace_period=section.get("gracePeriod", _parse_duration, None),
        eviction_timeout=section.get("evictionTimeout", _parse_limit, None),
        deletion_timeout=section.get("deletionTimeout", _parse_limit, None),
        wait_completed_timeout=section.get("waitCompletedTimeout", _parse_limit, None),
    )
    section.report_unknown_keys()
    return rule


# Values


def _parse_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _InvalidValue(value, "true or false")
    return value


def _parse_duration(value: Any) -> timedelta:
    try:
        parsed = duration.parse(value) if isinstance(value, str) else None
    except duration.DurationError:
        parsed = None
    if parsed is None or parsed < timedelta():
        raise _InvalidValue(value, "a duration such as 90s or 1h30m")
    return parsed


def _parse_limit(value: Any) -> timedelta:
    parsed = _parse_duration(value)
    if not parsed:
        raise _InvalidValue(value, "a duration above zero, or nothing at all for no limit")
    return parsed


def _integer_between(least: int, most: int) -> Callable[[Any], int]:
    def parse_integer(value: Any) -> int:
        # In Python, True is an int: `parallel: true` would mean 1.
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _InvalidValue(value, f"a whole number from {least} to {most}")
        return value

    return parse_integer


def _parse_name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _InvalidValue(value, "a name")
    return value


def _parse_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise _InvalidValue(value, "a list of names, or nothing at all for all namespaces")
    return tuple(map(_parse_name, value))


def _parse_behavior(value: Any) -> Behavior:
    known = [str(behavior) for behavior in Behavior]
    if value not in known:
        raise _InvalidValue(value, f"one of {', '.join(known)}{_did_you_mean(value, known)}")
    return Behavior(value)


def _parse_selector(value: Any) -> Selector:
    try:
        if isinstance(value, str):
            return selectors.parse(value)
        if isinstance(value, Mapping):
            return selectors.from_label_selector(value)
    except selectors.SelectorError as error:
        invalid = _InvalidValue(value, "", error.path)
        invalid.args = (error.problem,)
        raise invalid from None
    raise _InvalidValue(value, "a label selector, as text or with matchLabels and matchExpressions")


# Sections of a document


class _ProblemCollector:
    """Collects the problems of a document, so that all of them are reported at once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[tuple[str, str]] = []  # path and message

    def section(self, data: Any, path: str | None = None) -> "_Section":
        """Return `data` as a section; an empty one, with a problem recorded, if it is no mapping."""
        path = self.path if path is None else path
        if data is None:
            data = {}
        elif not isinstance(data, Mapping):
            self.add_problem(path, str(_InvalidValue(data, "keys and values")))
            data = {}
        return _Section(self, path, data)

    def add_problem(self, path: str, problem: str) -> None:
        self.problems.append((path, problem))


class _Section:
    """A mapping. The keys that are read become the known ones."""

    def __init__(self, reader: _ProblemCollector, path: str, data: Mapping[Any, Any]) -> None:
        self._reader = reader
        self._path = path
        self._data = data
        self._known_keys: list[str] = []

    def get(self, key: str, parse: Callable[[Any], T], default: T, *, required: bool = False) -> T:
        """Return the parsed value of `key`; `default` if it is missing or invalid."""
        self._known_keys.append(key)
        value = self._data.get(key)
        if value is None and not required:
            return default
        try:
            return parse(value)
        except _InvalidValue as invalid:
            self._reader.add_problem(_join_path(self._path, _join_path(key, invalid.path)), str(invalid))
            return default

    def subsection(self, key: str) -> "_Section":
        self._known_keys.append(key)
        return self._reader.section(self._data.get(key), _join_path(self._path, key))

    def items(self, key: str) -> list["_Section"]:
        self._known_keys.append(key)
        path, value = _join_path(self._path, key), self._data.get(key)
        if value is not None and not isinstance(value, list):
            self._reader.add_problem(path, str(_InvalidValue(value, "a list")))
            value = None
        return [self._reader.section(element, f"{path}[{number}]") for number, element in enumerate(value or ())]

    def report_unknown_keys(self) -> None:
        """Record a problem for each key that was never read."""
        for key in self._data:
            if key not in self._known_keys:
                suggestion = _did_you_mean(key, self._known_keys) or f", expected one of {', '.join(self._known_keys)}"
                self._reader.add_problem(_join_path(self._path, str(key)), f"unknown{suggestion}")


def _join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def _did_you_mean(word: Any, known: list[str]) -> str:
    by_case = {name.lower(): name for name in known}
    match = closest_match(str(word).lower(), by_case)
    return f", did you mean {by_case[match]}?" if match else ""


def format_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


_MAX_SHOWN_CHARACTERS = 80
