"""What the stand-in for Metal3 reads, and hosts to begin with."""

import msgspec

from haulout.api import crds, metal3
from haulout.api.objects import Base, RawObject
from haulout_sandbox.controllers.objects import OwnedObject

PROVISIONED, EXTERNALLY_PROVISIONED, AVAILABLE = "provisioned", "externally provisioned", "available"


class Image(Base, frozen=True):
    """What is put on a host."""

    url: str = ""


class BareMetalHostSpec(metal3.BareMetalHostSpec, frozen=True):
    """What is wanted of a host."""

    image: Image | None = None
    externally_provisioned: bool = False


class BareMetalHost(OwnedObject, frozen=True):
    """A BareMetalHost."""

    spec: BareMetalHostSpec = BareMetalHostSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def provisioning_state(self) -> str:
        """How far it is."""
        return str((self.status.get("provisioning") or {}).get("state", ""))

    @property
    def is_powered(self) -> bool:
        """Tell whether it was on when somebody last looked."""
        return bool(self.status.get("poweredOn"))

    @property
    def consumer(self) -> str:
        """Which Metal3Machine uses it, as `namespace/name`; empty: none."""
        reference = self.spec.consumer_ref
        return "" if reference is None else f"{reference.namespace}/{reference.name}"


BARE_METAL_HOSTS = metal3.BARE_METAL_HOSTS.with_model(BareMetalHost)


def custom_resource_definitions() -> list[RawObject]:
    """Return the CustomResourceDefinitions."""
    return crds.load_crds(__package__, "definitions.yaml")


def a_host(name: str, *, namespace: str = "metal3", number: int = 1) -> RawObject:
    """Return a BareMetalHost that nobody uses yet."""
    return {
        "apiVersion": BARE_METAL_HOSTS.api_version,
        "kind": BARE_METAL_HOSTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "online": True,
            "bootMACAddress": f"00:60:2f:00:{number >> 8 & 255:02x}:{number & 255:02x}",
            "bmc": {"address": f"redfish://bmc-{name}.sandbox/redfish/v1/Systems/1", "credentialsName": f"{name}-bmc"},
        },
    }
