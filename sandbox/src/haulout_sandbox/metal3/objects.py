"""What the stand-in for Metal3 reads, and hosts to begin with."""

import msgspec

from haulout.kinds import metal3
from haulout.kube import shipped
from haulout.kube.objects import Base, RawObject
from haulout_sandbox.controllers.objects import Owned

PROVISIONED, EXTERNAL, AVAILABLE = "provisioned", "externally provisioned", "available"


class Image(Base, frozen=True):
    """What is put on a host."""

    url: str = ""


class HostSpec(metal3.HostSpec, frozen=True):
    """What is wanted of a host."""

    image: Image | None = None
    externally_provisioned: bool = False


class Host(Owned, frozen=True):
    """A BareMetalHost."""

    spec: HostSpec = HostSpec()
    status: RawObject = msgspec.field(default_factory=dict)

    @property
    def state(self) -> str:
        """How far it is."""
        return str((self.status.get("provisioning") or {}).get("state", ""))

    @property
    def is_powered(self) -> bool:
        """Tell whether it was on when somebody last looked."""
        return bool(self.status.get("poweredOn"))

    @property
    def consumer(self) -> str:
        """Which Metal3Machine uses it, as `namespace/name`; empty: none."""
        found = self.spec.consumer_ref
        return "" if found is None else f"{found.namespace}/{found.name}"


HOSTS = metal3.HOSTS.of(Host)


def definitions() -> list[RawObject]:
    """Return the CustomResourceDefinitions."""
    return shipped.definitions(__package__, "definitions.yaml")


def a_host(name: str, *, namespace: str = "metal3", number: int = 1) -> RawObject:
    """Return a BareMetalHost that nobody uses yet."""
    return {
        "apiVersion": HOSTS.api_version,
        "kind": HOSTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "online": True,
            "bootMACAddress": f"00:60:2f:00:{number >> 8 & 255:02x}:{number & 255:02x}",
            "bmc": {"address": f"redfish://bmc-{name}.sandbox/redfish/v1/Systems/1", "credentialsName": f"{name}-bmc"},
        },
    }
