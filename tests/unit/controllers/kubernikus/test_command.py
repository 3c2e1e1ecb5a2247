"""The command as users of the SAP maintenance-controller type it, with their files and credentials; the real SDK."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from controlplane import free_port
from haulout.core.clock import RealClock
from haulout_sandbox.https_server import HttpsServer
from haulout_sandbox.nodes import Delays
from support.clouds.openstack import OpenStackCloud
from support.clouds.openstack.cloud import REGION
from support.clouds.openstack.http_server import serving
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.platforms.kubernikus import (
    a_kubernikus_cluster_on_the_sandbox,
    event_notes,
    is_cordoned,
    needs_update,
    request_deletion,
)
from support.servers.certificates import Authority

HOST, HOME, TOKEN = "127.0.0.1", "kube-system", "operator-token"
FILE = "intervals: {requeue: 1s, podDeletion: {period: 5s, timeout: 2m}, podEviction: {period: 20s, timeout: 5m}}\n"
WITHIN = timedelta(seconds=30)


def write_configuration(folder: Path, *, api: str, authority: Authority, keystone: str, cloud: OpenStackCloud) -> None:
    """Write the files that the controller has there."""
    for name in ("config", "provider"):
        (folder / name).mkdir()
    (folder / "config" / "maintenance.yaml").write_text("intervals: {requeue: 30s}\n")
    (folder / "config" / "kubernikus.yaml").write_text(FILE)
    written = {
        "auth-url": keystone,
        "username": cloud.account.username,
        "password": cloud.account.password,
        "region": REGION,
        "domain-name": cloud.account.domain,
        "tenant-id": cloud.account.project,
    }
    lines = "".join(f'{key} = "{value}"\n' for key, value in written.items())
    (folder / "provider" / "cloudprovider.conf").write_text(f"[Global]\n{lines}")
    (folder / "ca.pem").write_bytes(authority.pem)
    cluster = {"server": api, "certificate-authority": str(folder / "ca.pem")}
    kubeconfig = {
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": TOKEN}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": HOME}}],
        "current-context": "it",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))


async def deleted(cluster: SandboxCluster, node: str) -> None:
    await cluster.eventually(lambda: needs_update(cluster, node), becomes="false", within=WITHIN)
    await request_deletion(cluster, node)
    await cluster.eventually(lambda: is_cordoned(cluster, node), within=WITHIN)
    await cluster.eventually(lambda: not cluster.has("nodes", node), within=WITHIN)


@pytest.mark.real_time
async def test_x06_haulout_maintenance_controller_command_replaces_a_node(tmp_path: Path) -> None:
    pytest.importorskip("openstack")
    authority = Authority()
    tls = authority.issue(HOST).server_context(tmp_path)
    plan = a_cluster(RealClock()).with_deployment("shop/cart", replicas=2).with_delays(Delays.zero())
    async with (
        a_kubernikus_cluster_on_the_sandbox(plan, nodes=2) as (cluster, cloud),
        serving(cloud, host=HOST) as keystone,
        HttpsServer(cluster.api, tokens={TOKEN: "operator"}).serve(host=HOST, tls=tls) as api,
    ):
        where = {"api": f"https://{HOST}:{api}", "keystone": f"http://{HOST}:{keystone}/v3"}
        write_configuration(tmp_path, authority=authority, cloud=cloud, **where)
        flags = ("-enable-kubernikus-maintenance", "-kubeconfig=kubeconfig", "-metrics-timeout=0s")
        ports = (f"-metrics-addr={HOST}:{free_port()}", f"-health-addr=:{free_port()}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "haulout", "maintenance-controller", *flags, *ports),
            cwd=tmp_path,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await deleted(cluster, "pool-1")
        finally:
            process.terminate()
            _, output = await process.communicate()
            sys.stderr.write(output.decode())  # shown if something went wrong
        assert {"DeletionOrdered", "ServerDeleted"} <= set(event_notes(cluster, "pool-1"))
        assert cloud.account.password not in output.decode()
        await cluster.eventually(lambda: len(cluster.by_key("nodes")), becomes=2, within=WITHIN)
