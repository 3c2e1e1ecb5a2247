"""Profiles in a whole cluster: the operator as a process, with a `maintenance.yaml`.

cluster.run(operator_with_profiles(file, outside=FakeExternalClient()))
await set_profiles(cluster, "n1", "flatcar")
await cluster.eventually(lambda: state(cluster, "n1"), becomes="maintenance-required")
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, ExternalClient
from haulout.kube.client import Client
from support.clusters.cluster_plan import SERVICE_ACCOUNT
from support.clusters.live_cluster import LiveCluster
from support.clusters.process import Program
from support.fakes.external_client import FakeExternalClient

NAMESPACE = SERVICE_ACCOUNT[0]

# Takes a node with the label patch, and gives it back when the label is removed.
LABEL_CONFIGURATION = """
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
ANNOTATION_CONFIGURATION = """
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


def a_configuration_file(folder: Path, text: str) -> Path:
    """Return a configuration file in `folder`."""
    file = folder / "maintenance.yaml"
    file.write_text(text)
    return file


def operator_with_profiles(
    file: Path,
    *,
    external_client: ExternalClient | None = None,
    identity: str = "operator_1",
    environ: Mapping[str, str] | None = None,
    node: str = "",
    on_started: Callable[[ProfilesComponent], object] = lambda _: None,
) -> Program:
    """Return a program that is the operator, with profiles by a file; `on_started` is called with each new process."""
    may_lack = not file.exists()

    async def program(client: Client) -> None:
        profiles_file = ProfilesFile(file, environ=environ or {}, clock=client.clock, is_optional=may_lack)
        profiles = ProfilesComponent(profiles_file, external_client or FakeExternalClient())
        on_started(profiles)
        settings = OperatorSettings(namespace=NAMESPACE, identity=identity, node=node)
        await run_operator(client, settings, profiles=profiles)

    return program


async def set_profiles(cluster: LiveCluster, node: str, *profiles: str) -> None:
    """Give a node its profiles."""
    await cluster.patch("nodes", node, metadata={"labels": {PROFILE_LABEL: "--".join(profiles)}})


async def annotate(cluster: LiveCluster, node: str, key: str, value: str | None) -> None:
    """Set an annotation, or take it off."""
    await cluster.patch("nodes", node, metadata={"annotations": {key: value}})


def state(cluster: LiveCluster, node: str) -> str:
    """Return the state label of a node."""
    return str(cluster.get("nodes", node)["metadata"].get("labels", {}).get(STATE_LABEL, ""))


def annotation(cluster: LiveCluster, node: str, key: str) -> str | None:
    """Return an annotation of a node."""
    found: str | None = cluster.get("nodes", node)["metadata"].get("annotations", {}).get(key)
    return found


def profile_data(cluster: LiveCluster, node: str) -> Any:
    """Return the decoded data annotation of a node."""
    return json.loads(annotation(cluster, node, DATA_ANNOTATION) or "{}")


def states(cluster: LiveCluster, node: str) -> list[str]:
    """Return the states that a node went through."""
    written = [
        write.after for write in cluster.history if write.kind.plural == "nodes" and write.key == node and write.after
    ]
    labels = [str(write["metadata"].get("labels", {}).get(STATE_LABEL, "")) for write in written]
    return [now for before, now in zip(["", *labels], labels, strict=False) if now != before]
