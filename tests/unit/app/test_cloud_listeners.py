"""`haulout run` as a process: from environment variables, by the SDK of a cloud, to a notice in a cluster."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticePhase, definition
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from haulout.core.clock import RealClock
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws.server import serve as serving_aws
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import STREAM
from haulout_sandbox.clouds.oci.server import serve as serving_oci
from support.builders.objects import a_node
from support.clouds.oci_config_file import a_config_file
from support.expectations.eventually import eventually
from support.servers.sandbox_process import running_sandbox

QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/maintenance"
HERE = "127.0.0.1"
OF_AWS = {
    "QUEUE_URL": QUEUE,
    "CHECK_TAG_BEFORE_DRAINING": "false",
    "WORKERS": "4",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
}
OF_OCI = {"WD_STREAM_ID": STREAM, "WD_NODEPOOL": "pool1", "HAULOUT_OCI_AUTH": "config-file"}


@asynccontextmanager
async def operating(kubeconfig: Path, environ: Mapping[str, str]) -> AsyncIterator[list[str]]:
    """Run the operator; yield its log lines."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "haulout", "run", "--kubeconfig", str(kubeconfig), "--log-format", "text"),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environ},
    )
    log_lines: list[str] = []

    async def read() -> None:
        while process.stderr and (line := await process.stderr.readline()):
            log_lines.append(line.decode().rstrip())

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        try:
            yield log_lines
        finally:
            process.terminate()
            await process.wait()


@pytest.mark.real_time
async def test_environment_variables_alone_configure_aws_and_oci_events(tmp_path: Path) -> None:
    """The variables are those of aws-node-termination-handler, and of the OCI Node Maintenance Handler."""
    pytest.importorskip("boto3")
    pytest.importorskip("oci")
    aws, oci = (
        AwsCloud(RealClock()),
        OciCloud(RealClock(), id_seed="elsewhere"),
    )  # not the seed of the sandbox's own machines
    instance, machine = aws.launch(), oci.launch("w-0")
    tomorrow = aws.clock.now() + timedelta(days=1)
    with running_sandbox(tmp_path, "--no-operator", "--nodes", "1") as cluster:
        async with cluster.client() as client, serving_aws(aws, host=HERE) as one, serving_oci(oci, host=HERE) as other:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
            for name, provider in (("a1", f"aws:///eu-west-1a/{instance}"), ("o1", machine)):
                await client.create(NODES, a_node(name).with_spec(providerID=provider))
            aws.schedule(instance, start=tomorrow)
            oci.schedule(machine, start=tomorrow)
            at_aws, at_oci = f"http://{HERE}:{one}", f"http://{HERE}:{other}"
            environ = OF_AWS | {"AWS_ENDPOINT": at_aws} | OF_OCI
            environ |= {"WD_STREAM_ENDPOINT": at_oci, "HAULOUT_OCI_COMPUTE_ENDPOINT": at_oci}
            environ |= {"HAULOUT_OCI_CONFIG_FILE": str(a_config_file(tmp_path))}

            async def notice_summaries() -> list[tuple[str, str, str]]:
                found = (await client.list(MAINTENANCE_NOTICES)).items
                return sorted((it.spec.source, it.status.node_name, it.status.phase) for it in found)

            async with operating(cluster.kubeconfig, environ) as log_lines:
                expected = [("aws", "a1", NoticePhase.PLANNED), ("oci", "o1", NoticePhase.PLANNED)]
                await eventually(aws.clock, notice_summaries, becomes=expected, within=timedelta(seconds=90))
            log = "\n".join(log_lines)
            assert f"AWS events come from EC2, and queue {QUEUE}; credentials: the default chain of boto3" in log
            assert f"OCI events come from stream {STREAM}; authentication: config-file" in log
            assert "environment: WORKERS has no effect: the profile limits how many nodes are in maintenance" in log
            assert "environment: WD_NODEPOOL has no effect: " in log
