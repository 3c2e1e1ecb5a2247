"""`haulout run --sandbox`: output, served cluster and shutdown."""

import asyncio
import json
import os
import re
import signal
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance
from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES, PODS, Resource
from haulout.cli import main
from haulout.core.clock import RealClock
from haulout.errors import TooManyRequests
from haulout.kube.client import Client
from haulout_sandbox.kubeconfig import reserved
from haulout_sandbox.scenarios.loader import builtin_names
from support.expectations.eventually import eventually
from support.servers.sandbox_process import TIMEOUT_SECONDS, names_in, running_sandbox

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=RawObject)


class Outcome(NamedTuple):
    """The exit code and the output of a command line."""

    code: int | str | None
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a function that runs a command line that fails before anything starts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def run(*args: str) -> Outcome:
        with pytest.raises(SystemExit) as exited:
            main(["run", *args])
        captured = capsys.readouterr()
        return Outcome(exited.value.code, captured.out, captured.err)

    return run


def test_help_lists_every_builtin_scenario(run: Run) -> None:
    help_text = " ".join(run("--help").out.split())
    listed = help_text.partition("The scenario: ")[2].partition(", or a YAML file")[0]
    assert sorted(listed.split(", ")) == builtin_names()


# Invalid flags and scenarios


def test_missing_kubeconfig_is_a_one_line_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    code, out, err = run()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("haulout: no cluster to connect to: ")


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        (("--nodes", "3"), "--nodes: only with --sandbox"),
        (("--no-operator",), "--no-operator: only with --sandbox"),
        (("--sandbox", "--context", "prod"), "--context: not with --sandbox, which brings its own cluster"),
        (("--sandbox", "--log-format", "json"), "--log-format: not with --sandbox, which brings its own cluster"),
    ],
)
def test_flags_of_the_other_mode_are_refused(run: Run, typed: tuple[str, ...], problem: str) -> None:
    code, _, err = run(*typed)
    assert (code, err) == (2, f"haulout: {problem}. See 'haulout run --help'.\n")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--nodes", "0"], "'--nodes': expected 1 to 5000, found 0: each node costs time and memory; --scenario big"),
        (["--nodes", "-3"], "'--nodes': expected 1 to 5000, found -3"),
        (["--nodes", "1000000"], "'--nodes': expected 1 to 5000, found 1e+06"),
        (["--nodes", "many"], "'--nodes': 'many' is not a valid integer."),
        (["--zones", "27"], "'--zones': expected 1 to 26, found 27: they are named by letters."),
        (["--pods-per-node", "101"], "'--pods-per-node': expected 1 to 100, found 101: a node has room for 110."),
        (
            ["--speed", "0.5"],
            "'--speed': expected 1 to 3600, found 0.5: 1 is real time; at 60 a minute takes a second.",
        ),
        (["--speed", "nan"], "'--speed': expected 1 to 3600, found nan"),
        (["--speed", "3601"], "'--speed': expected 1 to 3600, found 3601"),
        (["--port", "65536"], "'--port': expected 0 to 65535, found 65536: 0 is any free port."),
    ],
)
def test_numbers_out_of_range_are_usage_errors(run: Run, args: list[str], expected: str) -> None:
    code, out, err = run("--sandbox", *args)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.endswith("See 'haulout run --help'.\n")
    assert err.count("\n") == 1


def test_unknown_scenario_is_refused_with_a_list_of_scenarios(run: Run) -> None:
    code, out, err = run("--sandbox", "--scenario", "defualt")
    assert (code, out) == (2, "")
    assert err == (
        "haulout: there is no scenario 'defualt', nor a file of that name; did you mean default?; "
        "there are big, default, esx, hub, openshift, rolling, trouble\n"
    )


def test_each_error_in_a_scenario_is_one_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "storm.yaml"
    file.write_text("pools:\n  - name: a\n    zone: b\ntimeline:\n  - {at: 5, compact: {}}\n")
    code, out, err = run("--sandbox", "--scenario", str(file))
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"haulout: {file}:3: pools[0].zone: there is no such key; did you mean zones?",
        (
            f"haulout: {file}:5: timeline[0].at: expected a duration such as 90s, 5m or 1h30m: "
            'time: missing unit in duration "5"'
        ),
    ]


def test_manifest_that_the_server_refuses_is_a_one_line_error(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "storm.yaml"
    file.write_text("pools: [{name: a}]\nmanifests: [{apiVersion: v9, kind: Dragon, metadata: {name: smaug}}]\n")
    outcome = run("--sandbox", "--scenario", str(file))
    assert outcome == (2, "", f"haulout: {file}: Dragon smaug: the cluster serves no v9 Dragon\n")
    assert [it.name for it in tmp_path.iterdir()] == ["storm.yaml"]


def test_port_in_use_is_reported_with_a_remedy(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = run("--sandbox", "--port", str(port))
    message = f"port {port} is in use by another program; name another with --port, or 0 to get one that is free"
    assert (code, out, err) == (2, "", f"haulout: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_clouds_port_requires_a_scenario_with_clouds(run: Run) -> None:
    code, out, err = run("--sandbox", "--scenario", "rolling", "--clouds-port", "0")
    assert (code, out) == (2, "")
    assert err.startswith("haulout: --clouds-port: no pool of the scenario rolling says of which cloud it is")


def test_second_sandbox_with_the_same_kubeconfig_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / ".cache" / "haulout" / "sandbox.kubeconfig"
    with reserved(path, may_make_folder=True):
        code, out, err = run("--sandbox")
    assert (code, out) == (2, "")
    assert err == (
        f"haulout: a sandbox is running already (process {os.getpid()}), with the kubeconfig {path}; "
        "end it, or have two: name another file with --write-kubeconfig\n"
    )


def test_unwritable_kubeconfig_is_reported_before_the_start(run: Run, tmp_path: Path) -> None:
    code, out, err = run("--sandbox", "--write-kubeconfig", str(tmp_path / "none" / "kc"))
    assert (code, out) == (2, "")
    assert err.startswith(
        f"haulout: cannot write the kubeconfig {tmp_path}/none/kc: there is no folder {tmp_path}/none;"
    )


# Running sandboxes


async def announced(client: Client) -> str:
    """Return the node of the first notice."""
    found = (await client.list(MAINTENANCE_NOTICES)).items
    return found[0].status.node_name if found else ""


@pytest.mark.real_time
async def test_cloud_announcements_of_the_sandbox_are_printed_and_served(tmp_path: Path) -> None:
    args = ("--nodes", "10", "--pods-per-node", "5", "--speed", "20", "--clouds-port", "0")
    with running_sandbox(tmp_path, *args) as running:
        output = "\n".join(running.output_lines)
        assert "\n  kubectl get mn  # what the clouds announce" in output
        address = re.search(r"\nClouds      (http://127\.0\.0\.1:\d+) \(OCI Streaming and Compute, EC2, SQS,", output)
        node = running.wait_for_line("OCI will reboot general-").split()[4]
        assert address is not None
        form, signed = {"Action": "DescribeInstanceStatus", "Version": "2016-11-15"}, "AWS4-HMAC-SHA256 x"
        session = aiohttp.ClientSession(headers={"Authorization": signed})
        async with session, session.post(address[1], data=form) as answer:
            assert (await answer.text()).count("<instanceId>i-") == 3
            async with session.get(f"{address[1]}/20160918/instances/ocid1.instance.oc1..none") as refused:
                assert (await refused.json())["code"] == "NotAuthenticated"
        async with running.client() as client:
            await eventually(client.clock, lambda: announced(client), becomes=node, within=timedelta(seconds=20))


async def until_blocked(client: Client) -> NodeMaintenance:
    """Return the first maintenance with a blocker."""
    async with client.watch(NODE_MAINTENANCES, initial_list=True) as events:
        async for event in events:
            found = getattr(event, "object", None)
            if isinstance(found, NodeMaintenance) and found.status.blockers:
                return found
    raise AssertionError("the watch ended")


@pytest.mark.real_time
async def test_sandbox_serves_a_cluster_and_removes_its_files(tmp_path: Path) -> None:
    with running_sandbox(tmp_path, "--nodes", "3", "--zones", "2", "--pods-per-node", "5", "--seed", "7") as running:
        output = "\n".join(running.output_lines)
        assert "Cluster     3 nodes in 2 zones, " in output
        assert "Scenario    default, seed 7\n" in output
        assert f"export KUBECONFIG={tmp_path}/.cache/haulout/sandbox.kubeconfig" in output
        assert "kubectl get nodes" in output
        order = next(json.loads(line.split("'")[1]) for line in running.output_lines if "kubectl apply" in line)
        blocked = order["spec"]["nodeName"]
        async with running.client() as client, asyncio.timeout(TIMEOUT_SECONDS):
            nodes = await client.list(NODES)
            assert [node.name for node in nodes.items] == ["general-01", "general-02", "large-01"]
            pods = await client.list(PODS, fields=f"spec.nodeName={blocked}", namespace="bank")
            assert {pod.status.phase for pod in pods.items} == {"Running"}
            with pytest.raises(TooManyRequests, match="disruption budget"):
                await client.evict(pods.items[0].name, namespace="bank")
            note = {"metadata": {"name": "note", "namespace": "shop"}, "data": {"a": "b"}}
            await client.create(CONFIG_MAPS, note, namespace="shop")
            assert (await client.get(CONFIG_MAPS, "note", namespace="shop"))["data"] == {"a": "b"}
            await client.create(NODE_MAINTENANCES, order)
            blockers = (await until_blocked(client)).status.blockers
            assert "PodDisruptionBudget bank/ledger" in [it.object for it in blockers]
            await client.delete(NODE_MAINTENANCES, order["metadata"]["name"])
            async with client.watch(NODES, fields=f"metadata.name={blocked}", initial_list=True) as events:
                async for event in events:
                    found = getattr(event, "object", None)
                    if isinstance(found, Node) and not found.spec.unschedulable:
                        break
        assert running.stop(signal.SIGINT) == 0
        assert running.output_lines[-1] == "Ended."
        assert names_in(tmp_path) == []


@pytest.mark.real_time
async def test_watch_stays_open_through_hours_of_accelerated_time(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("pools: [{name: n, count: 2}]\nage: 1m\ntimeline: [{at: 2h, cordon: {nodes: n-01}}]\n")
    kubeconfig = tmp_path / "kc"
    args = ["--scenario", str(scenario), "--speed", "3600", "--write-kubeconfig", str(kubeconfig)]
    with running_sandbox(tmp_path, *args) as running:
        assert "Scenario    s, seed 0, 3600 times faster than real time" in running.output_lines
        async with running.client() as client, asyncio.timeout(TIMEOUT_SECONDS), client.watch(NODES) as events:
            cordoned = None
            async for event in events:
                cordoned = getattr(event, "object", None)
                if cordoned and cordoned.spec.unschedulable:
                    break
            assert cordoned is not None
            assert cordoned.name == "n-01"
        assert running.wait_for_line("cordoned").startswith("+02:00:00  cordoned: n-01")
        assert running.stop(signal.SIGTERM) == 0
        assert names_in(tmp_path) == ["s.yaml"]


# Profiles


def test_missing_configuration_file_is_named(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "nothing.yaml"
    for flags in ((), ("--sandbox",)):
        outcome = run(*flags, "--config", str(missing))
        assert outcome.code == 2
        assert outcome.err == f"haulout: {missing}: cannot read the file: no such file or directory\n"


def test_all_errors_in_the_configuration_are_reported_before_the_start(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text("intervals: {requeue: soon}\ninstances: {check: [{type: hasLable, name: a}]}\nprofiles: []\n")
    outcome = run("--config", str(file))
    assert outcome.code == 2
    error_lines = outcome.err.splitlines()
    assert [line.partition(": ")[2].split(": ")[0] for line in error_lines] == [f"{file}:1", f"{file}:2"]
    assert "did you mean hasLabel?" in error_lines[1]


def test_default_configuration_path_is_that_of_the_go_controller(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/maintenance.yaml").write_text("profiles: 7\n")
    monkeypatch.chdir(tmp_path)
    outcome = run()
    assert outcome.code == 2
    assert outcome.err.startswith("haulout: config/maintenance.yaml:1: ")


def test_config_flag_is_refused_without_an_operator(run: Run, tmp_path: Path) -> None:
    outcome = run("--sandbox", "--no-operator", "--config", str(tmp_path / "x.yaml"))
    assert outcome.code == 2
    assert "--config: not with --no-operator, because nothing would read it" in outcome.err


def test_metrics_port_flag_is_refused_without_an_operator(run: Run) -> None:
    outcome = run("--sandbox", "--no-operator", "--metrics-port", "8080")
    assert outcome.code == 2
    assert "--metrics-port: not with --no-operator, because nothing would answer there" in outcome.err


def test_metrics_port_in_use_is_a_one_line_error(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = run("--sandbox", "--nodes", "1", "--metrics-port", str(port))
    message = f"cannot listen on port {port} for metrics and the API: address already in use; choose another port"
    assert (code, out, err) == (2, "", f"haulout: {message}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real_time
def test_profiles_change_node_states_in_the_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(
        "intervals: {requeue: 30s}\n"
        "instances: {check: [{type: hasLabel, name: any, config: {key: kubernetes.io/hostname}}]}\n"
        "profiles: [{name: default, operational: {transitions: [{check: any, next: maintenance-required}]}}]\n"
    )

    async def node_states(client: Client) -> set[str]:
        nodes = (await client.list(NODES)).items
        return {node.metadata.labels.get("cloud.sap/maintenance-state", "") for node in nodes}

    async def api_states(session: aiohttp.ClientSession, url: str) -> set[str]:
        async with session.get(url) as answer:
            return {it["profiles"][0]["state"] for it in await answer.json()}

    with running_sandbox(tmp_path, "--nodes", "2", "--config", str(file)) as running:

        async def wait_and_check() -> None:
            async with running.client() as client:
                await eventually(client.clock, lambda: node_states(client), becomes={"maintenance-required"})
            url = next(line.split()[1] for line in running.output_lines if line.startswith("Operator"))
            async with aiohttp.ClientSession() as session:
                await eventually(RealClock(), lambda: api_states(session, url), becomes={"maintenance-required"})
                async with session.get(url.replace("api/v1/info", "metrics")) as answer:
                    numbers = (await answer.text()).splitlines()
                assert 'haulout_profiles_nodes{profile="default",state="maintenance-required"} 2' in numbers
                page = next(line.split()[1] for line in running.output_lines if line.startswith("Dashboard"))
                async with session.get(page) as answer:
                    assert (answer.status, "<title>Haulout" in await answer.text()) == (200, True)
                stuck = "default: no transition leads out of maintenance-required"
                async with session.get(f"{page}api/v2/nodes?state=planned") as answer:
                    assert [it["message"] for it in (await answer.json())["nodes"]] == [stuck] * 2

        asyncio.run(wait_and_check())
