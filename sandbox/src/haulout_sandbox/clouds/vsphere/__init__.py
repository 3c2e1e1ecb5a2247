"""A simulated vCenter: ESX hosts, their virtual machines, and the calls of its SOAP API.

    cloud = VsphereCloud(clock)
    cloud.add_host("esx-1")
    cloud.add_machine("n1", on="esx-1")
    cloud.enter_maintenance("esx-1")            # completes when no machine runs there

Tests serve it over HTTPS with `support.clouds.vsphere.http_server`.
"""

from haulout_sandbox.clouds.vsphere.cloud import VsphereCloud

__all__ = ["VsphereCloud"]
