"""Profiles in a whole cluster: the operator as a process, by a `maintenance.yaml`.

async with entitled(a_cluster().with_nodes(2)).running() as cluster:
    cluster.run(operating(file, outside=FakeOutside()))
    await attach(cluster, "n1", "flatcar")
    await cluster.eventually(lambda: state(cluster, "n1"), becomes="maintenance-required")
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from haulout.app.configured import Configured
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.kube.client import Client
from haulout.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, Outside
from support.clusters import ACCOUNT
from support.live import LiveCluster
from support.outside import FakeOutside
from support.processes import Program

NAMESPACE = ACCOUNT[0]

# Takes a node with the label patch, and gives it back when the label is removed.
BY_LABEL = """
intervals: {requeue: 60s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  trigger:
  - {type: eviction, name: drain, config: {action: drain}}
  - {type: eviction, name: uncordon, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, trigger: drain, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: "!wanted", trigger: uncordon, next: operational}]
"""
# Takes a node that is annotated, and gives it back when it is annotated once more.
BY_ANNOTATIONS = """
intervals: {requeue: 10m}
instances:
  check:
  - {name: wanted, type: hasAnnotation, config: {key: wanted}}
  - {name: done, type: hasAnnotation, config: {key: done}}
  trigger:
  - {name: cordon, type: eviction, config: {action: cordon}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, next: in-maintenance, trigger: cordon}]
  in-maintenance:
    transitions: [{check: done, next: operational, trigger: uncordon}]
"""


def a_file(folder: Path, text: str) -> Path:
    """Return a configuration file in `folder`."""
    file = folder / "maintenance.yaml"
    file.write_text(text)
    return file


def operating(
    file: Path,
    *,
    outside: Outside | None = None,
    identity: str = "operator_1",
    environ: Mapping[str, str] | None = None,
    node: str = "",
    seen: Callable[[Profiles], object] = lambda _: None,
) -> Program:
    """Return a program that is the operator, with profiles by a file; `seen` hears of each life of it."""
    may_lack = not file.exists()

    async def program(client: Client) -> None:
        configured = Configured(file, environ=environ or {}, clock=client.clock, may_lack=may_lack)
        profiles = Profiles(configured, outside or FakeOutside())
        seen(profiles)
        settings = OperatorSettings(namespace=NAMESPACE, identity=identity, node=node)
        await run_operator(client, settings, profiles=profiles)

    return program


async def attach(cluster: LiveCluster, node: str, *profiles: str) -> None:
    """Give a node its profiles."""
    await cluster.change("nodes", node, metadata={"labels": {PROFILE_LABEL: "--".join(profiles)}})


async def annotate(cluster: LiveCluster, node: str, key: str, value: str | None) -> None:
    """Set an annotation, or take it off."""
    await cluster.change("nodes", node, metadata={"annotations": {key: value}})


def state(cluster: LiveCluster, node: str) -> str:
    """Return the state of a node as its label tells it."""
    return str(cluster.get("nodes", node)["metadata"].get("labels", {}).get(STATE_LABEL, ""))


def annotation(cluster: LiveCluster, node: str, key: str) -> str | None:
    """Return an annotation of a node."""
    found: str | None = cluster.get("nodes", node)["metadata"].get("annotations", {}).get(key)
    return found


def data(cluster: LiveCluster, node: str) -> Any:
    """Return what a node's data says."""
    return json.loads(annotation(cluster, node, DATA_ANNOTATION) or "{}")


def states(cluster: LiveCluster, node: str) -> list[str]:
    """Return the states that a node went through."""
    written = [it.after for it in cluster.history if it.kind.plural == "nodes" and it.key == node and it.after]
    said = [str(it["metadata"].get("labels", {}).get(STATE_LABEL, "")) for it in written]
    return [now for before, now in zip(["", *said], said, strict=False) if now != before]
