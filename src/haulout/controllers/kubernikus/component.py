"""Nodes of Kubernikus as a component of the operator, if there is a `kubernikus.yaml`.

The OpenStack SDK is loaded only when the first server is to be deleted.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from haulout.api.leases import PROFILES_LEASE
from haulout.api.reasons import OperatorEventReason
from haulout.compat.openstack_config import OpenStackSettings
from haulout.controllers.kubernikus.labels import CORDON_OWNER, DELETE_NODE, is_deletion_ordered
from haulout.core.clock import Clock
from haulout.core.metrics import MetricVec, gauge
from haulout.core.text import format_count
from haulout.errors import ConfigError
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, CordonOwner, Leader, LoadedSettings, SettingsFile

if TYPE_CHECKING:
    from haulout.controllers.kubernikus.controller import KubernikusController
    from haulout.controllers.kubernikus.nova import Nova
    from haulout.controllers.kubernikus.settings_file import KubernikusFile

Credentials = Callable[[], Awaitable[OpenStackSettings]]

ORDERS = gauge(
    "haulout_kubernikus_deletions",
    "How many nodes are marked for deletion by their label.",
    "stuck",
    details="`stuck` is `true` for nodes that need attention; only where the Kubernikus controller runs",
)
OUTDATED = gauge(
    "haulout_kubernikus_kubelets_outdated",
    "How many nodes have a kubelet of another version than the API server.",
    details="according to their label; only where the Kubernikus controller runs",
)


def openstack_nova(credentials: Credentials) -> "Nova":
    """Return a Nova client of the OpenStack SDK."""
    from haulout.controllers.kubernikus.openstack_sdk import SdkNova

    return SdkNova(credentials)


class Kubernikus(Component):
    """Labels nodes with outdated kubelets, and deletes the servers of nodes on order."""

    name, title = "kubernikus", "Kubernikus"
    failure_reason, action = OperatorEventReason.KUBERNIKUS_FAILED, "RunKubernikus"
    metrics = (ORDERS, OUTDATED)
    initiator = "kubernikus"
    lease = PROFILES_LEASE
    settings_file = SettingsFile(
        name="kubernikus.yaml",
        configures="nodes of Kubernikus",
        run_help="Also maintain nodes of Kubernikus, by this kubernikus.yaml. [default: off]",
        go_flag="enable-kubernikus-maintenance",
        go_flag_help="Whether to maintain nodes of Kubernikus, by ./config/kubernikus.yaml.",
        object_name="haulout-kubernikus",
        manifests_help="The kubernikus.yaml that it will run, from a ConfigMap haulout-kubernikus: its permissions are "
        "granted, too.",
        decides_permissions=True,
        check_help="FILE is a kubernikus.yaml; a file of that name is recognized.",
    )
    cordon_owner = CordonOwner(
        name=CORDON_OWNER,
        describe=lambda _: f"because of label {DELETE_NODE} it is drained, and its server is deleted",
        is_present=is_deletion_ordered,
        release_command=lambda node: f"kubectl label node {node} {DELETE_NODE}-",
    )

    def __init__(
        self, file: "KubernikusFile", *, connect_nova: "Callable[[Credentials], Nova]" = openstack_nova
    ) -> None:
        super().__init__()
        self.file = file
        self.controller: KubernikusController | None = None  # while this replica leads
        self._connect_nova = connect_nova

    @classmethod
    def load(cls, path: Path, *, environ: Mapping[str, str], clock: Clock) -> Self:
        from haulout.controllers.kubernikus import openstack_sdk
        from haulout.controllers.kubernikus.settings_file import KubernikusFile

        file = KubernikusFile(path, environ=environ, clock=clock)
        openstack_sdk.check()
        return cls(file)

    @classmethod
    def parse(cls, data: bytes, *, file: str, environ: Mapping[str, str]) -> LoadedSettings:
        from haulout.controllers.kubernikus import settings_file

        loaded = settings_file.read(data, file=file, environ=environ)
        return LoadedSettings(loaded.configuration, loaded.warnings)

    @classmethod
    def explain(cls, settings: Any) -> Iterator[str]:
        from haulout.controllers.kubernikus.explanation import explanation_lines

        return explanation_lines(settings)

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        from haulout.controllers.kubernikus.permissions import permissions
        from haulout.controllers.kubernikus.settings import KubernikusSettings

        return permissions(settings or KubernikusSettings(), namespace=namespace)

    def warnings(self) -> Iterable[ConfigError]:
        return self.file.warnings

    async def lead(self, leader: Leader) -> None:
        from haulout.controllers.kubernikus.controller import KubernikusController
        from haulout.controllers.profiles.external import keystone
        from haulout.controllers.profiles.external.network_client import NetworkClient

        file, network = self.file, NetworkClient(client=leader.client)
        file.refresh()

        async def credentials() -> OpenStackSettings:
            secret = file.settings.secret
            namespace, name = (secret.namespace, secret.name) if secret else ("", "")
            return await keystone.read_settings(network, namespace=namespace, secret=name)

        try:
            # The name of the reporting controller is that of the SAP maintenance-controller.
            async with leader.journal("kubernikus", self.history_backlog) as journal:
                self.controller = KubernikusController(
                    leader.client,
                    nova=self._connect_nova(credentials),
                    nodes=leader.nodes,
                    journal=journal,
                    settings=file.settings,
                    namespace=leader.namespace,
                    handover=leader.handover,
                    drain_metrics=self.drain_metrics,
                    freezes=leader.freezes,
                )
                await self.controller.run(background=(self._watch_file,))
        finally:
            self.controller = None
            await network.close()

    async def _watch_file(self) -> None:
        if self.controller is not None:
            await self.file.watch(self.controller.update_settings)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if (problem := self.file.problem) is not None:
            yield f"the last valid version of {self.file.path} stays in force: {problem}"
        if self.controller is not None:
            yield from self.controller.problems()

    def status_lines(self) -> Iterator[str]:
        if self.controller is None:
            yield "[+] Kubernikus: not running on this replica, but on the leader or in a SAP maintenance-controller"
        elif problem := next(self.problems(), ""):
            yield f"[-] Kubernikus: {problem}"
        else:
            orders = format_count(self.controller.order_count(), "node")
            yield f"[+] Kubernikus: running on this replica; to be deleted: {orders}"

    def collect_metrics(self) -> Iterator[MetricVec]:
        if self.controller is None:
            return
        orders, stuck = MetricVec(ORDERS), self.controller.stuck_count()
        orders.set("true", to=stuck)
        orders.set("false", to=self.controller.order_count() - stuck)
        outdated = MetricVec(OUTDATED)
        outdated.set(to=self.controller.kubelet_versions.outdated_count())
        yield from (orders, outdated)
