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
from haulout.sandbox.cluster import CLIENTS, COMPONENTS
from haulout.sandbox.scenarios.model import (
    AddNodes,
    Budget,
    Clients,
    Happening,
    Manifest,
    NodeChoice,
    OnNodes,
    Pause,
    Resume,
    Scenario,
)

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
    folder = resources.files("haulout.sandbox.scenarios")
    return sorted(it.name.removesuffix(_SUFFIX) for it in folder.iterdir() if it.name.endswith(_SUFFIX))


def load(name: str) -> Loaded:
    """Return the scenario of this name, or in this file."""
    if name in builtin_names():
        data = resources.files("haulout.sandbox.scenarios").joinpath(f"{name}{_SUFFIX}").read_bytes()
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


def _about_workloads(read: Shaped[Scenario]) -> Problems:
    seen: set[tuple[str, str, str]] = set()
    for at, workload in enumerate(read.value.workloads):
        here = f"workloads[{at}]"
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
    if isinstance(action, OnNodes) and isinstance(action.nodes, NodeChoice) and action.nodes.pool:
        yield from _known(read, f"{here}.nodes.pool", action.nodes.pool, pools, "pool")
    if isinstance(action, Pause | Resume):
        for at, name in enumerate(action.components):
            yield from _known(read, f"{here}.components[{at}]", name, COMPONENTS, "component")
    if isinstance(action, Clients):
        for at, name in enumerate(action.clients):
            yield from _known(read, f"{here}.clients[{at}]", name, CLIENTS, "client")


def _known(read: Shaped[Scenario], key: str, name: str, known: Sequence[str], what: str) -> Problems:
    if name not in known:
        yield read.wrong(key, f"there is no {what} {name}{meant(name, known)}; there are {', '.join(known)}")


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
