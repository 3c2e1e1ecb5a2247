"""The check `prometheusInstant`: compares the value of a Prometheus query."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from haulout.compat import gval
from haulout.compat.gval import GvalError
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import (
    Check,
    CheckResult,
    ExternalClient,
    PluginContext,
    QueryResult,
    check_error,
    fails,
    passes,
    unknown,
)
from haulout.core.redaction import REDACTED
from haulout.errors import ExternalError

_FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"
# Proxies and compatible servers may refuse POST. Prometheus' Go client retries with GET for these codes, too
# (DoGetFallback in api/prometheus/v1/api.go of client_golang).
_POST_NOT_ALLOWED = (405, 501)
_VECTOR = "vector"


class InstantQueryResult(msgspec.Struct, frozen=True):
    """A response of Prometheus: the type of the result, and its samples."""

    kind: str
    samples: tuple[float, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InstantQuery:
    """An external query to Prometheus; the result is an `InstantQueryResult`."""

    url: str
    query: str

    @property
    def max_age(self) -> timedelta | None:
        return None

    async def fetch(self, external: ExternalClient) -> InstantQueryResult:
        """Send a POST, as long queries require, or a GET where POST is not allowed."""
        address = f"{self.url.rstrip('/')}/api/v1/query"
        form = urlencode({"query": self.query})
        response = await external.request(
            "POST", address, body=form.encode(), headers={"Content-Type": _FORM_CONTENT_TYPE}
        )
        if response.status in _POST_NOT_ALLOWED:
            response = await external.request("GET", f"{address}?{form}")
        return _parse_response(response.status, response.body, where=without_password(self.url))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusInstant(Check):
    """Passes if an expression holds for the value of an instant query to Prometheus.

    The query must return a vector with exactly one sample: aggregate it with `sum`, `max` or the like, and wrap a
    scalar in `vector(…)`. Its value is `value` in the expression, such as `value < 0.8`. The result of the expression
    is used as a boolean; a number holds unless it is 0.

    Without any sample the check does not pass, negated or not: the result is unknown. Several samples, a server that
    does not answer, and an expression that cannot be evaluated are errors. The server is queried again after
    `intervals.requeue`.
    """

    type = "prometheusInstant"
    example = "url: http://prometheus.monitoring:9090\nquery: sum(rate(errors_total[5m]))\nexpr: value < 0.1"

    url: str = option("The address of Prometheus, to which `/api/v1/query` is added.", required=True)
    query: str = option("The query, in PromQL.", default="")
    expr: str = option("The expression that must hold for `value`.", default="")

    def evaluate(self, context: PluginContext) -> CheckResult:
        info: dict[str, Any] = {"url": without_password(self.url), "query": self.query, "expr": self.expr}
        result = context.cluster.query_result(InstantQuery(self.url, self.query))
        if result is None:
            return unknown(f"{without_password(self.url)} was not queried yet", **info)
        if result.problem:
            return check_error(result.problem, **info)
        return self._check_value(result, info)

    def _check_value(self, query_result: QueryResult, info: dict[str, Any]) -> CheckResult:
        result: InstantQueryResult = query_result.value
        info["warns"] = list(result.warnings)
        if result.kind != _VECTOR:
            return check_error(f"the query gives a {result.kind}, expected a vector with one sample", **info)
        if not result.samples:
            return unknown(f"the query gives no data at {without_password(self.url)}", **info)
        if len(result.samples) > 1:
            return check_error(f"the query gives {len(result.samples)} samples, expected one: aggregate them", **info)
        (value,) = result.samples
        info["value"] = json_number(value)
        try:
            holds = gval.parse(self.expr).is_true(value)
        except GvalError as error:
            return check_error(f"expr cannot be evaluated: {error}", **info)
        outcome = passes if holds else fails
        return outcome(f"{self.expr} is {str(holds).lower()} for the value {json_number(value)}", **info)

    def warnings(self) -> Iterator[tuple[str, str]]:
        if not _is_address(self.url):
            yield "url", "found no valid URL, expected one such as http://prometheus:9090"
        if not self.query:
            yield "query", "without a query Prometheus only answers with an error"
        try:
            names = gval.parse(self.expr).unknown_names
        except GvalError as error:
            yield "expr", str(error)
            return
        if names:
            yield "expr", f"found {', '.join(names)}, expected only value: another name has no value"


def json_number(value: float) -> float | str:
    """Return a number, or a text if JSON cannot represent it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def without_password(url: str) -> str:
    """Return a URL with its password redacted."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    return urlunsplit(parts._replace(netloc=f"{name}:{REDACTED}{at}{host}")) if colon else url


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


def _parse_response(status: int, body: bytes, *, where: str) -> InstantQueryResult:
    try:
        response = msgspec.json.decode(body, type=_Body)
    except (msgspec.ValidationError, msgspec.DecodeError):
        raise ExternalError(f"{where} answered {status} with something that is not a Prometheus response") from None
    if response.status != "success" or response.data is None:
        error_text = ": ".join(part for part in (response.error_type, response.error) if part)
        raise ExternalError(f"{where} answered {status}{f': {error_text}' if error_text else ''}")
    kind = response.data.result_type
    try:
        samples = tuple(_value(sample) for sample in response.data.result) if kind == _VECTOR else ()
    except (KeyError, IndexError, TypeError, ValueError):
        raise ExternalError(f"{where} answered with a vector that cannot be parsed") from None
    return InstantQueryResult(kind, samples, response.warnings)


def _value(sample: Any) -> float:
    text = sample["value"][1]
    if not isinstance(text, str):
        raise TypeError(text)
    return float(text)
