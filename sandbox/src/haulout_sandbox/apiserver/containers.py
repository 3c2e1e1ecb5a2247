"""What people ask of the containers of a pod: their logs, and to get into them. In the sandbox they run nothing.

So a log tells what is known of the container: when it started and how it ended. Whoever wants to execute something, to
attach, or to forward a port is told why that cannot be.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from haulout.kube.transport import Response
from haulout_sandbox.apiserver import options, status
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.paths import is_true
from haulout_sandbox.apiserver.writes import timestamp

LOG = "log"

_INTO = {"attach": "attach to", "exec": "execute a command in", "portforward": "forward a port to"}
_SECTIONS = (
    ("initContainers", "initContainerStatuses"),
    ("containers", "containerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
)


class Line(NamedTuple):
    """What happened to a container, and when."""

    at: str
    text: str


def is_of_containers(subresource: str) -> bool:
    """Tell whether this is about the containers of a pod."""
    return subresource == LOG or subresource in _INTO


def about_containers(
    pod: JsonObject, method: str, subresource: str, query: Mapping[str, str], *, now: datetime
) -> Response:
    """Answer a request about the containers of `pod`."""
    if method not in (("GET",) if subresource == LOG else ("GET", "POST")):
        raise status.Refused(status.generic(405))
    if subresource == LOG:
        return _log(pod, query, now)
    name = pod["metadata"]["name"]
    if subresource != "portforward":
        _container(pod, query)
    if not pod["spec"].get("nodeName"):
        raise status.bad_request(f"pod {name} does not have a host assigned")
    raise status.bad_request(f"cannot {_INTO[subresource]} pod {name}: the pods of the sandbox run nothing")


def _log(pod: JsonObject, query: Mapping[str, str], now: datetime) -> Response:
    container = _container(pod, query)
    if not pod["spec"].get("nodeName"):
        return Response(204, {}, b"")
    lines = _story(pod, container, previous=is_true(query, "previous"))
    since = query.get("sinceTime", "")
    if seconds := options.number(query, "sinceSeconds"):
        since = timestamp(now - timedelta(seconds=seconds))
    lines = [line for line in lines if line.at >= since]
    if "tailLines" in query:
        lines = lines[max(len(lines) - options.number(query, "tailLines"), 0) :]
    shown = [f"{line.at} {line.text}" if is_true(query, "timestamps") else line.text for line in lines]
    text = "".join(f"{line}\n" for line in shown).encode()
    return Response(200, {"content-type": "text/plain"}, text[: options.number(query, "limitBytes") or None])


def _container(pod: JsonObject, query: Mapping[str, str]) -> str:
    """Return the container that is meant."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    known = [each["name"] for section, _ in _SECTIONS for each in spec.get(section) or ()]
    wanted = query.get("container", "")
    if wanted and wanted not in known:
        raise status.bad_request(f"container {wanted} is not valid for pod {name}")
    if not wanted and len(spec.get("containers") or ()) != 1:
        raise status.bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(known)}]"
        )
    return wanted or str(spec["containers"][0]["name"])


def _story(pod: JsonObject, container: str, *, previous: bool) -> list[Line]:
    told = [each for _, section in _SECTIONS for each in pod["status"].get(section) or ()]
    found: JsonObject = next((each for each in told if each["name"] == container), {})
    name, restarts = pod["metadata"]["name"], found.get("restartCount", 0)
    state: JsonObject = found.get("lastState" if previous else "state") or {}
    if previous and "terminated" not in state:
        raise status.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if "running" in state:
        return [_started(container, state["running"], restarts)]
    if "terminated" in state:
        ended = state["terminated"]
        how = f"{ended.get('reason') or 'ended'}, exit code {ended.get('exitCode', 0)}"
        start = _started(container, ended, restarts - previous)
        return [start, Line(ended.get("finishedAt", ""), f"container {container} ended: {how}")]
    waits = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    raise status.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {waits}')


def _started(container: str, state: JsonObject, restarts: int) -> Line:
    again = f" again, restart {restarts}" if restarts > 0 else ""
    at = state.get("startedAt", "")
    return Line(at, f"container {container} started{again} at {at}; in the sandbox it runs nothing")
