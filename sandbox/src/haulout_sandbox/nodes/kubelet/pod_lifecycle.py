"""The life of a pod on its node: the kubelet's next step, decided from the state in the cluster.

    seen → containers start → running → ready → … → SIGTERM → stopped → deleted
                    ↑            ↓ ended, crashed, or the machine rebooted
                    └── back-off ┘        or for good: Succeeded, Failed

There is no memory: a pod's status, its uid (which determines all delays) and the last boot of its machine are
sufficient. So a kubelet may stop between any two writes, and the next one continues. All containers of a pod behave
alike. Timestamps in a status are whole seconds, so delays are exact to a second.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from haulout.api.objects import RawObject
from haulout_sandbox.nodes.conditions import find_condition, format_time, merge_conditions, new_condition, parse_time
from haulout_sandbox.nodes.informers import PodView
from haulout_sandbox.nodes.kubelet.delays import Delays, crash_loop_backoff
from haulout_sandbox.nodes.pod_spec import Container

_EXIT_SIGKILL = 137
_EXIT_SIGTERM = 143
_EXIT_UNKNOWN = 255
_CRASH_LOOP = "CrashLoopBackOff"


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What pods need to know of their host."""

    ip: str
    booted_at: datetime | None = None  # containers started before are lost; None: none are


class PodDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now: write a status, delete, or nothing; and when to check again."""

    status: RawObject | None = None
    delete: bool = False
    requeue_at: datetime | None = None
    is_final: bool = False  # after the status is written, nothing is due before `requeue_at`
    reason: str = ""  # reason of the event about it
    note: str = ""


_NO_ACTION = PodDecision()


def decide(pod: PodView, *, host: HostStatus, ip: str, delays: Delays, now: datetime) -> PodDecision:
    """Return what a kubelet does about a pod on its node; `ip` is the pod's address once it starts."""
    worker = _PodWorker(pod, host=host, ip=ip, delays=delays, now=now)
    if pod.deleted_at is not None:
        return worker.terminate(pod.deleted_at)
    if pod.is_finished:
        return _NO_ACTION
    if worker.start_time is None:
        return worker.admit()
    if worker.started_at is None:
        return worker.start_if_due()
    return worker.sync_running(worker.started_at)


class _PodWorker:
    """One pass over one pod."""

    def __init__(self, pod: PodView, *, host: HostStatus, ip: str, delays: Delays, now: datetime) -> None:
        self.pod = pod
        self.host = host
        self.ip = host.ip if pod.host_network else ip
        self.delays = delays
        self.now = now
        self.status = pod.status
        first: RawObject = next(iter(self.status.get("containerStatuses", ())), {})
        self.restarts: int = first.get("restartCount", 0)
        self.last_termination: RawObject | None = first.get("lastState", {}).get("terminated")
        self.waiting_reason: str = first.get("state", {}).get("waiting", {}).get("reason", "")
        self.start_time = _parse_optional_time(self.status.get("startTime"))
        self.started_at = _parse_optional_time(first.get("state", {}).get("running", {}).get("startedAt"))

    def admit(self) -> PodDecision:
        """Acknowledge a new pod."""
        delay = self.delays.start_delay(self.pod)
        if not delay:
            return self._start_containers()
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        status = self._pod_status("Pending", waiting, initialized=not self.pod.init_containers)
        now = self.now.replace(microsecond=0)  # as it is read back
        return PodDecision(status=status | {"startTime": format_time(now)}, requeue_at=now + delay, is_final=True)

    def start_if_due(self) -> PodDecision:
        """Start the containers when that is due, for the first time or again."""
        due = self._start_due_at()
        return self._start_containers() if self.now >= due else PodDecision(requeue_at=due)

    def sync_running(self, started_at: datetime) -> PodDecision:
        if lost_at := self._lost_at(started_at):
            return self._finish_containers(_terminated_state(started_at, lost_at, code=_EXIT_UNKNOWN, reason="Unknown"))
        run_duration = self.delays.run_duration(self.pod, restarts=self.restarts)
        ends_at = None if run_duration is None else started_at + run_duration
        if ends_at is not None and self.now >= ends_at:
            return self._finish_containers(_terminated_state(started_at, ends_at, code=self.delays.exit_code(self.pod)))
        ready_at = started_at + self.delays.ready_delay(self.pod)
        if self.now < ready_at:
            return PodDecision(requeue_at=min(ready_at, ends_at or ready_at))
        if not self.pod.is_ready:
            running = {"running": {"startedAt": format_time(started_at)}}
            return PodDecision(
                status=self._pod_status("Running", running, ready=True), requeue_at=ends_at, is_final=True
            )
        return PodDecision(requeue_at=ends_at)

    def terminate(self, deadline: datetime) -> PodDecision:
        """Stop the containers within the grace period, then delete the pod."""
        if self.pod.is_finished or self.started_at is None or self._lost_at(self.started_at):
            return self._delete()
        grace = timedelta(seconds=self.pod.deletion_grace_seconds)
        stop_delay = self.delays.stop_delay(self.pod, grace=grace)
        if stop_delay is None and grace:
            return _NO_ACTION
        stopped_at = deadline - grace + (stop_delay or timedelta())
        if self.now < stopped_at:
            return PodDecision(requeue_at=stopped_at)
        code = _EXIT_SIGTERM if self.pod.restart_policy != "Always" else 0
        terminated = _terminated_state(self.started_at, self.now, code=_EXIT_SIGKILL if stop_delay == grace else code)
        phase = "Failed" if terminated["exitCode"] else "Succeeded"
        status = self._pod_status(phase, {"terminated": terminated})
        return PodDecision(
            status=status, reason="Killing", note=f"Stopping container {_container_names(self.pod.containers)}"
        )

    def _delete(self) -> PodDecision:
        # With grace period 0 the server deletes at once, unless a finalizer holds the pod: then the kubelet has no part
        # in it.
        return PodDecision(delete=bool(self.pod.deletion_grace_seconds) or not self.pod.is_finished)

    def _lost_at(self, started_at: datetime) -> datetime | None:
        booted_at = self.host.booted_at
        return booted_at if booted_at is not None and started_at < booted_at else None

    def _start_due_at(self) -> datetime:
        """Return when waiting containers are due to start."""
        if self.last_termination is None:
            return (self.start_time or self.now) + self.delays.start_delay(self.pod)
        finished = parse_time(self.last_termination["finishedAt"])
        if self.waiting_reason != _CRASH_LOOP:
            return finished + self.delays.start_delay(self.pod)
        return finished + crash_loop_backoff(
            self.restarts, ran=finished - parse_time(self.last_termination["startedAt"])
        )

    def _start_containers(self) -> PodDecision:
        """Start the containers; without a readiness delay they are ready at once."""
        self.restarts += self.last_termination is not None
        ready_delay = self.delays.ready_delay(self.pod)
        started_at = self.now.replace(microsecond=0)  # as it is read back
        status = self._pod_status("Running", {"running": {"startedAt": format_time(started_at)}}, ready=not ready_delay)
        status["startTime"] = self.status.get("startTime") or format_time(started_at)
        if self.ip:
            status |= {"podIP": self.ip, "podIPs": [{"ip": self.ip}]}
        run_duration = self.delays.run_duration(self.pod, restarts=self.restarts)
        change_times = [started_at + delay for delay in (ready_delay or None, run_duration) if delay is not None]
        note = f"Started container {_container_names(self.pod.containers)}"
        return PodDecision(
            status=status, requeue_at=min(change_times, default=None), is_final=True, reason="Started", note=note
        )

    def _finish_containers(self, terminated: RawObject) -> PodDecision:
        """Record that the containers ended; restart them according to the restartPolicy."""
        policy, failed = self.pod.restart_policy, terminated["exitCode"] != 0
        if policy == "Never" or (policy == "OnFailure" and not failed):
            return PodDecision(status=self._pod_status("Failed" if failed else "Succeeded", {"terminated": terminated}))
        self.last_termination = terminated
        if terminated["exitCode"] == _EXIT_UNKNOWN:
            return PodDecision(status=self._pod_status("Running", {"waiting": {"reason": "ContainerCreating"}}))
        finished = parse_time(terminated["finishedAt"])
        backoff = crash_loop_backoff(self.restarts, ran=finished - parse_time(terminated["startedAt"]))
        if self.now >= finished + backoff:
            return self._start_containers()
        note = f"back-off {backoff.seconds}s restarting failed container"
        waiting = {
            "reason": _CRASH_LOOP,
            "message": f"{note}={_container_names(self.pod.containers)} pod={self.pod.name}",
        }
        return PodDecision(status=self._pod_status("Running", {"waiting": waiting}), reason="BackOff", note=note)

    def _pod_status(self, phase: str, state: RawObject, *, ready: bool = False, initialized: bool = True) -> RawObject:
        """Return the status of a pod all of whose containers are in `state`."""
        pod = self.pod
        status: RawObject = {
            "phase": phase,
            "hostIP": self.host.ip,
            "hostIPs": [{"ip": self.host.ip}],
            "observedGeneration": pod.generation,
            "conditions": merge_conditions(
                self.status.get("conditions", ()),
                self._conditions(phase, ready=ready, initialized=initialized, has_sandbox="running" in state),
                now=self.now,
            ),
            "containerStatuses": [
                self._container_status(
                    container, state, ready=ready, restarts=self.restarts, last_termination=self.last_termination
                )
                for container in pod.containers
            ],
        }
        if pod.init_containers:
            status["initContainerStatuses"] = [
                self._init_container_status(container, state) for container in pod.init_containers
            ]
        return status

    def _conditions(self, phase: str, *, ready: bool, initialized: bool, has_sandbox: bool) -> tuple[RawObject, ...]:
        names = tuple(container.name for container in self.pod.containers)
        pod_conditions = _pod_conditions(
            phase, names, self.pod.generation, ready=ready, initialized=initialized, has_sandbox=has_sandbox
        )
        if (
            find_condition(self.status.get("conditions", ()), "PodScheduled") is None
        ):  # created with a node name, not bound by a scheduler
            return (*pod_conditions, new_condition("PodScheduled", "True", observedGeneration=self.pod.generation))
        return pod_conditions

    def _container_status(
        self, container: Container, state: RawObject, *, ready: bool, restarts: int, last_termination: RawObject | None
    ) -> RawObject:
        identity = {} if "waiting" in state and not last_termination else _container_identity(self.pod, container)
        return {
            "name": container.name,
            "image": container.image,
            "imageID": identity.get("imageID", ""),
            **({"containerID": identity["containerID"]} if identity else {}),
            "ready": ready,
            "started": "running" in state,
            "restartCount": restarts,
            "state": state,
            "lastState": {"terminated": last_termination} if last_termination else {},
        }

    def _init_container_status(self, container: Container, state: RawObject) -> RawObject:
        if container.is_sidecar or "waiting" in state:
            return self._container_status(
                container,
                state,
                ready="running" in state,
                restarts=self.restarts,
                last_termination=self.last_termination,
            )
        now_text = format_time(self.now)
        terminated = {"exitCode": 0, "reason": "Completed", "startedAt": now_text, "finishedAt": now_text}
        return self._container_status(
            container, {"terminated": terminated}, ready=True, restarts=0, last_termination=None
        )


@lru_cache(maxsize=1_024)  # all replicas have the same
def _pod_conditions(
    phase: str, names: tuple[str, ...], generation: int, *, ready: bool, initialized: bool, has_sandbox: bool
) -> tuple[RawObject, ...]:
    """Return the conditions of a pod with these containers; do not change them."""
    reason_and_message = (
        ("", "") if ready else ("ContainersNotReady", f"containers with unready status: [{' '.join(names)}]")
    )
    if phase == "Succeeded":
        reason_and_message = ("PodCompleted", "")
    if phase == "Failed":
        reason_and_message = ("PodFailed", "")
    return (
        new_condition("PodReadyToStartContainers", str(has_sandbox), observedGeneration=generation),
        new_condition("Initialized", str(initialized), observedGeneration=generation),
        new_condition("Ready", str(ready), *reason_and_message, observedGeneration=generation),
        new_condition("ContainersReady", str(ready), *reason_and_message, observedGeneration=generation),
    )


def _terminated_state(started_at: datetime, finished_at: datetime, *, code: int, reason: str = "") -> RawObject:
    return {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "startedAt": format_time(started_at),
        "finishedAt": format_time(finished_at),
    }


def _container_identity(pod: PodView, container: Container) -> RawObject:
    """Return ids that look real and are stable."""
    return {
        "imageID": container.image,
        "containerID": f"containerd://{pod.uid.replace('-', '')}{container.name.encode().hex()}"[:77],
    }


def _parse_optional_time(text: str | None) -> datetime | None:
    return parse_time(text) if text else None


def _container_names(containers: Iterable[Container]) -> str:
    return ", ".join(container.name for container in containers)
