"""Actions of clouds: maintenance and termination of the instances that a scenario's nodes run on.

A node with announced maintenance is not selected again before that maintenance is over, so that two actions never use
the same machine and users can follow what happens.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from random import Random

from haulout.core.duration import format_short
from haulout.kube.client import Client
from haulout_sandbox.clouds.aws.autoscaling import LifecycleAction
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.actions.action_result import (
    ActionHandler,
    ActionResult,
    OnEvent,
    format_names,
    random_sample,
)
from haulout_sandbox.scenarios.actions.nodes import matching_nodes
from haulout_sandbox.scenarios.cloud_maintenance import CloudMaintenance, add_replacement, describe_pods
from haulout_sandbox.scenarios.cloud_providers import SUPPORTED_KINDS, TITLES
from haulout_sandbox.scenarios.fleet import Fleet, FleetMember

_AWS_ONLY: tuple[model.Cloud, ...] = ("aws",)
_SPOT_NOTICE_PERIOD = timedelta(minutes=2)
_REPLACEMENT_DELAY = timedelta(seconds=40)
_POLL_INTERVAL = timedelta(seconds=2)  # for the Auto Scaling lifecycle hook


class CloudActions:
    def __init__(self, cluster: Cluster, client: Client, fleet: Fleet) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self._client = client
        self._fleet = fleet
        self._aws = fleet.aws.cloud
        self._maintenances: dict[str, Sequence[CloudMaintenance]] = {}
        self._reserved_nodes: set[str] = set()
        self.handlers: Mapping[str, ActionHandler] = {
            "announce": self._announce,
            "reschedule": self._reschedule,
            "cancelMaintenance": self._cancel,
            "startMaintenance": self._start,
            "endMaintenance": self._end,
            "interrupt": self._interrupt,
            "rebalance": self._rebalance,
            "scaleIn": self._scale_in,
        }

    # Announced maintenance

    async def _announce(self, action: model.Announce, random: Random) -> ActionResult:
        capable: list[model.Cloud] = [cloud for cloud, kinds in SUPPORTED_KINDS.items() if action.kind in kinds]
        name = action.name or ""
        self._maintenances.pop(name, None)
        maintenances = [
            self._new_maintenance(element, action)
            for element in await self._select_members(action.nodes, random, capable)
        ]
        self._maintenances[name] = maintenances
        parts = [
            f"{TITLES[cloud]} will {action.kind.lower()} "
            f"{_format_members([element.member for element in maintenances], cloud)}"
            for cloud in capable
            if any(element.member.cloud == cloud for element in maintenances)
        ]
        return ActionResult(
            f"{' and '.join(parts)} in {format_short(action.in_)}",
            follow_ups=tuple(self._reserve(element.member, element.run) for element in maintenances),
        )

    def _new_maintenance(self, member: FleetMember, action: model.Announce) -> CloudMaintenance:
        event = self._fleet.provider(member.cloud).announce_maintenance(
            member.instance,
            action.kind,
            start=self._instant_in(action.in_),
            duration=action.for_,
            can_reschedule=action.can_reschedule,
        )
        return CloudMaintenance(self._cluster, self._fleet, member, kind=action.kind, event=event, duration=action.for_)

    async def _reschedule(self, action: model.Reschedule, _: Random) -> ActionResult:
        maintenances = self._maintenances_named(action.name)
        for maintenance in maintenances:
            maintenance.reschedule(self._instant_in(action.in_))
        return ActionResult(_join_messages(maintenances, "moves", f" to {format_short(action.in_)} from now"))

    async def _cancel(self, action: model.AnnouncementReference, _: Random) -> ActionResult:
        maintenances = self._maintenances_named(action.name)
        for maintenance in maintenances:
            maintenance.cancel()
        return ActionResult(_join_messages(maintenances, "cancels"))

    async def _start(self, action: model.AnnouncementReference, _: Random) -> ActionResult:
        return ActionResult(
            "; ".join([await maintenance.start() for maintenance in self._maintenances_named(action.name)])
        )

    async def _end(self, action: model.AnnouncementReference, _: Random) -> ActionResult:
        return ActionResult(
            "; ".join([await maintenance.end() for maintenance in self._maintenances_named(action.name)])
        )

    def _instant_in(self, from_now: timedelta) -> datetime:
        """Return an instant in whole seconds, as clouds announce them."""
        instant = self._clock.now() + from_now
        return instant.replace(microsecond=0) + timedelta(seconds=1 if instant.microsecond else 0)

    def _maintenances_named(self, name: str) -> Sequence[CloudMaintenance]:
        if name not in self._maintenances:
            raise ValueError(f"nothing is announced under the name {name}")
        return self._maintenances[name]

    # Termination of instances

    async def _interrupt(self, action: model.AwsAction, random: Random) -> ActionResult:
        members = await self._select_members(action.nodes, random, _AWS_ONLY)
        for member in members:
            self._aws.interrupt_spot(member.instance)
        return ActionResult(
            f"AWS will take {_format_members(members)} back in {format_short(_SPOT_NOTICE_PERIOD)}",
            follow_ups=tuple(self._reserve(member, partial(self._reclaim, member)) for member in members),
        )

    async def _reclaim(self, member: FleetMember, on_event: OnEvent) -> None:
        await self._clock.sleep(_SPOT_NOTICE_PERIOD)
        if await self._remove_node(member, on_event, "AWS takes back"):
            await self._clock.sleep(_REPLACEMENT_DELAY)
            on_event(add_replacement(self._fleet, member))

    async def _rebalance(self, action: model.AwsAction, random: Random) -> ActionResult:
        members = await self._select_members(action.nodes, random, _AWS_ONLY)
        for member in members:
            self._aws.recommend_rebalance(member.instance)
        return ActionResult(f"AWS may soon take {_format_members(members)} back")

    async def _scale_in(self, action: model.AwsAction, random: Random) -> ActionResult:
        members = await self._select_members(action.nodes, random, _AWS_ONLY)
        follow_ups = [
            self._reserve(
                member,
                partial(
                    self._wait_for_lifecycle_action,
                    member,
                    self._aws.start_lifecycle_action(member.instance, group=member.pool),
                ),
            )
            for member in members
        ]
        return ActionResult(
            f"AWS scales {_format_members(members)} in, and waits for its hook to be completed",
            follow_ups=tuple(follow_ups),
        )

    async def _wait_for_lifecycle_action(self, member: FleetMember, action: LifecycleAction, on_event: OnEvent) -> None:
        auto_scaling = self._aws.auto_scaling
        while action.token in auto_scaling.actions:
            await self._clock.sleep(_POLL_INTERVAL)
            auto_scaling.expire_actions()
        await self._remove_node(
            member,
            on_event,
            "AWS terminates" if action.token in auto_scaling.completed else "AWS waits no longer, and terminates",
        )

    async def _remove_node(self, member: FleetMember, on_event: OnEvent, verb: str) -> bool:
        """Remove a machine and report it; return whether it still existed."""
        if self._fleet.member(member.node) is None:
            return False
        on_event(f"{verb} {member.node}, {describe_pods(self._cluster, member.node)}")
        await self._fleet.remove_machine(member.node)
        return True

    # Selection

    async def _select_members(
        self, nodes: model.Nodes, random: Random, clouds: Collection[model.Cloud]
    ) -> list[FleetMember]:
        node_names = await matching_nodes(self._client, nodes)
        members = {element: self._fleet.member(element) for element in node_names}
        matching = {
            name: element for name, element in members.items() if element is not None and element.cloud in clouds
        }
        if isinstance(nodes, model.NodeSelector):
            matching = {
                name: matching[name]
                for name in random_sample(
                    [element for element in matching if element not in self._reserved_nodes], nodes.count, random
                )
            }
        elif others := [element for element in node_names if element not in matching]:
            raise ValueError(f"{', '.join(others)}: no machine of {' or '.join(TITLES[element] for element in clouds)}")
        if not matching:
            raise ValueError("no node fits")
        return list(matching.values())

    def _reserve(
        self, member: FleetMember, follow_up: Callable[[OnEvent], Awaitable[object]]
    ) -> Callable[[OnEvent], Awaitable[object]]:
        """Return the follow-up with the machine reserved, so that no other action selects it meanwhile."""
        self._reserved_nodes.add(member.node)

        async def run_reserved(on_event: OnEvent) -> None:
            try:
                await follow_up(on_event)
            finally:
                self._reserved_nodes.discard(member.node)

        return run_reserved


def _format_members(members: Sequence[FleetMember], cloud: str | None = None) -> str:
    return format_names([member.node for member in members if cloud in (None, member.cloud)], if_empty="")


def _join_messages(maintenances: Sequence[CloudMaintenance], verb: str, suffix: str = "") -> str:
    return "; ".join(
        f"{maintenance.provider.title} {verb} {maintenance.description}{suffix}" for maintenance in maintenances
    )
