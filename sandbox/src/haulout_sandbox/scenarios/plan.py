"""What a scenario comes to: machines and objects. Pure, so the same scenario always comes to the same.

`reshaped` is what --nodes, --zones and --pods-per-node do. Workloads with a `share` fill the cluster: what others
leave of the pods that there are to be is divided among them, and each is made as often as its part allows, at least
once.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from msgspec.structs import replace

from haulout.kube.objects import RawObject
from haulout.kube.objects import Taint as NodeTaint
from haulout_sandbox.nodes import Machine
from haulout_sandbox.nodes.placement import ZONE
from haulout_sandbox.nodes.view import ANNOTATION
from haulout_sandbox.scenarios.model import Pool, Scenario, Workload

POOL = f"{ANNOTATION}pool"
_HOSTNAME = "kubernetes.io/hostname"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FEWEST_DIGITS = 2
_PROVIDER_ID = "sandbox://{zone}/{name}"


def reshaped(
    scenario: Scenario, *, nodes: int | None = None, zones: int | None = None, pods_per_node: int | None = None
) -> Scenario:
    """Return the scenario with so many nodes in all, in so many zones, with about so many pods on each."""
    pools = scenario.pools
    if nodes is not None:
        kept = [pool.count if is_control_plane(pool) else 0 for pool in pools]
        kept = kept if sum(kept) < nodes else [0] * len(pools)  # of so few nodes there is not even that left
        counts = _divided(
            nodes - sum(kept), [0 if keep else pool.count for pool, keep in zip(pools, kept, strict=True)]
        )
        pools = tuple(replace(pool, count=keep + count) for pool, keep, count in zip(pools, kept, counts, strict=True))
    if zones is not None:
        names = tuple(f"zone-{letter}" for letter in _LETTERS[:zones])
        pools = tuple(replace(pool, zones=names[:1] if is_control_plane(pool) else names) for pool in pools)
    return replace(scenario, pools=pools, pods_per_node=pods_per_node or scenario.pods_per_node)


def _divided(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a whole number in proportion to weights: nobody gets more than one less or more than is due."""
    heavy = sum(weights) or len(weights)
    shares = [total * (weight if sum(weights) else 1) / heavy for weight in weights]
    counts = [int(share) for share in shares]
    by_rest = sorted(range(len(weights)), key=lambda at: counts[at] - shares[at])
    for at in by_rest[: total - sum(counts)]:
        counts[at] += 1
    return counts


def is_control_plane(pool: Pool) -> bool:
    """Tell whether a pool is the control plane, which neither grows nor spreads with a cluster of another shape."""
    return pool.machines == "ControlPlaneMachineSet"


# Machines


def machines(scenario: Scenario) -> list[Machine]:
    """Return the machines of all pools."""
    return [
        machine(pool, number, before=before)
        for pool, before in zip(scenario.pools, counts_before(scenario.pools), strict=True)
        for number in range(1, pool.count + 1)
    ]


def counts_before(pools: Sequence[Pool]) -> list[int]:
    """Return, for each pool, how many machines there are in those before it: its zones go on from theirs."""
    return [sum(pool.count for pool in pools[:at]) for at in range(len(pools))]


def machine(pool: Pool, number: int, *, before: int, zone: str = "") -> Machine:
    """Return the machine with this number in its pool, counted from 1, `before` which there are others.

    Without a `zone` that is said for it, it has the one whose turn it is.
    """
    digits = max(_FEWEST_DIGITS, len(str(pool.count)))
    pattern = pool.provider_id or _PROVIDER_ID
    name, zone = f"{pool.name}-{number:0{digits}}", zone or pool.zones[(before + number - 1) % len(pool.zones)]
    return Machine(
        name=name,
        zone=zone,
        region=pool.region,
        cpu=pool.cpu,
        memory=pool.memory,
        pods=pool.pods,
        instance_type=pool.instance_type,
        provider_id=pattern.format(name=name, pool=pool.name, number=number, zone=zone, region=pool.region),
        labels={POOL: pool.name, **pool.labels},
        annotations=pool.annotations,
        taints=tuple(NodeTaint(key=it.key, value=it.value, effect=it.effect) for it in pool.taints),
    )


# Objects


def objects(scenario: Scenario) -> list[RawObject]:
    """Return the objects that the workloads come to, in the order in which they are to be created."""
    workloads = [each for workload in expanded(scenario) for each in workload]
    priorities = sorted({it.priority for it in workloads if it.priority is not None})
    return [
        *(_priority_class(value) for value in priorities),
        *(_object(it) for it in workloads),
        *(_budget(it) for it in workloads if it.budget is not None),
    ]


def expanded(scenario: Scenario) -> list[list[Workload]]:
    """Return, for each workload, the copies of it that there are."""
    nodes = sum(pool.count for pool in scenario.pools)
    fixed = sum(_pods(it, nodes) * (it.copies or 1) for it in scenario.workloads if it.share is None)
    room = max(nodes * scenario.pods_per_node - fixed, 0)
    shares = sum(it.share or 0 for it in scenario.workloads) or 1
    return [list(_copies(workload, room=room / shares)) for workload in scenario.workloads]


def _copies(workload: Workload, *, room: float) -> Iterator[Workload]:
    if workload.share is None and workload.copies is None:
        yield workload
        return
    filling = round(room * (workload.share or 0) / max(workload.replicas, 1))
    for number in range(1, (workload.copies or max(filling, 1)) + 1):
        yield replace(workload, name=f"{workload.name}-{number}", copies=None, share=None)


def _pods(workload: Workload, nodes: int) -> int:
    return nodes if workload.kind == "DaemonSet" else workload.replicas


def _object(workload: Workload) -> RawObject:
    meta = {"name": workload.name, "namespace": workload.namespace, "labels": _labels(workload)}
    if workload.kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", **_pod(workload, restart="Always", metadata=meta)}
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
    template = _pod(workload, restart=restart, metadata={"labels": _labels(workload)})
    return {"apiVersion": version, "kind": workload.kind, "metadata": meta, "spec": {**spec, "template": template}}


def _labels(workload: Workload) -> RawObject:
    return {"app": workload.name, **workload.labels}


def _pod(workload: Workload, *, restart: str, metadata: RawObject) -> RawObject:
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
    annotations = _annotations(workload)
    return {
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "spec": spec | _spread(workload),
    }


def _annotations(workload: Workload) -> dict[str, str]:
    """Return how the pods behave, as the kubelets read it."""
    lengths: dict[str, timedelta | None] = {
        "start-seconds": workload.start,
        "ready-seconds": workload.ready,
        "run-seconds": workload.runs,
        "stop-seconds": workload.stop,
    }
    told = {name: f"{length.total_seconds():g}" for name, length in lengths.items() if length is not None}
    told |= {"exit-code": str(workload.exit_code)} if workload.exit_code else {}
    told |= {"hang": "true"} if workload.hang else {}
    return {f"{ANNOTATION}{name}": value for name, value in told.items()}


def _spread(workload: Workload) -> RawObject:
    selector = {"matchLabels": {"app": workload.name}}
    if workload.spread == "zone":
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        return {"topologySpreadConstraints": [spread]}
    if workload.spread == "node":
        term = {"topologyKey": _HOSTNAME, "labelSelector": selector}
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    return {}


def _priority_class(value: int) -> RawObject:
    meta = {"name": _priority_name(value)}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": value}


def _priority_name(value: int) -> str:
    return f"priority-{value}" if value >= 0 else f"priority-minus-{-value}"


def _budget(workload: Workload) -> RawObject:
    budget = workload.budget
    policy = budget.unhealthy_pod_eviction_policy if budget else None
    bounds = {"minAvailable": budget.min_available, "maxUnavailable": budget.max_unavailable} if budget else {}
    spec = {
        **{name: int(share) if share.isdigit() else share for name, share in bounds.items() if share is not None},
        "selector": {"matchLabels": {"app": workload.name}},
        **({"unhealthyPodEvictionPolicy": policy} if policy else {}),
    }
    meta = {"name": workload.name, "namespace": workload.namespace, "labels": _labels(workload)}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
