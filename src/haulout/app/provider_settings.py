"""Which clouds the operator listens to, as its environment says.

    clouds = read(os.environ)                       # ConfigError: a variable makes no sense, or an SDK is not there
    notices = Notices(clouds.sources("haulout-0"))

The variables are those of the sources (`haulout.providers.event_source`), and of the programs that they replace. What
is set and has no effect is named, for people: a variable that is spelled wrong would otherwise be a cloud that is
never heard.

SDKs are big: one is loaded only where its source is made, by the replica that leads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from haulout.api.objects import Node
from haulout.app.notices import MakeSources
from haulout.core.yaml_decoder import did_you_mean, join_with_or
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers import optional_sdks
from haulout.providers.aws import agent_settings as for_agents
from haulout.providers.aws import settings as for_aws
from haulout.providers.event_source import EventSource
from haulout.providers.gcp import settings as for_gcp
from haulout.providers.gke import settings as for_gke
from haulout.providers.oci import settings as for_oci

_PREFIXES = ("HAULOUT_AWS", "HAULOUT_GCP", "HAULOUT_GKE", "HAULOUT_OCI")
_SWITCHES = ("HAULOUT_AWS", "HAULOUT_GCP", "HAULOUT_GKE")  # which say no by themselves


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What is configured; None: that cloud is not listened to."""

    oci: for_oci.OciSettings | None = None
    aws: for_aws.AwsSettings | None = None
    gcp: for_gcp.GcpSettings | None = None
    gke: for_gke.GkeSettings | None = None
    ignored: tuple[str, ...] = ()  # what is set and has no effect, and why

    def describe(self) -> Iterator[str]:
        """Yield what is listened to, a line each."""
        if self.oci is not None:
            places = [f"stream {self.oci.stream}"] if self.oci.stream else []
            places += [f"compartment {compartment}" for compartment in self.oci.compartments]
            yield f"OCI is listened to: {', '.join(places)}; as {self.oci.auth}"
            if self.oci.handler_namespace:
                yield f"OCI: what the handler has planned in namespace {self.oci.handler_namespace} is taken over"
        if self.aws is not None:
            queue = f", and queue {self.aws.queue_url}" if self.aws.queue_url else ""
            keys = f"the keys in Secret {self.aws.secret}" if self.aws.secret else "what credentials boto3 finds"
            yield f"AWS is listened to: EC2{queue}; with {keys}"
        if self.gcp is not None:
            projects = (
                f"of {', '.join(self.gcp.projects)}" if self.gcp.projects else "of the projects that nodes are in"
            )
            keys = f"the file {self.gcp.credentials}" if self.gcp.credentials else "tokens of the metadata server"
            begin_note = (
                ""
                if self.gcp.early_start is for_gcp.GoogleEarlyStart.NEVER
                else "; maintenance begins once its node is empty"
            )
            yield f"Google Cloud is listened to: Compute {projects}; with {keys}{begin_note}"
        if self.gke is not None:
            begin_note = (
                ""
                if self.gke.early_start is for_gcp.GoogleEarlyStart.NEVER
                else "; maintenance begins once its node is empty"
            )
            yield f"GKE is listened to: labels of nodes{begin_note}"

    def sources(self, instance: str) -> MakeSources:
        """Return what makes the sources; `instance` tells this replica from all others."""

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
    """Return what environment variables say; raises `ConfigError`."""
    providers = ProviderSettings(
        oci=for_oci.read(environ),
        aws=for_aws.read(environ),
        gcp=for_gcp.read(environ),
        gke=for_gke.read(environ),
    )
    for settings, extra in ((providers.oci, optional_sdks.OCI), (providers.aws, optional_sdks.AWS)):
        if settings is not None:
            extra.check()
    return replace(providers, ignored=tuple(_ignored_variables(environ, providers)))


def _ignored_variables(environ: Mapping[str, str], configured: ProviderSettings) -> Iterator[str]:
    yield from () if configured.oci is None else configured.oci.ignored
    foreign = {} if configured.aws is None else configured.aws.unsupported
    yield from (f"{name} is of no use: {why}" for name, why in foreign.items())
    known = (*for_oci.VARIABLES, *for_aws.VARIABLES, *for_agents.VARIABLES, *for_gcp.VARIABLES, *for_gke.VARIABLES)
    for name in sorted(environ):
        if name.startswith(_PREFIXES) and name not in known:
            yield f"{name} is of no use: there is no such variable{did_you_mean(name, known)}"
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
                f"{', '.join(unused)} has no effect: {cloud} is not listened "
                f"to without {join_with_or(provider.ENABLING_VARIABLES)}"
            )
