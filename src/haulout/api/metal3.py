"""Metal3 types: BareMetalHosts, which stay powered off while they have a reboot annotation.

A host stays off until all annotations `reboot.metal3.io/…` are removed. Each belongs to the client that set it.
"""

from haulout.api.objects import Base, Object
from haulout.api.resources import Resource

GROUP = "metal3.io"
REBOOT_ANNOTATION = "reboot.metal3.io"  # reboots once
REBOOT_ANNOTATION_PREFIX = f"{REBOOT_ANNOTATION}/"  # powers off until it is removed
OUR_REBOOT_ANNOTATION = f"{REBOOT_ANNOTATION_PREFIX}runtime-extension-maintenance-controller"  # with an empty value
# provisioning states in which these annotations have an effect
REBOOTABLE_STATES = ("provisioned", "externally provisioned")
METAL3_MACHINE_KIND = "Metal3Machine"  # the kind of a host's consumer in Cluster API


class ConsumerReference(Base, frozen=True):
    """The object that uses a host."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class BareMetalHostSpec(Base, frozen=True):
    """The desired state of a host."""

    online: bool = False
    consumer_ref: ConsumerReference | None = None
    disable_power_off: bool | None = None  # the host is rebooted instead, repeatedly while an annotation exists


class ProvisioningStatus(Base, frozen=True):
    """The provisioning state of a host."""

    state: str = ""


class BareMetalHostStatus(Base, frozen=True):
    """The observed state of a host."""

    powered_on: bool = False
    operational_status: str = ""
    provisioning: ProvisioningStatus = ProvisioningStatus()


class BareMetalHost(Object, frozen=True):
    """A bare-metal host."""

    spec: BareMetalHostSpec = BareMetalHostSpec()
    status: BareMetalHostStatus = BareMetalHostStatus()


BARE_METAL_HOSTS = Resource(GROUP, "v1alpha1", "baremetalhosts", "BareMetalHost", namespaced=True, model=BareMetalHost)
