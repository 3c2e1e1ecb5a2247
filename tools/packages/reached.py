"""How the operator is reached, as templates of the chart: services, the webhook, who may call, and monitoring."""

from haulout.app import workload
from haulout.app.workload import NAME
from haulout.kube.objects import RawObject
from haulout.web import info, registration
from tools.metrics.alerts import RUNBOOK
from tools.packages.common import HOME, IS_GIVEN, IS_MANAGED, LABELS, labelled, metadata, value, value_if_set
from tools.packages.gotemplate import Filled, Inset, When, document

_CERTIFICATE = "haulout-webhook"
_ALERTS = '.Files.Get "files/alerts.yaml"'
_DASHBOARD = '.Files.Get "files/dashboard.json"'


def services() -> str:
    """Return the Services of the dashboard and of metrics."""
    both = (workload.dashboard_service(HOME), ""), (workload.metrics_service(HOME), ".Values.webhook.enabled")
    return "".join(document(it | {"metadata": metadata(it["metadata"]["name"])}, when=when) for it, when in both)


def webhook() -> str:
    """Return what makes the webhook known, and its certificate where cert-manager makes it."""
    service, configuration = registration.manifests(namespace=HOME)
    (hook,) = configuration["webhooks"]
    bundle = ".Values.webhook.certificate.caBundle"
    authorities = When(f"and ({IS_GIVEN}) {bundle}", Filled(bundle))
    hook |= {
        "clientConfig": hook["clientConfig"] | {"caBundle": authorities},
        "failurePolicy": Filled(".Values.webhook.failurePolicy"),
        "timeoutSeconds": Filled(".Values.webhook.timeoutSeconds"),
    }
    injected = {"cert-manager.io/inject-ca-from": f"{HOME}/{_CERTIFICATE}"}
    about = {"name": configuration["metadata"]["name"], "labels": LABELS, "annotations": When(IS_MANAGED, injected)}
    parts = (
        document(service | {"metadata": metadata(service["metadata"]["name"])}),
        document(configuration | {"metadata": about, "webhooks": [hook]}),
        document(_issuer(), when=f"and ({IS_MANAGED}) (not .Values.webhook.certificate.issuer.name)"),
        document(_certificate(), when=IS_MANAGED),
    )
    return f"{{{{- if .Values.webhook.enabled }}}}\n{''.join(parts)}{{{{- end }}}}\n"


def network_policy() -> RawObject:
    """Return who may call."""
    made = workload.network_policy(HOME)
    everywhere, inside = made["spec"]["ingress"]
    probes = {"ports": [{"port": "health"}], "from": value("networkPolicy.probesFrom")}
    others = When(".Values.networkPolicy.from", [Inset("toYaml .Values.networkPolicy.from")])
    spec = made["spec"] | {
        "policyTypes": ["Ingress", When(".Values.networkPolicy.egress", "Egress")],
        "ingress": [
            everywhere,
            inside | {"from": [*inside["from"], others]},
            When(".Values.networkPolicy.probesFrom", probes),
        ],
        "egress": value_if_set("networkPolicy.egress"),
    }
    return made | {"metadata": metadata(NAME), "spec": spec}


def ingress() -> RawObject:
    """Return the way to the dashboard from outside."""
    backend = {"service": {"name": NAME, "port": {"number": info.PORT}}}
    path = {"path": Filled('default "/" .path'), "pathType": "Prefix", "backend": backend}
    rule = {"host": Filled(".host | quote"), "http": {"paths": [path]}}
    anywhere = {"http": {"paths": [path | {"path": "/"}]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata(NAME) | {"annotations": value_if_set("ingress.annotations")},
        "spec": {
            "ingressClassName": When(".Values.ingress.className", Filled(".Values.ingress.className")),
            "rules": [When(".Values.ingress.hosts", [rule], [anywhere], word="range")],
            "tls": value_if_set("ingress.tls"),
        },
    }


def monitoring() -> str:
    """Return what the Prometheus Operator reads."""
    monitor = workload.service_monitor(HOME)
    (endpoint,) = monitor["spec"]["endpoints"]
    endpoint |= {"interval": Filled(".Values.metrics.serviceMonitor.interval")}
    spec = monitor["spec"] | {"endpoints": [endpoint]}
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": labelled("metrics.prometheusRule.labels"),
        "spec": Inset(f'{_ALERTS} | replace "{RUNBOOK}" .Values.metrics.prometheusRule.runbookUrl'),
    }
    dashboard = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": labelled("metrics.dashboard.labels") | {"name": f"{NAME}-dashboard"},
        "data": {f"{NAME}.json": Filled(f"{_DASHBOARD} | quote")},
    }
    wanted = (
        (
            monitor | {"metadata": labelled("metrics.serviceMonitor.labels"), "spec": spec},
            "and .Values.metrics.serviceMonitor.enabled .Values.webhook.enabled",
        ),
        (rule, f"and .Values.metrics.prometheusRule.enabled ({_ALERTS})"),
        (dashboard, f"and .Values.metrics.dashboard.enabled ({_DASHBOARD})"),
    )
    return "".join(document(it, when=when) for it, when in wanted)


def _issuer() -> RawObject:
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": metadata(_CERTIFICATE),
        "spec": {"selfSigned": {}},
    }


def _certificate() -> RawObject:
    issuer = {
        "name": Filled(f'default "{_CERTIFICATE}" .Values.webhook.certificate.issuer.name'),
        "kind": Filled(".Values.webhook.certificate.issuer.kind"),
        "group": Filled(".Values.webhook.certificate.issuer.group"),
    }
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": metadata(_CERTIFICATE),
        "spec": {
            "secretName": Filled(".Values.webhook.certificate.secretName"),
            "dnsNames": list(registration.service_hosts(namespace=HOME)),
            "issuerRef": issuer,
        },
    }
