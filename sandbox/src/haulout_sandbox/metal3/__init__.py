"""A stand-in for Metal3: hosts that are provisioned, and powered off for as long as somebody wants it.

    rack = Rack(clock)
    management.host(Metal3(management.client("metal3"), rack, random=Random(1)).run(), name="metal3")

A host is a BareMetalHost and a machine in the `Rack`. With `Metal3InfrastructureProvider` Machines of Cluster API run
on hosts: then there is a Node on the machine, which falls silent when its host goes off.
"""

from haulout_sandbox.metal3.infrastructure_provider import Metal3InfrastructureProvider
from haulout_sandbox.metal3.manager import Metal3
from haulout_sandbox.metal3.objects import BARE_METAL_HOSTS, a_host, custom_resource_definitions
from haulout_sandbox.metal3.rack import QUICK_DELAYS, Metal3Delays, Rack

__all__ = [
    "BARE_METAL_HOSTS",
    "QUICK_DELAYS",
    "Metal3",
    "Metal3Delays",
    "Metal3InfrastructureProvider",
    "Rack",
    "a_host",
    "custom_resource_definitions",
]
