"""Agents on a real API server: each with a token that is bound to its pod, as a kubelet gives it one.

There are no kubelets, so no pod runs; an agent is a process of this machine instead, with the token of such a pod.
"""

import asyncio
import json
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from controlplane import ControlPlane
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeStage
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.app.manifests import agent_manifests, operator_manifests
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.controllers.notices.notice_quota import MAX_PER_NODE
from haulout.core.clock import RealClock
from haulout.errors import Forbidden, Invalid, Unauthorized
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transports import config
from haulout.kube.transports.h11_http import minimal_transport
from haulout.providers.aws.instance_events import LIFECYCLE_GROUP, LIFECYCLE_HOOK, SHOWN_BY_IMDS, EventType
from haulout.providers.http_fetch import http_fetch
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.azure import AzureCloud
from haulout_sandbox.clouds.http_server import serve_app
from haulout_sandbox.clouds.server import AWS_METADATA_PREFIX, add_aws_metadata_route, add_azure_metadata_route
from support.expectations.eventually import eventually

pytestmark = pytest.mark.real_time

NAMESPACE = "haulout"
MAX_KB = 35 * 1024
_MAX_RETRIES = 200  # calls of kubectl


@pytest.fixture(scope="module")
def site() -> Iterator[ControlPlane]:
    """Yield a control plane with all that agents need, and a pod of an agent on each of three nodes."""
    with ControlPlane() as cluster:
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        objects = [*operator_manifests.definitions(), home, *agent_manifests.agent_objects("haulout:test", NAMESPACE)]
        objects += [item for node in ("n1", "n2", "n3") for item in (_node(node), _pod(node))]
        cluster.kubectl("apply", "-f", "-", input=operator_manifests.as_yaml(objects))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
        _wait_for_the_policy(cluster)
        yield cluster


def _wait_for_the_policy(cluster: ControlPlane) -> None:
    """Return when the policy is in effect, a second or more after its creation."""
    impersonation = f"--as=system:serviceaccount:{NAMESPACE}:{agent_manifests.NAME}"
    body = json.dumps(a_notice("azure-nobody", nodeName="n1"))
    for _ in range(_MAX_RETRIES):
        error_text = cluster.kubectl(
            "create", "--dry-run=server", "-f", "-", impersonation, input=body, check=False
        ).stderr
        if "does not say on which node" in error_text:
            return
    raise AssertionError(f"the policy does not hold anybody: {error_text}")


def _node(name: str) -> RawObject:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def _pod(node: str) -> RawObject:
    (container,) = agent_manifests.daemon_set(image="haulout:test", namespace=NAMESPACE)["spec"]["template"]["spec"][
        "containers"
    ]
    spec = {"serviceAccountName": agent_manifests.NAME, "nodeName": node, "containers": [container]}
    metadata = {"name": f"agent-{node}", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def kubeconfig(site: ControlPlane, folder: Path, node: str = "") -> Path:
    """Return a kubeconfig with a token of an agent; without a node, the token is not bound to a pod."""
    bound = ("--bound-object-kind=Pod", f"--bound-object-name=agent-{node}") if node else ()
    token = site.kubectl("create", "token", agent_manifests.NAME, "-n", NAMESPACE, *bound).stdout.strip()
    (folder / "token").write_text(token)
    written = yaml.safe_load(site.kubeconfig().read_text())
    written["users"][0]["user"] = {"tokenFile": str(folder / "token")}
    file = folder / f"kubeconfig-{node}"
    file.write_text(yaml.safe_dump(written))
    return file


@asynccontextmanager
async def a_client(site: ControlPlane, folder: Path, node: str) -> AsyncIterator[Client]:
    """Yield the client that an agent has."""
    clock = RealClock()
    connection = config.load(kubeconfig=str(await asyncio.to_thread(kubeconfig, site, folder, node)), clock=clock)
    transport = minimal_transport(connection, clock=clock, user_agent="test")
    client = Client(transport, clock=clock, random=random.Random(1))
    try:
        yield client
    finally:
        await client.close()


def a_notice(name: str, **spec: object) -> RawObject:
    return {
        "apiVersion": MAINTENANCE_NOTICES.api_version,
        "kind": MAINTENANCE_NOTICES.kind,
        "metadata": {"name": name},
        "spec": {"source": "azure", "kind": "Reboot", "stage": "Scheduled", **spec},
    }


def a_notice_with_lifecycle_hook(name: str) -> RawObject:
    """Return a notice that has the operator complete a lifecycle hook."""
    notice = a_notice(name, nodeName="n1", source="aws")
    return {**notice, "metadata": {"name": name, "annotations": {LIFECYCLE_HOOK: "hook", LIFECYCLE_GROUP: "group"}}}


async def test_agent_writes_notices_of_its_own_node(site: ControlPlane, tmp_path: Path) -> None:
    async with a_client(site, tmp_path, "n1") as client:
        await client.create(MAINTENANCE_NOTICES, a_notice("azure-own", nodeName="n1"))
        change = merge_patch({"spec": {"stage": "Started"}})
        assert (await client.patch(MAINTENANCE_NOTICES, "azure-own", change)).spec.stage == NoticeStage.STARTED
        found = await client.list(MAINTENANCE_NOTICES, fields="spec.nodeName=n1")
        assert "azure-own" in [item.name for item in found.items]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (a_notice("azure-x", nodeName="n2"), "of its own node, which is n1"),
        (a_notice("azure-x", providerID="azure:///n2"), "of its own node, which is n1"),
        (a_notice("oci-x", nodeName="n1", source="oci"), "of the sources aws, azure, gcp only"),
        (a_notice("oci-x", nodeName="n1"), "of the sources aws, azure, gcp only"),
        (a_notice_with_lifecycle_hook("aws-x"), "an agent does not say which lifecycle hook is completed"),
    ],
)
async def test_agent_may_not_create_notices_of_other_nodes_or_sources(
    site: ControlPlane, tmp_path: Path, body: RawObject, reason: str
) -> None:
    async with a_client(site, tmp_path, "n1") as client:
        with pytest.raises((Forbidden, Invalid), match=reason):
            await client.create(MAINTENANCE_NOTICES, body)


@pytest.mark.parametrize(
    "change",
    [{"spec": {"stage": "Ended"}}, {"metadata": {"annotations": {"a": "b"}}}, {"spec": {"nodeName": "n1"}}],
)
async def test_agent_may_not_change_notices_of_other_nodes(
    site: ControlPlane, tmp_path: Path, change: dict[str, Any]
) -> None:
    others = json.dumps(a_notice("azure-others", nodeName="n2"))
    await asyncio.to_thread(site.kubectl, "apply", "-f", "-", input=others)
    async with a_client(site, tmp_path, "n1") as client:
        with pytest.raises((Forbidden, Invalid), match=r"(own node, which is|is not about) n1"):
            await client.patch(MAINTENANCE_NOTICES, "azure-others", merge_patch(change))


async def test_agent_may_not_move_a_notice_to_another_node(site: ControlPlane, tmp_path: Path) -> None:
    async with a_client(site, tmp_path, "n1") as client:
        await client.create(MAINTENANCE_NOTICES, a_notice("azure-handed", nodeName="n1"))
        with pytest.raises((Forbidden, Invalid), match="of its own node, which is n1"):
            await client.patch(MAINTENANCE_NOTICES, "azure-handed", merge_patch({"spec": {"nodeName": "n2"}}))


async def test_token_that_is_not_bound_to_a_pod_may_not_create_notices(site: ControlPlane, tmp_path: Path) -> None:
    async with a_client(site, tmp_path, "") as client:
        with pytest.raises((Forbidden, Invalid), match="does not say on which node"):
            await client.create(MAINTENANCE_NOTICES, a_notice("azure-nobody", nodeName="n1"))


async def test_agent_has_no_other_permissions(site: ControlPlane, tmp_path: Path) -> None:
    async with a_client(site, tmp_path, "n1") as client:
        await client.create(MAINTENANCE_NOTICES, a_notice("azure-kept", nodeName="n1"))
        status = merge_patch({"status": {"phase": "Completed"}})
        for forbidden in (
            client.delete(MAINTENANCE_NOTICES, "azure-kept"),
            client.patch(MAINTENANCE_NOTICES, "azure-kept", status, subresource="status"),
            client.list(NODES),
        ):
            with pytest.raises(Forbidden):
                await forbidden


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"finalizers": ["example.com/kept"]}, "an agent sets no finalizers"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "1"}]},
            "an agent sets no ownerReferences",
        ),
        ({"annotations": {"example.com/large": "x" * 5000}}, "at most 16 annotations of 4096 characters"),
        ({"annotations": {f"example.com/{it}": "x" for it in range(17)}}, "at most 16 annotations"),
        ({"labels": {f"example.com/{it}": "x" for it in range(17)}}, "at most 16 labels"),
    ],
)
async def test_agent_may_not_create_notices_that_are_large_or_undeletable(
    site: ControlPlane, tmp_path: Path, metadata: dict[str, Any], reason: str
) -> None:
    async with a_client(site, tmp_path, "n1") as client:
        body = a_notice("azure-large", nodeName="n1")
        with pytest.raises((Forbidden, Invalid), match=reason):
            await client.create(MAINTENANCE_NOTICES, {**body, "metadata": {**body["metadata"], **metadata}})
        name = f"azure-grown-{abs(hash(reason))}"
        await client.create(MAINTENANCE_NOTICES, a_notice(name, nodeName="n1"))
        with pytest.raises((Forbidden, Invalid), match=reason):
            await client.patch(MAINTENANCE_NOTICES, name, merge_patch({"metadata": metadata}))


async def test_agent_changes_a_notice_with_large_additions_by_others(site: ControlPlane, tmp_path: Path) -> None:
    async with a_client(site, tmp_path, "n1") as client:
        await client.create(MAINTENANCE_NOTICES, a_notice("azure-shared", nodeName="n1"))
        added = {"metadata": {"annotations": {"example.com/large": "x" * 5000}, "finalizers": ["example.com/kept"]}}
        patch = ("patch", MAINTENANCE_NOTICES.plural, "azure-shared", "--type=merge", "-p")
        await asyncio.to_thread(site.kubectl, *patch, json.dumps(added))
        change = merge_patch({"spec": {"stage": "Started"}})
        assert (await client.patch(MAINTENANCE_NOTICES, "azure-shared", change)).spec.stage == NoticeStage.STARTED
        await asyncio.to_thread(site.kubectl, *patch, '{"metadata":{"finalizers":null}}')


async def test_agent_may_not_grow_a_notice_by_field_managers(site: ControlPlane, tmp_path: Path) -> None:
    file = await asyncio.to_thread(kubeconfig, site, tmp_path, "n1")
    body = json.dumps(a_notice("azure-managed", nodeName="n1"))

    def apply(number: int) -> str:
        flags = ("--server-side", f"--field-manager=m{number}", f"--kubeconfig={file}", "-f", "-")
        return site.kubectl("apply", *flags, input=body, check=False).stderr

    errors = [await asyncio.to_thread(apply, number) for number in range(22)]
    assert not any(errors[:15])
    assert "at most 20 field managers" in errors[-1]


async def test_notices_of_one_agent_are_limited_in_number(site: ControlPlane, tmp_path: Path) -> None:
    """The operator deletes excess notices; here its notice controller runs as an administrator."""
    clock = RealClock()
    connection = config.load(kubeconfig=str(site.kubeconfig()), clock=clock)
    admin = Client(minimal_transport(connection, clock=clock, user_agent="test"), clock=clock, random=random.Random(2))
    events, nodes = EventRecorder(admin, instance="test"), Informer(admin, ListWatch(NODES), transform=as_is)
    controller = MaintenanceNoticeController(
        admin, events=events, nodes=nodes, notices=notice_informer(admin), freezes=NoFreezes()
    )

    async def names() -> list[str]:
        found = await admin.list(MAINTENANCE_NOTICES, fields="spec.nodeName=n3")
        return [item.name for item in found.items]

    async with a_client(site, tmp_path, "n3") as agent, asyncio.TaskGroup() as group:
        tasks = [group.create_task(item.run()) for item in (events, nodes, controller.notices, controller)]
        await agent.create(MAINTENANCE_NOTICES, a_notice("azure-before", nodeName="n3"))

        async def has_phase() -> bool:
            return bool((await admin.get(MAINTENANCE_NOTICES, "azure-before")).status.phase)

        await eventually(clock, has_phase)
        for number in range(4 * MAX_PER_NODE):
            await agent.create(MAINTENANCE_NOTICES, a_notice(f"azure-{number}", nodeName="n3"))

        async def are_few() -> bool:
            return len(await names()) <= MAX_PER_NODE

        await eventually(clock, are_few)
        assert "azure-before" in await names()
        for task in tasks:
            task.cancel()
    await admin.close()


async def test_policy_does_not_restrict_other_users(site: ControlPlane) -> None:
    body = json.dumps(a_notice("ticket-1", source="ticket", nodeName="n2"))
    await asyncio.to_thread(site.kubectl, "apply", "-f", "-", input=body)


@asynccontextmanager
async def an_agent(
    file: Path, cloud: AzureCloud, machine: str, *, metrics: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an agent as a process, with a stand-in of Azure's metadata service."""
    app = web.Application()
    add_azure_metadata_route(app, cloud)
    async with serve_app(app, socket.create_server(("127.0.0.1", 0))) as port:
        place = f"http://127.0.0.1:{port}/azure/{machine}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "haulout", "agent", "--kubeconfig", str(file), "--log-format=text"),
            env={
                **os.environ,
                "NODE_NAME": "n1",
                "HAULOUT_AZURE_METADATA": place,
                "HAULOUT_AGENT_METRICS_PORT": str(metrics),
            },
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def test_agent_process_reports_azure_events_within_its_memory_limit(site: ControlPlane, tmp_path: Path) -> None:
    clock = RealClock()
    cloud = AzureCloud(clock)
    cloud.launch("vmss_1")
    file = await asyncio.to_thread(kubeconfig, site, tmp_path, "n1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics = free.getsockname()[1]
    async with (
        an_agent(file, cloud, "vmss_1", metrics=metrics) as process,
        a_client(site, tmp_path, "n1") as client,
    ):

        async def stages() -> list[str]:
            return [notice.spec.stage for notice in await _notices(client)]

        start = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)  # noqa: TID251 - of a real process
        event = cloud.schedule(["vmss_1"], "Reboot", start=start)
        within = timedelta(minutes=1)
        await eventually(clock, stages, becomes=[NoticeStage.SCHEDULED], within=within)
        (notice,) = await _notices(client)
        assert (notice.spec.node_name, notice.spec.start) == ("n1", start)
        cloud.start_event(event)
        await eventually(clock, stages, becomes=[NoticeStage.STARTED], within=within)
        cloud.remove_event(event)
        await eventually(clock, stages, becomes=[NoticeStage.ENDED], within=within)
        page = await http_fetch(f"http://127.0.0.1:{metrics}")("GET", "/metrics", headers={})
        assert b'haulout_agent_up{cloud="azure"} 1\n' in page.body
        assert b'haulout_agent_notices_written_total{cloud="azure"} ' in page.body
        assert _resident_kb(process.pid) <= MAX_KB
        process.terminate()
        _, stderr = await process.communicate()
        assert process.returncode == 0
        assert "agent stopped" in stderr.decode()
        assert "WARN" not in stderr.decode()


async def test_agent_may_not_change_the_lifecycle_hook_of_a_notice(site: ControlPlane, tmp_path: Path) -> None:
    await asyncio.to_thread(
        site.kubectl, "apply", "-f", "-", input=json.dumps(a_notice_with_lifecycle_hook("aws-hooked"))
    )
    async with a_client(site, tmp_path, "n1") as client:
        imds_annotation = merge_patch({"metadata": {"annotations": {SHOWN_BY_IMDS: "shown"}}})
        await client.patch(MAINTENANCE_NOTICES, "aws-hooked", imds_annotation)
        for hook in ("other", None):
            change = merge_patch({"metadata": {"annotations": {LIFECYCLE_HOOK: hook}}})
            with pytest.raises((Forbidden, Invalid), match="an agent does not say which lifecycle hook"):
                await client.patch(MAINTENANCE_NOTICES, "aws-hooked", change)


async def test_agent_process_reports_ec2_events_within_its_memory_limit(site: ControlPlane, tmp_path: Path) -> None:
    """The operator has reported one event before; a role and a policy restrict the agent, and IMDS requires a token."""
    clock = RealClock()
    cloud = AwsCloud(clock, id_seed="agent")
    instance = cloud.launch()
    known = f"aws-lifecycle-{instance}"
    by_operator = a_notice_with_lifecycle_hook(known)
    by_operator["metadata"]["annotations"][EventType.LIFECYCLE] = "token"
    by_operator["spec"] |= {"providerID": instance, "noticeID": f"lifecycle-{instance}", "kind": "Terminate"}
    await asyncio.to_thread(site.kubectl, "apply", "-f", "-", input=json.dumps(by_operator))
    file = await asyncio.to_thread(kubeconfig, site, tmp_path, "n1")
    app = web.Application()
    add_aws_metadata_route(app, cloud)

    async with serve_app(app, socket.create_server(("127.0.0.1", 0))) as port, a_client(site, tmp_path, "n1") as client:

        async def found() -> dict[str, tuple[str, bool]]:
            listed = (await client.list(MAINTENANCE_NOTICES, fields="spec.nodeName=n1")).items
            instance_notices = [notice for notice in listed if notice.spec.provider_id == instance]
            return {
                notice.name: (notice.spec.stage, SHOWN_BY_IMDS in notice.metadata.annotations)
                for notice in instance_notices
            }

        place = f"http://127.0.0.1:{port}{AWS_METADATA_PREFIX}/{instance}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "haulout", "agent", "--kubeconfig", str(file), "--log-format=text"),
            env={**os.environ, "NODE_NAME": "n1", "HAULOUT_AWS_METADATA": place},
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            cloud.start_lifecycle_action(instance, silent=True)
            cloud.interrupt_spot(instance, silent=True)
            both = {known: (NoticeStage.SCHEDULED, True), f"aws-spot-{instance}": (NoticeStage.SCHEDULED, True)}
            await eventually(clock, found, becomes=both, within=timedelta(minutes=1))
            cloud.ec2_instances.by_id[instance].spot_action = None
            both[f"aws-spot-{instance}"] = (NoticeStage.CANCELLED, True)
            await eventually(clock, found, becomes=both, within=timedelta(minutes=1))
            assert _resident_kb(process.pid) <= MAX_KB
            process.terminate()
            _, stderr = await process.communicate()
            assert "WARN" not in stderr.decode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


async def _notices(client: Client) -> list[MaintenanceNotice]:
    found = await client.list(MAINTENANCE_NOTICES, fields="spec.nodeName=n1")
    return [item for item in found.items if item.spec.notice_id.endswith("/vmss_1")]


def _resident_kb(pid: int) -> int:
    status_text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status_text.splitlines() if line.startswith("VmRSS:")).split()[1])


async def test_refused_token_is_unauthorized(site: ControlPlane, tmp_path: Path) -> None:
    async with a_client(site, tmp_path, "n1") as client:
        (tmp_path / "token").write_text("refused")
        with pytest.raises(Unauthorized):
            await client.list(MAINTENANCE_NOTICES)
