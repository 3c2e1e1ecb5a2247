"""The backend of the dashboard as a component of the operator."""

from haulout.api.reasons import OperatorEventReason
from haulout.app.components import cordon_owners
from haulout.app.operator_status import OperatorStatus
from haulout.budget.limits import NO_BUDGET
from haulout.runtime.component import Component, Leader


class DashboardComponent(Component):
    """Runs the backend of the dashboard on the leader; other replicas forward requests to it."""

    title, failure_reason, action = "the dashboard", OperatorEventReason.DASHBOARD_FAILED, "RunDashboard"

    def __init__(self, status: OperatorStatus, *, cluster: str) -> None:
        super().__init__()
        self._status = status
        self._cluster = cluster

    async def lead(self, leader: Leader) -> None:
        client, status = leader.client, self._status
        await status.is_served.wait()
        # Imported late with their dependencies: a replica without --metrics-port needs none of it.
        from haulout.app.operator_backend import LeaderOperatorBackend
        from haulout.dashboard.api.health import OperatorInfo
        from haulout.dashboard.api.node_backend import NodeBackend
        from haulout.dashboard.api.nodes.informers import Informers

        profiles, notices = status.profiles, status.notices
        informers = Informers(
            clock=client.clock,
            nodes=leader.nodes,
            maintenances=leader.informers.maintenances,
            waiting_list=leader.waiting_list,
            profiles=lambda: None if profiles is None else profiles.controller,
            notices=lambda: None if notices is None else notices.controller,
            freezes=leader.freezes,
            budget=lambda: NO_BUDGET if profiles is None else profiles.file.configuration.budget,
        )
        operator = LeaderOperatorBackend(
            client, status, informers, namespace=leader.namespace, identity=leader.identity
        )
        operator_info = OperatorInfo(
            identity=leader.identity,
            since=client.clock.now(),
            cluster=self._cluster,
            banners=operator.banners,
            has_history=lambda: status.history.is_on,
            components=tuple(owner.partition("/")[0] for owner in cordon_owners()),
        )
        backend = status.source = NodeBackend(client, informers, operator_info=operator_info, operator=operator)
        try:
            await backend.run()
        finally:
            status.source = None
