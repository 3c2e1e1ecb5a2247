"""The objects that the OCI Node Maintenance Handler leaves in a cluster."""

from datetime import datetime, timedelta
from typing import Any

from haulout.api.objects import RawObject

NAMESPACE = "wd"
DRAIN = "kubectl drain {} --ignore-daemonsets --delete-emptydir-data --force --timeout=10m"
LEAD_TIME = timedelta(minutes=15)


def a_drain_cronjob(
    node: str, *, start: datetime, clock_time: str = "081531", namespace: str = NAMESPACE, **changed: Any
) -> RawObject:
    """Return the CronJob for a maintenance of a node; `changed` are fields of its spec."""
    at = start - LEAD_TIME
    container = {
        "name": "kubectl",
        "image": "docker.io/bitnami/kubectl:latest",
        "command": ["/bin/sh", "-c", DRAIN.format(node)],
    }
    pod = {
        "serviceAccountName": "wd-service",
        "restartPolicy": "OnFailure",
        "nodeSelector": {"name": "wd-pool"},
        "containers": [container],
    }
    job = {"ttlSecondsAfterFinished": 3600, "backoffLimit": 4, "template": {"spec": pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"scheduled-drain-{node}-{clock_time}", "namespace": namespace},
        "spec": {"schedule": f"{at.minute} {at.hour} {at.day} {at.month} *", "jobTemplate": {"spec": job}} | changed,
    }
