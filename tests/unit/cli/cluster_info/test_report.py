import json
import random
from typing import Any

import pytest
import yaml

from haulout.cli.cluster_info import report
from haulout.cli.cluster_info.report import ClusterFindings
from haulout.cli.connect import Session
from haulout.cli.output import UNICODE_MARKS
from haulout.core.clock import Clock
from haulout.errors import HauloutError, MalformedResponse, ServerFailure, Unauthorized
from haulout.kube.client import Client
from haulout.kube.transport import Response
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import ANONYMOUS
from support.fakes.access_review_api import AccessReviewApi
from support.fakes.scripted_transport import json_response, status_response

FORBIDDEN = status_response(403, "Forbidden", 'User "bob" cannot do this')


async def collect_findings(cluster: AccessReviewApi, clock: Clock, *, namespace: str | None = None) -> ClusterFindings:
    connection = Connection(
        server=cluster.server,
        context="prod",
        source="/etc/kubeconfig",
        user="alice",
        credentials=ANONYMOUS,
        namespace="shop",
    )
    name = namespace or "shop"
    cluster.fixed_responses.setdefault(f"/api/v1/namespaces/{name}", json_response({"metadata": {"name": name}}))
    client = Client(cluster, clock=clock, random=random.Random(7))
    return await report.collect_report(Session(connection, client), namespace=namespace)


def report_text_of(findings: ClusterFindings) -> str:
    return report.to_text(findings, marks=UNICODE_MARKS, grant_command="haulout … --grant | kubectl …")


_LEDGER = "haulout-budget-nodes-in-maintenance"


def line(findings: ClusterFindings, beginning: str) -> str:
    """Return the one line that begins like this, without its indentation and with single spaces."""
    [found] = [
        " ".join(each.split())
        for each in report_text_of(findings).splitlines()
        if " ".join(each.split()).startswith(beginning)
    ]
    return found


# Text output


async def test_report_of_a_fully_permitted_cluster(clock: Clock) -> None:
    cluster = AccessReviewApi(
        served={
            "nodemaintenance.medik8s.io/v1beta1": ["nodemaintenances"],
            "haulout.dev/v1alpha1": ["maintenancenotices"],
        }
    )

    assert (
        report_text_of(await collect_findings(cluster, clock))
        == """\
Cluster    https://10.0.0.1:6443 (context prod, from /etc/kubeconfig)
Version    v1.36.3, linux/amd64
You are    alice (groups: ops, system:authenticated)
Namespace  shop

Permissions
  ✓ elect the leader                        leases.coordination.k8s.io in shop: create
  ✓ watch and update NodeMaintenances       nodemaintenances.nodemaintenance.medik8s.io: get, list, watch, patch
  ✓ write their status                      nodemaintenances.nodemaintenance.medik8s.io/status: patch
  ✓ watch nodes                             nodes: get, list, watch
  ✓ cordon, taint and label nodes           nodes: patch
  ✓ set node conditions                     nodes/status: patch
  ✓ watch pods                              pods: list, watch
  ✓ evict pods                              pods/eviction: create
  ✓ watch PodDisruptionBudgets              poddisruptionbudgets.policy: watch
  ✓ write EvictionRequests                  evictionrequests.lifecycle.k8s.io: list, watch, create, patch, delete
  ✓ watch their progress                    evictions.lifecycle.k8s.io: list, watch
  ✓ recognize DaemonSet pods                daemonsets.apps: get
  ✓ watch VolumeAttachments                 volumeattachments.storage.k8s.io: list, watch
  ✓ find the claims of volumes              persistentvolumes: get
  ✓ read namespace labels                   namespaces: get
  ✓ watch workloads recover                 deployments.apps: list, watch
  ✓ watch workloads recover                 replicasets.apps: list, watch
  ✓ watch workloads recover                 statefulsets.apps: list, watch
  ✓ protect the quorum of etcd              poddisruptionbudgets.policy: list
  ✓ hold leases of nodes                    leases.coordination.k8s.io in medik8s-leases: get, list, watch, create, patch, delete
  ✓ write the history of nodes              maintenancerecords.haulout.dev: get, list, create, patch, delete
  ✓ read and write MaintenanceNotices       maintenancenotices.haulout.dev: get, list, watch, create, patch, delete
  ✓ write the status of MaintenanceNotices  maintenancenotices.haulout.dev/status: patch
  ✓ predict drain durations                 maintenancerecords.haulout.dev: watch
  ✓ honour MaintenanceFreezes               maintenancefreezes.haulout.dev: get, list, watch
  ✓ write the status of MaintenanceFreezes  maintenancefreezes.haulout.dev/status: patch
  ✓ record events of pods                   events.events.k8s.io: create, patch
  ✓ find owners of moved pods               deployments.apps: get
  ✓ find owners of moved pods               replicasets.apps: get
  ✓ find owners of moved pods               statefulsets.apps: get
  ✓ find the leader's pod                   pods in shop: get
  ✓ store budget slots                      configmaps in shop: create
  ✓ store budget slots                      configmaps in shop: get, patch
  ✓ store copies of cordon annotations      configmaps in shop: get, patch
  ✓ watch daemonsets                        daemonsets.apps: list, watch
  ✓ watch leases                            leases.coordination.k8s.io in shop: list, watch
  ✓ take and renew leases                   leases.coordination.k8s.io in shop: get, patch
  ✓ create the webhook Secret               secrets in shop: create
  ✓ renew the webhook certificate           secrets in shop: get, list, watch, patch
  ✓ inject the webhook CA bundle            validatingwebhookconfigurations.admissionregistration.k8s.io: get, list, watch, patch
  ✓ authenticate the API server             configmaps in kube-system: get, list, watch
  ✓ authorize readers of metrics            tokenreviews.authentication.k8s.io: create
  ✓ authorize readers of metrics            subjectaccessreviews.authorization.k8s.io: create

Optional custom resources
  ✓ NodeMaintenance     maintenance that a user requests (on: nodemaintenance.medik8s.io/v1beta1)
  - MaintenanceRecord   the history of nodes (off: not installed; to install it: haulout manifests)
  ✓ MaintenanceNotice   maintenance that clouds and users announce (on: haulout.dev/v1alpha1)
  - MaintenanceFreeze   times in which no new maintenance begins (off: not installed; to install it: haulout manifests)
  - MachineMaintenance  replacing OpenShift machines (off: not installed; to install it: haulout manifests --machines)"""  # noqa: E501
    )


async def test_missing_permissions_are_marked_with_the_grant_command(clock: Clock) -> None:
    findings = await collect_findings(AccessReviewApi(refused={"create pods/eviction", "watch pods"}), clock)

    assert line(findings, "✗ evict pods") == "✗ evict pods pods/eviction: create"
    assert line(findings, "✗ watch pods") == "✗ watch pods pods: list, watch (missing: watch)"
    assert line(findings, "✓ watch nodes")
    assert report_text_of(findings).endswith("context of a cluster admin:\n  haulout … --grant | kubectl …")


async def test_refusal_reason_of_the_server_is_printed_once(clock: Clock) -> None:
    findings = await collect_findings(
        AccessReviewApi(refused={"*"}, refusal_reason='clusterrole "haulout" not found'), clock
    )

    assert report_text_of(findings).count('The server adds: clusterrole "haulout" not found') == 1


async def test_namespace_flag_overrides_the_namespace_of_the_context(clock: Clock) -> None:
    findings = await collect_findings(AccessReviewApi(), clock, namespace="haulout")

    assert line(findings, "Namespace") == "Namespace haulout"
    assert "leases.coordination.k8s.io in haulout" in report_text_of(findings)


async def test_custom_resource_in_another_version_is_reported_as_off(clock: Clock) -> None:
    cluster = AccessReviewApi(served={"nodemaintenance.medik8s.io/v1": ["nodemaintenances"]})

    feature_line = line(await collect_findings(cluster, clock), "- NodeMaintenance")

    assert feature_line.endswith("(off: installed as v1, needed as v1beta1)")


async def test_custom_resource_of_an_unavailable_api_server_is_reported_as_unknown(clock: Clock) -> None:
    findings = await collect_findings(AccessReviewApi(unavailable_versions=["haulout.dev/v1alpha1"]), clock)

    assert line(findings, "? MaintenanceNotice").endswith("(unknown: the server of haulout.dev does not answer)")
    assert line(findings, "API down") == "API down haulout.dev/v1alpha1"


async def test_forbidden_queries_are_reported_as_unknown(clock: Clock) -> None:
    unasked = ("/version", "/api", "/apis", "*/selfsubjectreviews")
    findings = await collect_findings(AccessReviewApi(fixed_responses=dict.fromkeys(unasked, FORBIDDEN)), clock)

    assert line(findings, "Version") == "Version unknown: not allowed to ask"
    assert line(findings, "You are") == "You are unknown: the server does not say"
    assert line(findings, "? NodeMaintenance").endswith("(unknown: not allowed to ask)")
    assert line(findings, "✓ watch nodes")


async def test_anonymous_user_is_advised_to_log_in(clock: Clock) -> None:
    findings = await collect_findings(AccessReviewApi(username="system:anonymous", refused={"*"}), clock)

    assert report_text_of(findings).splitlines()[-1] == (
        "https://10.0.0.1:6443 treats you as system:anonymous: context 'prod' in /etc/kubeconfig contains no "
        "credentials "
        "that the server accepts; log in, or use another context"
    )


async def test_missing_namespace_is_reported_with_the_create_command(clock: Clock) -> None:
    gone = status_response(404, "NotFound", 'namespaces "shop" not found')
    findings = await collect_findings(AccessReviewApi(fixed_responses={"/api/v1/namespaces/shop": gone}), clock)

    assert line(findings, "Namespace") == "Namespace shop (does not exist)"
    assert report_text_of(findings).splitlines()[-1] == "To create the namespace:  kubectl create namespace shop"
    assert not findings.ready
    assert json.loads(report.to_json(findings))["namespaceExists"] is False
    assert json.loads(report.to_json(findings))["ready"] is False


async def test_unreadable_namespace_does_not_prevent_readiness(clock: Clock) -> None:
    findings = await collect_findings(AccessReviewApi(fixed_responses={"/api/v1/namespaces/shop": FORBIDDEN}), clock)

    assert line(findings, "Namespace") == "Namespace shop (unknown whether it exists: not allowed to read it)"
    assert findings.ready
    assert json.loads(report.to_json(findings))["namespaceExists"] is None


async def test_server_text_with_control_characters_is_escaped(clock: Clock) -> None:
    """Cursor movements, line breaks and reversed text come out as escapes."""
    evil = "\x1b[2J\r\n\u202eroot"
    cluster = AccessReviewApi(
        username=f"eve{evil}",
        groups=[f"g{evil}"],
        refused={"*"},
        refusal_reason=f"no{evil}",
        unavailable_versions=[f"a{evil}/v1"],
    )
    cluster.fixed_responses["/version"] = json_response({"gitVersion": f"v1{evil}", "platform": f"p{evil}"})

    report_text = report_text_of(await collect_findings(cluster, clock))

    assert all(each.isprintable() for each in report_text.splitlines())
    for begin in ("eve", "g", "no", "a", "v1", "p"):
        assert rf"{begin}\x1b[2J\r\n\u202eroot" in report_text


async def test_grant_command_is_omitted_when_the_server_cannot_name_the_user(clock: Clock) -> None:
    findings = await collect_findings(an_old_cluster(refused={"*"}), clock)

    assert "it can since Kubernetes 1.28" in report_text_of(findings)
    assert "kubectl" not in report_text_of(findings)


def an_old_cluster(refused: set[str]) -> AccessReviewApi:
    not_found = json_response(b"404 page not found", status=404)
    return AccessReviewApi(refused=refused, fixed_responses={"*/selfsubjectreviews": not_found})


# JSON output


async def as_json(cluster: AccessReviewApi, clock: Clock) -> Any:
    return json.loads(report.to_json(await collect_findings(cluster, clock)))


async def test_json_has_every_documented_field(clock: Clock) -> None:
    document = await as_json(
        AccessReviewApi(refused={"create pods/eviction"}, unavailable_versions=["metrics.k8s.io/v1"]), clock
    )

    assert set(document) == {
        *("server", "context", "source", "namespace", "namespaceExists", "version", "platform", "user"),
        *("permissions", "features", "unavailable", "ready"),
    }
    assert document["user"] == {"username": "alice", "groups": ["ops", "system:authenticated"]}
    assert document["unavailable"] == ["metrics.k8s.io/v1"]
    assert document["ready"] is False
    [evict] = [each for each in document["permissions"] if each["missing"]]
    assert evict == {
        "purpose": "evict pods",
        "group": "",
        "resource": "pods/eviction",
        "namespace": None,
        "verbs": ["create"],
        "missing": ["create"],
    }
    assert {feature["kind"]: feature["state"] for feature in document["features"]}["NodeMaintenance"] == "off"


async def test_json_has_null_for_values_that_the_server_does_not_report(clock: Clock) -> None:
    cluster = an_old_cluster(refused=set())
    cluster.fixed_responses |= {"/version": FORBIDDEN, "/api": FORBIDDEN}

    document = await as_json(cluster, clock)

    assert (document["version"], document["platform"], document["user"]) == (None, None, None)
    assert {feature["state"] for feature in document["features"]} == {"unknown"}
    assert document["ready"] is True


# The manifest


async def test_grant_manifest_contains_the_missing_permissions(clock: Clock) -> None:
    refused = {"create pods/eviction", "patch configmaps", "delete leases"}
    findings = await collect_findings(AccessReviewApi(refused=refused), clock, namespace="haulout")

    objects = list(yaml.safe_load_all(report.grant_manifest(findings)))

    rules = [(each["kind"], each["rules"]) for each in objects if "rules" in each]
    patch = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}
    assert rules == [
        ("ClusterRole", [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]),
        ("Role", [{**patch, "resourceNames": [_LEDGER]}, {**patch, "resourceNames": ["haulout-cordons"]}]),
        ("Role", [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["delete"]}]),
    ]
    assert [each["metadata"]["namespace"] for each in objects if each["kind"] == "Role"] == [
        "haulout",
        "medik8s-leases",
    ]
    # Who applies it need not have heard of that namespace.
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Namespace"] == ["medik8s-leases"]


async def test_grant_manifest_is_a_comment_when_nothing_is_missing(clock: Clock) -> None:
    manifest = report.grant_manifest(await collect_findings(AccessReviewApi(), clock))

    assert manifest.startswith("#")
    assert list(yaml.safe_load_all(manifest)) == []


async def test_username_cannot_inject_yaml_into_the_grant_manifest(clock: Clock) -> None:
    findings = await collect_findings(
        AccessReviewApi(username="eve\n---\nkind: ClusterRole", refused={"list nodes"}), clock
    )

    kinds = [each["kind"] for each in yaml.safe_load_all(report.grant_manifest(findings))]

    assert kinds == ["ClusterRole", "ClusterRoleBinding"]


async def test_grant_manifest_is_refused_for_the_anonymous_user(clock: Clock) -> None:
    findings = await collect_findings(AccessReviewApi(username="system:anonymous", refused={"list nodes"}), clock)

    with pytest.raises(HauloutError, match="granted to everybody"):
        report.grant_manifest(findings)


async def test_grant_manifest_is_refused_without_a_username(clock: Clock) -> None:
    with pytest.raises(HauloutError, match="does not say who you are"):
        report.grant_manifest(await collect_findings(an_old_cluster(refused={"list nodes"}), clock))


# Errors


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (status_response(401, "Unauthorized"), Unauthorized, "getting the server's version"),
        (status_response(503, "ServiceUnavailable", "etcd is down"), ServerFailure, "etcd is down"),
        (
            json_response(b"<html><title>Sign in</title></html>"),
            MalformedResponse,
            "an HTML page titled 'Sign in'; is a proxy",
        ),
        (
            json_response(b"not here", status=404),
            MalformedResponse,
            "does not look like a Kubernetes API server: its /version",
        ),
        (json_response(b"", status=302), MalformedResponse, "does not look like a Kubernetes API server: its /version"),
        (
            json_response({"hello": "world"}),
            MalformedResponse,
            "/version contains no version; correct the server of context 'prod' in /etc/kubeconfig",
        ),
    ],
)
async def test_response_that_is_not_from_a_healthy_kubernetes_api_is_an_error(
    clock: Clock, given: Response, error: type[HauloutError], message: str
) -> None:
    with pytest.raises(error, match=message):
        await collect_findings(AccessReviewApi(fixed_responses={"/version": given}), clock)


async def test_refused_access_review_is_an_error_with_an_explanation(clock: Clock) -> None:
    cluster = AccessReviewApi(fixed_responses={"*/selfsubjectaccessreviews": FORBIDDEN})

    with pytest.raises(HauloutError, match=r'User "bob" cannot do this; .* ClusterRole system:basic-user'):
        await collect_findings(cluster, clock)
