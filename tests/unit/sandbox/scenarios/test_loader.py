"""Scenarios as files: what they come to, what is wrong with them, and that the page about them is true."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haulout.errors import ConfigErrors, UsageError
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.expansion import expand_workloads, new_machines, resize, workload_objects
from haulout_sandbox.scenarios.loader import LoadedScenario, builtin_names, load, parse

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "sandbox-scenarios.md"
CONTROL_PLANE = "cloud: aws, machines: ControlPlaneMachineSet"
POOL = "pools: [{name: general, count: 3}]\n"


def scenario(text: str) -> model.Scenario:
    return parse(text.encode(), file="s.yaml", name="s").scenario


def problems(text: str, folder: Path | None = None) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        parse(text.encode(), file="s.yaml", name="s", folder=folder)
    return [str(error) for error in caught.value.errors]


def problem(text: str) -> str:
    """Return the one thing that is wrong with a scenario, of which `text` begins in line 2."""
    message = problems(POOL + text)
    assert len(message) == 1, message
    return message[0].removeprefix("s.yaml:2: ")


# What they come to


def test_machines_are_numbered_and_dealt_out_to_zones_in_turn() -> None:
    found = new_machines(
        scenario("pools: [{name: n, count: 3, zones: [x, y], providerID: 'aws:///{zone}/i-{number:04}', cpu: 2}]")
    )
    assert [(item.name, item.zone, item.provider_id, item.cpu) for item in found] == [
        ("n-01", "x", "aws:///x/i-0001", "2"),
        ("n-02", "y", "aws:///y/i-0002", "2"),
        ("n-03", "x", "aws:///x/i-0003", "2"),
    ]


def test_reshaping_divides_nodes_as_they_were_and_gives_all_pools_the_same_zones() -> None:
    pools = "pools: [{name: a, count: 24}, {name: b, count: 6}, {name: none, count: 0}]"
    shaped = resize(scenario(pools), nodes=10, zones=2, pods_per_node=7)
    assert [(pool.name, pool.count, pool.zones) for pool in shaped.pools] == [
        ("a", 8, ("zone-a", "zone-b")),
        ("b", 2, ("zone-a", "zone-b")),
        ("none", 0, ("zone-a", "zone-b")),
    ]
    assert shaped.pods_per_node == 7


def test_reshaping_leaves_the_control_plane_as_it_is() -> None:
    pools = f"pools: [{{name: a, count: 3, {CONTROL_PLANE}}}, {{name: b, count: 9, cloud: aws, machines: MachineSet}}]"
    shaped = resize(scenario(pools), nodes=23, zones=2)
    assert [(pool.count, pool.zones) for pool in shaped.pools] == [(3, ("zone-a",)), (20, ("zone-a", "zone-b"))]


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 29, 30, 31, 1000])
@pytest.mark.parametrize("name", ["default", "rolling", "trouble", "openshift", "esx", "big"])
def test_every_scenario_takes_every_number_of_nodes(name: str, nodes: int) -> None:
    assert len(new_machines(resize(load(name).scenario, nodes=nodes))) == nodes


@pytest.mark.parametrize(("nodes", "pods_per_node"), [(30, 10), (30, 20), (100, 10), (10, 30)])
def test_workloads_with_a_share_fill_the_cluster(nodes: int, pods_per_node: int) -> None:
    shaped = resize(load("default").scenario, nodes=nodes, pods_per_node=pods_per_node)
    pods = sum(
        nodes if workload.kind == "DaemonSet" else workload.replicas
        for copies in expand_workloads(shaped)
        for workload in copies
    )
    assert pods == pytest.approx(nodes * pods_per_node, rel=0.05)


def test_a_small_cluster_still_has_each_workload_once() -> None:
    shaped = resize(load("default").scenario, nodes=1, pods_per_node=1)
    assert all(copies for copies in expand_workloads(shaped))


def test_the_default_scenario_has_what_a_drain_meets() -> None:
    shaped = load("default").scenario
    kinds = {item["kind"] for item in workload_objects(shaped)}
    assert kinds >= {"Deployment", "StatefulSet", "DaemonSet", "Job", "Pod", "PodDisruptionBudget"}
    nodes = new_machines(shaped)
    assert (len(nodes), len({node.zone for node in nodes})) == (30, 3)


def test_a_workload_defines_how_its_pods_behave() -> None:
    found = workload_objects(
        scenario(
            POOL
            + """
workloads:
  - {kind: Deployment, name: web, namespace: shop, replicas: 2, start: 1s, ready: 1500ms, stop: 20s, grace: 1m,
     runs: 5m, exitCode: 3, hang: true, cpu: 2, priority: -5, spread: node, nodeSelector: {disk: ssd},
     tolerateAll: true, budget: {minAvailable: 50%, unhealthyPodEvictionPolicy: AlwaysAllow}}
"""
        )
    )
    by_kind = {item["kind"]: item for item in found}
    template = by_kind["Deployment"]["spec"]["template"]
    assert template["metadata"]["annotations"] == {
        "sandbox.haulout.dev/start-seconds": "1",
        "sandbox.haulout.dev/ready-seconds": "1.5",
        "sandbox.haulout.dev/run-seconds": "300",
        "sandbox.haulout.dev/stop-seconds": "20",
        "sandbox.haulout.dev/exit-code": "3",
        "sandbox.haulout.dev/hang": "true",
    }
    pod = template["spec"]
    assert pod["terminationGracePeriodSeconds"] == 60
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "2", "memory": "64Mi"}}
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"disk": "ssd"}, [{"operator": "Exists"}])
    assert pod["priorityClassName"] == by_kind["PriorityClass"]["metadata"]["name"]
    assert by_kind["PriorityClass"]["value"] == -5
    assert by_kind["PodDisruptionBudget"]["spec"] == {
        "minAvailable": "50%",
        "selector": {"matchLabels": {"app": "web"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def test_copies_are_numbered_and_each_has_its_own_pods() -> None:
    found = workload_objects(scenario(POOL + "workloads: [{kind: Pod, name: note, copies: 2}]"))
    assert [item["metadata"]["name"] for item in found] == ["note-1", "note-2"]


# What is wrong with them


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workload: []", "workload: there is no such key; did you mean workloads?"),
        ("podsPerNode: 101", "podsPerNode: expected a whole number from 1 to 100, found 101"),
        ("age: 5 minutes", 'age: expected a duration such as 90s, 5m or 1h30m: time: unknown unit " minutes" in '),
        (
            "workloads: [{kind: CronJob, name: a}]",
            "workloads[0].kind: expected DaemonSet, Deployment, Job, Pod or StatefulSet, found 'CronJob'",
        ),
        (
            "workloads: [{kind: Pod, name: Web_1}]",
            "workloads[0].name: expected a name of a-z, 0-9 and -, at most 63 of them, - not at an end, found 'Web_1'",
        ),
        ("workloads: [{kind: Pod, name: a, replicas: 2}]", "workloads[0].replicas: expected copies instead"),
        ("workloads: [{kind: DaemonSet, name: a, replicas: 2}]", "workloads[0]: expected neither replicas, copies nor"),
        ("workloads: [{kind: Pod, name: a, copies: 1, share: 1}]", "workloads[0].share: expected either copies or"),
        (
            "workloads: [{kind: Pod, name: a}, {kind: Pod, name: a}]",
            "workloads[1].name: expected a name of its own, found a second Pod of this name",
        ),
        (
            "workloads: [{kind: Deployment, name: a, budget: {}}]",
            "workloads[0].budget: expected either minAvailable or maxUnavailable, found neither",
        ),
        (
            "workloads: [{kind: Deployment, name: a, budget: {minAvailable: 1, maxUnavailable: 1}}]",
            "workloads[0].budget: expected either minAvailable or maxUnavailable, found both",
        ),
        (
            "workloads: [{kind: Deployment, name: a, budget: {minAvailable: half}}]",
            "workloads[0].budget.minAvailable: expected a number of pods, or a share such as 50%, found 'half'",
        ),
        ("timeline: [{compact: {}}]", "timeline[0]: expected when it happens: at, every, or both; found neither"),
        ("timeline: [{at: 1m}]", "timeline[0]: expected one thing that happens, such as reboot or scale, found none"),
        (
            "timeline: [{at: 1m, compact: {}, reboot: {nodes: a}}]",
            "timeline[0]: expected one thing that happens, such as reboot or scale, found reboot and compact",
        ),
        ("timeline: [{every: 0s, compact: {}}]", "timeline[0].every: expected a duration above 0, found 0"),
        ("timeline: [{at: 1m, until: 2m, compact: {}}]", "timeline[0].until: expected every beside it"),
        ("timeline: [{at: 1m, reboot: {}}]", "timeline[0].reboot.nodes: expected text or a list or a mapping, found"),
        (
            "timeline: [{at: 1m, addNodes: {pool: genral}}]",
            "timeline[0].addNodes.pool: there is no pool genral; did you mean general?; there are general",
        ),
        (
            "timeline: [{at: 1m, stopKubelet: {nodes: {pool: other}}}]",
            "timeline[0].stopKubelet.nodes.pool: there is no pool other; there are general",
        ),
        (
            "timeline: [{at: 1m, pause: {components: [schduler]}}]",
            "timeline[0].pause.components[0]: there is no component schduler; did you mean scheduler?",
        ),
        (
            "timeline: [{at: 1m, delayRequests: {by: 1s, clients: [me]}}]",
            "timeline[0].delayRequests.clients[0]: there is no client me; there are admin, kubelets, scheduler",
        ),
        (
            "timeline: [{at: 1m, announce: {nodes: {pool: general}}}]",
            "timeline[0].announce.nodes.pool: expected a pool with cloud: oci or cloud: aws or cloud: azure or cloud:",
        ),
        (
            "timeline: [{at: 1m, announce: {nodes: a, in: soon}}]",
            "timeline[0].announce.in: expected a duration such as 90s, 5m or 1h30m",
        ),
        (
            "timeline: [{at: 1m, scaleIn: {nodes: {zone: a}}}]",
            "timeline[0].scaleIn.nodes: expected a pool with cloud: aws, found no such pool",
        ),
        (
            "timeline: [{at: 1m, cancelMaintenance: {name: disk}}]",
            "timeline[0].cancelMaintenance.name: there is no announcement disk; there is none at all",
        ),
        (
            "timeline: [{at: 1m, failRequests: {code: 200}}]",
            "timeline[0].failRequests.code: expected a whole number from 400 to",
        ),
        (
            "manifests: [{kind: ConfigMap, metadata: {}}]",
            "manifests[0]: expected an object, found none: it lacks apiVersion, metadata.name",
        ),
        ("manifests: [{file: none.yaml}]", "manifests[0].file: cannot read none.yaml: No such file or directory"),
        ("timeline: [{at: 1m, apply: {a: 1}}]", "timeline[0].apply: expected an object, found none: it lacks"),
    ],
)
def test_invalid_values_are_reported_with_their_key(text: str, said: str) -> None:
    assert problem(text).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "s.yaml: pools: expected at least one pool of machines, found none"),
        ("pools: []", "s.yaml:1: pools: expected at least one pool of machines, found none"),
        ("pools: [{name: a}, {name: a}]", "s.yaml:1: pools[1].name: expected a name of its own, found a twice"),
        ("pools: [{name: a, zones: []}]", "s.yaml:1: pools[0].zones: expected at least one zone, found none"),
        ("pools: [{name: a, count: 5001}]", "s.yaml:1: pools[0].count: expected a whole number from 0 to 5000, found"),
        ("pools: [{name: a, memory: lots}]", "s.yaml:1: pools[0].memory: expected a quantity such as 500m or 4Gi, "),
        ("pools: [{name: a, providerID: 'x{nme}'}]", "s.yaml:1: pools[0].providerID: expected text, with {name}, "),
        ("pools: [{name: a, providerID: 'x{'}]", "s.yaml:1: pools[0].providerID: expected text, with {name}, "),
        (
            "pools: [{name: a, cloud: aws, providerID: x}]",
            "s.yaml:1: pools[0].providerID: expected none beside cloud, which gives its machines their own",
        ),
        (
            "pools: [{name: a, machines: MachineSet}]",
            "s.yaml:1: pools[0].machines: expected cloud: aws beside it, which has the instances; found no cloud",
        ),
        (
            "pools:\n- name: a\n  cloud: oci\n  machines: MachineSet",
            "s.yaml:4: pools[0].machines: expected cloud: aws beside it, which has the instances; found cloud: oci",
        ),
        (
            "pools: [{name: a, cloud: aws, machines: yes}]",
            "s.yaml:1: pools[0].machines: expected ControlPlaneMachineSet or MachineSet, found true or",
        ),
        (
            f"pools:\n- {{name: a, {CONTROL_PLANE}}}\n- {{name: b, {CONTROL_PLANE}}}",
            "s.yaml:3: pools[1].machines: expected one pool of this kind: a cluster has one ControlPlaneMachineSet",
        ),
        (
            f"pools: [{{name: a, zones: [a, b], {CONTROL_PLANE}}}]",
            "s.yaml:1: pools[0].zones: expected one zone: that of the ControlPlaneMachineSet",
        ),
        (
            "pools: [{name: a, cloud: aws, machines: MachineSet}]\ntimeline: [{at: 1m, addNodes: {pool: a}}]",
            "s.yaml:2: timeline[0].addNodes.pool: expected a pool without machines: patch replicas of its MachineSet",
        ),
        ("pools: [{name: a, cloud: ibm}]", "s.yaml:1: pools[0].cloud: expected aws, azure, gcp or oci, found"),
        (
            "pools: [{name: a, taints: [{key: b, effect: no}]}]",
            "s.yaml:1: pools[0].taints[0].effect: expected NoExecute, NoSchedule or PreferNoSchedule, found true or",
        ),
    ],
)
def test_invalid_pools_are_reported(text: str, said: str) -> None:
    found = problems(text)
    assert len(found) == 1
    assert found[0].startswith(said)


@pytest.mark.parametrize(
    ("happening", "said"),
    [
        (
            "announce: {nodes: {pool: a}, kind: Freeze}",
            "announce.kind: expected what OCI does: Migrate, Reboot, Stop, Terminate; found Freeze",
        ),
        ("interrupt: {nodes: {pool: a}}", "interrupt.nodes.pool: expected a pool with cloud: aws, found a without it"),
        (
            "reschedule: {name: dsk, in: 5m}",
            "reschedule.name: there is no announcement dsk; did you mean disk?; there are disk",
        ),
        ("announce: {nodes: {pool: c}}", "announce.nodes.pool: there is no pool c; there are a, b"),
    ],
)
def test_an_unsupported_cloud_action_is_reported_with_its_key(happening: str, said: str) -> None:
    pools = "pools: [{name: a, cloud: oci}, {name: b, cloud: aws}]\ntimeline:\n"
    disk = "  - {at: 1m, announce: {nodes: {pool: b}, name: disk, kind: Freeze}}\n"
    found = problems(f"{pools}{disk}  - {{at: 2m, {happening}}}")
    assert found == [f"s.yaml:4: timeline[1].{said}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clusters: [{name: c}]", "clusters[0].pools: expected at least one pool of machines, found none"),
        (
            "clusters: [{name: c, pools: [{name: p}, {name: p}]}]",
            "clusters[0].pools[1].name: expected a name of its own, found p twice",
        ),
        (
            "clusters: [{name: c, pools: [{name: p}]}, {name: c, namespace: default, pools: [{name: p}]}]",
            "clusters[1].name: expected a name of its own, found default/c twice",
        ),
        (
            "clusters: [{name: c, pools: [{name: p}]}, {name: d, pools: [{name: q}, {name: p}]}]",
            "clusters[1].pools[1].name: expected another name than p: that MachineDeployment is default/c's",
        ),
        (
            "clusters: [{name: c, pools: [{name: p, cloud: aws}]}]",
            "clusters[0].pools[0].cloud: expected none in a workload cluster: its machines are those of Cluster API",
        ),
        (
            "clusters: [{name: c, pools: [{name: p}], workloads: [{kind: Pod, name: b, replicas: 3}]}]",
            "clusters[0].workloads[0].replicas: expected copies instead: a Pod is one pod",
        ),
    ],
)
def test_invalid_workload_clusters_are_reported(text: str, said: str) -> None:
    assert problems(f"pools: [{{name: a}}]\n{text}") == [f"s.yaml:2: {said}"]


@pytest.mark.parametrize(
    ("happening", "said"),
    [
        (
            "rollOut: {cluster: t/prud, pool: w}",
            "rollOut.cluster: there is no workload cluster t/prud; did you mean t/prod?; there are t/prod",
        ),
        ("rollOut: {cluster: t/prod, pool: v}", "rollOut.pool: there is no pool v; there are w"),
        ("requestMaintenance: {cluster: t/prod, pool: v}", "requestMaintenance.pool: there is no pool v; there are w"),
        (
            "clusterOutage: {cluster: t/prod, how: burn}",
            "clusterOutage.how: expected hang, refuse or slow, found 'burn'",
        ),
    ],
)
def test_invalid_actions_on_workload_clusters_are_reported_with_their_key(happening: str, said: str) -> None:
    base = "pools: [{name: a}]\nclusters: [{name: prod, namespace: t, pools: [{name: w}]}]\ntimeline:\n"
    assert problems(f"{base}  - {{at: 2m, {happening}}}") == [f"s.yaml:4: timeline[0].{said}"]


def test_all_problems_are_reported_at_once() -> None:
    found = problems("pools:\n  - name: a\n  - name: a\nworkloads:\n  - {kind: Pod, name: b, replicas: 3}\n")
    assert [error.split(": ")[0] for error in found] == ["s.yaml:3", "s.yaml:5"]


def test_manifests_may_be_in_a_file_beside_the_scenario(tmp_path: Path) -> None:
    one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {since: 2020-01-01}\n"
    (tmp_path / "more.yaml").write_text(f"{one % 'a'}---\n{one % 'b'}---\n")
    (tmp_path / "s.yaml").write_text(POOL + "manifests: [{file: more.yaml}]")
    loaded = load(str(tmp_path / "s.yaml"))
    found = loaded.objects(loaded.scenario.manifests[0])
    assert [(item["metadata"]["name"], item["data"]) for item in found] == [
        ("a", {"since": "2020-01-01"}),
        ("b", {"since": "2020-01-01"}),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", "expected YAML in more.yaml: "),
        ("- 1", "object 1 of more.yaml: expected an object, with apiVersion, kind and metadata"),
        ("kind: Pod", "object 1 of more.yaml: expected an object, found none: it lacks apiVersion, metadata.name"),
    ],
)
def test_a_file_without_manifests_is_reported(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "more.yaml").write_text(content)
    found = problems(POOL + "manifests: [{file: more.yaml}]", folder=tmp_path)
    assert found[0].startswith(f"s.yaml:2: manifests[0].file: {said}")


def test_a_scenario_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no scenario 'trubble', .* did you mean trouble\?; there are big, default"):
        load("trubble")
    with pytest.raises(UsageError, match="there is no scenario"):
        load(str(tmp_path))


# What is written about them


def test_the_page_names_every_key() -> None:
    documented = set(re.findall(r"`([A-Za-z]+)`", PAGE.read_text()))
    assert {
        key for shape in _struct_types(model.Scenario) for key in shape.__struct_encode_fields__
    } - documented == set()


def _struct_types(struct: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    struct_types: set[type[msgspec.Struct]] = set()

    def collect(type_: Any) -> None:
        if isinstance(type_, msgspec.inspect.StructType) and type_.cls not in struct_types:
            struct_types.add(type_.cls)
            for field in type_.fields:
                collect(field.type)
        for argument in ("types", "item_type", "type", "value_type"):
            item = getattr(type_, argument, ())
            for one in item if isinstance(item, tuple) else (item,):
                collect(one) if isinstance(one, msgspec.inspect.Type) else None

    collect(msgspec.inspect.type_info(struct))
    return struct_types


def test_every_example_of_the_page_is_a_scenario() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    loaded = [parse(text.encode(), file=PAGE.name, name="example") for text in examples]
    assert len(loaded) >= 5
    assert all(isinstance(item, LoadedScenario) for item in loaded)


def test_the_page_names_every_scenario_that_comes_with_haulout() -> None:
    assert builtin_names() == ["big", "default", "esx", "hub", "openshift", "rolling", "trouble"]
    assert all(f"| `{name}` |" in PAGE.read_text() for name in builtin_names())
