"""A minimal Prometheus for tests of alerts: its text format, the PromQL that the rules use, and time.

    scrapes = Scrapes()
    scrapes.add(at=seconds, text=exposition)
    fires(alert.expr, scrapes)         # whether the alert would have fired

`increase` and `rate` do not extrapolate to the ends of their window. Apart from that, results equal Prometheus'.
"""

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(\{(?P<labels>.*)\})? (?P<value>\S+)$")
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TOKEN = re.compile(
    r'\s*(?:(?P<range>\[\w+\])|(?P<name>[a-zA-Z_:][\w:]*)|(?P<number>\d+(\.\d+)?)|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<sign>!=|=~|!~|==|>=|<=|[-+*/(){},=<>]))"
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min, "count": len}
_STALE_AFTER = 300


def seconds(text: str) -> float:
    """Return how long a duration of Prometheus is."""
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))


@dataclass
class Scrapes:
    """What was read from `/metrics`, and when; of several replicas, `instance` tells them apart."""

    times: list[float] = field(default_factory=list)
    series: dict[str, dict[Labels, list[tuple[float, float]]]] = field(default_factory=dict)

    def add(self, *, at: float, text: str, instance: str = "one") -> None:
        """Take a scrape."""
        if not self.times or self.times[-1] != at:
            self.times.append(at)
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            found = _LINE.match(line)
            assert found, f"not in the text format: {line}"
            labels = frozenset([*_PAIR.findall(found["labels"] or ""), ("instance", instance)])
            self.series.setdefault(found["name"], {}).setdefault(labels, []).append((at, float(found["value"])))

    def at(self, name: str, now: float, *, window: float | None) -> Iterator[tuple[Labels, list[float]]]:
        """Yield the numbers of each series in a window, or the one that counts now."""
        for labels, points in self.series.get(name, {}).items():
            upto = points[: bisect_right(points, (now, float("inf")))]
            since = now - (window or _STALE_AFTER)
            recent = [value for time, value in upto if time >= since]
            if window is not None:
                yield labels, recent
            elif upto and upto[-1][0] == now:  # what the last scrape lacks is gone
                yield labels, [upto[-1][1]]


@dataclass
class Expression:
    """An expression that was read: the names that it uses, with the labels of each, and how to evaluate it."""

    text: str
    names: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tokens = list(_TOKEN.finditer(self.text))
        assert "".join(token[0] for token in self._tokens) == self.text.rstrip(), f"cannot be read: {self.text}"
        self._at = 0
        self.evaluate: Callable[[Scrapes, float], Any] = self._parse_or()
        assert self._at == len(self._tokens), f"cannot be read after {self.text[: self._tokens[self._at].start()]}"

    # Reading

    def _peek(self) -> str:
        return self._tokens[self._at][0].strip() if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        assert token, f"{self.text}: it ends too early"
        assert not expected or token == expected, f"{self.text}: expected {expected}, found {token}"
        self._at += 1
        return token

    def _parse_or(self) -> Callable[[Scrapes, float], Any]:
        left = self._parse_and()
        while self._peek() == "or":
            self._take()
            left = _or(left, *self._parse_matched(self._parse_and))
        return left

    def _parse_and(self) -> Callable[[Scrapes, float], Any]:
        left = self._parse_comparison()
        while self._peek() in ("and", "unless"):
            is_wanted = self._take() == "and"
            left = _and(left, *self._parse_matched(self._parse_comparison), is_wanted=is_wanted)
        return left

    def _parse_matched(
        self, below: Callable[[], Callable[[Scrapes, float], Any]]
    ) -> tuple[Callable[[Scrapes, float], Any], list[str] | None]:
        """Return what is on the right of a set operator, and the labels by which it is matched; None: by all."""
        on = self._parse_grouping() if self._peek() == "on" and self._take() else None
        return below(), on

    def _parse_comparison(self) -> Callable[[Scrapes, float], Any]:
        left = self._parse_arithmetic(("+", "-"), lambda: self._parse_arithmetic(("*", "/"), self._parse_unary))
        if self._peek() in _COMPARISONS:
            operator_function = _COMPARISONS[self._take()]
            left = _compared(left, self._parse_arithmetic(("+", "-"), self._parse_unary), operator_function)
        return left

    def _parse_arithmetic(
        self, signs: tuple[str, ...], below: Callable[[], Callable[[Scrapes, float], Any]]
    ) -> Callable[[Scrapes, float], Any]:
        left = below()
        while self._peek() in signs:
            operator_function = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divided}[self._take()]
            left = _calculated(left, below(), operator_function)
        return left

    def _parse_unary(self) -> Callable[[Scrapes, float], Any]:
        token = self._take()
        if token == "(":
            inner = self._parse_or()
            self._take(")")
            return inner
        if token[0].isdigit():
            return lambda *_: float(token)
        if token in _AGGREGATIONS and self._peek() in ("by", "("):
            by = self._parse_grouping() if self._peek() == "by" and self._take() else []
            self._take("(")
            inner = self._parse_or()
            self._take(")")
            return _aggregated(inner, _AGGREGATIONS[token], by)
        if self._peek() == "(":
            return self._parse_call(token)
        return self._parse_selector(token)

    def _parse_call(self, function: str) -> Callable[[Scrapes, float], Any]:
        self._take("(")
        if function in ("rate", "increase", "last_over_time"):
            found = self._parse_selector(self._take(), function=function)
        elif function == "absent":
            found = _absent(self._parse_or())
        elif function == "topk":
            self._take()
            self._take(",")
            found = self._parse_or()
        else:
            assert function == "histogram_quantile", f"{self.text}: {function} is not known here"
            share = float(self._take())
            self._take(",")
            found = _quantile(self._parse_or(), share)
        self._take(")")
        return found

    def _parse_grouping(self) -> list[str]:
        self._take("(")
        names = []
        while (token := self._take()) != ")":
            names += [token] if token != "," else []
        return names

    def _parse_selector(self, name: str, function: str = "") -> Callable[[Scrapes, float], Any]:
        matchers: list[tuple[str, str, str]] = []
        if self._peek() == "{":
            self._take()
            while self._peek() != "}":
                matchers.append((self._take(), self._take(), self._take()[1:-1]))
                if self._peek() == ",":
                    self._take()
            self._take("}")
        self.names.setdefault(name, set()).update(matcher[0] for matcher in matchers)
        window = seconds(self._take()[1:-1]) if self._peek().startswith("[") else None
        assert (window is None) != bool(function), f"{self.text}: a range is what such functions are about"
        return _selected(name, matchers, window, function)


def _selected(
    name: str, matchers: list[tuple[str, str, str]], window: float | None, function: str
) -> Callable[[Scrapes, float], Vector]:
    def evaluate(scrapes: Scrapes, now: float) -> Vector:
        found: Vector = {}
        for labels, values in scrapes.at(name, now, window=window):
            if not all(_matches(dict(labels).get(key, ""), sign, value) for key, sign, value in matchers):
                continue
            if not function or (function == "last_over_time" and values):
                found[labels] = values[-1]
            elif len(values) > 1:
                rises = (new - old if new >= old else new for old, new in pairwise(values))
                found[labels] = sum(rises) / (window if function == "rate" and window else 1)
        return found

    return evaluate


def _matches(value: str, sign: str, pattern: str) -> bool:
    same = re.fullmatch(pattern, value) is not None if sign.endswith("~") else value == pattern
    return same != sign.startswith("!")


def _aggregated(
    inner: Callable[[Scrapes, float], Vector], aggregate: Callable[[list[float]], float], by: list[str]
) -> Callable[[Scrapes, float], Vector]:
    def evaluate(scrapes: Scrapes, now: float) -> Vector:
        groups: dict[Labels, list[float]] = {}
        for labels, value in inner(scrapes, now).items():
            groups.setdefault(frozenset(label for label in labels if label[0] in by), []).append(value)
        return {labels: aggregate(values) for labels, values in groups.items()}

    return evaluate


def _quantile(inner: Callable[[Scrapes, float], Vector], share: float) -> Callable[[Scrapes, float], Vector]:
    def evaluate(scrapes: Scrapes, now: float) -> Vector:
        groups: dict[Labels, list[tuple[float, float]]] = {}
        for labels, value in inner(scrapes, now).items():
            rest = frozenset(label for label in labels if label[0] != "le")
            groups.setdefault(rest, []).append((float(dict(labels)["le"]), value))
        found = ((labels, _interpolated(sorted(buckets), share)) for labels, buckets in groups.items())
        return {labels: value for labels, value in found if value is not None}

    return evaluate


def _interpolated(buckets: list[tuple[float, float]], share: float) -> float | None:
    wanted, low, below = buckets[-1][1] * share, 0.0, 0.0
    if not buckets[-1][1]:
        return None
    for end, count in buckets:
        if count >= wanted:
            return low if end == float("inf") else low + (end - low) * (wanted - below) / max(count - below, 1e-9)
        low, below = end, count
    return low


def _divided(one: float, other: float) -> float:
    return one / other if other else float("nan")


def _calculated(left: Any, right: Any, calculate: Callable[[float, float], float]) -> Callable[[Scrapes, float], Any]:
    def evaluate(scrapes: Scrapes, now: float) -> Any:
        one, other = left(scrapes, now), right(scrapes, now)
        if isinstance(one, float) and isinstance(other, float):
            return calculate(one, other)
        if isinstance(one, float):
            return {labels: calculate(one, value) for labels, value in other.items()}
        if isinstance(other, float):
            return {labels: calculate(value, other) for labels, value in one.items()}
        return {labels: calculate(value, other[labels]) for labels, value in one.items() if labels in other}

    return evaluate


def _compared(left: Any, right: Any, compare: Callable[[float, float], bool]) -> Callable[[Scrapes, float], Vector]:
    def evaluate(scrapes: Scrapes, now: float) -> Vector:
        one, other = left(scrapes, now), right(scrapes, now)
        limits = dict.fromkeys(one, other) if isinstance(other, float) else other
        return {labels: value for labels, value in one.items() if labels in limits and compare(value, limits[labels])}

    return evaluate


def _key(labels: Labels, on: list[str] | None) -> Labels:
    return labels if on is None else frozenset(label for label in labels if label[0] in on)


def _and(left: Any, right: Any, on: list[str] | None, *, is_wanted: bool) -> Callable[[Scrapes, float], Vector]:
    """Return `and`, or `unless` if what is on the right is not wanted."""

    def evaluate(scrapes: Scrapes, now: float) -> Vector:
        right_keys = {_key(labels, on) for labels in right(scrapes, now)}
        return {
            labels: value
            for labels, value in left(scrapes, now).items()
            if (_key(labels, on) in right_keys) == is_wanted
        }

    return evaluate


def _or(left: Any, right: Any, on: list[str] | None) -> Callable[[Scrapes, float], Vector]:
    def evaluate(scrapes: Scrapes, now: float) -> Vector:
        first: Vector = left(scrapes, now)
        left_keys = {_key(labels, on) for labels in first}
        return first | {
            labels: value for labels, value in right(scrapes, now).items() if _key(labels, on) not in left_keys
        }

    return evaluate


def _absent(inner: Callable[[Scrapes, float], Vector]) -> Callable[[Scrapes, float], Vector]:
    return lambda scrapes, now: {} if inner(scrapes, now) else {frozenset(): 1.0}


def fires(expr: str, scrapes: Scrapes, *, for_seconds: float = 0) -> bool:
    """Return whether an alert would have fired at some scrape."""
    evaluate, since = Expression(expr).evaluate, dict[Labels, float]()
    for now in scrapes.times:
        found = evaluate(scrapes, now)
        since = {labels: since.get(labels, now) for labels in found}
        if any(now - began >= for_seconds for began in since.values()):
            return True
    return False
