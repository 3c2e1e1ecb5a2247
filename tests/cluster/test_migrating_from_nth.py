"""The page "Coming from aws-node-termination-handler", command by command, with a model of AWS and boto3.

The handler is imitated by what it would leave: its Deployment, a message in its queue, and a node that it has drained.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from haulout.api.objects import RawObject
from haulout.core.clock import RealClock
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws.server import serve
from support.builders.objects import a_node, a_workload
from support.docs.page_commands import Reader, Shell
from support.servers.background_server import HOST, create_objects, served_over_http

PAGE = Path(__file__).parents[2] / "docs" / "migrating" / "aws-node-termination-handler.md"
HANDLER = "aws-node-termination-handler"
QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/maintenance"

pytestmark = pytest.mark.real_time


def leave_handler_state(shell: Shell, cloud: AwsCloud, *, endpoint: str) -> tuple[str, str]:
    """Leave the cluster as the handler leaves it; return the instances of which something is announced."""
    planned, taken, drained = (cloud.launch(tags={f"{HANDLER}/managed": ""}) for _ in range(3))
    cloud.schedule(planned, start=cloud.clock.now() + timedelta(days=3), silent=True)
    cloud.interrupt_spot(taken)
    settings = {
        "ENABLE_SQS_TERMINATION_DRAINING": "true",
        "QUEUE_URL": QUEUE,
        "AWS_ENDPOINT": endpoint,
        "MANAGED_TAG": f"{HANDLER}/managed",
        "WEBHOOK_TEMPLATE": '{"text": "two words"}',
    }
    env: list[RawObject] = [{"name": name, "value": value} for name, value in settings.items()]
    env.append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    container = {"name": HANDLER, "image": "example/handler", "env": env}
    template = {"metadata": {"labels": {"app": HANDLER}}, "spec": {"containers": [container]}}
    deployment = a_workload("Deployment", HANDLER, template=template).in_namespace("kube-system")
    nodes = [
        a_node(f"n{number}").with_spec(providerID=f"aws:///eu-west-1a/{instance}").ready()
        for number, instance in enumerate((planned, taken, drained), start=1)
    ]
    nodes[2] = nodes[2].cordoned()
    create_objects(shell, [*nodes, deployment])
    return planned, taken


def test_page_commands_succeed(shell: Shell) -> None:
    pytest.importorskip("boto3")
    cloud = AwsCloud(RealClock(), id_seed="page")
    with served_over_http(lambda: serve(cloud, host=HOST)) as endpoint:
        instances = leave_handler_state(shell, cloud, endpoint=endpoint)
        shell.export(AWS_ACCESS_KEY_ID="example", AWS_SECRET_ACCESS_KEY="example")
        Reader(shell).follow(PAGE.read_text())
    found = shell.run("kubectl get mn -o jsonpath='{.items[*].spec.providerID}'").split()
    assert sorted(found) == sorted(instances)
    assert cloud.queue.messages == []
    assert "SchedulingDisabled" in shell.run("kubectl get node n3")
