"""What `kubectl get pods` shows: one word for all that goes on in a pod.

Status is the phase unless something tells more: an init container that is not done, then the first container that
waits or has ended, then the deletion. The order of these looks, and which restarts count, are those of `printPod` in
`pkg/printers/internalversion/printers.go`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from haulout_sandbox.apiserver.ages import human_duration, instant
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.printing import NAME, NONE, Cells, Printer, age, name_of, part, texts, wide

_ENDED = ("Succeeded", "Failed")
_WIDE = ("IP", "Node", "Nominated Node", "Readiness Gates")


def pod_cells(pod: JsonObject, now: datetime) -> Cells:
    """Return what is shown of `pod`, wide columns included."""
    spec, status = part(pod, "spec"), part(pod, "status")
    sidecars = _sidecars(spec)
    look = _look_at_init_containers(status, sidecars=sidecars, of=len(spec.get("initContainers") or ()))
    reason = look.stuck or _phase(status)
    if not look.stuck or _condition(status, "Initialized") == "True":
        look.restarts = look.sidecar_restarts
        reason = _look_at_containers(status, look, reason)
    total = len(spec.get("containers") or ()) + len(sidecars)
    return [
        name_of(pod),
        f"{look.ready}/{total}",
        _deletion(pod) or reason,
        look.restarts.told(now),
        age(pod, now),
        next((it.get("ip") for it in status.get("podIPs") or ()), None) or status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


@dataclass(slots=True)
class _Restarts:
    count: int = 0
    latest: datetime | None = None

    def add(self, container: Mapping[str, Any]) -> None:
        self.count += container.get("restartCount", 0)
        ended = instant(part(container, "lastState", "terminated").get("finishedAt"))
        if ended and (self.latest is None or self.latest < ended):
            self.latest = ended

    def told(self, now: datetime) -> str:
        if not self.count or self.latest is None:
            return str(self.count)
        return f"{self.count} ({human_duration(now - self.latest)} ago)"


@dataclass(slots=True)
class _Look:
    """What has been seen so far."""

    stuck: str = ""  # why the pod is not initialized, as far as init containers tell
    ready: int = 0
    restarts: _Restarts = field(default_factory=_Restarts)
    sidecar_restarts: _Restarts = field(default_factory=_Restarts)


def _phase(status: Mapping[str, Any]) -> str:
    conditions = status.get("conditions") or ()
    if any((it.get("type"), it.get("reason")) == ("PodScheduled", "SchedulingGated") for it in conditions):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "")


def _sidecars(spec: Mapping[str, Any]) -> set[str]:
    return {it.get("name", "") for it in spec.get("initContainers") or () if it.get("restartPolicy") == "Always"}


def _look_at_init_containers(status: Mapping[str, Any], *, sidecars: set[str], of: int) -> _Look:
    look = _Look()
    for done, container in enumerate(status.get("initContainerStatuses") or ()):
        look.restarts.add(container)
        sidecar = container.get("name") in sidecars
        if sidecar:
            look.sidecar_restarts.add(container)
        ended = part(container, "state").get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            look.ready += bool(container.get("ready"))
            continue
        look.stuck = f"Init:{_why_not_done(container) or f'{done}/{of}'}"
        break
    return look


def _why_not_done(container: Mapping[str, Any]) -> str:
    state = part(container, "state")
    if state.get("terminated") is not None:
        return _why_ended(state["terminated"])
    waits_for = part(state, "waiting").get("reason", "")
    return "" if waits_for == "PodInitializing" else str(waits_for)


def _why_ended(ended: Mapping[str, Any]) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _look_at_containers(status: Mapping[str, Any], look: _Look, reason: str) -> str:
    """Count what is ready and restarted; return the reason: the first container's that has one wins."""
    running, failed = False, ""
    containers: Sequence[Mapping[str, Any]] = status.get("containerStatuses") or ()
    for container in reversed(containers):
        look.restarts.add(container)
        state = part(container, "state")
        ended = state.get("terminated")
        if waits_for := part(state, "waiting").get("reason"):
            reason = waits_for
        elif ended is not None:
            reason = _why_ended(ended)
            failed = reason if ended.get("exitCode") else failed
        elif container.get("ready") and state.get("running") is not None:
            running = True
            look.ready += 1
    if reason != "Completed":
        return reason
    if running and _condition(status, "Ready") == "True":
        return "Running"
    return failed or ("NotReady" if running else reason)


def _condition(status: Mapping[str, Any], kind: str) -> str:
    return next((str(it.get("status", "")) for it in status.get("conditions") or () if it.get("type") == kind), "")


def _deletion(pod: JsonObject) -> str:
    status = part(pod, "status")
    if not part(pod, "metadata").get("deletionTimestamp"):
        return ""
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return "" if status.get("phase") in _ENDED else "Terminating"


def _readiness_gates(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    gates = spec.get("readinessGates") or ()
    passed = sum(_condition(status, it.get("conditionType", "")) == "True" for it in gates)
    return f"{passed}/{len(gates)}" if gates else NONE


POD_PRINTER = Printer((NAME, *texts("Ready", "Status", "Restarts", "Age"), *wide(*_WIDE)), pod_cells)
