"""Maintenance events of AWS as a component of the operator."""

from collections.abc import Iterator, Mapping
from typing import Any

from haulout.api.objects import Node
from haulout.core import cloud_sdk
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.rbac import Permission
from haulout.providers.aws.settings import ENABLING_VARIABLES, VARIABLES, AwsSettings, read
from haulout.providers.component import CloudComponent
from haulout.providers.event_source import EventSource


class AwsEvents(CloudComponent):
    """Reads them with boto3: EC2, and a queue if there is one."""

    name, cloud, prefix = "aws", "AWS", "HAULOUT_AWS"
    variables, enabling_variables = VARIABLES, ENABLING_VARIABLES
    sdk = cloud_sdk.AWS
    settings: AwsSettings

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> AwsSettings | None:
        return read(environ)

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        from haulout.providers.aws import credentials

        del namespace
        return credentials.permissions(settings.secret) if settings is not None and settings.secret else ()

    def describe(self) -> Iterator[str]:
        queue = f", and queue {self.settings.queue_url}" if self.settings.queue_url else ""
        keys = f"Secret {self.settings.secret}" if self.settings.secret else "the default chain of boto3"
        yield f"AWS events come from EC2{queue}; credentials: {keys}"

    def ignored_variables(self) -> Iterator[str]:
        yield from (f"{name} has no effect: {why}" for name, why in self.settings.unsupported.items())

    def make_source(self, client: Client, nodes: Informer[Node]) -> EventSource:
        from haulout.providers.aws import boto

        return boto.new_event_source(self.settings, client=client, nodes=nodes)
