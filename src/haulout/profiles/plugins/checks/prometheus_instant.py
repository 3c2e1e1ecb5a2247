"""The check `prometheusInstant`."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from haulout.core import calc
from haulout.core.calc import CalcError
from haulout.core.redaction import HIDDEN
from haulout.errors import OutsideError
from haulout.profiles.options import option
from haulout.profiles.plugin import Answer, Check, Outside, Scene, Verdict, broken, fails, passes, unknown

_FORM = "application/x-www-form-urlencoded"
_NO_POST = (405, 501)
_VECTOR = "vector"


class Result(msgspec.Struct, frozen=True):
    """What Prometheus says: what kind of result, and its samples."""

    kind: str
    samples: tuple[float, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InstantQuery:
    """The question what a query gives now; the answer is a `Result`."""

    url: str
    query: str

    @property
    def every(self) -> timedelta | None:
        """How old an answer may be."""
        return None

    async def ask(self, outside: Outside) -> Result:
        """Ask by POST, as long queries need, and by GET where that is not allowed."""
        address = f"{self.url.rstrip('/')}/api/v1/query"
        form = urlencode({"query": self.query})
        status, body = await outside.request("POST", address, body=form.encode(), headers={"Content-Type": _FORM})
        if status in _NO_POST:
            status, body = await outside.request("GET", f"{address}?{form}")
        return _read(status, body, where=shown(self.url))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusInstant(Check):
    """Passes if an expression holds for the value of an instant query to Prometheus.

    The query must give a vector with exactly one sample: aggregate it with `sum`, `max` or the like, and wrap a scalar
    in `vector(…)`. Its value is `value` in the expression, such as `value < 0.8`. The result of the expression is taken
    as a truth value; a number holds unless it is 0.

    Without any sample the check does not pass, negated or not: nothing is known. Several samples, a server that does
    not answer and an expression that cannot be evaluated are errors. The server is asked again after
    `intervals.requeue`.
    """

    type = "prometheusInstant"
    example = "url: http://prometheus.monitoring:9090\nquery: sum(rate(errors_total[5m]))\nexpr: value < 0.1"

    url: str = option("The address of Prometheus, to which `/api/v1/query` is added.", required=True)
    query: str = option("The query, in PromQL.", default="")
    expr: str = option("The expression that must hold for `value`.", default="")

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        info: dict[str, Any] = {"url": shown(self.url), "query": self.query, "expr": self.expr}
        answer = scene.sights.answer(InstantQuery(self.url, self.query))
        if answer is None:
            return unknown(f"{shown(self.url)} was not asked yet", **info)
        if answer.problem:
            return broken(answer.problem, **info)
        return self._judge(answer, info)

    def _judge(self, answer: Answer, info: dict[str, Any]) -> Verdict:
        result: Result = answer.value
        info["warns"] = list(result.warnings)
        if result.kind != _VECTOR:
            return broken(f"the query gives a {result.kind}, expected a vector with one sample", **info)
        if not result.samples:
            return unknown(f"the query gives no data at {shown(self.url)}", **info)
        if len(result.samples) > 1:
            return broken(f"the query gives {len(result.samples)} samples, expected one: aggregate them", **info)
        (value,) = result.samples
        info["value"] = number(value)
        try:
            holds = calc.parse(self.expr).is_true(value)
        except CalcError as error:
            return broken(f"expr cannot be evaluated: {error}", **info)
        says = passes if holds else fails
        return says(f"{self.expr} is {str(holds).lower()} for the value {number(value)}", **info)

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what will not do what was probably meant."""
        if not _is_address(self.url):
            yield "url", "found something else than a web address, expected such as http://prometheus:9090"
        if not self.query:
            yield "query", "without a query Prometheus only answers with an error"
        try:
            names = calc.parse(self.expr).unknown
        except CalcError as error:
            yield "expr", str(error)
            return
        if names:
            yield "expr", f"found {', '.join(names)}, expected only value: another name has no value"


def number(value: float) -> float | str:
    """Return a number as JSON can hold it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def shown(url: str) -> str:
    """Return an address without a password in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    return urlunsplit(parts._replace(netloc=f"{name}:{HIDDEN}{at}{host}")) if colon else url


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: Any = None


class _Body(msgspec.Struct, rename="camel"):
    status: str = ""
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()


def _read(status: int, body: bytes, *, where: str) -> Result:
    try:
        answer = msgspec.json.decode(body, type=_Body)
    except (msgspec.ValidationError, msgspec.DecodeError):
        raise OutsideError(f"{where} answered {status} with something that is not Prometheus's") from None
    if answer.status != "success" or answer.data is None:
        said = ": ".join(part for part in (answer.error_type, answer.error) if part)
        raise OutsideError(f"{where} answered {status}{f': {said}' if said else ''}")
    kind = answer.data.result_type
    try:
        samples = tuple(_value(sample) for sample in answer.data.result) if kind == _VECTOR else ()
    except (KeyError, IndexError, TypeError, ValueError):
        raise OutsideError(f"{where} answered with a vector that cannot be read") from None
    return Result(kind, samples, answer.warnings)


def _value(sample: Any) -> float:
    text = sample["value"][1]
    if not isinstance(text, str):
        raise TypeError(text)
    return float(text)
