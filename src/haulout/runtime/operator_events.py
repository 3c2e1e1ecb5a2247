"""Events about the operator itself, with its namespace as the involved object.

Events about cluster-scoped objects such as namespaces are stored in the namespace `default`.
"""

import logging

from haulout.api.resources import NAMESPACES
from haulout.errors import KubeError, LeadershipLost
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder, object_reference

log = logging.getLogger(__name__)


class OperatorEvents:
    """Sends warning events about the operator. They are a courtesy: a failure is logged, and never raised."""

    def __init__(self, client: Client, recorder: EventRecorder, namespace: str) -> None:
        self._client = client
        self._recorder = recorder
        self.namespace = namespace

    async def warn(self, note: str, *, reason: str, action: str) -> None:
        """Send a warning event; if that fails, log it instead."""
        try:
            # Read each time, and not cached: an Event needs the uid of the namespace to be shown by `kubectl
            # describe`, and warnings are rare.
            about = await self._client.get(NAMESPACES, self.namespace)
        except (KubeError, LeadershipLost) as error:
            log.warning("cannot record an Event (%s): %s", error, note)
            return
        self._recorder.event(
            object_reference(NAMESPACES, about), type="Warning", reason=reason, note=note, action=action
        )
