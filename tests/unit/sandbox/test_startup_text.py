"""What `haulout run --sandbox` says, for each kind of cluster it may find itself with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click

from haulout.api.clusterapi import ClusterKey
from haulout_sandbox import startup_text as sandbox_text
from haulout_sandbox.running_sandbox import RunningSandbox, SandboxPlan
from haulout_sandbox.scenarios.loader import LoadedScenario, parse
from haulout_sandbox.startup_text import BlockedNode, Overview

SANDBOX = RunningSandbox(Mock(), Mock(), "https://127.0.0.1:6443", Path("/home/ada lovelace/kc"))
LOADED = parse(b"pools: [{name: a}]", file="s.yaml", name="storm")


def startup_lines(
    *,
    speed: float = 1.0,
    has_kubectl: bool = True,
    with_operator: bool = False,
    with_profiles: bool = False,
    api: str = "",
    loaded: LoadedScenario = LOADED,
    workloads: Sequence[sandbox_text.WorkloadClusterSummary] = (),
    **counts: Any,
) -> list[str]:
    """Return the lines, without colours."""
    defaults = {"nodes": 3, "zones": 2, "pods": 5, "running": 5, "budgets": 2, "first_node": "n1", "blocked": None}
    overview = Overview(**{**defaults, **counts})
    text = sandbox_text.startup_text(
        overview,
        SANDBOX,
        SandboxPlan(loaded=loaded, seed=4, speed=speed),
        seconds=1.26,
        has_kubectl=has_kubectl,
        with_operator=with_operator,
        with_profiles=with_profiles,
        api=api,
        workloads=workloads,
    )
    return click.unstyle(text).splitlines()


def test_the_text_has_addresses_commands_to_try_and_how_to_stop() -> None:
    assert startup_lines() == [
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


def test_the_text_has_the_address_of_the_operator_and_a_command_for_it() -> None:
    lines = startup_lines(with_operator=True, with_profiles=True, api="http://127.0.0.1:8080")
    assert "Dashboard   http://127.0.0.1:8080/" in lines
    assert "Operator    http://127.0.0.1:8080/api/v1/info and http://127.0.0.1:8080/metrics" in lines
    assert lines[-3] == "  haulout why n1 --from http://127.0.0.1:8080"
    assert "why" not in startup_lines(with_operator=True, api="http://127.0.0.1:8080")[-3]


def test_with_the_operator_an_order_is_tried_instead_of_a_drain() -> None:
    order = (
        '{"apiVersion":"nodemaintenance.medik8s.io/v1beta1","kind":"NodeMaintenance","metadata":{"name":"try-n1"},'
        '"spec":{"nodeName":"n1","reason":"test"}}'
    )
    assert startup_lines(with_operator=True)[7:12] == [
        "  kubectl get nodes",
        "  kubectl get mn  # what the clouds announce, from the first seconds on",
        f"  echo '{order}' | kubectl apply -f -",
        "  kubectl get nodemaintenances --watch",
        "  kubectl delete nodemaintenance try-n1  # uncordons the node",
    ]


def test_the_text_of_an_openshift_scenario_shows_how_to_list_machines() -> None:
    loaded = parse(b"pools: [{name: a, cloud: aws, machines: MachineSet}]", file="s.yaml", name="storm")
    of_machines, of_records = "  kubectl get machines -n openshift-machine-api", "  kubectl get machinemaintenances -A"
    assert startup_lines(loaded=loaded, with_operator=True)[9:11] == [of_machines, of_records]
    alone = startup_lines(loaded=loaded)
    assert of_machines in alone
    assert of_records not in alone
    assert of_machines not in startup_lines(with_operator=True)


def test_the_text_has_the_context_of_each_workload_cluster() -> None:
    found = Overview(nodes=4, zones=2, pods=9, running=9, budgets=1, first_node="x", blocked=None)
    workloads = [
        sandbox_text.WorkloadClusterSummary(
            key=ClusterKey("team-a", "prod"),
            context="sandbox-team-a-prod",
            overview=found,
            machine="workers-1",
            dashboard="http://127.0.0.1:9",
        )
    ]
    lines = startup_lines(with_operator=True, with_profiles=True, api="http://127.0.0.1:8080", workloads=workloads)
    machine = "machine -n team-a workers-1"
    label = "runtime-extension-maintenance-controller.cloud.sap/maintenance"
    assert lines == [
        "Cluster     management: 3 nodes in 2 zones, 5 pods, 2 disruption budgets",
        "Workload    team-a/prod: 4 nodes in 2 zones, 9 pods, 1 disruption budget",
        "Scenario    storm, seed 4",
        "Server      https://127.0.0.1:6443",
        "Kubeconfig  /home/ada lovelace/kc",
        "Dashboard   http://127.0.0.1:8080/ (all clusters)",
        "Hub         http://127.0.0.1:8080/metrics",
        "Dashboard   http://127.0.0.1:9/ (team-a/prod)",
        "",
        "To try, in another terminal:",
        "  export KUBECONFIG='/home/ada lovelace/kc'",
        "  kubectl get clusters,machines -A",
        "  kubectl get bmh -A  # hosts of Metal3",
        "  kubectl --context sandbox-team-a-prod get nodes",
        f"  kubectl label {machine} {label}=requested  # its node is emptied, and approves it",
        f"  kubectl label {machine} {label}-  # it is over: the node is given back",
        f"  kubectl delete {machine} --wait=false  # another comes in its place",
        "",
        "Ready after 1.3 s. Ctrl-C ends it and leaves nothing behind.",
    ]
    assert not any(label in line for line in startup_lines(workloads=workloads))


def test_the_text_names_what_is_special() -> None:
    shown = startup_lines(
        speed=60,
        has_kubectl=False,
        nodes=1,
        zones=1,
        pods=1000,
        running=900,
        blocked=BlockedNode(node="n2", budget="bank/ledger"),
    )
    assert shown[0] == "Cluster     1 node in 1 zone, 900 of 1000 pods running, 2 disruption budgets"
    assert shown[1] == "Scenario    storm, seed 4, 60 times faster than real time"
    assert shown[9:12] == [
        "  kubectl drain n2 --ignore-daemonsets --force --timeout=60s",
        "  # PodDisruptionBudget bank/ledger blocks this drain",
        "  # kubectl is not on your PATH: https://kubernetes.io/docs/tasks/tools",
    ]
