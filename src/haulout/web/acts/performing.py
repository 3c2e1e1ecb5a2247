"""Does what people want done from the dashboard.

    done = await performer.perform(act, caller)

Whatever is written is written in the user's name (`haulout.web.auth.delegation`): the API server decides whether they
may, its webhooks are asked, and its audit log has their name. What is there is read in our own name, as whoever may
read the dashboard sees it anyway. No leader is needed for any of it. Each act can be repeated: what is done already is
said to be.

What was done is in the history of the node, with the user's name, and an event. Neither is worth failing for.
"""

import asyncio
import logging
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, timedelta
from http import HTTPStatus

from haulout.errors import AlreadyExists, KubeError, NotFound, Unauthorized
from haulout.history.backlog import Backlog
from haulout.history.keeper import Keeper
from haulout.history.record import Entry, Note, cut
from haulout.kinds import hold
from haulout.kinds.notice import MAINTENANCE_NOTICES, Stage
from haulout.kinds.standing import standing
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, reference
from haulout.kube.objects import Node, RawObject
from haulout.kube.patches import node_patch
from haulout.kube.resources import NODES
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.notices.calling_off import against_cancelling, said
from haulout.profiles import approval
from haulout.profiles.approval import ApprovalError
from haulout.profiles.approving import awaited
from haulout.profiles.model import Configuration
from haulout.web.acts.refusing import refused
from haulout.web.acts.wishes import checked
from haulout.web.api.asking import bad
from haulout.web.api.commands import order, ordering
from haulout.web.api.shapes import Act, ActKind, Done
from haulout.web.api.source import Unanswerable
from haulout.web.auth.delegation import Actor, Caller, Delegation
from haulout.web.auth.powers import Powers

log = logging.getLogger(__name__)

REPORTER = "haulout.dev/dashboard"
_TOLD_WITHIN = timedelta(seconds=2)
_LONGEST_SHOWN = 200
_q = shlex.quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What was done, and how it is remembered; without `what` there was nothing left to do."""

    done: Done
    node: Node | None = None
    what: str = ""  # as entries of the history name it
    result: str = ""
    event: str = ""


class Performer:
    """Acts as people; `identity` is of this replica, and `namespace` that of the operator."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        identity: str,
        configuration: Callable[[], Configuration | None] = lambda: None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._configuration = configuration
        self._delegation = Delegation(client, namespace=namespace)
        self._powers = Powers(client.clock, self._delegation)
        self._unrecorded = Backlog()  # what could not be written into the history yet: the next act tries again
        self._acts: dict[ActKind, Callable[[Act, Actor], Awaitable[Deed]]] = {
            ActKind.APPROVE: self._approve,
            ActKind.HOLD: self._hold,
            ActKind.RELEASE: self._release,
            ActKind.START: self._start,
            ActKind.CANCEL: self._cancel,
        }

    async def offered(self, caller: Caller) -> tuple[ActKind, ...]:
        """Return what somebody may do, as far as can be told beforehand."""
        return await self._powers.of(caller)

    async def perform(self, act: Act, caller: Caller) -> Done:
        """Do it as somebody; raises `Unanswerable`."""
        checked(act)
        try:
            user = await self._delegation.actor(caller)
            deed = await self._acts[act.act](act, user)
        except KubeError as error:
            if isinstance(error, Unauthorized):
                self._delegation.forget()
            log.info("%s asked to %s, which was refused: %s", caller.user.name, act.act, error)
            raise refused(error, user=caller.user.name) from None
        if deed.what:
            log.info("%s: %s", user.name, deed.done.text, extra={"node": deed.node.name if deed.node else ""})
            await self._remember(deed, act, user)
        return deed.done

    # What can be done

    async def _start(self, act: Act, user: Actor) -> Deed:
        """Order a NodeMaintenance; it is named like its node, so that there is one however often they ask."""
        node = await self._node(act.node)
        reason = act.reason or f"ordered by {cut(user.name, _LONGEST_SHOWN)} from the dashboard"
        try:
            made = await user.client.create(NODE_MAINTENANCES, order(node.name, reason=reason))
        except AlreadyExists:
            return await self._is_ordered(node)
        done = Done(text=f"Maintenance of {node.name} is ordered.", command=ordering(node.name, reason=reason))
        return Deed(done=done, node=node, what=f"NodeMaintenance/{made.name}", result="ordered", event="Ordered")

    async def _is_ordered(self, node: Node) -> Deed:
        found = await self._client.get(NODE_MAINTENANCES, node.name)
        if found.node != node.name:
            text = f"a NodeMaintenance {found.name} is there already, for node {found.node}: delete it first"
            raise Unanswerable(text, HTTPStatus.CONFLICT)
        if found.metadata.deletion_timestamp is not None:
            raise Unanswerable(f"{node.name} is just being given back: wait for that", HTTPStatus.CONFLICT)
        return Deed(done=Done(text=f"Maintenance of {node.name} is ordered already."))

    async def _cancel(self, act: Act, user: Actor) -> Deed:
        return await (self._end(act, user) if act.maintenance else self._call_off(act, user))

    async def _end(self, act: Act, user: Actor) -> Deed:
        """Delete a NodeMaintenance: the one that was seen, not another of its name."""
        command = f"kubectl delete nodemaintenance {_q(act.maintenance)}"
        try:
            found = await self._client.get(NODE_MAINTENANCES, act.maintenance)
        except NotFound:
            return Deed(done=Done(text=f"NodeMaintenance {act.maintenance} is gone already.", command=command))
        _check_node(act, found.node)
        if found.metadata.deletion_timestamp is not None:
            return Deed(done=Done(text=f"NodeMaintenance {found.name} is ending already.", command=command))
        await user.client.delete(NODE_MAINTENANCES, found.name, uid=found.uid)
        return Deed(
            done=Done(text=f"The maintenance of {found.node} ends: it is given back.", command=command),
            node=await self._known(found.node),
            what=f"NodeMaintenance/{found.name}",
            result="cancelled",
            event="Cancelled",
        )

    async def _call_off(self, act: Act, user: Actor) -> Deed:
        notice = await self._client.get(MAINTENANCE_NOTICES, act.notice)
        _check_node(act, notice.node)
        command = f"haulout notice cancel {_q(notice.name)}"
        if notice.spec.stage == Stage.CANCELLED:
            return Deed(done=Done(text=f"Notice {notice.name} is called off already.", command=command))
        objection = against_cancelling(notice, standing(notice.spec, now=self._client.clock.now()))
        if objection is not None:
            force = f"; {objection.by_force}: {command} --force" if objection.by_force else ""
            raise Unanswerable(f"notice {notice.name} {objection.why}{force}", HTTPStatus.CONFLICT)
        await user.client.patch(MAINTENANCE_NOTICES, notice.name, said(notice, Stage.CANCELLED))
        return Deed(
            done=Done(text=f"Notice {notice.name} is called off.", command=command),
            node=await self._known(notice.node),
            what=f"MaintenanceNotice/{notice.name}",
            result="cancelled",
            event="Cancelled",
        )

    async def _approve(self, act: Act, user: Actor) -> Deed:
        """Set what a check waits for: what the configuration says, and nothing else."""
        node, configuration = await self._node(act.node), self._configuration()
        if configuration is None:
            raise Unanswerable("there are no profiles here", HTTPStatus.CONFLICT)
        try:
            found = awaited(node, configuration, profile=act.profile, check=act.check, by=user.name)
        except ApprovalError as error:
            raise Unanswerable(str(error), HTTPStatus.CONFLICT) from None
        command = found.wish.command(node)
        if found.is_met:
            return Deed(done=Done(text=f"{node.name} is approved for {act.check} already.", command=command))
        await self._change(node, approval.patch([found.wish]), user)
        return Deed(
            done=Done(text=f"{node.name} is approved for {act.check} of profile {act.profile}.", command=command),
            node=node,
            what=f"profile/{act.profile}",
            result=f"approved: {found.wish}",
            event="Approved",
        )

    async def _hold(self, act: Act, user: Actor) -> Deed:
        """Keep new maintenance off a node."""
        node, now = await self._node(act.node), self._client.clock.now()
        if act.until is not None and act.until <= now:
            raise bad("`until` is over")
        value = hold.written(reason=act.reason, by=user.name, until=act.until)
        command = f"haulout hold {_q(node.name)}{_options(act)}"
        if node.metadata.annotations.get(hold.ANNOTATION) == value:
            return Deed(done=Done(text=f"{node.name} is held already.", command=command))
        await self._change(node, {"metadata": {"annotations": {hold.ANNOTATION: value}}}, user)
        text = f"{node.name} is held: no new maintenance begins on it."
        return Deed(done=Done(text=text, command=command), node=node, what="hold", result="held", event="Held")

    async def _release(self, act: Act, user: Actor) -> Deed:
        """Let maintenance begin again."""
        node = await self._node(act.node)
        command = f"haulout release {_q(node.name)}"
        if hold.hold_of(node) is None:
            return Deed(done=Done(text=f"{node.name} is not held.", command=command))
        await self._change(node, {"metadata": {"annotations": {hold.ANNOTATION: None}}}, user)
        done = Done(text=f"Maintenance may begin on {node.name} again.", command=command)
        return Deed(done=done, node=node, what="hold", result="released", event="Released")

    async def _change(self, node: Node, change: RawObject, user: Actor) -> None:
        """Change a node, and no other of its name, whatever others change about it meanwhile."""
        about = {**change["metadata"], "uid": node.uid}
        await user.client.patch(NODES, node.name, node_patch({"metadata": about}))

    # What is looked up, and remembered

    async def _node(self, name: str) -> Node:
        return await self._client.get(NODES, name)

    async def _known(self, name: str) -> Node | None:
        """Return a node, if it is there and can be had."""
        try:
            return await self._node(name) if name else None
        except KubeError:
            return None

    async def _remember(self, deed: Deed, act: Act, user: Actor) -> None:
        if deed.node is None:
            return
        now = self._client.clock.now()
        entry = Entry(time=now, what=deed.what, by=user.name, why=act.reason, result=deed.result)
        keeper = Keeper(self._client, self._unrecorded)
        keeper.note(deed.node, Note(entry=entry))
        events = EventRecorder(self._client, instance=self._identity, controller=REPORTER)
        why = f" ({act.reason})" if act.reason else ""
        note = f"{user.name}, from the dashboard: {deed.done.text}{why}"
        about = reference(NODES, deed.node)
        events.record(about, reason=f"{deed.event}FromDashboard", note=note, action=act.act.title())
        await asyncio.gather(keeper.flush(_TOLD_WITHIN), events.flush(_TOLD_WITHIN))


def _options(act: Act) -> str:
    until = f" --until {act.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if act.until else ""
    return until + (f" --reason {_q(act.reason)}" if act.reason else "")


def _check_node(act: Act, node: str) -> None:
    if act.node and act.node != node:
        raise Unanswerable(f"it is about node {node or 'nobody knows which'}, not {act.node}", HTTPStatus.CONFLICT)


class NoActs:
    """Performs nothing, as on a hub: the nodes that it shows are in other clusters than the one that it runs in."""

    async def offered(self, caller: Caller) -> tuple[ActKind, ...]:
        """Return nothing."""
        del caller
        return ()

    async def perform(self, act: Act, caller: Caller) -> Done:
        """Refuse it."""
        del act, caller
        raise Unanswerable(
            "nobody acts from the dashboard of a hub: use that of the workload cluster", HTTPStatus.FORBIDDEN
        )
