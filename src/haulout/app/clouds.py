"""Which clouds the operator listens to, as its environment says.

    clouds = read(os.environ)                       # ConfigError: a variable makes no sense, or an SDK is not there
    notices = Notices(clouds.sources("haulout-0"))

The variables are those of the sources (`haulout.notices.sources`), and of the programs that they replace. What is set
and has no effect is named, for people: a variable that is spelled wrong would otherwise be a cloud that is never heard.

SDKs are big: one is loaded only where its source is made, by the replica that leads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from haulout.app.notices import Sources
from haulout.core.shaped import listed, meant
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.sources import Source, extras
from haulout.notices.sources.aws import agent_settings as for_agents
from haulout.notices.sources.aws import settings as for_aws
from haulout.notices.sources.gcp import settings as for_gcp
from haulout.notices.sources.gke import settings as for_gke
from haulout.notices.sources.oci import settings as for_oci

_OURS = ("HAULOUT_AWS", "HAULOUT_GCP", "HAULOUT_GKE", "HAULOUT_OCI")
_SWITCHES = ("HAULOUT_AWS", "HAULOUT_GCP", "HAULOUT_GKE")  # which say no by themselves


@dataclass(frozen=True, slots=True)
class Clouds:
    """What is configured; None: that cloud is not listened to."""

    oci: for_oci.OciSettings | None = None
    aws: for_aws.Settings | None = None
    gcp: for_gcp.Settings | None = None
    gke: for_gke.Settings | None = None
    ignored: tuple[str, ...] = ()  # what is set and has no effect, and why

    def told(self) -> Iterator[str]:
        """Yield what is listened to, a line each."""
        if self.oci is not None:
            heard = [f"stream {self.oci.stream}"] if self.oci.stream else []
            heard += [f"compartment {it}" for it in self.oci.compartments]
            yield f"OCI is listened to: {', '.join(heard)}; as {self.oci.auth}"
            if self.oci.handler_namespace:
                yield f"OCI: what the handler has planned in namespace {self.oci.handler_namespace} is taken over"
        if self.aws is not None:
            queue = f", and queue {self.aws.queue_url}" if self.aws.queue_url else ""
            keys = f"the keys in Secret {self.aws.secret}" if self.aws.secret else "what credentials boto3 finds"
            yield f"AWS is listened to: EC2{queue}; with {keys}"
        if self.gcp is not None:
            where = f"of {', '.join(self.gcp.projects)}" if self.gcp.projects else "of the projects that nodes are in"
            keys = f"the file {self.gcp.credentials}" if self.gcp.credentials else "tokens of the metadata server"
            early = "" if self.gcp.begin is for_gcp.Begin.NEVER else "; maintenance begins once its node is empty"
            yield f"Google Cloud is listened to: Compute {where}; with {keys}{early}"
        if self.gke is not None:
            early = "" if self.gke.begin is for_gcp.Begin.NEVER else "; maintenance begins once its node is empty"
            yield f"GKE is listened to: labels of nodes{early}"

    def sources(self, instance: str) -> Sources:
        """Return what makes the sources; `instance` tells this replica from all others."""

        def make(client: Client, nodes: Cache[Node]) -> Sequence[Source]:
            made: list[Source] = []
            if self.oci is not None:
                from haulout.notices.sources.oci import sdk

                source = sdk.listening(self.oci, instance=instance, clock=client.clock, random=client.random)
                if self.oci.handler_namespace:
                    source.adopt(client, nodes=nodes, namespace=self.oci.handler_namespace)
                made.append(source)
            if self.aws is not None:
                from haulout.notices.sources.aws import boto

                made.append(boto.listening(self.aws, client=client, nodes=nodes))
            if self.gcp is not None:
                from haulout.notices.sources.gcp import network

                made.append(network.listening(self.gcp, client=client, nodes=nodes))
            if self.gke is not None:
                from haulout.notices.sources.gke.source import BeginningGkeSource, GkeSource

                kind = GkeSource if self.gke.begin is for_gcp.Begin.NEVER else BeginningGkeSource
                made.append(kind(client, nodes))
            return made

        return make


def read(environ: Mapping[str, str]) -> Clouds:
    """Return what environment variables say; raises `ConfigError`."""
    found = Clouds(
        oci=for_oci.read(environ),
        aws=for_aws.read(environ),
        gcp=for_gcp.read(environ),
        gke=for_gke.read(environ),
    )
    for settings, extra in ((found.oci, extras.OCI), (found.aws, extras.AWS)):
        if settings is not None:
            extra.check()
    return replace(found, ignored=tuple(_ignored(environ, found)))


def _ignored(environ: Mapping[str, str], found: Clouds) -> Iterator[str]:
    yield from () if found.oci is None else found.oci.ignored
    foreign = {} if found.aws is None else found.aws.foreign
    yield from (f"{name} is of no use: {why}" for name, why in foreign.items())
    known = (*for_oci.VARIABLES, *for_aws.VARIABLES, *for_agents.VARIABLES, *for_gcp.VARIABLES, *for_gke.VARIABLES)
    for name in sorted(environ):
        if name.startswith(_OURS) and name not in known:
            yield f"{name} is of no use: there is no such variable{meant(name, known)}"
    for of, settings, cloud in (
        (for_oci, found.oci, "OCI"),
        (for_aws, found.aws, "AWS"),
        (for_gcp, found.gcp, "Google Cloud"),
        (for_gke, found.gke, "GKE"),
    ):
        idle = [it for it in of.VARIABLES if environ.get(it, "").strip()] if settings is None else []
        if idle and not (len(idle) == 1 and idle[0] in _SWITCHES):
            yield f"{', '.join(idle)} has no effect: {cloud} is not listened to without {listed(of.TURN_ON)}"
