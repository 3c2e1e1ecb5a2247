"""A simulation of Metal3: BareMetalHosts that are provisioned and powered off and on.

    rack = Rack(clock)
    management.start_program(Metal3(management.client("metal3"), rack, random=Random(1)).run(), name="metal3")

A host is a BareMetalHost and a machine in the `Rack`. With `Metal3InfrastructureProvider`, Machines of Cluster API run
on hosts: the machine then has a Node, which becomes silent when its host is powered off.
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
