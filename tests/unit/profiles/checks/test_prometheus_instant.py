"""What Prometheus says decides."""

import json
import math
from typing import Any

import pytest

from haulout.errors import OutsideError
from haulout.profiles.plugin import Verdict
from haulout.profiles.plugins.checks.prometheus_instant import PrometheusInstant
from support.builders import a_node
from support.scenes import Cluster, Stranger

URL = "http://prometheus:9090/base/"
CHECK = PrometheusInstant(url=URL, query="sum(up)", expr="value < 3")


def vector(*values: str, **more: Any) -> str:
    samples = [{"metric": {"job": "x"}, "value": [1714557600.1, value]} for value in values]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": samples}, **more})


async def looked(outside: Stranger, check: PrometheusInstant = CHECK) -> Verdict:
    cluster = Cluster(a_node("n1"))
    first = check.look(cluster.scene())
    assert first.passed is None
    assert "was not asked yet" in first.reason
    await cluster.ask(outside)
    return check.look(cluster.scene())


@pytest.mark.parametrize(("value", "passed"), [("2", True), ("3", False)])
async def test_the_expression_decides(value: str, *, passed: bool) -> None:
    """I15."""
    outside = Stranger().says(200, vector(value, warnings=["slow"]))
    verdict = await looked(outside)
    assert verdict.passed is passed
    expected = {"url": URL, "query": "sum(up)", "expr": "value < 3", "value": float(value), "warns": ["slow"]}
    assert verdict.info == expected
    (request,) = outside.heard
    assert request == (
        "POST",
        "http://prometheus:9090/base/api/v1/query",
        b"query=sum%28up%29",
        {"Content-Type": "application/x-www-form-urlencoded"},
    )


@pytest.mark.parametrize("status", [405, 501])
async def test_where_post_is_not_allowed_get_is_used(status: int) -> None:
    outside = Stranger().says(status, "no").says(200, vector("1"))
    assert (await looked(outside)).passed
    assert outside.heard[1][:2] == ("GET", "http://prometheus:9090/base/api/v1/query?query=sum%28up%29")


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, "<html>", "http://prometheus:9090/base/ answered 200 with something that is not Prometheus's"),
        (502, "", "http://prometheus:9090/base/ answered 502 with something that is not Prometheus's"),
        (200, "{}", "http://prometheus:9090/base/ answered 200"),
        (200, '{"status": 1}', "http://prometheus:9090/base/ answered 200 with something that is not Prometheus's"),
        (
            400,
            '{"status": "error", "errorType": "bad_data", "error": "parse error"}',
            "http://prometheus:9090/base/ answered 400: bad_data: parse error",
        ),
        (200, vector("1", "2"), "the query gives 2 samples, expected one: aggregate them"),
        (200, vector("many"), "http://prometheus:9090/base/ answered with a vector that cannot be read"),
        (
            200,
            '{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, 2]}]}}',
            "http://prometheus:9090/base/ answered with a vector that cannot be read",
        ),
        (
            200,
            '{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}',
            "the query gives a scalar, expected a vector with one sample",
        ),
    ],
)
async def test_anything_else_is_an_error_that_says_what_it_is(status: int, body: str, problem: str) -> None:
    """I15."""
    verdict = await looked(Stranger().says(status, body))
    assert verdict.passed is None
    assert verdict.error == problem


async def test_a_server_that_cannot_be_reached_is_an_error() -> None:
    """I15."""
    verdict = await looked(Stranger([OutsideError("prometheus: connection refused")]))
    assert verdict.error == "prometheus: connection refused"
    assert verdict.info["query"] == "sum(up)"


async def test_no_data_is_no_error_but_does_not_pass() -> None:
    verdict = await looked(Stranger().says(200, vector()))
    assert (verdict.passed, verdict.error) == (None, "")
    assert verdict.reason == f"the query gives no data at {URL}"


@pytest.mark.parametrize(("value", "shown"), [("NaN", "NaN"), ("+Inf", "+Inf"), ("-Inf", "-Inf")])
async def test_what_json_cannot_hold_is_shown_as_text(value: str, shown: str) -> None:
    verdict = await looked(Stranger().says(200, vector(value)))
    assert verdict.info["value"] == shown
    assert verdict.passed is (value == "-Inf")
    json.dumps(verdict.info, allow_nan=False)


async def test_an_expression_that_makes_no_sense_is_an_error() -> None:
    check = PrometheusInstant(url=URL, query="up", expr="value <")
    verdict = await looked(Stranger().says(200, vector("1")), check)
    assert verdict.error.startswith("expr cannot be evaluated: ")
    assert math.isclose(verdict.info["value"], 1.0)


async def test_a_password_in_the_address_is_not_shown() -> None:
    check = PrometheusInstant(url="https://ops:s3cret@prometheus/x", query="up", expr="value > 0")
    outside = Stranger().says(500, "oops")
    verdict = await looked(outside, check)
    assert verdict.info["url"] == "https://ops:(hidden)@prometheus/x"
    assert "s3cret" not in str(verdict)
    assert outside.heard[0][1].startswith("https://ops:s3cret@prometheus/x/api")


async def test_two_nodes_ask_the_same_question_once() -> None:
    cluster = Cluster(a_node("n1"), a_node("n2"))
    CHECK.look(cluster.scene("n1"))
    CHECK.look(cluster.scene("n2"))
    await cluster.ask(Stranger().says(200, vector("1")))
    assert CHECK.look(cluster.scene("n2")).passed


def test_what_will_not_work_is_pointed_out_but_loads() -> None:
    doubts = dict(PrometheusInstant(url="prometheus:9090", query="", expr="value <").warnings())
    assert set(doubts) == {"url", "query", "expr"}
    assert not list(PrometheusInstant(url="prometheus:9090").problems())
    assert not list(CHECK.warnings())


@pytest.mark.parametrize("expr", ["value * 100 >= 200", "value in [2, 3]", "!(value > 5)", "value > 5 ? false : true"])
async def test_whatever_the_go_controller_calculates_is_calculated(expr: str) -> None:
    check = PrometheusInstant(url=URL, query="sum(up)", expr=expr)
    assert dict(check.warnings()) == {}
    assert (await looked(Stranger().says(200, vector("2")), check)).passed is True


def test_a_name_that_has_no_value_is_doubted() -> None:
    assert "valeu" in dict(PrometheusInstant(url=URL, query="up", expr="valeu > 1").warnings())["expr"]
