"""Loads scenarios: built-in ones by name, others from a file.

All errors that can be found without a cluster are reported together, with file, line and key. Errors that only an API
server can find (a manifest that it refuses) are reported when the scenario is deployed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from haulout.core import yaml_decoder, yaml_nodes
from haulout.core.yaml_decoder import DecodedFile, did_you_mean
from haulout.errors import ConfigError, ConfigErrors, UsageError
from haulout_sandbox.cluster import CLIENTS, COMPONENTS
from haulout_sandbox.scenarios.cloud_providers import SUPPORTED_KINDS, TITLES
from haulout_sandbox.scenarios.model import (
    AddNodes,
    Announce,
    AnnouncementReference,
    AwsAction,
    Budget,
    ClientFault,
    EsxAlarm,
    EsxMaintenance,
    MachineSelector,
    Manifest,
    NodeAction,
    NodeSelector,
    Pause,
    Pool,
    Resume,
    RollOut,
    Scenario,
    TimelineEntry,
    Workload,
    WorkloadClusterAction,
)

TIME_FIELDS = ("at", "every", "until")
ACTION_FIELDS = tuple(name for name in TimelineEntry.__struct_fields__ if name not in TIME_FIELDS)
_SUFFIX = ".yaml"
_KEYS = dict(zip(TimelineEntry.__struct_fields__, TimelineEntry.__struct_encode_fields__, strict=True))


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A validated scenario, with the manifests of its files."""

    name: str
    file: str
    scenario: Scenario
    files: dict[str, tuple[Manifest, ...]]  # by the file name in the scenario

    def with_scenario(self, scenario: Scenario) -> "LoadedScenario":
        return replace(self, scenario=scenario)

    def objects(self, manifest: Manifest) -> tuple[Manifest, ...]:
        """Return the objects of a manifest: itself, or those of the file that it names."""
        return self.files[manifest["file"]] if _is_file_reference(manifest) else (manifest,)


def builtin_names() -> list[str]:
    folder = resources.files("haulout_sandbox.scenarios")
    return sorted(file.name.removesuffix(_SUFFIX) for file in folder.iterdir() if file.name.endswith(_SUFFIX))


def load(name: str) -> LoadedScenario:
    """Return the built-in scenario of this name, or the one in this file."""
    if name in builtin_names():
        data = resources.files("haulout_sandbox.scenarios").joinpath(f"{name}{_SUFFIX}").read_bytes()
        return parse(data, file=f"scenario {name}", name=name)
    path = Path(name)
    if not path.is_file():
        names = builtin_names()
        raise UsageError(
            f"there is no scenario {name!r}, nor a file of that "
            f"name{did_you_mean(name, names)}; there are {', '.join(names)}"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the scenario {name}: {error.strerror}") from None
    return parse(data, file=name, name=path.stem, folder=path.parent)


def parse(data: bytes, *, file: str, name: str, folder: Path | None = None) -> LoadedScenario:
    """Return the scenario in `data`; files that it names are relative to `folder`."""
    decoded = yaml_decoder.decode(data, Scenario, file=file)
    files: dict[str, tuple[Manifest, ...]] = {}
    problems = [
        *_check_pools(decoded),
        *_check_workloads(decoded),
        *_check_clusters(decoded),
        *_check_timeline(decoded),
        *_check_manifests(decoded, folder, files),
    ]
    if problems:
        raise ConfigErrors(problems)
    return LoadedScenario(name, file, decoded.value, files)


def action_of(entry: TimelineEntry) -> tuple[str, Any]:
    """Return the action of a timeline entry and its key in the file."""
    name = next(name for name in ACTION_FIELDS if getattr(entry, name) is not None)
    return _KEYS[name], getattr(entry, name)


ConfigProblems = Iterator[ConfigError]


def _check_pools(decoded: DecodedFile[Scenario]) -> ConfigProblems:
    yield from _check_pool_list(decoded, decoded.value.pools)
    for index, pool in enumerate(decoded.value.pools):
        if pool.cloud and pool.provider_id is not None:
            yield decoded.error_at(
                f"pools[{index}].providerID", "expected none beside cloud, which gives its machines their own"
            )
        if pool.machines:
            yield from _check_pool_machines(decoded, index)
        if pool.esx_hosts and (pool.cloud or pool.machines):
            yield decoded.error_at(
                f"pools[{index}].esxHosts", "expected none beside cloud or machines, which are elsewhere"
            )


def _check_pool_list(decoded: DecodedFile[Scenario], pools: Sequence[Pool], prefix: str = "") -> ConfigProblems:
    if not pools:
        yield decoded.error_at(f"{prefix}pools", "expected at least one pool of machines, found none")
    names = [pool.name for pool in pools]
    for index, pool in enumerate(pools):
        path = f"{prefix}pools[{index}]"
        if pool.name in names[:index]:
            yield decoded.error_at(f"{path}.name", f"expected a name of its own, found {pool.name} twice")
        if not pool.zones:
            yield decoded.error_at(f"{path}.zones", "expected at least one zone, found none")


def _check_pool_machines(decoded: DecodedFile[Scenario], index: int) -> ConfigProblems:
    pool, path = decoded.value.pools[index], f"pools[{index}]"
    if pool.cloud != "aws":
        cloud_text = f"cloud: {pool.cloud}" if pool.cloud else "no cloud"
        yield decoded.error_at(
            f"{path}.machines", f"expected cloud: aws beside it, which has the instances; found {cloud_text}"
        )
    if pool.machines != "ControlPlaneMachineSet":
        return
    if any(other_pool.machines == pool.machines for other_pool in decoded.value.pools[:index]):
        yield decoded.error_at(
            f"{path}.machines", "expected one pool of this kind: a cluster has one ControlPlaneMachineSet"
        )
    if len(pool.zones) > 1:
        yield decoded.error_at(f"{path}.zones", "expected one zone: that of the ControlPlaneMachineSet")


def _check_clusters(decoded: DecodedFile[Scenario]) -> ConfigProblems:
    keys = [cluster.key for cluster in decoded.value.clusters]
    deployments: dict[tuple[str, str], str] = {}  # by namespace and name: the workload cluster of a pool
    for index, cluster in enumerate(decoded.value.clusters):
        path = f"clusters[{index}]"
        if cluster.key in keys[:index]:
            yield decoded.error_at(f"{path}.name", f"expected a name of its own, found {cluster.key} twice")
        yield from _check_pool_list(decoded, cluster.pools, f"{path}.")
        for pool_index, pool in enumerate(cluster.pools):
            pool_path = f"{path}.pools[{pool_index}]"
            owning_cluster = deployments.setdefault((cluster.namespace, pool.name), cluster.key)
            if owning_cluster != cluster.key:
                owner_text = f"that MachineDeployment is {owning_cluster}'s"
                yield decoded.error_at(f"{pool_path}.name", f"expected another name than {pool.name}: {owner_text}")
            for key, value in (("cloud", pool.cloud), ("machines", pool.machines), ("providerID", pool.provider_id)):
                if value is not None:
                    reason = "its machines are those of Cluster API"
                    yield decoded.error_at(f"{pool_path}.{key}", f"expected none in a workload cluster: {reason}")
        yield from _check_workloads(decoded, cluster.workloads, f"{path}.")


def _check_workloads(
    decoded: DecodedFile[Scenario], workloads: Sequence[Workload] | None = None, path_prefix: str = ""
) -> ConfigProblems:
    identities: set[tuple[str, str, str]] = set()
    for index, workload in enumerate(decoded.value.workloads if workloads is None else workloads):
        path = f"{path_prefix}workloads[{index}]"
        identity = workload.kind, workload.namespace, workload.name
        if identity in identities:
            yield decoded.error_at(
                f"{path}.name", f"expected a name of its own, found a second {workload.kind} of this name"
            )
        identities.add(identity)
        if workload.copies is not None and workload.share is not None:
            yield decoded.error_at(f"{path}.share", "expected either copies or a share, found both")
        if workload.kind == "DaemonSet" and (workload.copies or workload.share is not None or workload.replicas != 1):
            yield decoded.error_at(
                path, "expected neither replicas, copies nor share: a DaemonSet has a pod on each node"
            )
        if workload.kind == "Pod" and workload.replicas != 1:
            yield decoded.error_at(f"{path}.replicas", "expected copies instead: a Pod is one pod")
        if workload.budget is not None and not _has_one_bound(workload.budget):
            found_text = "both" if workload.budget.min_available is not None else "neither"
            yield decoded.error_at(
                f"{path}.budget", f"expected either minAvailable or maxUnavailable, found {found_text}"
            )


def _has_one_bound(budget: Budget) -> bool:
    return (budget.min_available is None) != (budget.max_unavailable is None)


def _check_timeline(decoded: DecodedFile[Scenario]) -> ConfigProblems:
    for index, entry in enumerate(decoded.value.timeline):
        path = f"timeline[{index}]"
        if entry.at is None and entry.every is None:
            yield decoded.error_at(path, "expected when it happens: at, every, or both; found neither")
        if entry.every is not None and not entry.every:
            yield decoded.error_at(f"{path}.every", "expected a duration above 0, found 0")
        if entry.until is not None and entry.every is None:
            yield decoded.error_at(f"{path}.until", "expected every beside it: what happens once has no end")
        action_names = [_KEYS[name] for name in ACTION_FIELDS if getattr(entry, name) is not None]
        if len(action_names) != 1:
            found_text = f"found {' and '.join(action_names)}" if action_names else "found none"
            yield decoded.error_at(path, f"expected one thing that happens, such as reboot or scale, {found_text}")
        for name in action_names:
            yield from _check_action(decoded, getattr(entry, _field_name(name)), f"{path}.{name}")


def _check_action(decoded: DecodedFile[Scenario], action: Any, path: str) -> ConfigProblems:
    pools = [pool.name for pool in decoded.value.pools]
    if isinstance(action, AddNodes):
        yield from _check_name(decoded, f"{path}.pool", action.pool, pools, "pool")
        if any(element.machines for element in decoded.value.pools if element.name == action.pool):
            yield decoded.error_at(
                f"{path}.pool", "expected a pool without machines: patch replicas of its MachineSet instead"
            )
    if isinstance(action, NodeAction) and isinstance(action.nodes, NodeSelector) and action.nodes.pool:
        yield from _check_name(decoded, f"{path}.nodes.pool", action.nodes.pool, pools, "pool")
    yield from _check_cloud_action(decoded, action, path)
    if isinstance(action, AnnouncementReference):
        names = [
            element.announce.name
            for element in decoded.value.timeline
            if element.announce is not None and element.announce.name
        ]
        yield from _check_name(decoded, f"{path}.name", action.name, names, "announcement")
    if isinstance(action, WorkloadClusterAction):
        yield from _check_cluster_reference(decoded, action, path)
    if isinstance(action, Pause | Resume):
        yield from _check_names(decoded, f"{path}.components", action.components, COMPONENTS, "component")
    if isinstance(action, ClientFault):
        yield from _check_names(decoded, f"{path}.clients", action.clients, CLIENTS, "client")


def _check_cluster_reference(
    decoded: DecodedFile[Scenario], action: WorkloadClusterAction, path: str
) -> ConfigProblems:
    clusters = {element.key: element for element in decoded.value.clusters}
    yield from _check_name(decoded, f"{path}.cluster", action.cluster, list(clusters), "workload cluster")
    if isinstance(action, RollOut | MachineSelector) and action.pool and action.cluster in clusters:
        names = [element.name for element in clusters[action.cluster].pools]
        yield from _check_name(decoded, f"{path}.pool", action.pool, names, "pool")


def _check_cloud_action(decoded: DecodedFile[Scenario], action: Any, path: str) -> ConfigProblems:
    """Report an error if no selected node can belong to a cloud that supports the action."""
    if isinstance(action, EsxMaintenance | EsxAlarm) and not any(pool.esx_hosts for pool in decoded.value.pools):
        yield decoded.error_at(f"{path}.host", "expected a pool with esxHosts, found none")
    if isinstance(action, Announce | AwsAction):
        yield from _check_provider(decoded, action, path)


def _check_provider(decoded: DecodedFile[Scenario], action: Announce | AwsAction, path: str) -> ConfigProblems:
    pool = action.nodes.pool if isinstance(action.nodes, NodeSelector) else None
    pools = [element for element in decoded.value.pools if pool in (None, element.name)]
    capable = [
        element
        for element, kinds in SUPPORTED_KINDS.items()
        if not isinstance(action, Announce) or action.kind in kinds
    ]
    capable = ["aws"] if isinstance(action, AwsAction) else capable
    if not pools or any(element.cloud in capable for element in pools):
        return
    clouds = sorted({element.cloud for element in pools if element.cloud})
    if isinstance(action, Announce) and clouds:
        kinds = sorted({kind for cloud in clouds for kind in SUPPORTED_KINDS[cloud]})
        titles = " and ".join(TITLES[element] for element in clouds)
        yield decoded.error_at(f"{path}.kind", f"expected what {titles} does: {', '.join(kinds)}; found {action.kind}")
        return
    expected = " or ".join(f"cloud: {element}" for element in capable)
    found_text = f"{pool} without it" if pool else "no such pool"
    yield decoded.error_at(
        f"{path}.nodes{'.pool' if pool else ''}", f"expected a pool with {expected}, found {found_text}"
    )


def _check_names(
    decoded: DecodedFile[Scenario], key: str, names: Sequence[str], known: Sequence[str], noun: str
) -> ConfigProblems:
    for index, name in enumerate(names):
        yield from _check_name(decoded, f"{key}[{index}]", name, known, noun)


def _check_name(decoded: DecodedFile[Scenario], key: str, name: str, known: Sequence[str], noun: str) -> ConfigProblems:
    if name not in known:
        choices = f"there are {', '.join(known)}" if known else "there is none at all"
        yield decoded.error_at(key, f"there is no {noun} {name}{did_you_mean(name, known)}; {choices}")


def _check_manifests(
    decoded: DecodedFile[Scenario], folder: Path | None, files: dict[str, tuple[Manifest, ...]]
) -> ConfigProblems:
    applied = {
        f"timeline[{index}].apply": element.apply
        for index, element in enumerate(decoded.value.timeline)
        if element.apply is not None
    }
    manifests = {f"manifests[{index}]": element for index, element in enumerate(decoded.value.manifests)}
    for key, manifest in {**manifests, **applied}.items():
        if not _is_file_reference(manifest):
            if problem := _object_problem(manifest):
                yield decoded.error_at(key, problem)
            continue
        name = str(manifest["file"])
        try:
            files[name] = _read_objects(Path(folder or ".", name))
        except OSError as error:
            yield decoded.error_at(f"{key}.file", f"cannot read {name}: {error.strerror}")
        except yaml.YAMLError as error:
            yield decoded.error_at(f"{key}.file", f"expected YAML in {name}: {' '.join(str(error).split())}")
        else:
            for index, obj in enumerate(files[name], start=1):
                if problem := _object_problem(obj):
                    yield decoded.error_at(f"{key}.file", f"object {index} of {name}: {problem}")


def _is_file_reference(manifest: Manifest) -> bool:
    return set(manifest) == {"file"}


def _read_objects(path: Path) -> tuple[Manifest, ...]:
    return tuple(obj for obj in yaml.load_all(path.read_bytes(), Loader=yaml_nodes.JsonLoader) if obj is not None)


def _object_problem(manifest: Any) -> str:
    if not isinstance(manifest, dict):
        return "expected an object, with apiVersion, kind and metadata"
    missing = [key for key in ("apiVersion", "kind") if not isinstance(manifest.get(key), str)]
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        missing.append("metadata.name")
    return f"expected an object, found none: it lacks {', '.join(missing)}" if missing else ""


def _field_name(key: str) -> str:
    return next(name for name, encoded in _KEYS.items() if encoded == key)
