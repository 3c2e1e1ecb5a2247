"""kubectl's daily commands do the same on the sandbox as on a real cluster: the same commands on both, side by side.

The real cluster has the real API server, controllers and scheduler; both have the sandbox's kubelets. A command must
end alike on both, with success or without. Where it prints an object, that is the same but for what must differ (ages,
uids, addresses, generated names), which is replaced by a word before the comparison.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from random import Random

import pytest

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import DelayDistribution, Delays, Kubelets, Machine, NodeInformers
from support.cli.kubectl import CommandResult, Kubectl, serve_sandbox

pytestmark = pytest.mark.real_time

DELAYS = Delays(
    start=DelayDistribution(0.1, 0.2),
    ready=DelayDistribution(0, 0),
    stop=DelayDistribution(0.1, 0.2),
    job=DelayDistribution(0.2, 0.4),
    boot=DelayDistribution(0, 0),
    ignores_sigterm=0,
)
HEARTBEAT = timedelta(seconds=1)
MACHINES = [Machine(name=f"n{number}", zone=f"z{number}", cpu="4", memory="8Gi") for number in (1, 2, 3)]

MANIFESTS = {
    "web.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "web:1", resources: {requests: {cpu: 100m, memory: 64Mi}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data: {color: red}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
""",
    "color.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: color, namespace: shop}
data: {color: red}
""",
    "blue.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: color, namespace: shop}
data: {color: blue}
""",
    "agent.yaml": """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: agent, image: "agent:1"}]
""",
    "db.yaml": """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: db, image: "db:1"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db, namespace: shop}
spec: {minAvailable: 2, selector: {matchLabels: {app: db}}}
""",
    "lonely.yaml": """
apiVersion: v1
kind: Pod
metadata: {name: lonely, namespace: shop, labels: {app: lonely}}
spec:
  serviceAccountName: default
  nodeName: n1
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "main:1"}]
""",
    "report.yaml": """
apiVersion: batch/v1
kind: Job
metadata: {name: report, namespace: shop}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: report, image: "report:1"}]
""",
    "typo.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: typo, namespace: shop}
dota: {color: red}
""",
    "wrong.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: wrong, namespace: shop}
spec:
  replicas: -1
  selector: {matchLabels: {app: wrong}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: web, image: "web:1"}]}
""",
    "crd.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: haulouts.example.dev}
spec:
  group: example.dev
  scope: Cluster
  names: {plural: haulouts, singular: haulout, kind: Haulout, shortNames: [ho], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Node, type: string, jsonPath: .spec.nodeName}
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: An order to haul a node out.
        required: [spec]
        properties:
          spec:
            type: object
            description: What to do.
            required: [nodeName]
            properties:
              nodeName: {type: string, minLength: 1, description: The node.}
              reason: {type: string, maxLength: 20}
              priority: {type: integer, minimum: 0, maximum: 10, default: 5}
              kind: {type: string, enum: [Reboot, Replace]}
            x-kubernetes-validations:
            - {rule: "self.nodeName == oldSelf.nodeName", message: nodeName is immutable}
          status:
            type: object
            properties:
              phase: {type: string}
""",
    "haulout.yaml": """
apiVersion: example.dev/v1
kind: Haulout
metadata: {name: first}
spec: {nodeName: n1, reason: patch}
""",
    "haulout-bad.yaml": """
apiVersion: example.dev/v1
kind: Haulout
metadata: {name: bad}
spec: {nodeName: "", priority: 11, kind: Paint, reason: far too long a reason for this}
""",
    "haulout-typo.yaml": """
apiVersion: example.dev/v1
kind: Haulout
metadata: {name: typo}
spec: {nodeName: n1, raeson: patch}
""",
}

WAIT = "--timeout=60s"


@dataclass(frozen=True)
class Step:
    """A command, and whether what it prints is an object to be compared."""

    command: str
    prints_object: bool = False
    editor: str = ""


def both(command: str) -> Step:
    """Compare how the command ends."""
    return Step(command)


def same_object(command: str) -> Step:
    """Compare the object that the command prints, too."""
    return Step(command, prints_object=True)


STEPS = [
    # What there is
    both("version"),
    both("get --raw /readyz"),
    both("api-versions"),
    both("api-resources --no-headers"),
    both("auth can-i delete nodes"),
    both("auth can-i --list -q"),
    both("get nodes"),
    both("get nodes -o wide"),
    both("get nodes -L topology.kubernetes.io/zone --sort-by=.metadata.name"),
    both("get nodes --show-labels"),
    same_object("get node n1 -o yaml"),
    both("get nodes -o custom-columns=N:.metadata.name,CPU:.status.capacity.cpu"),
    both("get nodes -o jsonpath={.items[*].metadata.name}"),
    both("describe node n3"),
    both("get node n9"),
    both("get nothings"),
    both("get namespaces"),
    # Workloads
    both("create namespace shop"),
    both("create namespace shop"),
    same_object("get namespace shop -o yaml"),
    both("create -f color.yaml -n nowhere"),
    both("create configmap x --from-literal=a=b -n nowhere"),
    both("apply -f web.yaml"),
    both(f"rollout status deployment/web -n shop {WAIT}"),
    both("apply -f web.yaml"),
    both("get deployments -n shop"),
    both("get deployment web -n shop -o wide"),
    same_object("get deployment web -n shop -o yaml"),
    both("get pods -n shop"),
    both("get pods -n shop -o wide"),
    both("get pods -n shop -o name -l app=web"),
    both("get pods -A --field-selector status.phase=Running --chunk-size=2"),
    both("get pods -n shop -l app=none"),
    both("get pods -n shop -l app=,x"),
    both("get rs,svc,pdb -n shop"),
    both("get all -n shop"),
    both("describe deployment web -n shop"),
    both("describe pdb web -n shop"),
    both("describe configmap web -n shop"),
    both("apply -f agent.yaml"),
    both(f"rollout status daemonset/agent -n shop {WAIT}"),
    both("get daemonsets -n shop -o wide"),
    both("apply -f db.yaml"),
    both(f"rollout status statefulset/db -n shop {WAIT}"),
    both("get statefulsets -n shop -o wide"),
    both("get pdb -n shop"),
    both("create -f report.yaml"),
    both(f"wait --for=condition=complete job/report -n shop {WAIT}"),
    both("get jobs -n shop"),
    both("create -f lonely.yaml"),
    both(f"wait --for=condition=Ready pod/lonely -n shop {WAIT}"),
    same_object("get pod lonely -n shop -o yaml"),
    both("describe pod lonely -n shop"),
    both("get events -n shop --field-selector involvedObject.name=lonely"),
    # Changing things
    both("label pod lonely -n shop tier=gold"),
    both("label pod lonely -n shop tier=silver"),
    both("label pod lonely -n shop tier=silver --overwrite"),
    both("label pod lonely -n shop tier-"),
    both("annotate node n1 note=hello"),
    both("taint node n1 dirty=yes:NoSchedule"),
    both("taint node n1 dirty=no:NoSchedule"),
    both("taint node n1 dirty:NoSchedule-"),
    both("taint node n1 dirty:NoSchedule-"),
    both('patch configmap web -n shop -p {"data":{"color":"blue"}}'),
    both('patch configmap web -n shop --type=merge -p {"data":{"color":null}}'),
    both('patch configmap web -n shop --type=json -p [{"op":"test","path":"/data","value":1}]'),
    both('patch configmap web -n shop --type=json -p [{"op":"remove","path":"/data/none"}]'),
    Step("edit configmap web -n shop", editor="sed -i s/^kind:/data:\\n\\ \\ size:\\ big\\nkind:/"),
    both("get configmap web -n shop -o jsonpath={.data}"),
    both("apply -f typo.yaml"),
    both("apply -f typo.yaml --validate=warn"),
    both("apply -f wrong.yaml --dry-run=server"),
    both("apply --server-side -f color.yaml"),
    both("apply --server-side --field-manager=other -f blue.yaml"),
    both("apply --server-side --field-manager=other --force-conflicts -f blue.yaml"),
    same_object("apply -f color.yaml --dry-run=server -o yaml"),
    both("diff -f color.yaml"),
    both("replace -f color.yaml"),
    both("create -f color.yaml"),
    both("set image deployment/web web=web:2 -n shop"),
    both(f"rollout status deployment/web -n shop {WAIT}"),
    both("rollout history deployment/web -n shop"),
    both("rollout undo deployment/web -n shop"),
    both(f"rollout status deployment/web -n shop {WAIT}"),
    both("rollout restart deployment/web -n shop"),
    both(f"rollout status deployment/web -n shop {WAIT}"),
    both("scale deployment/web -n shop --replicas=4"),
    both("scale deployment/web -n shop --replicas=5 --current-replicas=9"),
    both(f"wait --for=jsonpath={{.status.readyReplicas}}=4 deployment/web -n shop {WAIT}"),
    both("wait --for=condition=Never deployment/web -n shop --timeout=1s"),
    both("get --raw /apis/apps/v1/namespaces/shop/deployments/web/scale"),
    # Maintenance
    both("cordon n1"),
    both("cordon n1"),
    both("get nodes"),
    both("drain n1"),
    both("drain n1 --ignore-daemonsets"),
    both("drain n1 --ignore-daemonsets --force --dry-run=server --pod-selector=app=lonely"),
    both("uncordon n1"),
    both("drain n1 --ignore-daemonsets --force --pod-selector=app=lonely"),
    both("get pod lonely -n shop"),
    both("uncordon n1"),
    both("drain n9"),
    # Custom resources
    both("apply -f crd.yaml"),
    both(f"wait --for=condition=Established crd/haulouts.example.dev {WAIT}"),
    both("get crd haulouts.example.dev"),
    same_object("get crd haulouts.example.dev -o yaml"),
    both("get haulouts"),
    both("apply -f haulout.yaml"),
    both("apply -f haulout.yaml"),
    both("get ho"),
    same_object("get haulout first -o yaml"),
    both("describe haulout first"),
    both("create -f haulout-bad.yaml"),
    both("create -f haulout-typo.yaml"),
    both("create -f haulout-typo.yaml --validate=warn"),
    both('patch haulout first --type=merge -p {"spec":{"nodeName":"n2"}}'),
    both('patch haulout first -p {"spec":{"nodeName":"n2"}}'),
    both('patch haulout first --subresource=status --type=merge -p {"status":{"phase":"Running"}}'),
    both("get haulouts"),
    both("explain haulout.spec"),
    both("explain haulout --recursive"),
    both("delete haulout typo"),
    both("delete crd haulouts.example.dev"),
    both("get haulouts"),
    # Taking it away
    both("delete pod db-1 -n shop"),
    both("delete pod db-0 -n shop --force --grace-period=0"),
    both("delete configmap -n shop nothing"),
    both("delete configmap -n shop nothing --ignore-not-found"),
    both("delete deployment web -n shop --cascade=orphan"),
    both("get rs -n shop"),
    both("delete rs -n shop -l app=web --cascade=foreground"),
    both("get pods -n shop -l app=web"),
    both("delete daemonsets,statefulsets -n shop --all"),
    both("delete namespace default"),
    both("delete namespace shop"),
    both("get namespace shop"),
]

_LINES_SHOWN = 30

_PLACEHOLDERS = [
    (re.compile(pattern), word)
    for pattern, word in (
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?Z", "TIME"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} \w{3} [0-9]{4} [0-9:]{8} [+-][0-9]{4}", "TIME"),
        (r"\b(web|report|agent)-[0-9a-z]{8,10}-[0-9a-z]{5}\b", r"\1-HASH-RANDOM"),
        (r"\b(report|agent)-[0-9a-z]{5}\b", r"\1-RANDOM"),
        (r"\bweb-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b", "web-HASH"),
        (r"\b(pod-template-hash|controller-revision-hash)([=:] ?)\"?[0-9a-z-]+\"?", r"\1\2HASH"),
        (r"\b(10|172|127)\.[0-9]+\.[0-9]+\.[0-9]+(:[0-9]+)?", "ADDRESS"),
        (r"(resourceVersion\"?|Resource Version): *\"?[0-9]+\"?", "resourceVersion: VERSION"),
        (r"\b([0-9]+d)?([0-9]+h)?([0-9]+m)?[0-9]+s\b", "AGE"),
        (r"\(x[0-9]+ over AGE\)", ""),
        (r"/\S*-edit-\S+|/\S+/(LIVE|MERGED)-\S+", "FILE"),
        (r"containerd://[0-9a-f]+", "CONTAINER"),
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]+ \+0000", "TIME"),
        # Only the real server shows a time of which there is none.
        (r"- lastProbeTime: null\n *", "- "),
        # Only a real cluster tells kubelets how long they may keep Secrets.
        (r"Annotations: *node.alpha.kubernetes.io/ttl: 0\n *", "Annotations: "),
        (r".*node.alpha.kubernetes.io/ttl: .*\n", ""),
        (r"[ \t]+", " "),
    )
]


def _normalized(text: str) -> str:
    return reduce(lambda done, replacement: replacement[0].sub(replacement[1], done), _PLACEHOLDERS, text)


def _difference(step: Step, real_result: CommandResult, sandbox_result: CommandResult) -> str:
    if bool(real_result.code) != bool(sandbox_result.code):
        return f"  exit code {real_result.code} but {sandbox_result.code}: {real_result.err} but {sandbox_result.err}"
    if not step.prints_object:
        return ""
    wanted, got = (
        sorted(line.rstrip() for line in _normalized(result.out).splitlines())
        for result in (real_result, sandbox_result)
    )
    lines = [f"  - {line}" for line in wanted if line not in got] + [
        f"  + {line}" for line in got if line not in wanted
    ]
    return "\n".join(lines[:_LINES_SHOWN])


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """Run a control plane of our own, with all its controllers."""
    with ControlPlane() as alone:
        alone.start_controllers()
        yield alone


@asynccontextmanager
async def real_nodes(control_plane: ControlPlane) -> AsyncIterator[None]:
    clock = RealClock()
    connection = config.load(kubeconfig=str(control_plane.kubeconfig()))
    client = Client(HttpTransport(connection, clock=clock), clock=clock, random=Random(1))
    view = NodeInformers(client)
    events = EventRecorder(client, instance="sandbox", controller="kubelet")
    kubelets = Kubelets(client, view, delays=DELAYS, heartbeat=HEARTBEAT, recorder=events)
    for machine in MACHINES:
        kubelets.add(machine)
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(part.run()) for part in (view, kubelets, events)]
            yield
            for task in running:
                task.cancel()
    finally:
        await client.close()


@asynccontextmanager
async def sandbox() -> AsyncIterator[Cluster]:
    cluster = Cluster(RealClock(), delays=DELAYS, heartbeat=HEARTBEAT)
    for machine in MACHINES:
        cluster.kubelets.add(machine)
    async with cluster.running():
        yield cluster


async def test_kubectl_results_are_identical(control_plane: ControlPlane, tmp_path: Path) -> None:
    binary = control_plane.assets.path("kubectl")
    folders = [tmp_path / "real", tmp_path / "sandbox"]
    for folder in folders:
        folder.mkdir()
        for name, content in MANIFESTS.items():
            (folder / name).write_text(content)
    async with real_nodes(control_plane), sandbox() as cluster, serve_sandbox(cluster.api, folders[1]) as kubeconfig:
        real = Kubectl(binary, kubeconfig=control_plane.kubeconfig(), folder=folders[0])
        ours = Kubectl(binary, kubeconfig=kubeconfig, folder=folders[1])
        await asyncio.gather(
            *(item.run("wait", "--for=condition=Ready", "nodes", "--all", WAIT) for item in (real, ours))
        )
        differences = [found for step in STEPS if (found := await _run_on_both(step, real, ours))]
    assert not differences, "\n".join(["", *differences])


async def _run_on_both(step: Step, real: Kubectl, sandbox: Kubectl) -> str:
    arguments = step.command.split()
    try:
        real_result, sandbox_result = await asyncio.gather(
            *(item.run_until_published(*arguments, KUBE_EDITOR=step.editor) for item in (real, sandbox))
        )
        found = _difference(step, real_result, sandbox_result)
    except AssertionError as error:
        found = str(error)
    return f"kubectl {step.command}\n{found}" if found else ""
