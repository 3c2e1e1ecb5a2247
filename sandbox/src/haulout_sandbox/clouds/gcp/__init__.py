"""Google Cloud, as far as maintenance needs it: instances of a project, their metadata servers, the Compute API.

    cloud = GcpCloud(clock)
    instance = cloud.launch("gke-pool-1")
    cloud.schedule(instance, start=…)           # in the Compute API and on the machine's metadata server

`GcpCloud.answer` answers a request in this process; `haulout_sandbox.clouds.gcp.server` serves HTTP.
"""

from haulout_sandbox.clouds.gcp.cloud import GcpCloud

__all__ = ["GcpCloud"]
