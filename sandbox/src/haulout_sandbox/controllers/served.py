"""Every kind of object that a cluster serves, for controllers that care for all of them.

Built-in kinds are asked of the server. Custom ones follow their definitions, which say sooner when one comes or goes.
What is written all the time is left out, and so is what cannot be watched or deleted.
"""

from collections.abc import Collection, Iterable
from typing import Any

from haulout.kube import resources
from haulout.kube.discovery import Discovery
from haulout.kube.objects import Base, Condition
from haulout.kube.resources import Resource
from haulout_sandbox.controllers.objects import Owned

_NEEDED = {"delete", "list", "patch", "watch"}


class DefinedNames(Base, frozen=True):
    """What a custom resource is called."""

    plural: str = ""
    kind: str = ""


class DefinedVersion(Base, frozen=True):
    """One of its versions."""

    name: str = ""
    served: bool = False
    storage: bool = False


class DefinitionSpec(Base, frozen=True):
    """What a custom resource is."""

    group: str = ""
    names: DefinedNames = DefinedNames()
    scope: str = "Namespaced"
    versions: tuple[DefinedVersion, ...] = ()


class DefinitionStatus(Base, frozen=True):
    """Whether it is served."""

    conditions: tuple[Condition, ...] = ()


class Definition(Owned, frozen=True):
    """A CustomResourceDefinition."""

    spec: DefinitionSpec = DefinitionSpec()
    status: DefinitionStatus = DefinitionStatus()

    @property
    def resource(self) -> Resource[Owned] | None:
        """The resource it defines, if that is served."""
        spec = self.spec
        served = sorted((it for it in spec.versions if it.served), key=lambda it: not it.storage)
        established = any(it.type == "Established" and it.status == "True" for it in self.status.conditions)
        if not served or not established:
            return None
        namespaced = spec.scope == "Namespaced"
        return Resource(
            spec.group, served[0].name, spec.names.plural, spec.names.kind, namespaced=namespaced, model=Owned
        )


DEFINITIONS = resources.DEFINITIONS.of(Definition)


def served_kinds(
    served: Discovery, definitions: Iterable[Definition], *, without: Collection[str]
) -> dict[str, Resource[Any]]:
    """Return the kinds that are served, by name (`replicasets.apps`), in the order of their names."""
    defined = {f"{it.spec.names.plural}.{it.spec.group}": it.resource for it in definitions}
    found: dict[str, Resource[Any]] = {name: it for name, it in defined.items() if it is not None}
    for each in served.resources.values():
        resource = Resource(each.group, each.preferred, each.plural, each.kind, namespaced=each.namespaced, model=Owned)
        if set(each.verbs) >= _NEEDED and str(resource) not in defined:
            found[str(resource)] = resource
    return {name: found[name] for name in sorted(found) if name not in without}
