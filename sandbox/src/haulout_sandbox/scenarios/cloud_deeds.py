"""What clouds announce and do, by the models of the clouds that the nodes of a scenario are machines of.

Of nodes to choose from, one for which something is announced already is not chosen again before that is over: so two
happenings do not take the same machine, and people can follow the story.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from random import Random

from haulout.core.duration import short
from haulout.kube.client import Client
from haulout_sandbox.clouds.aws.groups import Action
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.courses import Course, emptiness, replaced
from haulout_sandbox.scenarios.deeds import Deed, Does, Say, chosen, listed
from haulout_sandbox.scenarios.fleet import Fleet, Member
from haulout_sandbox.scenarios.node_deeds import fitting
from haulout_sandbox.scenarios.providers import KINDS, TITLES

_AWS: tuple[model.Cloud, ...] = ("aws",)
_SPOT_WARNING = timedelta(minutes=2)
_REPLACED_AFTER = timedelta(seconds=40)
_LOOKS_EVERY = timedelta(seconds=2)  # whether Auto Scaling still waits


class CloudDeeds:
    """Does what clouds do."""

    def __init__(self, cluster: Cluster, client: Client, fleet: Fleet) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self._client = client
        self._fleet = fleet
        self._aws = fleet.aws.cloud
        self._announced: dict[str, Sequence[Course]] = {}
        self._busy: set[str] = set()
        self.all: Mapping[str, Does] = {
            "announce": self._announce,
            "move": self._move,
            "cancel": self._cancel,
            "begin": self._begin,
            "end": self._end,
            "interrupt": self._interrupt,
            "rebalance": self._rebalance,
            "scaleIn": self._scale_in,
        }

    # Maintenance that is announced

    async def _announce(self, action: model.Announce, random: Random) -> Deed:
        able: list[model.Cloud] = [cloud for cloud, kinds in KINDS.items() if action.kind in kinds]
        name = action.name or ""
        self._announced.pop(name, None)
        courses = [self._course(it, action) for it in await self._chosen(action.nodes, random, able)]
        self._announced[name] = courses
        told = [
            f"{TITLES[cloud]} will {action.kind.lower()} {_listed([it.member for it in courses], cloud)}"
            for cloud in able
            if any(it.member.cloud == cloud for it in courses)
        ]
        return Deed(
            f"{' and '.join(told)} in {short(action.in_)}",
            follows=tuple(self._keeping(it.member, it.run) for it in courses),
        )

    def _course(self, member: Member, action: model.Announce) -> Course:
        event = self._fleet.provider(member.cloud).announce(
            member.instance,
            action.kind,
            start=self._at(action.in_),
            lasts=action.for_,
            movable=action.movable,
        )
        return Course(self._cluster, self._fleet, member, kind=action.kind, event=event, lasts=action.for_)

    async def _move(self, action: model.Move, _: Random) -> Deed:
        courses = self._of(action.name)
        for course in courses:
            course.move(self._at(action.in_))
        return Deed(_each(courses, "moves", f" to {short(action.in_)} from now"))

    async def _cancel(self, action: model.Announced, _: Random) -> Deed:
        courses = self._of(action.name)
        for course in courses:
            course.cancel()
        return Deed(_each(courses, "cancels"))

    async def _begin(self, action: model.Announced, _: Random) -> Deed:
        return Deed("; ".join([await course.begin() for course in self._of(action.name)]))

    async def _end(self, action: model.Announced, _: Random) -> Deed:
        return Deed("; ".join([await course.end() for course in self._of(action.name)]))

    def _at(self, from_now: timedelta) -> datetime:
        """Return an instant as clouds name them: of a whole second."""
        at = self._clock.now() + from_now
        return at.replace(microsecond=0) + timedelta(seconds=1 if at.microsecond else 0)

    def _of(self, name: str) -> Sequence[Course]:
        if name not in self._announced:
            raise ValueError(f"nothing is announced under the name {name}")
        return self._announced[name]

    # Instances that are taken away

    async def _interrupt(self, action: model.OnAws, random: Random) -> Deed:
        members = await self._chosen(action.nodes, random, _AWS)
        for member in members:
            self._aws.interrupt(member.instance)
        return Deed(
            f"AWS will take {_listed(members)} back in {short(_SPOT_WARNING)}",
            follows=tuple(self._keeping(it, partial(self._take_back, it)) for it in members),
        )

    async def _take_back(self, member: Member, say: Say) -> None:
        await self._clock.sleep(_SPOT_WARNING)
        if await self._is_taken(member, say, "AWS takes back"):
            await self._clock.sleep(_REPLACED_AFTER)
            say(replaced(self._fleet, member))

    async def _rebalance(self, action: model.OnAws, random: Random) -> Deed:
        members = await self._chosen(action.nodes, random, _AWS)
        for member in members:
            self._aws.recommend(member.instance)
        return Deed(f"AWS may soon take {_listed(members)} back")

    async def _scale_in(self, action: model.OnAws, random: Random) -> Deed:
        members = await self._chosen(action.nodes, random, _AWS)
        follows = [
            self._keeping(it, partial(self._let_go, it, self._aws.scale(it.instance, group=it.pool))) for it in members
        ]
        return Deed(f"AWS scales {_listed(members)} in, and waits for its hook to be completed", follows=tuple(follows))

    async def _let_go(self, member: Member, action: Action, say: Say) -> None:
        groups = self._aws.groups
        while action.token in groups.actions:
            await self._clock.sleep(_LOOKS_EVERY)
            groups.tick()
        await self._is_taken(
            member, say, "AWS terminates" if action.token in groups.completed else "AWS waits no longer, and terminates"
        )

    async def _is_taken(self, member: Member, say: Say, verb: str) -> bool:
        """Take a machine away, and tell so; return whether it was still there."""
        if self._fleet.member(member.node) is None:
            return False
        say(f"{verb} {member.node}, {emptiness(self._cluster, member.node)}")
        await self._fleet.remove(member.node)
        return True

    # Which

    async def _chosen(self, nodes: model.Nodes, random: Random, clouds: Collection[model.Cloud]) -> list[Member]:
        found = await fitting(self._client, nodes)
        members = {it: self._fleet.member(it) for it in found}
        fit = {name: it for name, it in members.items() if it is not None and it.cloud in clouds}
        if isinstance(nodes, model.NodeChoice):
            fit = {name: fit[name] for name in chosen([it for it in fit if it not in self._busy], nodes.count, random)}
        elif others := [it for it in found if it not in fit]:
            raise ValueError(f"{', '.join(others)}: no machine of {' or '.join(TITLES[it] for it in clouds)}")
        if not fit:
            raise ValueError("no node fits")
        return list(fit.values())

    def _keeping(self, member: Member, story: Callable[[Say], Awaitable[object]]) -> Callable[[Say], Awaitable[object]]:
        """Have a machine be taken for nothing else while a story about it lasts."""
        self._busy.add(member.node)

        async def tell(say: Say) -> None:
            try:
                await story(say)
            finally:
                self._busy.discard(member.node)

        return tell


def _listed(members: Sequence[Member], cloud: str | None = None) -> str:
    return listed([it.node for it in members if cloud in (None, it.cloud)], none="")


def _each(courses: Sequence[Course], verb: str, how: str = "") -> str:
    return "; ".join(f"{it.provider.title} {verb} {it.what}{how}" for it in courses)
