"""Maintenance events of Google Cloud as a component of the operator."""

from collections.abc import Iterator, Mapping

from haulout.api.objects import Node
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.component import CloudComponent
from haulout.providers.event_source import EventSource
from haulout.providers.gcp.settings import ENABLING_VARIABLES, VARIABLES, GcpSettings, early_start_note, read


class GcpEvents(CloudComponent):
    """Reads them with the Compute API."""

    name, cloud, prefix = "gcp", "Google Cloud", "HAULOUT_GCP"
    variables, enabling_variables = VARIABLES, ENABLING_VARIABLES
    settings: GcpSettings

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> GcpSettings | None:
        return read(environ)

    def describe(self) -> Iterator[str]:
        projects = ", ".join(self.settings.projects) or "the projects of the nodes"
        keys = f"the file {self.settings.credentials}" if self.settings.credentials else "the metadata server"
        begin_note = early_start_note(self.settings.early_start)
        yield f"Google Cloud events come from Compute Engine of {projects}; credentials: {keys}{begin_note}"

    def make_source(self, client: Client, nodes: Informer[Node]) -> EventSource:
        from haulout.providers.gcp import http_client

        return http_client.new_event_source(self.settings, client=client, nodes=nodes)
