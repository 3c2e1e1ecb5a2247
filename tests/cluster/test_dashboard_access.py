"""The dashboard on a real API server: its tokens, its RBAC, its impersonation and its audit log.

The operator runs as the service account of the manifests, with what they grant and nothing else.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from controlplane import ControlPlane
from haulout.api.objects import RawObject
from haulout.app.http_endpoints import serve_http
from haulout.app.operator_status import OperatorStatus
from haulout.cli.connect import connect
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth.permissions import OPERATOR_ROLE, VIEWER_ROLE
from haulout.dashboard.auth.settings import AccessSettings
from haulout.httpserver.listener import ListenAddress
from support.builders.objects import a_node

pytestmark = pytest.mark.real_time

LOCAL = "127.0.0.1"
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
ROBOT = "system:serviceaccount:haulout:robot"
OPERATOR = "system:serviceaccount:haulout:haulout"
IMPERSONATOR = "system:serviceaccount:haulout:haulout-dashboard"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, Path]]:
    """Run a control plane of its own with an audit log, because the names of roles are cluster-wide."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    flags = [f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={folder / 'log'}"]
    with ControlPlane(users={"olga": ("ops",), "sam": ()}, apiserver_flags=flags) as found:
        found.kubectl("apply", "-f", "-", input=manifests("constrained"))
        found.kubectl("create", "-f", "-", input=json.dumps(a_node("n1")))
        for name in ("robot", "viewer"):
            found.kubectl("create", "serviceaccount", name, "-n", "haulout")
        bind = "create", "clusterrolebinding"
        found.kubectl(*bind, "viewers", f"--clusterrole={VIEWER_ROLE}", "--serviceaccount=haulout:viewer")
        found.kubectl(
            *bind, "actors", f"--clusterrole={OPERATOR_ROLE}", "--group=ops", "--serviceaccount=haulout:robot"
        )
        yield found, folder / "log"


def manifests(acts: str, *kinds: str) -> str:
    """Return the manifests, of these kinds if any are named, without the webhook, which nothing serves here."""
    options = ["--image", "example/haulout", "--dashboard-auth", "proxy", "--dashboard-actions", acts]
    command = [sys.executable, "-m", "haulout", "manifests", *options]
    printed = yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    wanted = [item for item in printed if not item["kind"].endswith("WebhookConfiguration")]
    return yaml.safe_dump_all(item for item in wanted if not kinds or item["kind"] in kinds)


class Dashboard:
    """The API of the dashboard, as users call it."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._base = f"http://{LOCAL}:{port}/api/v2"

    async def request(
        self, path: str, token: str = "", act: RawObject | None = None, *, proxy_user: str = ""
    ) -> tuple[int, Any]:
        """Send a request or an action, with a token or with the user header of a proxy."""
        method = "GET" if act is None else "POST"
        headers = (
            {"X-Forwarded-User": proxy_user, **SAME_ORIGIN} if proxy_user else {"Authorization": f"Bearer {token}"}
        )
        if proxy_user and act is not None:
            async with self._session.get(f"{self._base}/session", headers=headers) as session:
                headers["Cookie"] = session.headers["Set-Cookie"].partition(";")[0]
                headers["X-Haulout-Csrf"] = (await session.json())["csrf"]
        async with self._session.request(method, f"{self._base}{path}", headers=headers, json=act) as answer:
            return answer.status, await answer.json()

    async def allowed_actions(self, token: str) -> tuple[bool, list[str]]:
        """Return whether a user may read, and the allowed actions."""
        _, session = await self.request("/session", token)
        return session.get("mayRead", False), session.get("actions", [])


@asynccontextmanager
async def serve_dashboard(
    plane: ControlPlane, folder: Path, mode: AuthMode = AuthMode.TOKEN
) -> AsyncIterator[Dashboard]:
    """Serve the dashboard as the operator's service account."""
    config = yaml.safe_load(plane.kubeconfig(namespace="haulout").read_text())
    config["users"][0]["user"] = {"token": token_of(plane, "haulout")}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    access = AccessSettings(mode=mode)
    async with connect(kubeconfig=str(folder / "kubeconfig"), context=None) as session:
        serving = serve_http(
            session.client,
            OperatorStatus(),
            address=ListenAddress(0, LOCAL),
            namespace="haulout",
            identity="x_1",
            access=access,
        )
        async with serving as port, aiohttp.ClientSession() as http_session:
            yield Dashboard(http_session, port)


def token_of(plane: ControlPlane, account: str) -> str:
    return plane.kubectl("create", "token", account, "-n", "haulout").stdout.strip()


def audit_entries(log: Path, resource: str, verb: str) -> list[tuple[str, str, int]]:
    """Return user, impersonated user and status of the requests for objects of a kind."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [
        (
            candidate["user"]["username"],
            candidate.get("impersonatedUser", {}).get("username", ""),
            candidate["responseStatus"]["code"],
        )
        for candidate in lines
        if candidate["verb"] == verb
        and candidate.get("objectRef", {}).get("resource") == resource
        and candidate["stage"] == "ResponseComplete"
    ]


async def test_api_server_authorizes_reads_and_actions_and_audits_the_user(
    plane: tuple[ControlPlane, Path], tmp_path: Path
) -> None:
    cluster, log = plane
    robot, viewer = await asyncio.gather(*(asyncio.to_thread(token_of, cluster, item) for item in ("robot", "viewer")))
    olga, sam = cluster.token("olga"), cluster.token("sam")
    start, cancel = {"action": "start", "node": "n1"}, {"action": "cancel", "maintenance": "n1"}
    async with serve_dashboard(cluster, tmp_path) as dashboard:
        everything = True, ["approve", "hold", "release", "start", "cancel"]
        assert await dashboard.allowed_actions(olga) == everything
        assert await dashboard.allowed_actions(robot) == everything
        assert await dashboard.allowed_actions(viewer) == (True, [])
        assert await dashboard.allowed_actions(sam) == (False, [])
        assert (await dashboard.request("/summary", sam))[0] == 403
        assert (await dashboard.request("/summary", "nobody"))[0] == 401
        assert (await dashboard.request("/summary", viewer))[0] == 200

        assert (await dashboard.request("/actions", sam, start))[0] == 403
        status, refused = await dashboard.request("/actions", viewer, start)
        assert status == 403
        assert "haulout:viewer is not allowed to do this" in refused["error"]

        assert (await dashboard.request("/actions", olga, start))[0] == 200
        made = json.loads(cluster.kubectl("get", "nodemaintenance", "n1", "-o", "json", "--show-managed-fields").stdout)
        assert [item["manager"] for item in made["metadata"]["managedFields"]] == ["haulout-dashboard"]
        assert (await dashboard.request("/actions", robot, cancel))[0] == 200
    created, deleted = (
        audit_entries(log, "nodemaintenances", "create"),
        audit_entries(log, "nodemaintenances", "delete"),
    )
    assert created[-1] == ("olga", "", 201)
    assert deleted[-1] == (ROBOT, "", 200)
    record = json.loads(cluster.kubectl("get", "mr", "n1", "-o", "json").stdout)
    assert [(item["requestedBy"], item["result"]) for item in record["entries"]][-2:] == [
        ("olga", "created"),
        (ROBOT, "cancelled"),
    ]
    event_messages = cluster.kubectl("get", "events", "-n", "default", "-o", "jsonpath={.items[*].message}").stdout
    assert (
        "olga, from the dashboard: Created NodeMaintenance n1: node n1 is cordoned and drained within the budget."
        in event_messages
    )


@pytest.mark.parametrize("acts", ["constrained", "unrestricted"])
async def test_proxy_users_act_through_the_impersonation_account(
    plane: tuple[ControlPlane, Path], tmp_path: Path, acts: str
) -> None:
    cluster, log = plane
    roles = manifests(acts, "ClusterRole", "ClusterRoleBinding", "ServiceAccount")
    await asyncio.to_thread(cluster.kubectl, "apply", "-f", "-", input=roles)
    binding = ("create", "clusterrolebinding", f"olga-{acts}", f"--clusterrole={OPERATOR_ROLE}", "--user=olga@example")
    await asyncio.to_thread(cluster.kubectl, *binding)
    start, cancel = {"action": "start", "node": "n1"}, {"action": "cancel", "maintenance": "n1"}
    async with serve_dashboard(cluster, tmp_path, AuthMode.PROXY) as dashboard:
        assert (await dashboard.request("/actions", act=start, proxy_user="olga@example"))[0] == 200
        status, refused = await dashboard.request("/actions", act=cancel, proxy_user="sam@example")
        assert (status, "cannot get /haulout/dashboard" in refused["error"]) == (403, True)
        assert (await dashboard.request("/actions", act=cancel, proxy_user="olga@example"))[0] == 200
        await asyncio.to_thread(cluster.kubectl, "delete", "serviceaccount", "haulout-dashboard", "-n", "haulout")
    async with serve_dashboard(cluster, tmp_path, AuthMode.PROXY) as dashboard:
        status, refused = await dashboard.request("/actions", act=start, proxy_user="olga@example")
    assert (status, "ServiceAccount haulout/haulout-dashboard" in refused["error"]) == (403, True)
    assert audit_entries(log, "nodemaintenances", "create")[-1] == (IMPERSONATOR, "olga@example", 201)
    assert audit_entries(log, "nodemaintenances", "delete")[-1] == (IMPERSONATOR, "olga@example", 200)


@pytest.mark.parametrize("acts", ["constrained", "unrestricted"])
def test_operator_credentials_may_not_impersonate(plane: tuple[ControlPlane, Path], acts: str) -> None:
    cluster, _ = plane
    cluster.kubectl("apply", "-f", "-", input=manifests(acts, "ClusterRole", "ClusterRoleBinding", "ServiceAccount"))
    arguments = ("get", "nodes", "--as=olga", f"--token={token_of(cluster, 'haulout')}")
    server = ("--kubeconfig=/dev/null", f"--server={cluster.server}", "--insecure-skip-tls-verify")
    done = cluster.kubectl(*arguments, *server, check=False)
    assert done.returncode == 1
    assert f'User "{OPERATOR}" cannot impersonate' in done.stderr
    tokens = ("create", "serviceaccounts/haulout", "--subresource=token", "-n", "haulout", f"--as={OPERATOR}")
    assert cluster.kubectl("auth", "can-i", *tokens, check=False).stdout.strip() == "no"
    impersonates = ("impersonate", "users", f"--as={OPERATOR}")
    assert cluster.kubectl("auth", "can-i", *impersonates, check=False).stdout.strip() == "no"
