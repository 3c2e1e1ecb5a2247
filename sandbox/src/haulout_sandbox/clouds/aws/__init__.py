"""AWS, as far as maintenance needs it: instances with scheduled events, a queue, and Auto Scaling groups.

    cloud = AwsCloud(clock)
    instance = cloud.launch(tags={"team": "x"})
    event = cloud.schedule(instance, "system-reboot", start=…)      # in EC2, and from AWS Health on the queue

`AwsCloud` answers calls in this process; `haulout_sandbox.clouds.aws.server` serves the wire protocols for boto3.
"""

from haulout_sandbox.clouds.aws.cloud import AwsCloud

__all__ = ["AwsCloud"]
