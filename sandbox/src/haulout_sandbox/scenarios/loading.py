"""Finds scenarios and reads them: those that come with Haulout by their name, all others from a file.

What can be known to be wrong without a cluster is found here, all of it at once, with file, line and key. What only an
API server can tell (a manifest that it does not accept) is found when the scenario begins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from haulout.core import marked, shaped
from haulout.core.shaped import Shaped, meant
from haulout.errors import ConfigError, ConfigErrors, UsageError
from haulout_sandbox.cluster import CLIENTS, COMPONENTS
from haulout_sandbox.scenarios.model import (
    AddNodes,
    Announce,
    Announced,
    Budget,
    Clients,
    EsxAlarm,
    EsxMaintenance,
    Happening,
    MachineChoice,
    Manifest,
    NodeChoice,
    OfCluster,
    OnAws,
    OnNodes,
    Pause,
    Resume,
    RollOut,
    Scenario,
    Workload,
)
from haulout_sandbox.scenarios.providers import KINDS, TITLES

TIMES = ("at", "every", "until")
ACTIONS = tuple(name for name in Happening.__struct_fields__ if name not in TIMES)
_SUFFIX = ".yaml"
_KEYS = dict(zip(Happening.__struct_fields__, Happening.__struct_encode_fields__, strict=True))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A scenario that makes sense, as far as that can be known, with the manifests of its files."""

    name: str
    file: str
    scenario: Scenario
    files: dict[str, tuple[Manifest, ...]]  # by the name that the scenario has for them

    def of(self, scenario: Scenario) -> "Loaded":
        """Return the same with another scenario: a reshaped one."""
        return replace(self, scenario=scenario)

    def objects(self, manifest: Manifest) -> tuple[Manifest, ...]:
        """Return the objects that a manifest stands for: itself, or those of its file."""
        return self.files[manifest["file"]] if _is_file(manifest) else (manifest,)


def builtin_names() -> list[str]:
    """Return the names of the scenarios that come with Haulout."""
    folder = resources.files("haulout_sandbox.scenarios")
    return sorted(it.name.removesuffix(_SUFFIX) for it in folder.iterdir() if it.name.endswith(_SUFFIX))


def load(name: str) -> Loaded:
    """Return the scenario of this name, or in this file."""
    if name in builtin_names():
        data = resources.files("haulout_sandbox.scenarios").joinpath(f"{name}{_SUFFIX}").read_bytes()
        return parse(data, file=f"scenario {name}", name=name)
    path = Path(name)
    if not path.is_file():
        known = builtin_names()
        raise UsageError(
            f"there is no scenario {name!r}, nor a file of that name{meant(name, known)}; there are {', '.join(known)}"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the scenario {name}: {error.strerror}") from None
    return parse(data, file=name, name=path.stem, folder=path.parent)


def parse(data: bytes, *, file: str, name: str, folder: Path | None = None) -> Loaded:
    """Return the scenario that `data` holds; files that it names are in `folder`."""
    read = shaped.read(data, Scenario, file=file)
    files: dict[str, tuple[Manifest, ...]] = {}
    problems = [
        *_about_pools(read),
        *_about_workloads(read),
        *_about_clusters(read),
        *_about_timeline(read),
        *_about_manifests(read, folder, files),
    ]
    if problems:
        raise ConfigErrors(problems)
    return Loaded(name, file, read.value, files)


def action_of(happening: Happening) -> tuple[str, Any]:
    """Return what happens, by the name that the file has for it."""
    name = next(name for name in ACTIONS if getattr(happening, name) is not None)
    return _KEYS[name], getattr(happening, name)


Problems = Iterator[ConfigError]


def _about_pools(read: Shaped[Scenario]) -> Problems:
    pools = read.value.pools
    if not pools:
        yield read.wrong("pools", "expected at least one pool of machines, found none")
    names = [pool.name for pool in pools]
    for at, pool in enumerate(pools):
        if pool.name in names[:at]:
            yield read.wrong(f"pools[{at}].name", f"expected a name of its own, found {pool.name} twice")
        if not pool.zones:
            yield read.wrong(f"pools[{at}].zones", "expected at least one zone, found none")
        if pool.cloud and pool.provider_id is not None:
            yield read.wrong(
                f"pools[{at}].providerID", "expected none beside cloud, which gives its machines their own"
            )
        if pool.machines:
            yield from _about_machines(read, at)
        if pool.esx_hosts and (pool.cloud or pool.machines):
            yield read.wrong(f"pools[{at}].esxHosts", "expected none beside cloud or machines, which are elsewhere")


def _about_machines(read: Shaped[Scenario], at: int) -> Problems:
    pool, here = read.value.pools[at], f"pools[{at}]"
    if pool.cloud != "aws":
        found = f"cloud: {pool.cloud}" if pool.cloud else "no cloud"
        yield read.wrong(f"{here}.machines", f"expected cloud: aws beside it, which has the instances; found {found}")
    if pool.machines != "ControlPlaneMachineSet":
        return
    if any(it.machines == pool.machines for it in read.value.pools[:at]):
        yield read.wrong(f"{here}.machines", "expected one pool of this kind: a cluster has one ControlPlaneMachineSet")
    if len(pool.zones) > 1:
        yield read.wrong(f"{here}.zones", "expected one zone: that of the ControlPlaneMachineSet")


def _about_clusters(read: Shaped[Scenario]) -> Problems:
    keys = [cluster.key for cluster in read.value.clusters]
    deployments: dict[tuple[str, str], str] = {}  # by namespace and name: of which cluster
    for at, cluster in enumerate(read.value.clusters):
        here = f"clusters[{at}]"
        if cluster.key in keys[:at]:
            yield read.wrong(f"{here}.name", f"expected a name of its own, found {cluster.key} twice")
        if not cluster.pools:
            yield read.wrong(f"{here}.pools", "expected at least one pool of machines, found none")
        names = [pool.name for pool in cluster.pools]
        for number, pool in enumerate(cluster.pools):
            there = f"{here}.pools[{number}]"
            if pool.name in names[:number]:
                yield read.wrong(f"{there}.name", f"expected a name of its own, found {pool.name} twice")
            other = deployments.setdefault((cluster.namespace, pool.name), cluster.key)
            if other != cluster.key:
                whose = f"that MachineDeployment is {other}'s"
                yield read.wrong(f"{there}.name", f"expected another name than {pool.name}: {whose}")
            if not pool.zones:
                yield read.wrong(f"{there}.zones", "expected at least one zone, found none")
            for key, value in (("cloud", pool.cloud), ("machines", pool.machines), ("providerID", pool.provider_id)):
                if value is not None:
                    why = "its machines are those of Cluster API"
                    yield read.wrong(f"{there}.{key}", f"expected none in a workload cluster: {why}")
        yield from _about_workloads(read, cluster.workloads, f"{here}.")


def _about_workloads(read: Shaped[Scenario], workloads: Sequence[Workload] | None = None, within: str = "") -> Problems:
    seen: set[tuple[str, str, str]] = set()
    for at, workload in enumerate(read.value.workloads if workloads is None else workloads):
        here = f"{within}workloads[{at}]"
        identity = workload.kind, workload.namespace, workload.name
        if identity in seen:
            yield read.wrong(f"{here}.name", f"expected a name of its own, found a second {workload.kind} of this name")
        seen.add(identity)
        if workload.copies is not None and workload.share is not None:
            yield read.wrong(f"{here}.share", "expected either copies or a share, found both")
        if workload.kind == "DaemonSet" and (workload.copies or workload.share is not None or workload.replicas != 1):
            yield read.wrong(here, "expected neither replicas, copies nor share: a DaemonSet has a pod on each node")
        if workload.kind == "Pod" and workload.replicas != 1:
            yield read.wrong(f"{here}.replicas", "expected copies instead: a Pod is one pod")
        if workload.budget is not None and not _is_whole(workload.budget):
            found = "both" if workload.budget.min_available is not None else "neither"
            yield read.wrong(f"{here}.budget", f"expected either minAvailable or maxUnavailable, found {found}")


def _is_whole(budget: Budget) -> bool:
    return (budget.min_available is None) != (budget.max_unavailable is None)


def _about_timeline(read: Shaped[Scenario]) -> Problems:
    for at, happening in enumerate(read.value.timeline):
        here = f"timeline[{at}]"
        if happening.at is None and happening.every is None:
            yield read.wrong(here, "expected when it happens: at, every, or both; found neither")
        if happening.every is not None and not happening.every:
            yield read.wrong(f"{here}.every", "expected a duration above 0, found 0")
        if happening.until is not None and happening.every is None:
            yield read.wrong(f"{here}.until", "expected every beside it: what happens once has no end")
        told = [_KEYS[name] for name in ACTIONS if getattr(happening, name) is not None]
        if len(told) != 1:
            found = f"found {' and '.join(told)}" if told else "found none"
            yield read.wrong(here, f"expected one thing that happens, such as reboot or scale, {found}")
        for name in told:
            yield from _about_action(read, getattr(happening, _field(name)), f"{here}.{name}")


def _about_action(read: Shaped[Scenario], action: Any, here: str) -> Problems:
    pools = [pool.name for pool in read.value.pools]
    if isinstance(action, AddNodes):
        yield from _known(read, f"{here}.pool", action.pool, pools, "pool")
        if any(it.machines for it in read.value.pools if it.name == action.pool):
            yield read.wrong(
                f"{here}.pool", "expected a pool without machines: patch replicas of its MachineSet instead"
            )
    if isinstance(action, OnNodes) and isinstance(action.nodes, NodeChoice) and action.nodes.pool:
        yield from _known(read, f"{here}.nodes.pool", action.nodes.pool, pools, "pool")
    yield from _about_clouds(read, action, here)
    if isinstance(action, Announced):
        names = [it.announce.name for it in read.value.timeline if it.announce is not None and it.announce.name]
        yield from _known(read, f"{here}.name", action.name, names, "announcement")
    if isinstance(action, OfCluster):
        yield from _about_cluster(read, action, here)
    if isinstance(action, Pause | Resume):
        yield from _all_known(read, f"{here}.components", action.components, COMPONENTS, "component")
    if isinstance(action, Clients):
        yield from _all_known(read, f"{here}.clients", action.clients, CLIENTS, "client")


def _about_cluster(read: Shaped[Scenario], action: OfCluster, here: str) -> Problems:
    clusters = {it.key: it for it in read.value.clusters}
    yield from _known(read, f"{here}.cluster", action.cluster, list(clusters), "workload cluster")
    if isinstance(action, RollOut | MachineChoice) and action.pool and action.cluster in clusters:
        names = [it.name for it in clusters[action.cluster].pools]
        yield from _known(read, f"{here}.pool", action.pool, names, "pool")


def _about_clouds(read: Shaped[Scenario], action: Any, here: str) -> Problems:
    """Tell if none of the nodes that are meant can be of a cloud that does this."""
    if isinstance(action, EsxMaintenance | EsxAlarm) and not any(it.esx_hosts for it in read.value.pools):
        yield read.wrong(f"{here}.host", "expected a pool with esxHosts, found none")
    if isinstance(action, Announce | OnAws):
        yield from _about_provider(read, action, here)


def _about_provider(read: Shaped[Scenario], action: Announce | OnAws, here: str) -> Problems:
    pool = action.nodes.pool if isinstance(action.nodes, NodeChoice) else None
    pools = [it for it in read.value.pools if pool in (None, it.name)]
    able = [it for it, kinds in KINDS.items() if not isinstance(action, Announce) or action.kind in kinds]
    able = ["aws"] if isinstance(action, OnAws) else able
    if not pools or any(it.cloud in able for it in pools):
        return
    clouds = sorted({it.cloud for it in pools if it.cloud})
    if isinstance(action, Announce) and clouds:
        kinds = sorted({kind for cloud in clouds for kind in KINDS[cloud]})
        titles = " and ".join(TITLES[it] for it in clouds)
        yield read.wrong(f"{here}.kind", f"expected what {titles} does: {', '.join(kinds)}; found {action.kind}")
        return
    wanted = " or ".join(f"cloud: {it}" for it in able)
    found = f"{pool} without it" if pool else "no such pool"
    yield read.wrong(f"{here}.nodes{'.pool' if pool else ''}", f"expected a pool with {wanted}, found {found}")


def _all_known(read: Shaped[Scenario], key: str, names: Sequence[str], known: Sequence[str], what: str) -> Problems:
    for at, name in enumerate(names):
        yield from _known(read, f"{key}[{at}]", name, known, what)


def _known(read: Shaped[Scenario], key: str, name: str, known: Sequence[str], what: str) -> Problems:
    if name not in known:
        there = f"there are {', '.join(known)}" if known else "there is none at all"
        yield read.wrong(key, f"there is no {what} {name}{meant(name, known)}; {there}")


def _about_manifests(read: Shaped[Scenario], folder: Path | None, files: dict[str, tuple[Manifest, ...]]) -> Problems:
    applied = {f"timeline[{at}].apply": it.apply for at, it in enumerate(read.value.timeline) if it.apply is not None}
    given = {f"manifests[{at}]": it for at, it in enumerate(read.value.manifests)}
    for key, manifest in {**given, **applied}.items():
        if not _is_file(manifest):
            if problem := _object_problem(manifest):
                yield read.wrong(key, problem)
            continue
        name = str(manifest["file"])
        try:
            files[name] = _objects_in(Path(folder or ".", name))
        except OSError as error:
            yield read.wrong(f"{key}.file", f"cannot read {name}: {error.strerror}")
        except yaml.YAMLError as error:
            yield read.wrong(f"{key}.file", f"expected YAML in {name}: {' '.join(str(error).split())}")
        else:
            for at, each in enumerate(files[name], start=1):
                if problem := _object_problem(each):
                    yield read.wrong(f"{key}.file", f"object {at} of {name}: {problem}")


def _is_file(manifest: Manifest) -> bool:
    return set(manifest) == {"file"}


def _objects_in(path: Path) -> tuple[Manifest, ...]:
    return tuple(each for each in yaml.load_all(path.read_bytes(), Loader=marked.JsonLoader) if each is not None)


def _object_problem(manifest: Any) -> str:
    if not isinstance(manifest, dict):
        return "expected an object, with apiVersion, kind and metadata"
    lacking = [key for key in ("apiVersion", "kind") if not isinstance(manifest.get(key), str)]
    meta = manifest.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        lacking.append("metadata.name")
    return f"expected an object, found none: it lacks {', '.join(lacking)}" if lacking else ""


def _field(key: str) -> str:
    return next(name for name, encoded in _KEYS.items() if encoded == key)
