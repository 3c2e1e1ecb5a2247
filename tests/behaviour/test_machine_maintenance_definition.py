"""MachineMaintenance objects: what users of the Machine Maintenance Operator have is accepted as it is."""

from datetime import UTC, datetime

import pytest
import yaml

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE, definition
from haulout.api.objects import RawObject
from haulout.api.resources import NAMESPACES
from haulout.errors import AlreadyExists, Invalid
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from support.builders.objects import a_namespace
from support.clusters.backends import ClusterBackend
from support.clusters.crd_installation import install_crd

SAMPLE: RawObject = yaml.safe_load("""
apiVersion: machinemaintenance.managed.openshift.io/v1alpha1
kind: MachineMaintenance
metadata:
  name: mm-prod-7h2kd-worker-eu-west-1a-x9q4r
  namespace: machine-maintenance-operator
spec:
  maintenancescheduled: false
  eventcode: instance-retirement
  eventid: instance-event-0a1b2c3d4e5f60718
  machineid: i-0fedcba9876543210
  machinelink: prod-7h2kd-worker-eu-west-1a-x9q4r
""")


async def a_client(cluster: ClusterBackend) -> Client:
    client = await cluster.client()
    await install_crd(cluster, client, MACHINE_MAINTENANCES, definition())
    try:
        await client.create(NAMESPACES, a_namespace(NAMESPACE))
    except AlreadyExists:
        await client.delete_collection(MACHINE_MAINTENANCES, namespace=NAMESPACE)
    return client


async def test_sample_is_accepted_and_decoded(cluster: ClusterBackend) -> None:
    """Case 13."""
    client = await a_client(cluster)
    made = await client.create(MACHINE_MAINTENANCES, SAMPLE, namespace=NAMESPACE)
    assert not made.spec.maintenancescheduled
    assert (made.spec.eventcode, made.spec.eventid) == ("instance-retirement", "instance-event-0a1b2c3d4e5f60718")
    assert (made.spec.machineid, made.spec.machinelink) == ("i-0fedcba9876543210", "prod-7h2kd-worker-eu-west-1a-x9q4r")


async def test_new_fields_are_optional_and_stored(cluster: ClusterBackend) -> None:
    client = await a_client(cluster)
    more = {"notbefore": "2026-05-25T06:00:00Z", "notbeforedeadline": "2026-06-01T06:00:00Z", "description": "degraded"}
    body = SAMPLE | {"spec": SAMPLE["spec"] | more}
    made = await client.create(MACHINE_MAINTENANCES, body, namespace=NAMESPACE)
    assert made.spec.notbefore == datetime(2026, 5, 25, 6, tzinfo=UTC)
    assert (made.spec.notafter, made.spec.description) == (None, "degraded")


async def test_status_is_written_separately_from_the_spec(cluster: ClusterBackend) -> None:
    client = await a_client(cluster)
    await client.create(MACHINE_MAINTENANCES, SAMPLE, namespace=NAMESPACE)
    patch = merge_patch({"status": {"phase": "Waiting", "machineUID": "u"}, "spec": {"maintenancescheduled": True}})
    name = SAMPLE["metadata"]["name"]
    found = await client.patch(MACHINE_MAINTENANCES, name, patch, namespace=NAMESPACE, subresource="status")
    assert (found.status.phase, found.status.machine_uid) == ("Waiting", "u")
    assert not found.spec.maintenancescheduled


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"machinelink": None}, "machinelink", id="no machine"),
        pytest.param({"machineid": None}, "machineid", id="no instance"),
        pytest.param({"maintenancescheduled": "yes"}, "maintenancescheduled", id="no truth"),
        pytest.param({"notbefore": "tomorrow"}, "notbefore", id="no instant"),
    ],
)
async def test_invalid_field_is_refused_by_name(cluster: ClusterBackend, change: RawObject, field: str) -> None:
    client = await a_client(cluster)
    spec = {key: value for key, value in (SAMPLE["spec"] | change).items() if value is not None}
    with pytest.raises(Invalid, match=field):
        await client.create(MACHINE_MAINTENANCES, SAMPLE | {"spec": spec}, namespace=NAMESPACE)
