"""Oracle Cloud Infrastructure, as far as instance maintenance needs it: Streaming, and part of Compute.

cloud = OciCloud(clock)
machine = cloud.launch("oke-c1-n1-s1-0")
event = cloud.schedule(machine, start=clock.now() + timedelta(days=14))
cloud.start_maintenance(event)
cloud.end_maintenance(event)

streaming, compute = cloud.streaming(), cloud.compute()     # the calls, in this process and on any clock
async with serve(cloud, host="127.0.0.1") as port: …        # the same over HTTP, for the real SDK
"""

from haulout_sandbox.clouds.oci.cloud import OciCloud

__all__ = ["OciCloud"]
