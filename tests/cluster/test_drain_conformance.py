"""`haulout drain`, `cordon` and `uncordon` beside the real kubectl, on a real server: lines and exit codes.

Each case is set up twice, on a node and in a namespace for each of the two. Pods have no time to end, so that no
kubelet is needed. What is compared is what a script can match: all of standard output, and of standard error the lines
that kubectl has; ours may say more after them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from controlplane import ControlPlane
from haulout.cli import main

KUBECTL, HAULOUT = "kubectl", "haulout"
FLAGS = ["--ignore-daemonsets", "--delete-emptydir-data", "--force"]


class CommandOutput(NamedTuple):
    """The exit code and the output of a command, without names that differ."""

    code: int
    out: list[str]
    err: list[str]


@dataclass(frozen=True)
class DrainCase:
    """Pods on a node, and how it is drained."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)
    budgets: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """Run a control plane of our own, because nodes are cluster-scoped."""
    with ControlPlane() as alone:
        yield alone


class ComparedDrains:
    """Sets up a case for both tools, and runs both."""

    def __init__(self, control_plane: ControlPlane, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.control_plane = control_plane
        self.name = name
        self._capsys = capsys

    def request(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Send a request that must succeed."""
        answer = self.control_plane.request(method, path, body, **more)
        assert answer.status < 300, (path, answer.body)
        return answer.json()

    def set_up(self, tool: str, case: DrainCase) -> None:
        """Create the node, the namespace and its objects."""
        name = f"{tool}-{self.name}"
        self.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"case": name}}})
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        template = {"metadata": {"labels": {"app": "ds"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        daemon_set = {"selector": {"matchLabels": {"app": "ds"}}, "template": template}
        path = f"/apis/apps/v1/namespaces/{name}/daemonsets"
        made = self.request("POST", path, {"metadata": {"name": "ds"}, "spec": daemon_set})
        for pod, traits in case.pods.items():
            self._make_pod(name, pod, traits, daemon_set_uid=made["metadata"]["uid"])
        for budget in case.budgets:
            spec = {"selector": {"matchLabels": {"guarded": "yes"}}, "minAvailable": 1}
            path = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
            self.request("POST", path, {"metadata": {"name": budget}, "spec": spec})
            status = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
            status |= {"disruptionsAllowed": 0}
            self.request("PATCH", f"{path}/{budget}/status", {"status": status}, content_type=_MERGE)

    def _make_pod(self, name: str, pod: str, traits: dict[str, Any], *, daemon_set_uid: str) -> None:
        owner = traits.get("owner")
        spec: dict[str, Any] = {
            "nodeName": name,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}],
        }
        if traits.get("storage"):
            spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        metadata: dict[str, Any] = {"name": pod, "labels": traits.get("labels", {})}
        if owner:
            api, kind = owner
            uid = daemon_set_uid if kind == "DaemonSet" else "11111111-1111-1111-1111-111111111111"
            metadata["ownerReferences"] = [
                {"apiVersion": api, "kind": kind, "name": traits.get("owned_by", "ds"), "uid": uid, "controller": True}
            ]
        path = f"/api/v1/namespaces/{name}/pods"
        self.request("POST", path, {"metadata": metadata, "spec": spec})
        ready = {"type": "Ready", "status": "True"}
        status = {"phase": traits.get("phase", "Running"), "conditions": [ready]}
        self.request("PATCH", f"{path}/{pod}/status", {"status": status}, content_type=_MERGE)

    def kubectl(self, *args: str) -> CommandOutput:
        """Run kubectl."""
        done = self.control_plane.kubectl(*args, check=False)
        return self._comparable_output(done.returncode, done.stdout, done.stderr)

    def haulout(self, *args: str, kubeconfig: Path | None = None) -> CommandOutput:
        """Run our command line, in this process."""
        config = kubeconfig or self.control_plane.kubeconfig()
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            main([*args, "--kubeconfig", str(config)])
        captured = self._capsys.readouterr()
        code = exited.value.code
        assert isinstance(code, int)
        return self._comparable_output(code, captured.out, captured.err)

    def _comparable_output(self, code: int, out: str, err: str) -> CommandOutput:
        texts = [re.sub(f"({KUBECTL}|{HAULOUT})-{self.name}", "X", text) for text in (out, err)]
        return CommandOutput(code, sorted(texts[0].splitlines()), texts[1].splitlines())

    def drain_with_both(self, case: DrainCase) -> tuple[CommandOutput, CommandOutput]:
        """Return the outputs of kubectl and Haulout for the same case."""
        for tool in (KUBECTL, HAULOUT):
            self.set_up(tool, case)
        kubectl_result = self.kubectl("drain", f"{KUBECTL}-{self.name}", *case.args)
        haulout_result = self.haulout("drain", f"{HAULOUT}-{self.name}", *case.args)
        assert self.pods_of(KUBECTL) == self.pods_of(HAULOUT)
        assert self.is_cordoned(KUBECTL) == self.is_cordoned(HAULOUT)
        return kubectl_result, haulout_result

    def pods_of(self, tool: str) -> list[str]:
        """Return the names of the pods that are left."""
        items = self.request("GET", f"/api/v1/namespaces/{tool}-{self.name}/pods")["items"]
        return [item["metadata"]["name"] for item in items]

    def is_cordoned(self, tool: str) -> bool:
        """Tell whether a node is cordoned."""
        return bool(self.request("GET", f"/api/v1/nodes/{tool}-{self.name}")["spec"].get("unschedulable"))


_MERGE = "application/merge-patch+json"
ComparedDrainsFactory = Callable[[str], ComparedDrains]


@pytest.fixture
def world(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> ComparedDrainsFactory:
    """Return a factory of compared drains by name."""
    return lambda name: ComparedDrains(control_plane, name, capsys)


RS = ("apps/v1", "ReplicaSet")
DS = ("apps/v1", "DaemonSet")
SAME_CASES = {
    "managed": DrainCase(
        {"a": {"owner": ("v1", "ReplicationController")}, "b": {"owner": RS}, "c": {"owner": ("batch/v1", "Job")}}
    ),
    "ds-fatal": DrainCase({"a": {"owner": DS}, "b": {"owner": RS}}),
    "ds-ignored": DrainCase({"a": {"owner": DS}, "b": {"owner": RS}}, ["--ignore-daemonsets"]),
    "ds-storage-ignored": DrainCase({"a": {"owner": DS, "storage": True}}, ["--ignore-daemonsets"]),
    "ds-finished": DrainCase({"a": {"owner": DS, "phase": "Succeeded"}}),
    "ds-missing": DrainCase({"a": {"owner": DS, "owned_by": "nobody"}}),
    "storage-finished": DrainCase({"a": {"storage": True, "phase": "Failed"}}),
    "job-finished": DrainCase({"a": {"owner": ("batch/v1", "Job"), "phase": "Succeeded"}}),
    "unmanaged-fatal": DrainCase({"a": {}, "b": {}, "c": {"owner": RS}}),
    "unmanaged-forced": DrainCase({"a": {}, "b": {"owner": RS}}, ["--force"]),
    "storage-fatal": DrainCase({"a": {"owner": RS, "storage": True}}),
    "empty": DrainCase(),
    "some-pods": DrainCase(
        {"a": {"labels": {"app": "a"}}, "b": {"labels": {"app": "b"}}}, ["--force", "--pod-selector=app=a"]
    ),
    "past-budgets": DrainCase({"a": {"owner": RS, "labels": {"guarded": "yes"}}}, ["--disable-eviction"], ("one",)),
    "grace": DrainCase({"a": {"owner": RS}}, ["--grace-period=0", "--timeout=1m", "--chunk-size=1"]),
    "dry-client": DrainCase({"a": {"owner": RS}, "b": {"owner": DS}}, ["--ignore-daemonsets", "--dry-run=client"]),
    "dry-server": DrainCase({"a": {"owner": RS}}, ["--dry-run=server"]),
    "dry-fatal": DrainCase({"a": {}}, ["--dry-run=client"]),
}


@pytest.mark.parametrize("name", SAME_CASES)
def test_drain_output_matches_kubectl(world: ComparedDrainsFactory, name: str) -> None:
    kubectl_result, haulout_result = world(name).drain_with_both(SAME_CASES[name])
    assert haulout_result == kubectl_result


DIFFERENT_CASES = {
    "ds-missing-forced": (
        DrainCase({"a": {"owner": DS, "owned_by": "nobody"}}, ["--force"]),
        'daemonsets.apps "nobody" not found: X/a',
    ),
    "storage-deleted": (
        DrainCase({"a": {"owner": RS, "storage": True}}, ["--delete-emptydir-data=true"]),
        "deleting Pods with local storage: X/a",
    ),
    "all-flags": (
        DrainCase({"a": {"storage": True}}, FLAGS),
        "deleting Pods with local storage: X/a; deleting Pods that declare no controller: X/a",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT_CASES)
def test_all_warnings_of_a_pod_are_printed(world: ComparedDrainsFactory, name: str) -> None:
    """At most the warning of the last matching rule of a pod is printed by kubectl."""
    case, warning = DIFFERENT_CASES[name]
    kubectl_result, haulout_result = world(name).drain_with_both(case)
    assert (haulout_result.code, haulout_result.out) == (kubectl_result.code, kubectl_result.out)
    assert haulout_result.err == [f"Warning: {warning}"]
    assert all(line.removeprefix("Warning: ") in haulout_result.err[0] for line in kubectl_result.err)


def test_permanently_exhausted_disruption_budget_ends_in_the_same_errors(world: ComparedDrainsFactory) -> None:
    guarded = {"owner": RS, "labels": {"guarded": "yes"}}
    kubectl_result, haulout_result = world("blocked").drain_with_both(
        DrainCase({"a": guarded, "b": {"owner": RS}}, ["--timeout=1s"], ("one",))
    )
    assert haulout_result.code == kubectl_result.code == 1
    assert set(haulout_result.out) == set(kubectl_result.out)
    retried = re.compile(r"(.* \(will retry after )\w+(\): Cannot evict pod .* budget\.).*")
    lines = [retried.sub(r"\1\2", line) for line in haulout_result.err]
    assert [line for line in lines if not line.startswith("  ")] == [
        retried.sub(r"\1\2", line) for line in kubectl_result.err
    ]
    assert any("PodDisruptionBudget X/one needs 1 healthy pods and has 1" in line for line in haulout_result.err)


def test_pod_under_two_disruption_budgets_does_not_stop_the_others(world: ComparedDrainsFactory) -> None:
    guarded = {"owner": RS, "labels": {"guarded": "yes"}}
    kubectl_result, haulout_result = world("several").drain_with_both(
        DrainCase({"a": guarded, "b": {"owner": RS}}, [], ("one", "two"))
    )
    assert (haulout_result.code, haulout_result.out) == (kubectl_result.code, kubectl_result.out)
    beginning = 'error: unable to drain node "X" due to error: error when evicting pods/"a" -n "X": '
    for output in (kubectl_result, haulout_result):
        assert [line for line in output.err if line.startswith(beginning)]
        assert output.err[-3:-1] == ["There are pending nodes to be drained:", " X"]


def test_cordon_and_uncordon_output_matches_kubectl(world: ComparedDrainsFactory) -> None:
    drains = world("cordons")
    for tool in (KUBECTL, HAULOUT):
        drains.set_up(tool, DrainCase())
    selected = [["-l", f"case={tool}-cordons"] for tool in (KUBECTL, HAULOUT)]
    for command in ("cordon", "cordon", "uncordon", "uncordon"):
        for extra in (["--dry-run=client"], ["--dry-run=server"], []):
            kubectl_result = drains.kubectl(command, *selected[0], *extra)
            haulout_result = drains.haulout(command, *selected[1], *extra)
            assert haulout_result == kubectl_result, (command, extra)


def test_unknown_nodes_and_invalid_arguments_fail_without_a_change(world: ComparedDrainsFactory) -> None:
    drains = world("unknown")
    for tool in (KUBECTL, HAULOUT):
        drains.set_up(tool, DrainCase())
    for command in ("cordon", "drain"):
        kubectl_result = drains.kubectl(command, f"{KUBECTL}-unknown", "nobody")
        haulout_result = drains.haulout(command, f"{HAULOUT}-unknown", "nobody")
        assert kubectl_result == (1, [], ['Error from server (NotFound): nodes "nobody" not found'])
        assert haulout_result == (1, [], ['haulout: nodes "nobody" not found; nothing was changed'])
        assert not drains.is_cordoned(HAULOUT)
    assert drains.haulout("drain").code == 2
    assert (
        drains.haulout("drain", "a", "-l", "b=c")
        .err[0]
        .startswith("haulout: cannot specify both a node name and a --selector option")
    )
    none = drains.haulout("drain", "-l", "case=none")
    assert none == (0, [], ["No node has the labels case=none."])


def test_missing_drain_permissions_are_reported_before_any_change(world: ComparedDrainsFactory) -> None:
    drains = world("rights")
    drains.set_up(HAULOUT, DrainCase({"a": {"owner": RS}}))
    name = f"{HAULOUT}-rights"
    kubeconfig = drains.control_plane.kubeconfig("nobody@drain", groups=["ops"])
    refused = drains.haulout("drain", name, kubeconfig=kubeconfig)
    assert refused.code == 1
    assert len(refused.err) == 1
    assert 'User "nobody@drain" cannot get resource "nodes"' in refused.err[0]
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]
    grant(drains, rules)
    lacking = drains.haulout("drain", name, kubeconfig=kubeconfig)
    assert lacking.code == 1
    assert lacking.err == [
        (
            "haulout: you are not allowed to patch nodes, watch pods; nothing was changed; "
            "`haulout cluster-info --grant` prints what would allow it"
        )
    ]
    assert not drains.is_cordoned(HAULOUT)
    rules[0]["verbs"], rules[1]["verbs"] = ["get", "patch"], ["get", "list", "watch"]
    grant(drains, rules)
    result = drains.haulout("drain", name, kubeconfig=kubeconfig)
    assert result.code == 1
    assert 'cannot create resource "pods/eviction"' in result.err[-1]
    assert drains.pods_of(HAULOUT) == ["a"]


def grant(drains: ComparedDrains, rules: list[dict[str, list[str]]]) -> None:
    """Grant the user exactly these rules."""
    roles = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": "drain-test"}, "rules": rules}
    if drains.control_plane.request("GET", f"{roles}/clusterroles/drain-test").status == 200:
        drains.request("PUT", f"{roles}/clusterroles/drain-test", role)
        return
    drains.request("POST", f"{roles}/clusterroles", role)
    binding = {
        "metadata": {"name": "drain-test"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "drain-test"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody@drain"}],
    }
    drains.request("POST", f"{roles}/clusterrolebindings", binding)


def test_status_works_without_an_operator(world: ComparedDrainsFactory) -> None:
    drains = world("status")
    drains.set_up(HAULOUT, DrainCase({"a": {"owner": RS}}))
    drains.haulout("cordon", f"{HAULOUT}-status")
    status_output = drains.haulout("status", f"{HAULOUT}-status")
    assert status_output.code == 0
    assert any(line.startswith("State") and "cordoned, not ready" in line for line in status_output.out)
    assert status_output.err == ["NodeMaintenances: not installed in this cluster, so the operator is not installed"]
