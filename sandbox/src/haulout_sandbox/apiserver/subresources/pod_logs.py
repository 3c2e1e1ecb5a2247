"""Container subresources of pods: log, exec, attach, portforward. Containers of the sandbox run no processes.

So a log lists what is known of the container: when it started and how it ended. Requests for exec, attach and
portforward are refused with that explanation.
"""

from collections.abc import Mapping
from typing import NamedTuple

from haulout.kube.transport import Response
from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.handlers import request_options
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.request_paths import is_true

LOG = "log"

_STREAM_ACTIONS = {"attach": "attach to", "exec": "execute a command in", "portforward": "forward a port to"}
_SECTIONS = (
    ("initContainers", "initContainerStatuses"),
    ("containers", "containerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
)


class LogLine(NamedTuple):
    """An event in the life of a container, with its time."""

    time: str
    text: str


def is_container_subresource(subresource: str) -> bool:
    """Return whether the subresource is about the containers of a pod."""
    return subresource == LOG or subresource in _STREAM_ACTIONS


def handle_container_request(pod: JsonObject, method: str, subresource: str, query: Mapping[str, str]) -> Response:
    if method not in (("GET",) if subresource == LOG else ("GET", "POST")):
        raise status.StatusError(status.generic_status(405))
    if subresource == LOG:
        return _log_response(pod, query)
    action, name = _STREAM_ACTIONS[subresource], pod["metadata"]["name"]
    raise status.bad_request(f"cannot {action} pod {name}: the pods of the sandbox run nothing")


def _log_response(pod: JsonObject, query: Mapping[str, str]) -> Response:
    container = _container_name(pod, query)
    if not pod["spec"].get("nodeName"):
        return Response(204, {}, b"")
    lines = _log_lines(pod, container, previous=is_true(query, "previous"))
    if "tailLines" in query:
        lines = lines[max(len(lines) - request_options.integer_parameter(query, "tailLines"), 0) :]
    shown = [f"{line.time} {line.text}" if is_true(query, "timestamps") else line.text for line in lines]
    return Response(200, {"content-type": "text/plain"}, "".join(f"{line}\n" for line in shown).encode())


def _container_name(pod: JsonObject, query: Mapping[str, str]) -> str:
    """Return the name of the requested container."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    known = [each["name"] for section, _ in _SECTIONS for each in spec.get(section) or ()]
    requested = query.get("container", "")
    if requested and requested not in known:
        raise status.bad_request(f"container {requested} is not valid for pod {name}")
    if not requested and len(spec.get("containers") or ()) != 1:
        raise status.bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(known)}]"
        )
    return requested or str(spec["containers"][0]["name"])


def _log_lines(pod: JsonObject, container: str, *, previous: bool) -> list[LogLine]:
    statuses = [each for _, section in _SECTIONS for each in pod["status"].get(section) or ()]
    container_status: JsonObject = next((each for each in statuses if each["name"] == container), {})
    name, restarts = pod["metadata"]["name"], container_status.get("restartCount", 0)
    state: JsonObject = container_status.get("lastState" if previous else "state") or {}
    if previous and "terminated" not in state:
        raise status.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if "running" in state:
        return [_started_line(container, state["running"], restarts)]
    if "terminated" in state:
        ended = state["terminated"]
        outcome = f"{ended.get('reason') or 'ended'}, exit code {ended.get('exitCode', 0)}"
        start = _started_line(container, ended, restarts - previous)
        return [start, LogLine(ended.get("finishedAt", ""), f"container {container} ended: {outcome}")]
    waiting_reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    raise status.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {waiting_reason}')


def _started_line(container: str, state: JsonObject, restarts: int) -> LogLine:
    again = f" again, restart {restarts}" if restarts > 0 else ""
    time = state.get("startedAt", "")
    return LogLine(time, f"container {container} started{again} at {time}; in the sandbox it runs nothing")
