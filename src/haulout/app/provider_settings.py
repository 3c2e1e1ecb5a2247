"""Cloud providers whose maintenance events the operator reads, from environment variables.

    providers = read_environment(os.environ)  # ConfigError: a variable is invalid, or an SDK is missing
    notices = NoticesComponent(providers.sources("haulout-0"))

The variables are those of the event sources (`haulout.providers.event_source`), and of the programs that they replace.
Variables without effect are reported, because a misspelled name would otherwise leave a cloud without a source.

SDKs need much memory: only the leader imports one, when it creates the source.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from haulout.api.objects import Node
from haulout.controllers.notices.component import MakeSources
from haulout.core import cloud_sdk
from haulout.core.yaml_decoder import did_you_mean, join_with_or
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.aws import settings as for_agents
from haulout.providers.aws import settings as for_aws
from haulout.providers.event_source import EventSource
from haulout.providers.gcp import settings as for_gcp
from haulout.providers.gke import settings as for_gke
from haulout.providers.oci import settings as for_oci

_PREFIXES = ("HAULOUT_AWS", "HAULOUT_GCP", "HAULOUT_GKE", "HAULOUT_OCI")
_SWITCHES = ("HAULOUT_AWS", "HAULOUT_GCP", "HAULOUT_GKE")  # each of which may be set to turn its cloud off


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """The settings of each provider, None if it is disabled. Creating them imports no SDK."""

    oci: for_oci.OciSettings | None = None
    aws: for_aws.AwsSettings | None = None
    gcp: for_gcp.GcpSettings | None = None
    gke: for_gke.GkeSettings | None = None
    ignored: tuple[str, ...] = ()  # variables without effect, and why

    def describe(self) -> Iterator[str]:
        if self.oci is not None:
            places = [f"stream {self.oci.stream}"] if self.oci.stream else []
            places += [f"compartment {compartment}" for compartment in self.oci.compartments]
            yield f"OCI events come from {', '.join(places)}; authentication: {self.oci.auth}"
            if self.oci.handler_namespace:
                yield f"OCI: maintenance that the handler planned in namespace {self.oci.handler_namespace} is adopted"
        if self.aws is not None:
            queue = f", and queue {self.aws.queue_url}" if self.aws.queue_url else ""
            keys = f"Secret {self.aws.secret}" if self.aws.secret else "the default chain of boto3"
            yield f"AWS events come from EC2{queue}; credentials: {keys}"
        if self.gcp is not None:
            projects = f"of {', '.join(self.gcp.projects)}" if self.gcp.projects else "of the projects of the nodes"
            keys = f"the file {self.gcp.credentials}" if self.gcp.credentials else "the metadata server"
            begin_note = (
                ""
                if self.gcp.early_start is for_gcp.GoogleEarlyStart.NEVER
                else "; maintenance begins once its node is empty"
            )
            yield f"Google Cloud events come from Compute Engine {projects}; credentials: {keys}{begin_note}"
        if self.gke is not None:
            begin_note = (
                ""
                if self.gke.early_start is for_gcp.GoogleEarlyStart.NEVER
                else "; maintenance begins once its node is empty"
            )
            yield f"GKE events come from labels of nodes{begin_note}"

    def sources(self, instance: str) -> MakeSources:
        """Return the factory of event sources; `instance` identifies this replica."""

        def make(client: Client, nodes: Informer[Node]) -> Sequence[EventSource]:
            sources: list[EventSource] = []
            if self.oci is not None:
                from haulout.providers.oci import sdk

                source = sdk.new_event_source(self.oci, instance=instance, clock=client.clock, random=client.random)
                if self.oci.handler_namespace:
                    source.adopt_cronjobs(client, nodes=nodes, namespace=self.oci.handler_namespace)
                sources.append(source)
            if self.aws is not None:
                from haulout.providers.aws import boto

                sources.append(boto.new_event_source(self.aws, client=client, nodes=nodes))
            if self.gcp is not None:
                from haulout.providers.gcp import http_client

                sources.append(http_client.new_event_source(self.gcp, client=client, nodes=nodes))
            if self.gke is not None:
                from haulout.providers.gke.event_source import GkeEarlyStartSource, GkeEventSource

                kind = GkeEventSource if self.gke.early_start is for_gcp.GoogleEarlyStart.NEVER else GkeEarlyStartSource
                sources.append(kind(client, nodes))
            return sources

        return make


def read_environment(environ: Mapping[str, str]) -> ProviderSettings:
    """Parse the environment variables; raise `ConfigError`."""
    providers = ProviderSettings(
        oci=for_oci.read(environ),
        aws=for_aws.read(environ),
        gcp=for_gcp.read(environ),
        gke=for_gke.read(environ),
    )
    for settings, extra in ((providers.oci, cloud_sdk.OCI), (providers.aws, cloud_sdk.AWS)):
        if settings is not None:
            # At the start, and on every replica: a standby without the SDK would fail only when it leads.
            extra.check()
    return replace(providers, ignored=tuple(_ignored_variables(environ, providers)))


def _ignored_variables(environ: Mapping[str, str], configured: ProviderSettings) -> Iterator[str]:
    yield from () if configured.oci is None else configured.oci.ignored
    foreign = {} if configured.aws is None else configured.aws.unsupported
    yield from (f"{name} has no effect: {why}" for name, why in foreign.items())
    known = (
        *for_oci.VARIABLES,
        *for_aws.VARIABLES,
        *for_agents.AGENT_VARIABLES,
        *for_gcp.VARIABLES,
        *for_gke.VARIABLES,
    )
    for name in sorted(environ):
        if name.startswith(_PREFIXES) and name not in known:
            yield f"{name} has no effect: there is no such variable{did_you_mean(name, known)}"
    for provider, settings, cloud in (
        (for_oci, configured.oci, "OCI"),
        (for_aws, configured.aws, "AWS"),
        (for_gcp, configured.gcp, "Google Cloud"),
        (for_gke, configured.gke, "GKE"),
    ):
        unused = (
            [variable for variable in provider.VARIABLES if environ.get(variable, "").strip()]
            if settings is None
            else []
        )
        if unused and not (len(unused) == 1 and unused[0] in _SWITCHES):
            yield (
                f"{', '.join(unused)} has no effect: {cloud} events "
                f"are only received with {join_with_or(provider.ENABLING_VARIABLES)}"
            )
