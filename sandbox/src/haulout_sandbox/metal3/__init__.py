"""A stand-in for Metal3: hosts that are provisioned, and powered off for as long as somebody wants it.

    rack = Rack(clock)
    management.host(Metal3(management.client("metal3"), rack, random=Random(1)).run(), name="metal3")

A host is a BareMetalHost and a machine in the `Rack`. With `HostInstances` Machines of Cluster API run on hosts: then
there is a Node on the machine, which falls silent when its host goes off.
"""

from haulout_sandbox.metal3.api import Metal3
from haulout_sandbox.metal3.instances import HostInstances
from haulout_sandbox.metal3.objects import HOSTS, a_host, definitions
from haulout_sandbox.metal3.rack import QUICK, Paces, Rack

__all__ = ["HOSTS", "QUICK", "HostInstances", "Metal3", "Paces", "Rack", "a_host", "definitions"]
