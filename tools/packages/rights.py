"""The permissions of the chart: what every installation needs, and what each feature adds where it is on.

Each feature is asked for what it needs (`haulout.app.needs`, and the plugins of profiles); what all need is left out of
it. Names that only the values know are expressions of the template, and go through all of that as texts.

A plugin is on where the `maintenance.yaml` of the values has an instance of its type. Most need the same whatever their
options say. Those whose options name a lease or a Secret get a role for each instance (`OF_INSTANCES`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from types import MappingProxyType

from haulout.app import needs
from haulout.budget import cordon_copies, slots
from haulout.drain import permissions as drain
from haulout.kube import access
from haulout.kube.access import Permission
from haulout.kubernikus.settings import SecretKey
from haulout.kubernikus.settings import Settings as KubernikusSettings
from haulout.profiles import permissions as profiles
from haulout.profiles.model import Configuration, Profile
from haulout.profiles.plugin import Plugin
from haulout.profiles.plugins.checks.kubernikus_count import KubernikusCount, SecretReference
from haulout.profiles.plugins.checks.stagger import Stagger
from haulout.profiles.plugins.notifications.slack_thread import SlackThread
from haulout.profiles.plugins.registry import registries
from haulout.profiles.plugins.triggers.alter_hypervisor import AlterHypervisor
from haulout.profiles.plugins.triggers.eviction import Eviction
from tools.packages.common import HOME, IS_BEHIND_PROXY

LEASES = "{{ .Values.leases.namespace }}"
AWS = "{{ dir .Values.clouds.awsSecret }}"
HANDLER = "{{ .Values.clouds.ociHandlerNamespace }}"
KUBERNIKUS = "{{ dir .Values.kubernikus.secret }}"
_PROVIDER = "{{ base .Values.kubernikus.secret }}"
_KEYS = "{{ base .Values.clouds.awsSecret }}"
_OPTION = "{{ $config.%s }}"
_ANY = MappingProxyType({"any": Profile(name="any", states={})})
_EMPTY = Configuration(requeue=timedelta(minutes=1), profiles=_ANY)  # of plugins, and what is done by default is not


@dataclass(frozen=True, slots=True)
class Feature:
    """What is needed under a condition of the template."""

    condition: str
    permissions: tuple[Permission, ...]


@dataclass(frozen=True, slots=True)
class OfInstance:
    """What each instance of a type needs, if its options are as they must be; `$config` are these."""

    type: str
    condition: str
    permissions: tuple[Permission, ...]
    repeated: str = ""  # how a template yields the names of objects, where there are several


@cache
def always() -> tuple[Permission, ...]:
    """Return what every installation needs."""
    return tuple(it for it in _needed(_EMPTY) if it.resource != "events")


def features() -> Iterator[Feature]:
    """Yield what is needed where something is on, beyond what all need."""
    tells = 'include "haulout.tellsOfPods" .'
    yield Feature(tells, profiles.EVENTS)
    yield Feature('include "haulout.deletesPods" .', (drain.DELETION,))
    yield Feature(f"not ({tells})", tuple(it for it in _needed(_EMPTY) if it.resource == "events"))
    yield _more('include "haulout.makesCertificate" .', _needed(_EMPTY, own_certificate=True))
    yield _more(".Values.machines.enabled", _needed(_EMPTY, with_machines=True))
    of_kubernikus = KubernikusSettings(secret=SecretKey(namespace=KUBERNIKUS, name=_PROVIDER))
    condition = "and .Values.kubernikus.enabled .Values.kubernikus.secret"
    yield _more(condition, _needed(_EMPTY, kubernikus=of_kubernikus))
    yield _more(".Values.esx.enabled", _needed(_EMPTY, with_esx=True))
    yield _more(f"and ({IS_BEHIND_PROXY}) .Values.dashboard.acts", _needed(_EMPTY, acts=True))
    yield _more(".Values.clouds.awsSecret", _needed(_EMPTY, aws_secret=f"{AWS}/{_KEYS}"))
    yield _more(".Values.clouds.ociHandlerNamespace", _needed(_EMPTY, handler_namespace=HANDLER))
    yield _more('include "haulout.usualProfiles" .', _needed(None))
    yield _more('include "haulout.hasBudget" .', slots.permissions(HOME))
    yield _more('include "haulout.cordonsByProfile" .', cordon_copies.permissions(HOME))
    for plugin in _constant():
        yield _more(f'include "haulout.uses" (list . "{plugin.type}")', _of(plugin))


def of_instances() -> tuple[OfInstance, ...]:
    """Return what instances need whose options name it."""
    name, namespace = _OPTION % "leaseName", _OPTION % "leaseNamespace"
    secret = SecretReference(
        name=_OPTION % "cloudProviderSecret.name", namespace=_OPTION % "cloudProviderSecret.namespace"
    )
    return (
        OfInstance(
            Stagger.type,
            "and $config.leaseName $config.leaseNamespace",
            _of(Stagger(duration=timedelta(minutes=1), lease_name=name, lease_namespace=namespace)),
            repeated="$number := until (int (min 1000 (int (default 1 $config.parallel))))",
        ),
        OfInstance(
            SlackThread.type,
            "and $config.leaseName $config.leaseNamespace",
            _of(
                SlackThread(
                    token="",
                    channel="",
                    title="",
                    message="",
                    lease_name=name,
                    lease_namespace=namespace,
                    period=timedelta(days=1),
                )
            ),
        ),
        OfInstance(
            KubernikusCount.type,
            "and $config.cloudProviderSecret $config.cloudProviderSecret.name $config.cloudProviderSecret.namespace",
            _of(KubernikusCount(cluster="", cloud_provider_secret=secret)),
        ),
    )


def _constant() -> Iterator[Plugin]:
    """Yield a plugin of each type that needs something, and always the same."""
    by_options = {Stagger.type, SlackThread.type, KubernikusCount.type, Eviction.type}
    shelves = registries()
    for family in (shelves.checks, shelves.triggers, shelves.notifications):
        for name in sorted(family):
            kind = family[name]
            if name in by_options or not kind.__module__.startswith("haulout."):
                continue
            plugin = AlterHypervisor(fields={"reboot": True}) if kind is AlterHypervisor else _bare(kind)
            if _more("", _of(plugin)).permissions:
                yield plugin


def _bare(kind: type[Plugin]) -> Plugin:
    """Return a plugin without options: what it needs does not depend on them."""
    return kind.__new__(kind)


def _of(plugin: Plugin) -> tuple[Permission, ...]:
    return tuple(profiles.of(plugin, namespace=HOME))


def _needed(
    configuration: Configuration | None,
    *,
    own_certificate: bool = False,
    with_machines: bool = False,
    kubernikus: KubernikusSettings | None = None,
    with_esx: bool = False,
    aws_secret: str = "",
    handler_namespace: str = "",
    acts: bool = False,
) -> tuple[Permission, ...]:
    return needs.permissions(
        namespace=HOME,
        lease_namespace=LEASES,
        configuration=configuration,
        own_certificate=own_certificate,
        with_machines=with_machines,
        kubernikus_settings=kubernikus,
        with_esx=with_esx,
        aws_secret=aws_secret,
        handler_namespace=handler_namespace,
        acts=acts,
    )


def _more(condition: str, needed: Iterable[Permission]) -> Feature:
    """Return what is not among what all need."""
    basis = always()
    more = (it for it in access.lean((*basis, *needed)) if it not in basis)
    return Feature(condition, tuple(it for it in more if not _is_told_anyway(it)))


def _is_told_anyway(permission: Permission) -> bool:
    """Tell whether events are covered by those that are granted first."""
    return permission.resource == "events" and permission.namespace in (None, "default")
