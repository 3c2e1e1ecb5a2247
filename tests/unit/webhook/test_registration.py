"""The ValidatingWebhookConfiguration and the manifests of the webhook."""

from haulout.core.clock import Clock
from haulout.webhook import registration
from haulout_sandbox.apiserver import ApiServer


async def test_webhook_manifests_are_valid_and_reference_their_service(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    for manifest in registration.manifests(namespace="haulout"):
        api.put(manifest)
    (hook,) = api.get("validatingwebhookconfigurations", registration.CONFIGURATION)["webhooks"]
    service_reference = hook["clientConfig"]["service"]
    service = api.get("services", service_reference["name"], service_reference["namespace"])
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [
        (service_reference["port"], 9443)
    ]
    assert (
        f"{service_reference['name']}.{service_reference['namespace']}.svc"
        == registration.service_hosts(namespace="haulout")[0]
    )


def test_webhook_configuration_is_that_of_the_node_maintenance_operator() -> None:
    body = registration.configuration()
    (hook,) = body["webhooks"]
    assert body["metadata"]["name"] == "node-maintenance-operator-validating-webhook-configuration"
    assert hook["name"] == "vnodemaintenance.kb.io"
    assert hook["clientConfig"]["service"]["path"] == "/validate-nodemaintenance-medik8s-io-v1beta1-nodemaintenance"
    assert (hook["failurePolicy"], hook["sideEffects"], hook["timeoutSeconds"]) == ("Fail", "None", 15)
    (rule,) = hook["rules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE", "UPDATE"], ["nodemaintenances"])


def test_webhook_outside_of_the_cluster_has_a_url() -> None:
    (hook,) = registration.configuration(url="https://10.0.0.7:9443")["webhooks"]
    assert hook["clientConfig"] == {"url": f"https://10.0.0.7:9443{registration.PATH}"}
