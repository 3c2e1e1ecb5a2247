"""A real API server proves to the webhook who it is, with the client certificate of an AdmissionConfiguration."""

import asyncio
import base64
import ssl
from collections.abc import Iterator

import aiohttp
import msgspec
import pytest
import yaml

from controlplane import ControlPlane
from haulout.api.resources import NAMESPACES
from haulout.core.clock import RealClock
from haulout.errors import ServerFailure
from haulout.webhook import registration
from haulout.webhook.ca_bundle_injection import CONFIGURATIONS
from haulout.webhook.component import Webhook
from haulout.webhook.settings import ClientAuth, SelfSigned, WebhookSettings
from haulout_sandbox.apiserver.auth.rbac import service_account_user
from support.builders.objects import a_namespace
from support.clusters.backends import a_real_backend
from support.clusters.cluster_plan import SERVICE_ACCOUNT, apply_rbac
from support.expectations.eventually import eventually
from support.operators.nodemaintenance import OPERATOR_RBAC
from support.operators.webhook_cluster import WebhookCluster, a_nodemaintenance, install_nodemaintenance_crd
from support.servers.certificates import Authority

pytestmark = pytest.mark.real_time

LOCAL = "127.0.0.1"
PROXY = "front-proxy-client"
REFUSED = "no node with name absent found"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a control plane that is set up as docs/reference/webhook.md says."""
    folder = tmp_path_factory.mktemp("admission")
    proxies = Authority("front proxy")
    issued = proxies.issue(PROXY)
    (folder / "front-proxy-ca.crt").write_bytes(proxies.pem)
    user = {
        "client-certificate-data": base64.b64encode(issued.cert_pem).decode(),
        "client-key-data": base64.b64encode(issued.key_pem).decode(),
    }
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
    (folder / "webhooks.yaml").write_text(yaml.safe_dump(kubeconfig))
    plugin = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(folder / "webhooks.yaml"),
    }
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": plugin}],
    }
    (folder / "admission.yaml").write_text(yaml.safe_dump(configuration))
    flags = [
        f"--admission-control-config-file={folder / 'admission.yaml'}",
        f"--requestheader-client-ca-file={folder / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]
    with ControlPlane(apiserver_flags=flags) as found:
        yield found


async def test_required_client_certificates_admit_only_the_api_server(plane: ControlPlane) -> None:
    namespace = SERVICE_ACCOUNT[0]
    settings = WebhookSettings(
        host=LOCAL,
        port=0,
        namespace=namespace,
        more_hosts=(LOCAL,),
        certificate=SelfSigned(),
        client_auth=ClientAuth.REQUIRED,
    )
    async with a_real_backend(plane, namespace=namespace) as cluster:
        client = await cluster.client()
        await client.create(NAMESPACES, a_namespace(namespace))
        await install_nodemaintenance_crd(cluster, client)
        await apply_rbac(client, OPERATOR_RBAC)
        hook = Webhook(await cluster.client_of(service_account_user(*SERVICE_ACCOUNT)), settings)
        world = WebhookCluster(cluster, client, hook)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(hook.serve(client))
            port = await eventually(RealClock(), lambda: hook.port)
            await eventually(RealClock(), lambda: not list(hook.unready()))
            await client.create(CONFIGURATIONS, registration.configuration(url=f"https://{LOCAL}:{port}"))
            await eventually(RealClock(), lambda: _is_webhook_active(world))
            assert await _send_without_certificate(port) is None
            running.cancel()


async def _is_webhook_active(webhook_cluster: WebhookCluster) -> bool:
    try:
        return REFUSED in await webhook_cluster.denial_message("absent", dry_run=True)
    except ServerFailure:  # it is asked, but not trusted yet
        return False


async def _send_without_certificate(port: int) -> int | None:
    """Send a review without a certificate; return the status, None if the connection is refused."""
    request = {"uid": "u-1", "operation": "CREATE", "object": a_nodemaintenance("forged", "n1")}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url, headers = f"https://{LOCAL}:{port}{registration.PATH}", {"content-type": "application/json"}
    async with aiohttp.ClientSession() as session:
        try:
            async with session.post(url, data=msgspec.json.encode(review), headers=headers, ssl=context) as answer:
                return answer.status
        except (aiohttp.ClientError, OSError):
            return None
