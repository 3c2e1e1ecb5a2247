"""The agents of nodes as templates of the chart."""

from haulout.app import daemon
from haulout.app.daemon import NAME
from haulout.kube.objects import RawObject
from tools.packages.common import HOME, LABELS, metadata, value, value_if_set
from tools.packages.gotemplate import Filled, Inset, When, document


def templates() -> str:
    """Return all that agents need, where they are wanted."""
    rights = (daemon.role(), daemon.binding(HOME), daemon.policy(HOME), daemon.policy_binding())
    in_cluster = "".join(document(it | {"metadata": {"name": NAME, "labels": LABELS}}) for it in rights)
    account = document(daemon.account(HOME) | {"metadata": metadata(NAME)})
    return f"{{{{- if .Values.agent.enabled }}}}\n{account}{in_cluster}{document(_daemon_set())}{{{{- end }}}}\n"


def _daemon_set() -> RawObject:
    made = daemon.daemon_set(image="", namespace=HOME, cloud="{{ .Values.agent.cloud }}")
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    spec: RawObject = {
        **pod,
        "imagePullSecrets": value_if_set("image.pullSecrets"),
        "priorityClassName": When(".Values.agent.priorityClassName", Filled(".Values.agent.priorityClassName")),
        "nodeSelector": value_if_set("agent.nodeSelector"),
        "tolerations": value_if_set("agent.tolerations"),
        "containers": [
            container
            | {
                "image": Filled('include "haulout.image" . | quote'),
                "imagePullPolicy": Filled(".Values.image.pullPolicy"),
                "resources": value("agent.resources"),
            }
        ],
    }
    about = {
        "labels": daemon.LABELS,
        "annotations": Inset('include "haulout.podAnnotations" .'),
    }
    template = {"metadata": about, "spec": spec}
    return made | {"metadata": metadata(NAME), "spec": {**made["spec"], "template": template}}
