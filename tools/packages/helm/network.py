"""Network access to the operator, as templates of the chart: services, webhook, NetworkPolicy, ingress, monitoring."""

from haulout.api.objects import RawObject
from haulout.app.manifests import workload
from haulout.app.manifests.workload import NAME
from haulout.dashboard import server
from haulout.webhook import registration
from tools.metrics.alerts import RUNBOOK
from tools.packages.helm.common import (
    HOME,
    IS_FROM_CERT_MANAGER,
    IS_FROM_SECRET,
    LABELS,
    metadata,
    metadata_with_labels,
    value,
    value_if_set,
)
from tools.packages.helm.gotemplate import Conditional, Expression, IndentedExpression, document

_CERTIFICATE = "haulout-webhook"
_ALERTS = '.Files.Get "files/alerts.yaml"'
_DASHBOARD = '.Files.Get "files/dashboard.json"'


def services() -> str:
    """Return the Services of the dashboard and of metrics."""
    both = (workload.dashboard_service(HOME), ""), (workload.metrics_service(HOME), ".Values.webhook.enabled")
    return "".join(
        document(service | {"metadata": metadata(service["metadata"]["name"])}, when=when) for service, when in both
    )


def webhook() -> str:
    """Return the webhook configuration, and the certificate if cert-manager issues it."""
    service, configuration = registration.manifests(namespace=HOME)
    (hook,) = configuration["webhooks"]
    bundle = ".Values.webhook.certificate.caBundle"
    authorities = Conditional(f"and ({IS_FROM_SECRET}) {bundle}", Expression(bundle))
    hook |= {
        "clientConfig": hook["clientConfig"] | {"caBundle": authorities},
        "failurePolicy": Expression(".Values.webhook.failurePolicy"),
        "timeoutSeconds": Expression(".Values.webhook.timeoutSeconds"),
    }
    injected = {"cert-manager.io/inject-ca-from": f"{HOME}/{_CERTIFICATE}"}
    configuration_metadata = {
        "name": configuration["metadata"]["name"],
        "labels": LABELS,
        "annotations": Conditional(IS_FROM_CERT_MANAGER, injected),
    }
    documents = (
        document(service | {"metadata": metadata(service["metadata"]["name"])}),
        document(configuration | {"metadata": configuration_metadata, "webhooks": [hook]}),
        document(_issuer(), when=f"and ({IS_FROM_CERT_MANAGER}) (not .Values.webhook.certificate.issuer.name)"),
        document(_certificate(), when=IS_FROM_CERT_MANAGER),
    )
    return f"{{{{- if .Values.webhook.enabled }}}}\n{''.join(documents)}{{{{- end }}}}\n"


def network_policy() -> RawObject:
    base = workload.network_policy(HOME)
    everywhere, inside = base["spec"]["ingress"]
    probes = {"ports": [{"port": "health"}], "from": value("networkPolicy.probesFrom")}
    others = Conditional(".Values.networkPolicy.from", [IndentedExpression("toYaml .Values.networkPolicy.from")])
    spec = base["spec"] | {
        "policyTypes": ["Ingress", Conditional(".Values.networkPolicy.egress", "Egress")],
        "ingress": [
            everywhere,
            inside | {"from": [*inside["from"], others]},
            Conditional(".Values.networkPolicy.probesFrom", probes),
        ],
        "egress": value_if_set("networkPolicy.egress"),
    }
    return base | {"metadata": metadata(NAME), "spec": spec}


def ingress() -> RawObject:
    backend = {"service": {"name": NAME, "port": {"number": server.PORT}}}
    path = {"path": Expression('default "/" .path'), "pathType": "Prefix", "backend": backend}
    rule = {"host": Expression(".host | quote"), "http": {"paths": [path]}}
    default_rule = {"http": {"paths": [path | {"path": "/"}]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata(NAME) | {"annotations": value_if_set("ingress.annotations")},
        "spec": {
            "ingressClassName": Conditional(".Values.ingress.className", Expression(".Values.ingress.className")),
            "rules": [Conditional(".Values.ingress.hosts", [rule], [default_rule], keyword="range")],
            "tls": value_if_set("ingress.tls"),
        },
    }


def monitoring() -> str:
    """Return the objects of the Prometheus Operator."""
    monitor = workload.service_monitor(HOME)
    (endpoint,) = monitor["spec"]["endpoints"]
    endpoint |= {"interval": Expression(".Values.metrics.serviceMonitor.interval")}
    spec = monitor["spec"] | {"endpoints": [endpoint]}
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata_with_labels("metrics.prometheusRule.labels"),
        "spec": IndentedExpression(f'{_ALERTS} | replace "{RUNBOOK}" .Values.metrics.prometheusRule.runbookUrl'),
    }
    dashboard = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata_with_labels("metrics.dashboard.labels") | {"name": f"{NAME}-dashboard"},
        "data": {f"{NAME}.json": Expression(f"{_DASHBOARD} | quote")},
    }
    wanted = (
        (
            monitor | {"metadata": metadata_with_labels("metrics.serviceMonitor.labels"), "spec": spec},
            "and .Values.metrics.serviceMonitor.enabled .Values.webhook.enabled",
        ),
        (rule, f"and .Values.metrics.prometheusRule.enabled ({_ALERTS})"),
        (dashboard, f"and .Values.metrics.dashboard.enabled ({_DASHBOARD})"),
    )
    return "".join(document(obj, when=when) for obj, when in wanted)


def _issuer() -> RawObject:
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": metadata(_CERTIFICATE),
        "spec": {"selfSigned": {}},
    }


def _certificate() -> RawObject:
    issuer_ref = {
        "name": Expression(f'default "{_CERTIFICATE}" .Values.webhook.certificate.issuer.name'),
        "kind": Expression(".Values.webhook.certificate.issuer.kind"),
        "group": Expression(".Values.webhook.certificate.issuer.group"),
    }
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": metadata(_CERTIFICATE),
        "spec": {
            "secretName": Expression(".Values.webhook.certificate.secretName"),
            "dnsNames": list(registration.service_hosts(namespace=HOME)),
            "issuerRef": issuer_ref,
        },
    }
