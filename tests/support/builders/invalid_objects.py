"""One valid object of each kind, to be made invalid in one place.

`with_changes(SAMPLE, {"spec.containers.0.image": ""})` returns the sample with another value at that path; `REMOVED`
removes the field.
"""

import copy
from typing import Any

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from support.builders import samples

REMOVED = object()


def with_changes(obj: JsonObject, changes: dict[str, Any]) -> JsonObject:
    """Return `obj` with other values at these paths; missing parents are created."""
    result = copy.deepcopy(obj)
    for path, value in changes.items():
        *path_parts, last = (int(part) if part.isdecimal() else part for part in path.split("."))
        holder: Any = result
        for part in path_parts:
            holder = holder.setdefault(part, {}) if isinstance(holder, dict) else holder[part]
        if value is REMOVED:
            del holder[last]
        elif isinstance(holder, list) and last == len(holder):
            holder.append(value)
        else:
            holder[last] = value
    return result


POD = samples.sample("v1", "Pod", "p", spec=samples.pod_spec(serviceAccountName="default"))
NODE = samples.sample("v1", "Node", "n", spec={"taints": [{"key": "a", "effect": "NoSchedule"}]})
DEPLOYMENT = samples.sample(
    "apps/v1", "Deployment", "d", spec={"selector": samples.APP, "template": samples.template()}
)
DAEMON_SET = DEPLOYMENT | {"kind": "DaemonSet"}
STATEFUL_SET = with_changes(DEPLOYMENT | {"kind": "StatefulSet"}, {"spec.serviceName": "s"})
JOB = samples.sample("batch/v1", "Job", "j", spec={"template": samples.template(restartPolicy="Never")})
BUDGET = samples.sample("policy/v1", "PodDisruptionBudget", "b", spec={"minAvailable": 1, "selector": samples.APP})
LEASE = samples.sample(
    "coordination.k8s.io/v1", "Lease", "l", spec={"holderIdentity": "me", "leaseDurationSeconds": 15}
)
CONFIG_MAP = samples.sample("v1", "ConfigMap", "m", data={"a": "1"})
