"""Azure, as far as the metadata service of a machine announces its maintenance.

cloud = AzureCloud(clock)
cloud.launch("aks-np1-0", group="np1")
event = cloud.schedule(["aks-np1-0"], "Reboot", start=clock.now() + timedelta(minutes=15))
cloud.remove_event(event)

fetch = cloud.metadata("aks-np1-0")     # requests of that machine, in-process; `server` serves them over HTTP
"""

from haulout_sandbox.clouds.azure.cloud import AzureCloud

__all__ = ["AzureCloud"]
