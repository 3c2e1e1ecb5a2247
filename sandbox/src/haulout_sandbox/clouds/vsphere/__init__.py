"""A stand-in of vCenter: ESX hosts, the virtual machines on them, and the SOAP that its SDKs speak.

    cloud = VsphereCloud(clock)
    cloud.add_host("esx-1")
    cloud.add_machine("n1", on="esx-1")
    cloud.enter_maintenance("esx-1")            # over when nothing runs there any more

`front` answers over HTTPS.
"""

from haulout_sandbox.clouds.vsphere.cloud import VsphereCloud

__all__ = ["VsphereCloud"]
