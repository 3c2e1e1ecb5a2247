"""The life of a pod on its node: what its kubelet does next about it, decided from what the cluster knows of it.

    seen → containers start → running → ready → … → asked to stop → stopped → deleted
                    ↑            ↓ ended, crashed, or the machine rebooted
                    └── back-off ┘        or for good: Succeeded, Failed

There is no memory: a pod's status, its uid (which decides all delays) and the last boot of its machine say all. So a
kubelet may die between any two writes, and the next goes on where it stopped. All containers of a pod share one fate.
Instants in a status are whole seconds, and so delays are exact to a second.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from haulout.kube.objects import RawObject
from haulout_sandbox.nodes.conditions import condition, find, instant, merged, timestamp
from haulout_sandbox.nodes.delays import Delays, back_off
from haulout_sandbox.nodes.specs import Container
from haulout_sandbox.nodes.view import PodView

_KILLED = 137
_TERMINATED = 143
_LOST = 255
_CRASH_LOOP = "CrashLoopBackOff"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Of a machine, what its pods must know."""

    ip: str
    booted_at: datetime | None = None  # containers that were started before it are lost; None: none are


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now: write a status, delete, or nothing; and when to look again."""

    status: RawObject | None = None
    delete: bool = False
    wakes_at: datetime | None = None
    is_last: bool = False  # after the status is written, there is nothing to do before that instant
    reason: str = ""  # of an event about it
    note: str = ""


_NOTHING = Step()


def next_step(pod: PodView, *, host: Host, ip: str, delays: Delays, now: datetime) -> Step:
    """Return what a kubelet does about a pod on its node; `ip` is what the pod gets when it starts."""
    life = _Life(pod, host=host, ip=ip, delays=delays, now=now)
    if pod.deleted_at is not None:
        return life.stop(pod.deleted_at)
    if pod.ended:
        return _NOTHING
    if life.since is None:
        return life.begin()
    if life.started_at is None:
        return life.start()
    return life.go_on(life.started_at)


class _Life:
    """One look at one pod."""

    def __init__(self, pod: PodView, *, host: Host, ip: str, delays: Delays, now: datetime) -> None:
        self.pod = pod
        self.host = host
        self.ip = host.ip if pod.host_network else ip
        self.delays = delays
        self.now = now
        self.status = pod.status
        first: RawObject = next(iter(self.status.get("containerStatuses", ())), {})
        self.restarts: int = first.get("restartCount", 0)
        self.ended: RawObject | None = first.get("lastState", {}).get("terminated")
        self.waits_for: str = first.get("state", {}).get("waiting", {}).get("reason", "")
        self.since = _instant(self.status.get("startTime"))
        self.started_at = _instant(first.get("state", {}).get("running", {}).get("startedAt"))

    def begin(self) -> Step:
        """Take note of a new pod."""
        delay = self.delays.to_start(self.pod)
        if not delay:
            return self._run()
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        status = self._written("Pending", waiting, initialized=not self.pod.init_containers)
        since = self.now.replace(microsecond=0)  # as it will be read again
        return Step(status=status | {"startTime": timestamp(since)}, wakes_at=since + delay, is_last=True)

    def start(self) -> Step:
        """Start its containers when they are due, for the first time or again."""
        due = self._due()
        return self._run() if self.now >= due else Step(wakes_at=due)

    def go_on(self, started_at: datetime) -> Step:
        """Look after containers that run."""
        if lost_at := self._lost_at(started_at):
            return self._end(_ended(started_at, lost_at, code=_LOST, reason="Unknown"))
        lasts = self.delays.to_run(self.pod, restarts=self.restarts)
        ends_at = None if lasts is None else started_at + lasts
        if ends_at is not None and self.now >= ends_at:
            return self._end(_ended(started_at, ends_at, code=self.delays.exit_code(self.pod)))
        ready_at = started_at + self.delays.to_ready(self.pod)
        if self.now < ready_at:
            return Step(wakes_at=min(ready_at, ends_at or ready_at))
        if not self.pod.is_ready:
            running = {"running": {"startedAt": timestamp(started_at)}}
            return Step(status=self._written("Running", running, ready=True), wakes_at=ends_at, is_last=True)
        return Step(wakes_at=ends_at)

    def stop(self, deadline: datetime) -> Step:
        """Stop its containers in the time that it has, then let it go."""
        if self.pod.ended or self.started_at is None or self._lost_at(self.started_at):
            return self._let_go()
        grace = timedelta(seconds=self.pod.deletion_grace_seconds)
        takes = self.delays.to_stop(self.pod, grace=grace)
        if takes is None and grace:
            return _NOTHING
        stopped_at = deadline - grace + (takes or timedelta())
        if self.now < stopped_at:
            return Step(wakes_at=stopped_at)
        code = _TERMINATED if self.pod.restart_policy != "Always" else 0
        terminated = _ended(self.started_at, self.now, code=_KILLED if takes == grace else code)
        phase = "Failed" if terminated["exitCode"] else "Succeeded"
        status = self._written(phase, {"terminated": terminated})
        return Step(status=status, reason="Killing", note=f"Stopping container {_names(self.pod.containers)}")

    def _let_go(self) -> Step:
        # With no grace left the server deletes at once, unless a finalizer holds the pod: then it is not ours any more.
        return Step(delete=bool(self.pod.deletion_grace_seconds) or not self.pod.ended)

    def _lost_at(self, started_at: datetime) -> datetime | None:
        booted_at = self.host.booted_at
        return booted_at if booted_at is not None and started_at < booted_at else None

    def _due(self) -> datetime:
        """Return when containers that wait are to start."""
        if self.ended is None:
            return (self.since or self.now) + self.delays.to_start(self.pod)
        finished = instant(self.ended["finishedAt"])
        if self.waits_for != _CRASH_LOOP:
            return finished + self.delays.to_start(self.pod)
        return finished + back_off(self.restarts, ran=finished - instant(self.ended["startedAt"]))

    def _run(self) -> Step:
        """Start the containers, which are ready at once if nothing says otherwise."""
        self.restarts += self.ended is not None
        takes = self.delays.to_ready(self.pod)
        since = self.now.replace(microsecond=0)  # as it will be read again
        status = self._written("Running", {"running": {"startedAt": timestamp(since)}}, ready=not takes)
        status["startTime"] = self.status.get("startTime") or timestamp(since)
        if self.ip:
            status |= {"podIP": self.ip, "podIPs": [{"ip": self.ip}]}
        lasts = self.delays.to_run(self.pod, restarts=self.restarts)
        changes = [since + it for it in (takes or None, lasts) if it is not None]
        note = f"Started container {_names(self.pod.containers)}"
        return Step(status=status, wakes_at=min(changes, default=None), is_last=True, reason="Started", note=note)

    def _end(self, terminated: RawObject) -> Step:
        """Write down that the containers ended; start them again if that is wanted."""
        policy, failed = self.pod.restart_policy, terminated["exitCode"] != 0
        if policy == "Never" or (policy == "OnFailure" and not failed):
            return Step(status=self._written("Failed" if failed else "Succeeded", {"terminated": terminated}))
        self.ended = terminated
        if terminated["exitCode"] == _LOST:
            return Step(status=self._written("Running", {"waiting": {"reason": "ContainerCreating"}}))
        finished = instant(terminated["finishedAt"])
        pause = back_off(self.restarts, ran=finished - instant(terminated["startedAt"]))
        if self.now >= finished + pause:
            return self._run()
        note = f"back-off {pause.seconds}s restarting failed container"
        waiting = {"reason": _CRASH_LOOP, "message": f"{note}={_names(self.pod.containers)} pod={self.pod.name}"}
        return Step(status=self._written("Running", {"waiting": waiting}), reason="BackOff", note=note)

    def _written(self, phase: str, state: RawObject, *, ready: bool = False, initialized: bool = True) -> RawObject:
        """Return the status of a pod all of whose containers are in `state`."""
        pod = self.pod
        status: RawObject = {
            "phase": phase,
            "hostIP": self.host.ip,
            "hostIPs": [{"ip": self.host.ip}],
            "observedGeneration": pod.generation,
            "conditions": merged(
                self.status.get("conditions", ()),
                self._conditions(phase, ready=ready, initialized=initialized, sandboxed="running" in state),
                now=self.now,
            ),
            "containerStatuses": [
                self._container(it, state, ready=ready, restarts=self.restarts, ended=self.ended)
                for it in pod.containers
            ],
        }
        if pod.init_containers:
            status["initContainerStatuses"] = [self._init_container(it, state) for it in pod.init_containers]
        return status

    def _conditions(self, phase: str, *, ready: bool, initialized: bool, sandboxed: bool) -> tuple[RawObject, ...]:
        names = tuple(it.name for it in self.pod.containers)
        told = _told(phase, names, self.pod.generation, ready=ready, initialized=initialized, sandboxed=sandboxed)
        if find(self.status.get("conditions", ()), "PodScheduled") is None:  # made with its node, not bound to it
            return (*told, condition("PodScheduled", "True", observedGeneration=self.pod.generation))
        return told

    def _container(
        self, container: Container, state: RawObject, *, ready: bool, restarts: int, ended: RawObject | None
    ) -> RawObject:
        known = {} if "waiting" in state and not ended else _identity(self.pod, container)
        return {
            "name": container.name,
            "image": container.image,
            "imageID": known.get("imageID", ""),
            **({"containerID": known["containerID"]} if known else {}),
            "ready": ready,
            "started": "running" in state,
            "restartCount": restarts,
            "state": state,
            "lastState": {"terminated": ended} if ended else {},
        }

    def _init_container(self, container: Container, state: RawObject) -> RawObject:
        if container.is_sidecar or "waiting" in state:
            return self._container(container, state, ready="running" in state, restarts=self.restarts, ended=self.ended)
        at = timestamp(self.now)
        done = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
        return self._container(container, {"terminated": done}, ready=True, restarts=0, ended=None)


@lru_cache(maxsize=1_024)  # all replicas say the same
def _told(
    phase: str, names: tuple[str, ...], generation: int, *, ready: bool, initialized: bool, sandboxed: bool
) -> tuple[RawObject, ...]:
    """Return the conditions of a pod with containers of these names; they are not to be changed."""
    why = ("", "") if ready else ("ContainersNotReady", f"containers with unready status: [{' '.join(names)}]")
    if phase == "Succeeded":
        why = ("PodCompleted", "")
    if phase == "Failed":
        why = ("PodFailed", "")
    return (
        condition("PodReadyToStartContainers", str(sandboxed), observedGeneration=generation),
        condition("Initialized", str(initialized), observedGeneration=generation),
        condition("Ready", str(ready), *why, observedGeneration=generation),
        condition("ContainersReady", str(ready), *why, observedGeneration=generation),
    )


def _ended(started_at: datetime, finished_at: datetime, *, code: int, reason: str = "") -> RawObject:
    return {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "startedAt": timestamp(started_at),
        "finishedAt": timestamp(finished_at),
    }


def _identity(pod: PodView, container: Container) -> RawObject:
    """Return ids that look real and are the same each time."""
    return {
        "imageID": container.image,
        "containerID": f"containerd://{pod.uid.replace('-', '')}{container.name.encode().hex()}"[:77],
    }


def _instant(text: str | None) -> datetime | None:
    return instant(text) if text else None


def _names(containers: Iterable[Container]) -> str:
    return ", ".join(it.name for it in containers)
