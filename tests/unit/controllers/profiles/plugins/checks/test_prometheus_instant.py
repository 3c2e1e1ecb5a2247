"""The check prometheusInstant."""

import json
import math
from typing import Any

import pytest

from haulout.controllers.profiles.plugin import CheckResult
from haulout.controllers.profiles.plugins.checks.prometheus_instant import PrometheusInstant
from haulout.errors import ExternalError
from support.builders.objects import a_node
from support.fakes.cluster_view import FakeClusterView, ScriptedExternalClient

URL = "http://prometheus:9090/base/"
CHECK = PrometheusInstant(url=URL, query="sum(up)", expr="value < 3")


def vector(*values: str, **more: Any) -> str:
    samples = [{"metric": {"job": "x"}, "value": [1714557600.1, value]} for value in values]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": samples}, **more})


async def evaluate(external: ScriptedExternalClient, check: PrometheusInstant = CHECK) -> CheckResult:
    cluster = FakeClusterView(a_node("n1"))
    first = check.evaluate(cluster.plugin_context())
    assert first.passed is None
    assert "was not queried yet" in first.reason
    await cluster.run_queries(external)
    return check.evaluate(cluster.plugin_context())


@pytest.mark.parametrize(("value", "passed"), [("2", True), ("3", False)])
async def test_expression_decides_on_the_sample(value: str, *, passed: bool) -> None:
    """I15."""
    external = ScriptedExternalClient().reply_with(200, vector(value, warnings=["slow"]))
    result = await evaluate(external)
    assert result.passed is passed
    expected = {"url": URL, "query": "sum(up)", "expr": "value < 3", "value": float(value), "warns": ["slow"]}
    assert result.info == expected
    (request,) = external.requests
    assert request == (
        "POST",
        "http://prometheus:9090/base/api/v1/query",
        b"query=sum%28up%29",
        {"Content-Type": "application/x-www-form-urlencoded"},
    )


@pytest.mark.parametrize("status", [405, 501])
async def test_get_is_used_when_post_is_not_allowed(status: int) -> None:
    external = ScriptedExternalClient().reply_with(status, "no").reply_with(200, vector("1"))
    assert (await evaluate(external)).passed
    assert external.requests[1][:2] == ("GET", "http://prometheus:9090/base/api/v1/query?query=sum%28up%29")


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, "<html>", "http://prometheus:9090/base/ answered 200 with something that is not a Prometheus response"),
        (502, "", "http://prometheus:9090/base/ answered 502 with something that is not a Prometheus response"),
        (200, "{}", "http://prometheus:9090/base/ answered 200"),
        (
            200,
            '{"status": 1}',
            "http://prometheus:9090/base/ answered 200 with something that is not a Prometheus response",
        ),
        (
            400,
            '{"status": "error", "errorType": "bad_data", "error": "parse error"}',
            "http://prometheus:9090/base/ answered 400: bad_data: parse error",
        ),
        (200, vector("1", "2"), "the query gives 2 samples, expected one: aggregate them"),
        (200, vector("many"), "http://prometheus:9090/base/ answered with a vector that cannot be parsed"),
        (
            200,
            '{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, 2]}]}}',
            "http://prometheus:9090/base/ answered with a vector that cannot be parsed",
        ),
        (
            200,
            '{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}',
            "the query gives a scalar, expected a vector with one sample",
        ),
    ],
)
async def test_unexpected_response_is_an_error_with_its_cause(status: int, body: str, problem: str) -> None:
    """I15."""
    result = await evaluate(ScriptedExternalClient().reply_with(status, body))
    assert result.passed is None
    assert result.error == problem


async def test_unreachable_server_is_an_error() -> None:
    """I15."""
    result = await evaluate(ScriptedExternalClient([ExternalError("prometheus: connection refused")]))
    assert result.error == "prometheus: connection refused"
    assert result.info["query"] == "sum(up)"


async def test_empty_result_is_unknown_without_an_error() -> None:
    result = await evaluate(ScriptedExternalClient().reply_with(200, vector()))
    assert (result.passed, result.error) == (None, "")
    assert result.reason == f"the query gives no data at {URL}"


@pytest.mark.parametrize(("value", "shown"), [("NaN", "NaN"), ("+Inf", "+Inf"), ("-Inf", "-Inf")])
async def test_value_that_json_cannot_represent_is_shown_as_text(value: str, shown: str) -> None:
    result = await evaluate(ScriptedExternalClient().reply_with(200, vector(value)))
    assert result.info["value"] == shown
    assert result.passed is (value == "-Inf")
    json.dumps(result.info, allow_nan=False)


async def test_invalid_expression_is_an_error() -> None:
    check = PrometheusInstant(url=URL, query="up", expr="value <")
    result = await evaluate(ScriptedExternalClient().reply_with(200, vector("1")), check)
    assert result.error.startswith("expr cannot be evaluated: ")
    assert math.isclose(result.info["value"], 1.0)


async def test_password_in_the_url_is_hidden() -> None:
    check = PrometheusInstant(url="https://ops:s3cret@prometheus/x", query="up", expr="value > 0")
    external = ScriptedExternalClient().reply_with(500, "oops")
    result = await evaluate(external, check)
    assert result.info["url"] == "https://ops:(hidden)@prometheus/x"
    assert "s3cret" not in str(result)
    assert external.requests[0][1].startswith("https://ops:s3cret@prometheus/x/api")


async def test_two_nodes_share_one_query() -> None:
    cluster = FakeClusterView(a_node("n1"), a_node("n2"))
    CHECK.evaluate(cluster.plugin_context("n1"))
    CHECK.evaluate(cluster.plugin_context("n2"))
    await cluster.run_queries(ScriptedExternalClient().reply_with(200, vector("1")))
    assert CHECK.evaluate(cluster.plugin_context("n2")).passed


def test_invalid_options_are_warnings() -> None:
    doubts = dict(PrometheusInstant(url="prometheus:9090", query="", expr="value <").warnings())
    assert set(doubts) == {"url", "query", "expr"}
    assert not list(PrometheusInstant(url="prometheus:9090").problems())
    assert not list(CHECK.warnings())


@pytest.mark.parametrize("expr", ["value * 100 >= 200", "value in [2, 3]", "!(value > 5)", "value > 5 ? false : true"])
async def test_expressions_of_the_go_controller_are_supported(expr: str) -> None:
    check = PrometheusInstant(url=URL, query="sum(up)", expr=expr)
    assert dict(check.warnings()) == {}
    assert (await evaluate(ScriptedExternalClient().reply_with(200, vector("2")), check)).passed is True


def test_unknown_name_in_the_expression_is_a_warning() -> None:
    assert "valeu" in dict(PrometheusInstant(url=URL, query="up", expr="valeu > 1").warnings())["expr"]
