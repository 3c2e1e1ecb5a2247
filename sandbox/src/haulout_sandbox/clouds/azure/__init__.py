"""Azure, as far as a machine's own metadata service tells of its maintenance.

cloud = AzureCloud(clock)
cloud.launch("aks-np1-0", group="np1")
event = cloud.schedule(["aks-np1-0"], "Reboot", start=clock.now() + timedelta(minutes=15))
cloud.finish(event)

fetch = cloud.metadata("aks-np1-0")     # what that machine asks, in this process and on any clock; `server`: over HTTP
"""

from haulout_sandbox.clouds.azure.cloud import AzureCloud

__all__ = ["AzureCloud"]
