"""One zone: its vCenter is asked how hosts stand, and their nodes are seen to, round after round.

Each zone is a task of its own, with a session of its own: a vCenter that hangs or refuses delays no other. In a round
all nodes of the zone are seen to at once, each by itself: what goes wrong with one is told, and holds up no other.

A round comes after each period, and sooner where something is waited for: a guest that shuts down, a hold that ends.
Between rounds the session is logged out, unless the next one comes at once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from haulout.errors import CloudError, ConfigError, Conflict, HandOver, HauloutError, LeadershipLost, NotFound
from haulout.esx import decision
from haulout.esx.decision import Act, Decision, HostState, Seen, state_of
from haulout.esx.keys import HOST, INITIATED
from haulout.esx.nodes import Nodes
from haulout.esx.session import Session
from haulout.esx.settings import Settings
from haulout.esx.telling import Teller
from haulout.esx.vcenter import NO_TOOLS, WRONG_STATE, Connect, Host, Machine, Power
from haulout.kube.client import Client
from haulout.kube.objects import Node

log = logging.getLogger(__name__)

_MOST_STEPS = 12  # in a row: more would mean that decisions go in circles
_SHORTLY = timedelta(seconds=2)
_KEEPS_SESSION = timedelta(minutes=1)


class Zone:
    """The zone of one letter; `read` returns the settings as they are now."""

    def __init__(
        self, letter: str, client: Client, *, connect: Connect, nodes: Nodes, read: Callable[[], Settings], tell: Teller
    ) -> None:
        self.letter = letter
        self.problem = ""  # of the last round, with the whole vCenter
        self.problems: dict[str, str] = {}  # of the same, by host or node
        self._found: dict[str, str] = {}  # the same of the round that goes on
        self.states: dict[str, HostState] = {}  # of hosts, by name
        self.is_up = False  # its vCenter answered
        self._clock, self._random = client.clock, client.random
        self._session = Session(client, connect)
        self._nodes = nodes
        self._read = read
        self._tell = tell
        self._asked: set[str] = set()  # machines whose guest we have asked to shut down, by how the vCenter calls them
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Have the next round come soon."""
        self._woken.set()

    def troubles(self) -> list[str]:
        """Return what somebody should look after."""
        where = f"ESX in zone {self.letter}"
        return [f"{where}: {it}" for it in (self.problem, *self.problems.values()) if it]

    def under_way(self) -> Iterator[bool]:
        """Yield for each node of which something is to be done whether somebody should look after it."""
        for node in self._nodes.of(self.letter):
            state = self.states.get(node.metadata.labels[HOST])
            wanted = decision.is_initiated(node) if state is None else decision.needs_machine(node, state)
            if wanted:
                yield bool(self.problem) or node.name in self.problems

    async def run(self) -> None:
        """Make rounds until cancelled."""
        try:
            while True:
                began, settings = self._clock.now(), self._read()
                longest = settings.period * (1 + self._random.random() * settings.jitter)
                again_at = await self._round(settings)
                await self._rest(began, min(began + longest, again_at or began + longest))
        finally:
            await self._session.close()

    async def _rest(self, began: datetime, until: datetime) -> None:
        if until - self._clock.now() > _KEEPS_SESSION:
            await self._session.close()
        await self._clock.sleep(began + _SHORTLY - self._clock.now())  # whoever wakes us again and again
        alarm = self._clock.call_at(until, self._woken.set, set_back=self._woken.set)
        try:
            await self._woken.wait()
        finally:
            alarm.cancel()
        self._woken.clear()

    async def _round(self, settings: Settings) -> datetime | None:
        """Look at all hosts, and see to all nodes; return when to look again, if that is soon."""
        self._found = {}
        await self._nodes.tidy()
        try:
            hosts = await self._look(settings)
        except (CloudError, ConfigError) as error:
            self._note_down(str(error))
            return None
        self.is_up = True
        on_hosts = self._on_hosts(hosts)
        self.states = {it.name: state_of(it, settings.alarms) for it in on_hosts.values()}
        machines: Mapping[str, Sequence[Machine]] = {}
        problem = ""
        try:
            machines = await self._machines(on_hosts)
        except CloudError as error:
            problem = str(error)
        self._note_problem(problem)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._see_to(name, host, machines, settings), name=f"ESX node {name}")
                for name, host in on_hosts.items()
            ]
        self.problems = self._found
        self._tell.problems(self.problems)
        return min((at for it in tasks if (at := it.result()) is not None), default=None)

    async def _look(self, settings: Settings) -> Sequence[Host]:
        await self._session.open(settings.vcenters.access(self.letter))
        with_alarms = bool(settings.alarms)
        doing = "asking for hosts"
        return await self._session.ask(lambda it: it.hosts(with_alarms=with_alarms), doing=doing)

    def _note_down(self, problem: str) -> None:
        self.is_up, self.states, self.problems = False, {}, {}
        self._note_problem(problem)

    def _note_problem(self, problem: str) -> None:
        """Log what is wrong with the vCenter, when that changes."""
        before, self.problem = self.problem, problem
        if problem and not before:
            log.warning("ESX in zone %s: %s", self.letter, problem)
        elif before and not problem:
            log.info("ESX in zone %s: the vCenter answers again", self.letter)

    def _on_hosts(self, hosts: Iterable[Host]) -> dict[str, Host]:
        """Return the host of each node; what is wrong with one leaves its nodes as they are."""
        by_name: dict[str, list[Host]] = {}
        for it in hosts:
            by_name.setdefault(it.name, []).append(it)
        on_hosts: dict[str, Host] = {}
        for node in self._nodes.of(self.letter):
            name = node.metadata.labels[HOST]
            known = by_name.get(name, [])
            if problem := _host_problem(name, known):
                self._found[f"host {name}"] = problem
            else:
                on_hosts[node.name] = known[0]
        return on_hosts

    async def _machines(self, on_hosts: Mapping[str, Host]) -> Mapping[str, Sequence[Machine]]:
        """Return the machines of nodes of which something may have to be done, by name."""
        wanted = [it for it in on_hosts if self._needs_machine(it, on_hosts[it])]
        if not wanted:
            return {}
        found = await self._session.ask(lambda it: it.machines(wanted), doing="asking for virtual machines")
        self._asked &= {it.called for it in found if it.power is Power.ON}
        return {name: [it for it in found if it.name == name] for name in wanted}

    def _needs_machine(self, name: str, host: Host) -> bool:
        node = self._nodes.get(name)
        return node is not None and decision.needs_machine(node, self.states[host.name])

    # One node

    async def _see_to(
        self, name: str, host: Host, machines: Mapping[str, Sequence[Machine]], settings: Settings
    ) -> datetime | None:
        try:
            machine = self._machine_of(name, machines)
            return await self._go_on(name, host, machine, settings)
        except (HandOver, LeadershipLost):
            raise
        except (Conflict, NotFound) as error:
            log.debug("node %s is not as it was: %s", name, error)
            return self._clock.now() + _SHORTLY
        except HauloutError as error:
            self._found[name] = f"node {name}: {error}"
        except Exception as error:
            self._found[name] = f"node {name}: {error!r}; the log tells where"
            log.exception("node %s: what is done about ESX broke", name)
        return None

    def _machine_of(self, name: str, machines: Mapping[str, Sequence[Machine]]) -> Machine | None:
        found = machines.get(name)
        if found is None:
            return None
        if len(found) != 1:
            told = "no virtual machine" if not found else f"{len(found)} virtual machines"
            self._found[name] = f"node {name}: expected one virtual machine of this name, found {told}"
            return None
        if found[0].power is Power.UNKNOWN:
            self._found[name] = f"node {name}: the vCenter does not tell whether its virtual machine runs"
            return None
        return found[0]

    async def _go_on(self, name: str, host: Host, machine: Machine | None, settings: Settings) -> datetime | None:
        for _ in range(_MOST_STEPS):
            node = self._nodes.get(name)
            if node is None:
                return None
            self._tell.sees(node, self._nodes.drain(node))
            await self._nodes.cordon_copies.load(self._nodes.all)
            decided = decision.decide(self._seen(node, host, machine), settings)
            await self._nodes.see_to_drain(node, decided.drain)
            if decided.change is not None:
                if decided.reason == decision.ENDS:
                    await self._nodes.cordon_copies.drop(node)
                changed = await self._nodes.patch(node, decided.change)
                self._tell.told(node, changed, decided)
            elif decided.act is not None and machine is not None:
                machine = await self._act(decided.act, node, machine, decided)
            else:
                await self._nodes.cordon_copies.follow(node)
                if decided.is_bad:
                    self._found[name] = f"node {name}: {decided.why}"
                    self._tell.warned(node, decided)
                return decided.again_at
        raise RuntimeError(f"node {name} goes in circles")

    def _seen(self, node: Node, host: Host, machine: Machine | None) -> Seen:
        now = self._clock.now()
        blocked, blocked_from = self._nodes.blocked(node, now=now)
        return Seen(
            node=node,
            host=host,
            state=self.states[host.name],
            is_drained=self._nodes.is_drained(node),
            blocked=blocked,
            blocked_from=blocked_from,
            machine=machine,
            was_asked=machine is not None and machine.called in self._asked,
            cordon_copy=self._nodes.cordon_copies.of(node),
            now=now,
        )

    async def _act(self, act: Act, node: Node, machine: Machine, decided: Decision) -> Machine:
        """Do something to a machine; return it as it is then."""
        await self._nodes.confirm(node, INITIATED)
        doing = f"virtual machine {machine.name}"
        try:
            match act:
                case Act.SHUT_DOWN:
                    await self._session.ask(lambda it: it.shut_down(machine), doing=doing)
                    self._asked.add(machine.called)
                    return machine
                case Act.POWER_ON:
                    await self._session.ask(lambda it: it.power_on(machine), doing=doing)
                case Act.POWER_OFF:
                    await self._session.ask(lambda it: it.power_off(machine), doing=doing)
        except CloudError as error:
            if error.code == NO_TOOLS and act is Act.SHUT_DOWN:
                without_tools = replace(decided, why="its guest cannot be asked to shut down", reason="EsxPowerOff")
                return await self._act(Act.POWER_OFF, node, machine, without_tools)
            if error.code != WRONG_STATE:
                raise
        self._tell.told(node, node, decided)
        return replace(machine, power=Power.ON if act is Act.POWER_ON else Power.OFF)


def _host_problem(name: str, known: Sequence[Host]) -> str:
    if len(known) != 1:
        found = "none" if not known else str(len(known))
        return f"expected one host {name} in the vCenter, found {found}: its nodes stay as they are"
    return f"host {name}: {known[0].problem}: its nodes stay as they are" if known[0].problem else ""
