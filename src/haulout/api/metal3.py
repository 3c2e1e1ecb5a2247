"""Metal3, as far as we read it: BareMetalHosts, which are powered off while somebody has an annotation on them.

A host stays off until all annotations `reboot.metal3.io/…` are gone; each belongs to whoever set it.
"""

from haulout.api.objects import Base, Object
from haulout.api.resources import Resource

GROUP = "metal3.io"
REBOOT_ANNOTATION = "reboot.metal3.io"  # once
REBOOT_ANNOTATION_PREFIX = f"{REBOOT_ANNOTATION}/"  # off, until it is gone
OUR_REBOOT_ANNOTATION = f"{REBOOT_ANNOTATION_PREFIX}runtime-extension-maintenance-controller"  # its value is empty
REBOOTABLE_STATES = ("provisioned", "externally provisioned")  # states in which these annotations count
METAL3_MACHINE_KIND = "Metal3Machine"  # the kind of who uses a host for Cluster API


class ConsumerReference(Base, frozen=True):
    """Who uses a host."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class BareMetalHostSpec(Base, frozen=True):
    """What is wanted of a host."""

    online: bool = False
    consumer_ref: ConsumerReference | None = None
    disable_power_off: bool | None = None  # it is rebooted instead, again and again while an annotation is there


class ProvisioningStatus(Base, frozen=True):
    """How far a host is."""

    state: str = ""


class BareMetalHostStatus(Base, frozen=True):
    """How a host is."""

    powered_on: bool = False
    operational_status: str = ""
    provisioning: ProvisioningStatus = ProvisioningStatus()


class BareMetalHost(Object, frozen=True):
    """A machine without a cloud."""

    spec: BareMetalHostSpec = BareMetalHostSpec()
    status: BareMetalHostStatus = BareMetalHostStatus()


BARE_METAL_HOSTS = Resource(GROUP, "v1alpha1", "baremetalhosts", "BareMetalHost", namespaced=True, model=BareMetalHost)
