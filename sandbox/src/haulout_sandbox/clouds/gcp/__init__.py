"""Google Cloud as far as maintenance goes: instances of a project, their metadata servers, and the Compute API.

    cloud = GcpCloud(clock)
    instance = cloud.launch("gke-pool-1")
    cloud.schedule(instance, start=…)           # shown by the Compute API, and told by the machine's metadata server

`GcpCloud.answer` takes a request and answers it, in this process; `haulout_sandbox.clouds.gcp.server` has it speak
HTTP.
"""

from haulout_sandbox.clouds.gcp.cloud import GcpCloud

__all__ = ["GcpCloud"]
