"""The event sources of clouds that environment variables enable.

    clouds = read_environment(os.environ)  # ConfigError: a variable is invalid, or an SDK is missing
    notices = NoticesComponent(clouds.sources)

The variables are those of the components (`haulout.providers.component`), and of the programs that they replace.
Variables without effect are reported, because a misspelled name would otherwise leave a cloud without a source.

SDKs need much memory: only the leader imports one, when it creates the source.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from haulout.app.components import cloud_types
from haulout.core.yaml_decoder import did_you_mean, join_with_or
from haulout.providers.aws.settings import AGENT_VARIABLES
from haulout.providers.component import CloudComponent


@dataclass(frozen=True, slots=True)
class CloudSources:
    """The sources that are on, and messages about variables without effect. Creating them imports no SDK."""

    sources: tuple[CloudComponent, ...] = ()
    ignored: tuple[str, ...] = ()

    def describe(self) -> Iterator[str]:
        for source in self.sources:
            yield from source.describe()


def read_environment(environ: Mapping[str, str]) -> CloudSources:
    """Parse the environment variables; raise `ConfigError`."""
    settings = {kind: kind.read(environ) for kind in cloud_types()}
    sources = tuple(kind(found) for kind, found in settings.items() if found is not None)
    for source in sources:
        if source.sdk is not None:
            # At the start, and on every replica: a standby without the SDK would fail only when it leads.
            source.sdk.check()
    return CloudSources(sources, tuple(_ignored_variables(environ, sources)))


def _ignored_variables(environ: Mapping[str, str], sources: tuple[CloudComponent, ...]) -> Iterator[str]:
    for source in sources:
        yield from source.ignored_variables()
    known = (*(name for kind in cloud_types() for name in kind.variables), *AGENT_VARIABLES)
    prefixes = tuple(kind.prefix for kind in cloud_types())
    for name in sorted(environ):
        if name.startswith(prefixes) and name not in known:
            yield f"{name} has no effect: there is no such variable{did_you_mean(name, known)}"
    enabled = {type(source) for source in sources}
    for kind in cloud_types():
        unused = [name for name in kind.variables if kind not in enabled and environ.get(name, "").strip()]
        is_turned_off = unused == [kind.prefix]  # HAULOUT_AWS=false is a decision
        if unused and not is_turned_off:
            yield (
                f"{', '.join(unused)} has no effect: {kind.cloud} events "
                f"are only received with {join_with_or(kind.enabling_variables)}"
            )
