"""All deletable kinds that a cluster serves, for controllers that handle every kind.

Built-in kinds are discovered from the server. Custom ones come from their definitions, which show changes sooner. Kinds
that are written all the time are excluded, and so are kinds that cannot be watched or deleted.
"""

from collections.abc import Collection, Iterable
from typing import Any

from haulout.api import resources
from haulout.api.objects import Base, Condition
from haulout.api.resources import Resource
from haulout.kube.discovery import Discovery
from haulout_sandbox.controllers.objects import OwnedObject

_REQUIRED_VERBS = {"delete", "list", "patch", "watch"}


class CustomResourceDefinitionNames(Base, frozen=True):
    plural: str = ""
    kind: str = ""


class CustomResourceDefinitionVersion(Base, frozen=True):
    name: str = ""
    served: bool = False
    storage: bool = False


class CustomResourceDefinitionSpec(Base, frozen=True):
    """The spec of a CustomResourceDefinition, as far as it is read here."""

    group: str = ""
    names: CustomResourceDefinitionNames = CustomResourceDefinitionNames()
    scope: str = "Namespaced"
    versions: tuple[CustomResourceDefinitionVersion, ...] = ()


class CustomResourceDefinitionStatus(Base, frozen=True):
    """The status of a CustomResourceDefinition: whether it is served."""

    conditions: tuple[Condition, ...] = ()


class CustomResourceDefinition(OwnedObject, frozen=True):
    spec: CustomResourceDefinitionSpec = CustomResourceDefinitionSpec()
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()

    @property
    def resource(self) -> Resource[OwnedObject] | None:
        """Return the resource that it defines, if that is served."""
        spec = self.spec
        served_versions = sorted(
            (element for element in spec.versions if element.served), key=lambda element: not element.storage
        )
        is_established = any(
            element.type == "Established" and element.status == "True" for element in self.status.conditions
        )
        if not served_versions or not is_established:
            return None
        namespaced = spec.scope == "Namespaced"
        return Resource(
            spec.group,
            served_versions[0].name,
            spec.names.plural,
            spec.names.kind,
            namespaced=namespaced,
            model=OwnedObject,
        )


CUSTOM_RESOURCE_DEFINITIONS = resources.CUSTOM_RESOURCE_DEFINITIONS.with_model(CustomResourceDefinition)


def deletable_resources(
    discovery: Discovery, definitions: Iterable[CustomResourceDefinition], *, excluded: Collection[str]
) -> dict[str, Resource[Any]]:
    """Return the served kinds by name (`replicasets.apps`), sorted by name."""
    custom_resources = {
        f"{element.spec.names.plural}.{element.spec.group}": element.resource for element in definitions
    }
    deletable: dict[str, Resource[Any]] = {
        name: element for name, element in custom_resources.items() if element is not None
    }
    for served in discovery.resources.values():
        resource = Resource(
            served.group,
            served.preferred_version,
            served.plural,
            served.kind,
            namespaced=served.namespaced,
            model=OwnedObject,
        )
        if set(served.verbs) >= _REQUIRED_VERBS and str(resource) not in custom_resources:
            deletable[str(resource)] = resource
    return {name: deletable[name] for name in sorted(deletable) if name not in excluded}
