"""The agents of nodes, as templates of the chart."""

from haulout.api.objects import RawObject
from haulout.app.manifests import agent_manifests
from haulout.app.manifests.agent_manifests import NAME
from tools.packages.helm.common import HOME, LABELS, metadata, value, value_if_set
from tools.packages.helm.gotemplate import Conditional, Expression, IndentedExpression, document


def templates() -> str:
    """Return the templates of the agents, under their conditions."""
    rbac_objects = (
        agent_manifests.cluster_role(),
        agent_manifests.cluster_role_binding(HOME),
        agent_manifests.admission_policy(HOME),
        agent_manifests.admission_policy_binding(),
    )
    in_cluster = "".join(
        document(rbac_object | {"metadata": {"name": NAME, "labels": LABELS}}) for rbac_object in rbac_objects
    )
    account = document(agent_manifests.service_account(HOME) | {"metadata": metadata(NAME)})
    return f"{{{{- if .Values.agent.enabled }}}}\n{account}{in_cluster}{document(_daemon_set())}{{{{- end }}}}\n"


def _daemon_set() -> RawObject:
    daemon_set = agent_manifests.daemon_set(image="", namespace=HOME, cloud="{{ .Values.agent.cloud }}")
    pod = daemon_set["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    spec: RawObject = {
        **pod,
        "imagePullSecrets": value_if_set("image.pullSecrets"),
        "priorityClassName": Conditional(
            ".Values.agent.priorityClassName", Expression(".Values.agent.priorityClassName")
        ),
        "nodeSelector": value_if_set("agent.nodeSelector"),
        "tolerations": value_if_set("agent.tolerations"),
        "containers": [
            container
            | {
                "image": Expression('include "haulout.image" . | quote'),
                "imagePullPolicy": Expression(".Values.image.pullPolicy"),
                "resources": value("agent.resources"),
            }
        ],
    }
    pod_metadata = {
        "labels": agent_manifests.LABELS,
        "annotations": IndentedExpression('include "haulout.podAnnotations" .'),
    }
    template = {"metadata": pod_metadata, "spec": spec}
    return daemon_set | {"metadata": metadata(NAME), "spec": {**daemon_set["spec"], "template": template}}
