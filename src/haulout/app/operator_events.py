"""What the operator tells of itself: by events about its namespace, which `kubectl get events` shows.

Events about cluster-scoped objects, as a namespace is one, are in the namespace `default`.
"""

import logging

from haulout.api.resources import NAMESPACES
from haulout.errors import KubeError, LeadershipLost
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder, object_reference

log = logging.getLogger(__name__)


class OperatorEvents:
    """Tells what people should look after."""

    def __init__(self, client: Client, recorder: EventRecorder, namespace: str) -> None:
        self._client = client
        self._recorder = recorder
        self.namespace = namespace

    async def warn_of_history(self, note: str) -> None:
        """Tell that the history of nodes cannot be written, since permissions are missing."""
        await self.warn(note, reason="HistoryForbidden", action="WriteHistory")

    async def warn(self, note: str, *, reason: str, action: str) -> None:
        """Tell it; what cannot be told is in the log anyway."""
        try:
            about = await self._client.get(NAMESPACES, self.namespace)
        except (KubeError, LeadershipLost) as error:
            log.warning("no event tells it (%s): %s", error, note)
            return
        self._recorder.event(
            object_reference(NAMESPACES, about), type="Warning", reason=reason, note=note, action=action
        )
