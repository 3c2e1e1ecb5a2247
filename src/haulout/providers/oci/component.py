"""Maintenance events of OCI as a component of the operator."""

import socket
from collections.abc import Iterator, Mapping
from typing import Any

from haulout.api.objects import Node
from haulout.core import cloud_sdk
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.rbac import Permission
from haulout.providers.component import CloudComponent
from haulout.providers.event_source import EventSource
from haulout.providers.oci.settings import ENABLING_VARIABLES, VARIABLES, OciSettings, read


class OciEvents(CloudComponent):
    """Reads them with the streams and Compute of OCI's SDK."""

    name, cloud, prefix = "oci", "OCI", "HAULOUT_OCI"
    variables, enabling_variables = VARIABLES, ENABLING_VARIABLES
    sdk = cloud_sdk.OCI
    settings: OciSettings

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> OciSettings | None:
        return read(environ)

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        from haulout.providers.oci import handler_cronjobs

        del namespace
        adopts = settings is not None and settings.handler_namespace
        return handler_cronjobs.permissions(namespace=settings.handler_namespace) if adopts else ()

    def describe(self) -> Iterator[str]:
        places = [f"stream {self.settings.stream}"] if self.settings.stream else []
        places += [f"compartment {compartment}" for compartment in self.settings.compartments]
        yield f"OCI events come from {', '.join(places)}; authentication: {self.settings.auth}"
        if namespace := self.settings.handler_namespace:
            yield f"OCI: maintenance that the handler planned in namespace {namespace} is adopted"

    def ignored_variables(self) -> Iterator[str]:
        yield from self.settings.ignored

    def make_source(self, client: Client, nodes: Informer[Node]) -> EventSource:
        from haulout.providers.oci import sdk

        source = sdk.new_event_source(
            self.settings, instance=socket.gethostname(), clock=client.clock, random=client.random
        )
        if self.settings.handler_namespace:
            source.adopt_cronjobs(client, nodes=nodes, namespace=self.settings.handler_namespace)
        return source
