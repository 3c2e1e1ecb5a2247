"""Each missing permission is named; what needs it waits with a reason, and nothing else waits."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from haulout.app import permissions
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.cli import main
from haulout.controllers.profiles.config.forbidden_plugins import format_refusals, without_forbidden_plugins
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.explain.explanation import explain
from haulout.controllers.profiles.missing_permissions import profile_permissions
from haulout.controllers.profiles.plugin import State
from haulout.core.clock import Clock
from haulout.kube.rbac import DeniedPermission, Permission
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.clusters.rbac import rbac_without, shipped_rbac
from support.fakes.profile_node import load_configuration
from support.operators.nodemaintenance import with_nodemaintenance_crd
from support.operators.profiles import NAMESPACE, operator_with_profiles, set_profiles, state

OPERATIONAL, REQUIRED, MAINTAINED = State
TEXT = """
intervals: {requeue: 30s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  - {type: maxMaintenance, name: room, config: {max: 1}}
  - {type: stagger, name: turn, config: {duration: 1m, leaseName: turn, leaseNamespace: kube-public, parallel: 2}}
  - {type: recovered, name: well, config: {workloads: true}}
  - {type: capacity, name: fits}
  - {type: checkHypervisor, name: empty, config: {evicted: true}}
  - {type: kubernikusCount, name: all, config: {cluster: c, cloudProviderSecret: {name: s, namespace: kube-public}}}
  notify:
  - type: slackThread
    name: told
    config:
      {token: x, channel: c, title: t, message: m, leaseName: thread, leaseNamespace: kube-public, period: 24h}
    schedule: {type: periodic, config: {interval: 24h}}
  trigger:
  - {type: eviction, name: drain, config: {action: drain, forceEviction: true, drain: {evictionRequests: true}}}
  - {type: alterHypervisor, name: evacuate, config: {maintenance: manual}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted && turn, next: maintenance-required}]
  maintenance-required:
    notify: told
    transitions: [{check: room, trigger: drain, next: in-maintenance}]
- name: other
  operational:
    transitions: [{check: fits && well && empty && all, trigger: evacuate, next: maintenance-required}]
- name: plain
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
"""


@pytest.fixture
def configuration() -> Configuration:
    """Return a configuration with all plugins that need a permission."""
    return load_configuration(TEXT)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of the configuration."""
    path = tmp_path / "maintenance.yaml"
    path.write_text(TEXT)
    return path


def missing(cluster: SandboxCluster) -> list[str]:
    """Return the permissions that events report as missing."""
    found = [it for it in cluster.by_key("events").values() if it["reason"] == "PermissionsMissing"]
    return [str(it.get("note") or it.get("message")) for it in found]


async def test_each_missing_permission_is_reported_by_name(
    clock: Clock, file: Path, configuration: Configuration, caplog: pytest.LogCaptureFixture
) -> None:
    """By an event and in the log; who may not have its lease cannot tell by events, as it does not lead.

    A leader does not watch its lease, and a standby that may not polls it (`tests/unit/kube/test_leaderelection.py`).
    """
    roles = shipped_rbac(configuration)
    of_profiles = profile_permissions(configuration, namespace=NAMESPACE)
    taken = [
        (each, verb)
        for each in permissions.operator_permissions(namespace=NAMESPACE, configuration=configuration)
        for verb in each.verbs
        if (verb, each.namespace) != ("watch", NAMESPACE)
        if any(it.covers(each, verb) and each.covers(it, verb) for it in of_profiles)  # not only for NodeMaintenances
    ]
    assert len(taken) > 30
    async with with_nodemaintenance_crd(a_cluster(clock)).with_rbac(*roles).on_the_sandbox() as cluster:
        for permission, verb in taken:
            caplog.clear()
            await cluster.apply_rbac(*rbac_without(roles, permission, verb))
            process = cluster.run(operator_with_profiles(file), name=f"{verb} {permission}")
            if (permission.resource, permission.namespace) == ("leases", NAMESPACE):
                await cluster.eventually(lambda: "cannot take lease haulout/" in caplog.text)
            elif (verb, permission.resource) == ("create", "events"):
                await cluster.eventually(lambda: "create events" in caplog.text)  # the log is the only way to report it
            else:
                (message,) = await cluster.eventually(lambda: missing(cluster))
                names = f" {', '.join(permission.names)}" if permission.names else ""
                assert f"{verb} {permission}{names} (to" in message
                assert f"{verb} {permission}{names} (to" in caplog.text
            process.kill()
            for plural in ("events", "leases"):
                for key in tuple(cluster.by_key(plural)):
                    await cluster.delete(plural, key)


async def test_trigger_without_permission_keeps_its_profile_waiting_and_others_continue(
    clock: Clock, file: Path, configuration: Configuration
) -> None:
    evict = Permission(("create",), "", "pods/eviction", None, "")
    plan = with_nodemaintenance_crd(a_cluster(clock)).with_rbac(
        *rbac_without(shipped_rbac(configuration), evict, "create")
    )
    async with plan.with_nodes(2).on_the_sandbox() as cluster:
        cluster.run(operator_with_profiles(file))
        await set_profiles(cluster, "n1", "os")
        await set_profiles(cluster, "n2", "plain")
        for node in ("n1", "n2"):
            await cluster.patch("nodes", node, metadata={"labels": {"patch": ""}})
        await cluster.eventually(lambda: (state(cluster, "n1"), state(cluster, "n2")), becomes=(REQUIRED, REQUIRED))
        await cluster.pass_time(minutes=5)
        assert state(cluster, "n1") == REQUIRED
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")
        found = await explain(cluster.admin, configuration, "n1", external=None)
        expected = "lacks permissions that profiles need: create pods/eviction (to evict pods)"
        assert any(expected in note for note in found.notes)
        started = cluster.clock.now()
        await cluster.apply_rbac(*shipped_rbac(configuration))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        assert cluster.clock.now() - started < timedelta(minutes=1)


def test_check_without_permission_is_unknown_and_starts_no_watch(configuration: Configuration) -> None:
    lease = Permission(("list", "watch"), "coordination.k8s.io", "leases", "kube-public", "watch leases")
    usable = without_forbidden_plugins(configuration, [DeniedPermission(lease, "watch")], namespace=NAMESPACE)
    (transition,) = usable.profiles["os"].states[OPERATIONAL].transitions
    plugins = {it.name: it.plugin for it in transition.check.members}
    assert plugins["turn"].type == "stagger"
    result = plugins["turn"].evaluate(None)  # type: ignore[arg-type]  # it reads no observation
    assert result.passed is None
    why = "the operator is not allowed to watch leases.coordination.k8s.io in kube-public (to watch leases)"
    assert result.reason == why
    assert usable.needs < configuration.needs
    assert without_forbidden_plugins(configuration, [], namespace=NAMESPACE) is configuration


def test_missing_permission_is_formatted_with_all_its_verbs() -> None:
    lead = Permission(("get", "patch"), "coordination.k8s.io", "leases", "ops", "lead", names=("a", "b"))
    assert format_refusals([DeniedPermission(lead, "get"), DeniedPermission(lead, "patch")]) == (
        "get, patch leases.coordination.k8s.io in ops a, b (to lead)"
    )


# The command line


def test_manifests_grant_the_permissions_of_the_configuration(
    file: Path, configuration: Configuration, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["manifests", "--image", "example/haulout:1", "--config", str(file)])
    assert exited.value.code == 0
    wanted = Installation(image="example/haulout:1", configuration=configuration)
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == operator_manifests.all_objects(wanted)


def test_manifests_require_variables_that_permissions_depend_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(TEXT.replace("leaseName: turn", 'leaseName: "${TURN}"'))
    arguments = ["manifests", "--image", "example/haulout:1", "--config", str(file)]
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    assert exited.value.code == 2
    assert "depends on TURN: set it with --env TURN=value" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exited:
        main([*arguments, "--env", "TURN=mine"])
    assert exited.value.code == 0
    assert "- mine-1" in capsys.readouterr().out


def test_check_lists_required_permissions_by_instance(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["check", "--permissions", "-n", "ops", str(file)])
    assert exited.value.code == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "patch leases.coordination.k8s.io in kube-public turn-0, turn-1: stagger [turn]" in lines
    assert "get, patch configmaps in ops haulout-budget-nodes-in-maintenance: store budget slots [room]" in lines
    assert "get secrets in kube-public s: read credentials [all]" in lines
    assert not [line for line in lines if "nodemaintenances" in line]
