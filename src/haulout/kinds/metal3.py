"""Metal3, as far as we read it: BareMetalHosts, which are powered off while somebody has an annotation on them.

A host stays off until all annotations `reboot.metal3.io/…` are gone; each belongs to whoever set it.
"""

from haulout.kube.objects import Base, Object
from haulout.kube.resources import Resource

GROUP = "metal3.io"
REBOOT = "reboot.metal3.io"  # once
REBOOTS = f"{REBOOT}/"  # off, until it is gone
REBOOT_OURS = f"{REBOOTS}runtime-extension-maintenance-controller"  # its value is empty
REBOOTED_IN = ("provisioned", "externally provisioned")  # states in which these annotations count
CONSUMER = "Metal3Machine"  # the kind of who uses a host for Cluster API


class Consumer(Base, frozen=True):
    """Who uses a host."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class HostSpec(Base, frozen=True):
    """What is wanted of a host."""

    online: bool = False
    consumer_ref: Consumer | None = None
    disable_power_off: bool | None = None  # it is rebooted instead, again and again while an annotation is there


class Provisioning(Base, frozen=True):
    """How far a host is."""

    state: str = ""


class HostStatus(Base, frozen=True):
    """How a host is."""

    powered_on: bool = False
    operational_status: str = ""
    provisioning: Provisioning = Provisioning()


class BareMetalHost(Object, frozen=True):
    """A machine without a cloud."""

    spec: HostSpec = HostSpec()
    status: HostStatus = HostStatus()


HOSTS = Resource(GROUP, "v1alpha1", "baremetalhosts", "BareMetalHost", namespaced=True, model=BareMetalHost)
