"""The page "Coming from the OCI Node Maintenance Handler", command by command, with a model of OCI and Oracle's SDK.

The handler is imitated by what it would leave: its Deployment, its ConfigMap, a node that it has drained, and a drain
that is planned.
"""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from haulout.api.objects import RawObject
from haulout.core.clock import RealClock
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import STREAM
from haulout_sandbox.clouds.oci.server import serve
from support.builders.objects import a_namespace, a_node, a_workload
from support.clouds.oci_config_file import a_config_file
from support.clouds.oci_handler_cronjob import NAMESPACE, a_drain_cronjob
from support.docs.page_commands import Reader, Shell
from support.servers.background_server import HOST, create_objects, served_over_http

PAGE = Path(__file__).parents[2] / "docs" / "migrating" / "oci-node-maintenance-handler.md"
MANUAL_EVENT = "ocid1.instancemaintenanceevent.oc1.try.1"

pytestmark = pytest.mark.real_time


def leave_handler_state(shell: Shell, cloud: OciCloud, *, endpoint: str) -> str:
    """Leave the cluster as the handler leaves it; return the maintenance that it knew of."""
    machines = [cloud.launch(f"oke-{number}") for number in (1, 2)]
    start = cloud.clock.now() + timedelta(days=2)
    event = cloud.schedule(machines[0], start=start, silent=True)
    settings = {
        "WD_STREAM_ID": STREAM,
        "WD_STREAM_ENDPOINT": endpoint,
        "WD_NAMESPACE": NAMESPACE,
        "WD_NODEPOOL": "pool",
    }
    config: RawObject = {"kind": "ConfigMap", "metadata": {"name": "wd", "namespace": NAMESPACE}, "data": settings}
    deployment = a_workload("Deployment", "wd").in_namespace(NAMESPACE)
    objects = [
        a_namespace(NAMESPACE),
        a_node("n1").with_spec(providerID=f"oci://{machines[0]}").ready(),
        a_node("n2").with_spec(providerID=machines[1]).cordoned().ready(),
        config,
        deployment,
        a_drain_cronjob("n1", start=start),
    ]
    create_objects(shell, objects)
    return event


def a_manual_event(cloud: OciCloud, event: str, *, suffix: str = "") -> bytes:
    """Return an event as a person writes it who wants to see what happens."""
    document = cloud.event_document(event, suffix)
    document["data"]["resourceId"] = MANUAL_EVENT
    soon = cloud.clock.now() + timedelta(minutes=10)
    document["data"]["additionalDetails"]["timeWindowStart"] = f"{soon:%Y-%m-%dT%H:%M:%S.000Z}"
    return msgspec.json.encode(document)


def test_page_commands_succeed(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("oci")
    cloud = OciCloud(RealClock(), id_seed="page")
    with served_over_http(lambda: serve(cloud, host=HOST)) as endpoint:
        event = leave_handler_state(shell, cloud, endpoint=endpoint)
        (tmp_path / "event.json").write_bytes(a_manual_event(cloud, event))
        (tmp_path / "end.json").write_bytes(a_manual_event(cloud, event, suffix=".end"))
        (oci_folder := tmp_path / "oci").mkdir()
        shell.export(
            WD_STREAM_OCID=STREAM,  # what a person has set who sends an event by hand
            WD_STREAM_ENDPOINT=endpoint,
            HAULOUT_OCI_COMPUTE_ENDPOINT=endpoint,
            HAULOUT_OCI_AUTH="config-file",
            HAULOUT_OCI_CONFIG_FILE=str(a_config_file(oci_folder)),
        )
        Reader(shell).follow(PAGE.read_text())
    assert f"oci-{event}" in shell.run("kubectl get mn")
    assert "SchedulingDisabled" in shell.run("kubectl get node n2")
