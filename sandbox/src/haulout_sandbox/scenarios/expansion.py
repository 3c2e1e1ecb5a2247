"""Expansion of a scenario into machines and objects: pure, so that a scenario always has the same result.

`resize` applies --nodes, --zones and --pods-per-node. Workloads with a `share` fill the cluster: the pods that other
workloads leave are divided among them by share, and each is copied as often as its part allows, at least once.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from msgspec.structs import replace

from haulout.api.objects import RawObject
from haulout.api.objects import Taint as NodeTaint
from haulout_sandbox.nodes import Machine
from haulout_sandbox.nodes.informers import ANNOTATION_PREFIX
from haulout_sandbox.nodes.scheduler.framework import ZONE_LABEL
from haulout_sandbox.scenarios.model import Pool, Scenario, Workload

POOL_LABEL = f"{ANNOTATION_PREFIX}pool"
_HOSTNAME = "kubernetes.io/hostname"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MIN_DIGITS = 2
_PROVIDER_ID_PATTERN = "sandbox://{zone}/{name}"


def resize(
    scenario: Scenario, *, nodes: int | None = None, zones: int | None = None, pods_per_node: int | None = None
) -> Scenario:
    """Return the scenario with this number of nodes and zones, and about this number of pods per node."""
    pools = scenario.pools
    if nodes is not None:
        fixed_counts = [pool.count if is_control_plane(pool) else 0 for pool in pools]
        fixed_counts = (
            fixed_counts if sum(fixed_counts) < nodes else [0] * len(pools)
        )  # so few nodes leave none for another pool
        counts = _divide_proportionally(
            nodes - sum(fixed_counts),
            [0 if fixed else pool.count for pool, fixed in zip(pools, fixed_counts, strict=True)],
        )
        pools = tuple(
            replace(pool, count=fixed + count) for pool, fixed, count in zip(pools, fixed_counts, counts, strict=True)
        )
    if zones is not None:
        names = tuple(f"zone-{suffix}" for suffix in _LETTERS[:zones])
        pools = tuple(replace(pool, zones=names[:1] if is_control_plane(pool) else names) for pool in pools)
    return replace(scenario, pools=pools, pods_per_node=pods_per_node or scenario.pods_per_node)


def _divide_proportionally(total: int, weights: Sequence[int]) -> list[int]:
    """Divide an integer in proportion to weights; each part differs by less than one from the exact share."""
    total_weight = sum(weights) or len(weights)
    shares = [total * (weight if sum(weights) else 1) / total_weight for weight in weights]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(weights)), key=lambda index: counts[index] - shares[index])
    for index in by_remainder[: total - sum(counts)]:
        counts[index] += 1
    return counts


def is_control_plane(pool: Pool) -> bool:
    """Return whether a pool is the control plane, which `resize` does not change."""
    return pool.machines == "ControlPlaneMachineSet"


# Machines


def new_machines(scenario: Scenario) -> list[Machine]:
    return [
        new_machine(pool, number, machines_before=count_before)
        for pool, count_before in zip(scenario.pools, machines_before(scenario.pools), strict=True)
        for number in range(1, pool.count + 1)
    ]


def machines_before(pools: Sequence[Pool]) -> list[int]:
    """Return the number of machines in the pools before each pool, at which its zones continue."""
    return [sum(pool.count for pool in pools[:index]) for index in range(len(pools))]


def new_machine(pool: Pool, number: int, *, machines_before: int, zone: str = "") -> Machine:
    """Return a machine by its number in the pool, counted from 1.

    Without `zone`, zones are assigned in turn, continuing after `machines_before` other machines.
    """
    digits = max(_MIN_DIGITS, len(str(pool.count)))
    pattern = pool.provider_id or _PROVIDER_ID_PATTERN
    name, zone = f"{pool.name}-{number:0{digits}}", zone or pool.zones[(machines_before + number - 1) % len(pool.zones)]
    return Machine(
        name=name,
        zone=zone,
        region=pool.region,
        cpu=pool.cpu,
        memory=pool.memory,
        pods=pool.pods,
        instance_type=pool.instance_type,
        provider_id=pattern.format(name=name, pool=pool.name, number=number, zone=zone, region=pool.region),
        labels={POOL_LABEL: pool.name, **pool.labels},
        annotations=pool.annotations,
        taints=tuple(NodeTaint(key=taint.key, value=taint.value, effect=taint.effect) for taint in pool.taints),
    )


# Objects


def workload_objects(scenario: Scenario) -> list[RawObject]:
    """Return the objects of all workloads in order of creation."""
    copies = [copy for workload in expand_workloads(scenario) for copy in workload]
    priorities = sorted({workload_copy.priority for workload_copy in copies if workload_copy.priority is not None})
    return [
        *(_priority_class(value) for value in priorities),
        *(_workload_object(workload_copy) for workload_copy in copies),
        *(_pdb(workload_copy) for workload_copy in copies if workload_copy.budget is not None),
    ]


def expand_workloads(scenario: Scenario) -> list[list[Workload]]:
    nodes = sum(pool.count for pool in scenario.pools)
    fixed = sum(
        _pods_per_copy(element, nodes) * (element.copies or 1)
        for element in scenario.workloads
        if element.share is None
    )
    free_pods = max(nodes * scenario.pods_per_node - fixed, 0)
    shares = sum(element.share or 0 for element in scenario.workloads) or 1
    return [list(_workload_copies(workload, pods_per_share=free_pods / shares)) for workload in scenario.workloads]


def _workload_copies(workload: Workload, *, pods_per_share: float) -> Iterator[Workload]:
    if workload.share is None and workload.copies is None:
        yield workload
        return
    copies = round(pods_per_share * (workload.share or 0) / max(workload.replicas, 1))
    for number in range(1, (workload.copies or max(copies, 1)) + 1):
        yield replace(workload, name=f"{workload.name}-{number}", copies=None, share=None)


def _pods_per_copy(workload: Workload, nodes: int) -> int:
    return nodes if workload.kind == "DaemonSet" else workload.replicas


def _workload_object(workload: Workload) -> RawObject:
    metadata = {"name": workload.name, "namespace": workload.namespace, "labels": _workload_labels(workload)}
    if workload.kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", **_pod_body(workload, restart="Always", metadata=metadata)}
    spec: RawObject = {"selector": {"matchLabels": {"app": workload.name}}}
    match workload.kind:
        case "Job":
            spec = {"completions": workload.replicas, "parallelism": workload.replicas}
        case "StatefulSet":
            spec |= {"replicas": workload.replicas, "serviceName": workload.name}
        case "Deployment":
            spec["replicas"] = workload.replicas
    version = "batch/v1" if workload.kind == "Job" else "apps/v1"
    restart = "Never" if workload.kind == "Job" else "Always"
    template = _pod_body(workload, restart=restart, metadata={"labels": _workload_labels(workload)})
    return {"apiVersion": version, "kind": workload.kind, "metadata": metadata, "spec": {**spec, "template": template}}


def _workload_labels(workload: Workload) -> RawObject:
    return {"app": workload.name, **workload.labels}


def _pod_body(workload: Workload, *, restart: str, metadata: RawObject) -> RawObject:
    requests = {"cpu": workload.cpu, "memory": workload.memory}
    container = {"name": "main", "image": f"sandbox/{workload.name}:1", "resources": {"requests": requests}}
    spec: RawObject = {
        "containers": [container],
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": round(workload.grace.total_seconds()),
    }
    if workload.node_selector:
        spec["nodeSelector"] = workload.node_selector
    if workload.tolerate_all:
        spec["tolerations"] = [{"operator": "Exists"}]
    if workload.priority is not None:
        spec |= {"priorityClassName": _priority_name(workload.priority), "priority": workload.priority}
    annotations = _behavior_annotations(workload)
    return {
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "spec": spec | _spread_fields(workload),
    }


def _behavior_annotations(workload: Workload) -> dict[str, str]:
    """Return the annotations that control the simulated pods."""
    durations: dict[str, timedelta | None] = {
        "start-seconds": workload.start,
        "ready-seconds": workload.ready,
        "run-seconds": workload.runs,
        "stop-seconds": workload.stop,
    }
    values = {name: f"{duration.total_seconds():g}" for name, duration in durations.items() if duration is not None}
    values |= {"exit-code": str(workload.exit_code)} if workload.exit_code else {}
    values |= {"hang": "true"} if workload.hang else {}
    return {f"{ANNOTATION_PREFIX}{name}": value for name, value in values.items()}


def _spread_fields(workload: Workload) -> RawObject:
    selector = {"matchLabels": {"app": workload.name}}
    if workload.spread == "zone":
        spread = {
            "maxSkew": 1,
            "topologyKey": ZONE_LABEL,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
        return {"topologySpreadConstraints": [spread]}
    if workload.spread == "node":
        term = {"topologyKey": _HOSTNAME, "labelSelector": selector}
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    return {}


def _priority_class(value: int) -> RawObject:
    metadata = {"name": _priority_name(value)}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}


def _priority_name(value: int) -> str:
    return f"priority-{value}" if value >= 0 else f"priority-minus-{-value}"


def _pdb(workload: Workload) -> RawObject:
    budget = workload.budget
    policy = budget.unhealthy_pod_eviction_policy if budget else None
    bounds = {"minAvailable": budget.min_available, "maxUnavailable": budget.max_unavailable} if budget else {}
    spec = {
        **{name: int(share) if share.isdigit() else share for name, share in bounds.items() if share is not None},
        "selector": {"matchLabels": {"app": workload.name}},
        **({"unhealthyPodEvictionPolicy": policy} if policy else {}),
    }
    metadata = {"name": workload.name, "namespace": workload.namespace, "labels": _workload_labels(workload)}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
