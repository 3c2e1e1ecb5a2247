"""Every kind of object that a cluster serves, for controllers that care for all of them.

Built-in kinds are asked of the server. Custom ones follow their definitions, which say sooner when one comes or goes.
What is written all the time is left out, and so is what cannot be watched or deleted.
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
    """What a custom resource is called."""

    plural: str = ""
    kind: str = ""


class CustomResourceDefinitionVersion(Base, frozen=True):
    """One of its versions."""

    name: str = ""
    served: bool = False
    storage: bool = False


class CustomResourceDefinitionSpec(Base, frozen=True):
    """What a custom resource is."""

    group: str = ""
    names: CustomResourceDefinitionNames = CustomResourceDefinitionNames()
    scope: str = "Namespaced"
    versions: tuple[CustomResourceDefinitionVersion, ...] = ()


class CustomResourceDefinitionStatus(Base, frozen=True):
    """Whether it is served."""

    conditions: tuple[Condition, ...] = ()


class CustomResourceDefinition(OwnedObject, frozen=True):
    """A CustomResourceDefinition."""

    spec: CustomResourceDefinitionSpec = CustomResourceDefinitionSpec()
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()

    @property
    def resource(self) -> Resource[OwnedObject] | None:
        """The resource it defines, if that is served."""
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
    """Return the kinds that are served, by name (`replicasets.apps`), in the order of their names."""
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
