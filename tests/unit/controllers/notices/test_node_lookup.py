"""Lookup of the node of a notice: by node name, providerID or machine name label."""

import msgspec
import pytest

from haulout.api.maintenancenotice import MaintenanceNoticeSpec
from haulout.api.objects import Node
from haulout.controllers.notices.node_lookup import NodeLookup
from support.builders.objects import a_node

MACHINE = "ocid1.instance.oc1.fra.a"
OTHER = "ocid1.instance.oc1.fra.b"
CALLED = "oke-c1-n1-s1-0"


def node(name: str, /, *, machine: str = "", **labels: str) -> Node:
    made = a_node(name).with_spec(providerID=machine) if machine else a_node(name)
    made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), **labels}
    return msgspec.convert(made, Node)


def lookup_of(*members: Node) -> NodeLookup:
    found = NodeLookup()
    for item in members:
        found.update(None, item)
    return found


ABOUT = MaintenanceNoticeSpec(provider_id=MACHINE, machine_name=CALLED)


@pytest.mark.parametrize("written", [MACHINE, f"oci://{MACHINE}"])
def test_provider_id_identifies_the_node_in_any_format(written: str) -> None:
    found = lookup_of(node("renamed", machine=written, hostname="another"), node("10.0.10.7", hostname=CALLED)).find(
        ABOUT
    )
    assert found.node is not None
    assert found.node.name == "renamed"


@pytest.mark.parametrize("label", ["hostname", "displayName", "name"])
def test_node_without_a_provider_id_is_found_by_its_machine_name_label(label: str) -> None:
    found = lookup_of(node("10.0.10.7", **{label: CALLED}), node("10.0.10.8", **{label: "another"})).find(ABOUT)
    assert found.node is not None
    assert found.node.name == "10.0.10.7"
    assert found.reason == f"its label {label} is {CALLED}, the name of {MACHINE}"


def test_node_with_another_provider_id_never_matches() -> None:
    found = lookup_of(node("10.0.10.7", machine=OTHER, hostname=CALLED)).find(ABOUT)
    assert found.node is None
    assert found.reason == f"no node runs on {MACHINE}, which is called {CALLED}, yet"


def test_ambiguous_machine_name_matches_no_node() -> None:
    several = lookup_of(node("b", hostname=CALLED), node("a", hostname=CALLED), node("c", displayName=CALLED))
    found = several.find(ABOUT)
    assert found.node is None
    assert found.reason == f"nodes a, b all have hostname {CALLED}, the name of {MACHINE}"
    several.update(node("b", hostname=CALLED), None)
    only = several.find(ABOUT).node
    assert only is not None
    assert only.name == "a"


def test_node_that_gets_another_provider_id_later_is_no_longer_found_by_labels() -> None:
    before, after = node("a", hostname=CALLED), node("a", machine=OTHER, hostname=CALLED)
    found = lookup_of(before)
    found.update(before, after)
    assert found.find(ABOUT).node is None
