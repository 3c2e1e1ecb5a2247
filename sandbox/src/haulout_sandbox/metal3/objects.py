"""Objects of the simulated Metal3, and builders for initial hosts."""

import msgspec

from haulout.api import clusterapi, resources
from haulout.api.objects import Base, RawObject
from haulout_sandbox.controllers.objects import OwnedObject

PROVISIONED, EXTERNALLY_PROVISIONED, AVAILABLE = "provisioned", "externally provisioned", "available"


class Image(Base, frozen=True):
    url: str = ""


class BareMetalHostSpec(clusterapi.BareMetalHostSpec, frozen=True):
    image: Image | None = None
    externally_provisioned: bool = False


class BareMetalHost(OwnedObject, frozen=True):
    spec: BareMetalHostSpec = BareMetalHostSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def provisioning_state(self) -> str:
        return str((self.status.get("provisioning") or {}).get("state", ""))

    @property
    def is_powered(self) -> bool:
        """Return the last observed power state."""
        return bool(self.status.get("poweredOn"))

    @property
    def consumer(self) -> str:
        """Return the Metal3Machine that uses the host, as `namespace/name`, or an empty string."""
        reference = self.spec.consumer_ref
        return "" if reference is None else f"{reference.namespace}/{reference.name}"


BARE_METAL_HOSTS = clusterapi.BARE_METAL_HOSTS.with_model(BareMetalHost)


def custom_resource_definitions() -> list[RawObject]:
    return resources.load_crds(__package__, "definitions.yaml")


def a_host(name: str, *, namespace: str = "metal3", number: int = 1) -> RawObject:
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
