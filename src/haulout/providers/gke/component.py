"""Maintenance events of GKE as a component of the operator."""

from collections.abc import Iterator, Mapping

from haulout.api.objects import Node
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.component import CloudComponent
from haulout.providers.event_source import EventSource
from haulout.providers.gcp.settings import GoogleEarlyStart, early_start_note
from haulout.providers.gke.settings import ENABLING_VARIABLES, VARIABLES, GkeSettings, read


class GkeEvents(CloudComponent):
    """Reads them with labels of nodes."""

    name, cloud, prefix = "gke", "GKE", "HAULOUT_GKE"
    variables, enabling_variables = VARIABLES, ENABLING_VARIABLES
    settings: GkeSettings

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> GkeSettings | None:
        return read(environ)

    def describe(self) -> Iterator[str]:
        yield f"GKE events come from labels of nodes{early_start_note(self.settings.early_start)}"

    def make_source(self, client: Client, nodes: Informer[Node]) -> EventSource:
        from haulout.providers.gke.event_source import GkeEarlyStartSource, GkeEventSource

        is_passive = self.settings.early_start is GoogleEarlyStart.NEVER
        return (GkeEventSource if is_passive else GkeEarlyStartSource)(client, nodes)
