"""What `haulout run --sandbox` says, for each kind of cluster it may find itself with."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest

from haulout.cli import sandbox_text
from haulout.sandbox.overview import Blocked, Overview
from haulout.sandbox.scenarios.loading import parse
from haulout.sandbox.site import Plan, Site

SITE = Site(Mock(), "https://127.0.0.1:6443", Path("/home/ada lovelace/kc"))
LOADED = parse(b"pools: [{name: a}]", file="s.yaml", name="storm")


def said(
    *, speed: float = 1.0, has_kubectl: bool = True, with_operator: bool = False, api: str = "", **found: Any
) -> list[str]:
    """Return the lines, without colours."""
    usual = {"nodes": 3, "zones": 2, "pods": 5, "running": 5, "budgets": 2, "first_node": "n1", "blocked": None}
    shown = Overview(**{**usual, **found})
    text = sandbox_text.as_text(
        shown,
        SITE,
        Plan(loaded=LOADED, seed=4, speed=speed),
        seconds=1.26,
        has_kubectl=has_kubectl,
        with_operator=with_operator,
        api=api,
    )
    return click.unstyle(text).splitlines()


def test_it_says_what_there_is_what_to_try_and_how_it_ends() -> None:
    assert said() == [
        "Cluster     3 nodes in 2 zones, 5 pods, 2 disruption budgets",
        "Scenario    storm, seed 4",
        "Server      https://127.0.0.1:6443",
        "Kubeconfig  /home/ada lovelace/kc",
        "",
        "To try, in another terminal:",
        "  export KUBECONFIG='/home/ada lovelace/kc'",
        "  kubectl get nodes",
        "  kubectl get pods -A -o wide",
        "  kubectl drain n1 --ignore-daemonsets --force --timeout=60s",
        "",
        "Ready after 1.3 s. Ctrl-C ends it and leaves nothing behind.",
    ]


def test_where_the_operator_answers_is_told_with_whom_to_ask() -> None:
    lines = said(with_operator=True, api="http://127.0.0.1:8080")
    assert "Operator    http://127.0.0.1:8080/api/v1/info and http://127.0.0.1:8080/metrics" in lines
    assert lines[-3] == "  haulout why n1 --from http://127.0.0.1:8080"


def test_with_the_operator_an_order_is_tried_instead_of_a_drain() -> None:
    order = (
        '{"apiVersion":"nodemaintenance.medik8s.io/v1beta1","kind":"NodeMaintenance","metadata":{"name":"try-n1"},'
        '"spec":{"nodeName":"n1","reason":"to see how it goes"}}'
    )
    assert said(with_operator=True)[7:11] == [
        "  kubectl get nodes",
        f"  echo '{order}' | kubectl apply -f -",
        "  kubectl get nodemaintenances --watch",
        "  kubectl delete nodemaintenance try-n1  # gives the node back",
    ]


def test_it_says_what_is_special() -> None:
    shown = said(
        speed=60,
        has_kubectl=False,
        nodes=1,
        zones=1,
        pods=1000,
        running=900,
        blocked=Blocked(node="n2", budget="bank/ledger"),
    )
    assert shown[0] == "Cluster     1 node in 1 zone, 900 of 1000 pods running, 2 disruption budgets"
    assert shown[1] == "Scenario    storm, seed 4, 60 times faster than life"
    assert shown[9:12] == [
        "  kubectl drain n2 --ignore-daemonsets --force --timeout=60s",
        "  # it meets the budget of bank/ledger, which will not let it",
        "  # kubectl is not on your PATH: https://kubernetes.io/docs/tasks/tools",
    ]


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (timedelta(), "+00:00:00"),
        (timedelta(minutes=5, microseconds=2000), "+00:05:00"),
        (timedelta(hours=101), "+101:00:00"),
    ],
)
def test_what_happens_is_told_with_its_time(capsys: pytest.CaptureFixture[str], at: timedelta, shown: str) -> None:
    sandbox_text.tell(at, "a\x1b[31m reboots")
    assert capsys.readouterr().out == f"{shown}  a\\x1b[31m reboots\n"
