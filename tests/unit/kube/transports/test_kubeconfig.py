import base64
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haulout.core.clock import Clock
from haulout.errors import HauloutError, KubeconfigError
from haulout.kube.transports import proxy, tls
from haulout.kube.transports.config import Connection, load
from haulout.kube.transports.credentials import Identity
from haulout.kube.transports.tls import ClientCertificate, TlsClientConfig
from support.servers.certificates import Authority

AUTHORITY = Authority()
ALICE = AUTHORITY.issue("alice")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def a_config(
    *,
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    current: str = "dev",
    **more: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [{"name": "dev", "context": {"cluster": "kind", "user": "alice"}}],
        "clusters": [{"name": "kind", "cluster": {"server": "https://127.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "alice", "user": user or {}}],
        **more,
    }


class Home:
    """A home directory with kubeconfigs in it, and the environment variables of its user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder)}
        self.service_account = folder / "serviceaccount"

    def write(self, content: Mapping[str, Any] | str | bytes, name: str = "config") -> Path:
        """Write a file, as YAML if it is a mapping."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(content, sort_keys=False) if isinstance(content, Mapping) else content
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def load(self, path: Path | None = None, *, context: str | None = None) -> Connection:
        """Load the kubeconfig as a command with this environment does."""
        return load(
            kubeconfig=str(path) if path else None,
            context=context,
            environ=self.environ,
            service_account=self.service_account,
        )

    def loaded(self, **parts: Any) -> Connection:
        """Write a kubeconfig and load it."""
        return self.load(self.write(a_config(**parts)))

    def error(self, content: Mapping[str, Any] | str | bytes, *, context: str | None = None) -> KubeconfigError:
        """Return the error for a kubeconfig with this content."""
        with pytest.raises(KubeconfigError) as caught:
            self.load(self.write(content), context=context)
        assert "\n" not in str(caught.value)
        return caught.value

    def in_a_pod(self, *, host: str = "10.96.0.1") -> None:
        """Set the environment variables and the service account of a pod."""
        self.environ |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
        self.write("t0ken\n", "serviceaccount/token")
        self.write("haulout-system\n", "serviceaccount/namespace")
        self.write(AUTHORITY.pem, "serviceaccount/ca.crt")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# Locations


def test_explicit_kubeconfig_takes_precedence_over_environment_and_home(home: Home) -> None:
    home.in_a_pod()
    home.write(a_config(), ".kube/config")
    home.environ["KUBECONFIG"] = str(home.write(a_config(), "from-environment"))
    chosen = home.write(a_config(cluster={"server": "https://chosen:6443"}), "chosen")
    connection = home.load(chosen)
    assert (connection.server, connection.source) == ("https://chosen:6443", str(chosen))


def test_explicit_kubeconfig_must_exist(home: Home) -> None:
    home.in_a_pod()
    with pytest.raises(KubeconfigError, match=r"absent: cannot read the kubeconfig: No such file or directory"):
        home.load(home.folder / "absent")


def test_kubeconfig_in_the_home_folder_is_the_default(home: Home) -> None:
    home.write(a_config(), ".kube/config")
    connection = home.load()
    assert (connection.context, connection.user, connection.namespace) == ("dev", "alice", "default")


def test_kubeconfig_variable_takes_precedence_over_the_home_folder(home: Home) -> None:
    home.write(a_config(), ".kube/config")
    home.environ["KUBECONFIG"] = str(home.write(a_config(cluster={"server": "https://other:1"}), "other"))
    assert home.load().server == "https://other:1"


def test_missing_files_in_the_kubeconfig_variable_are_skipped(home: Home) -> None:
    there = home.write(a_config(), "there")
    home.environ["KUBECONFIG"] = os.pathsep.join(["", str(home.folder / "absent"), str(there), str(there)])
    assert home.load().source == str(there)


async def test_pod_without_a_kubeconfig_uses_its_service_account(home: Home, clock: Clock) -> None:
    home.in_a_pod()
    connection = load(environ=home.environ, service_account=home.service_account, clock=clock)
    assert connection.server == "https://10.96.0.1:443"
    assert connection.context == "in-cluster"
    assert connection.namespace == "haulout-system"
    assert connection.tls == TlsClientConfig(ca_pem=AUTHORITY.pem)
    assert await connection.credentials.current() == Identity("Bearer t0ken")


def test_an_ipv6_service_address_gets_brackets(home: Home) -> None:
    home.in_a_pod(host="fd00::1")
    assert home.load().server == "https://[fd00::1]:443"


def test_kubeconfig_in_a_pod_takes_precedence_over_the_service_account(home: Home) -> None:
    home.in_a_pod()
    home.write(a_config(), ".kube/config")
    assert home.load().context == "dev"


def test_empty_kubeconfig_in_a_pod_falls_back_to_the_service_account(home: Home) -> None:
    home.in_a_pod()
    home.write("", ".kube/config")
    assert home.load().context == "in-cluster"


def test_malformed_ca_certificate_in_a_pod_is_an_error_with_its_path(home: Home) -> None:
    home.in_a_pod()
    path = home.write("-----BEGIN", "serviceaccount/ca.crt")
    with pytest.raises(KubeconfigError, match=f"{path}: expected PEM"):
        home.load()


def test_missing_configuration_error_lists_all_locations(home: Home) -> None:
    with pytest.raises(KubeconfigError) as caught:
        home.load()
    assert str(caught.value) == (
        f"no cluster to connect to: there is no kubeconfig at {home.folder}/.kube/config and no pod's service account "
        f"in {home.folder}/serviceaccount; give --kubeconfig FILE or set KUBECONFIG"
    )


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (":", "no cluster to connect to: KUBECONFIG names no file, and there is no pod's service account in"),
        ("/absent", "no cluster to connect to: there is no kubeconfig at /absent and no pod's service account in"),
    ],
)
def test_kubeconfig_variable_without_an_existing_file_is_an_error(home: Home, listed: str, message: str) -> None:
    home.environ["KUBECONFIG"] = listed
    with pytest.raises(KubeconfigError) as caught:
        home.load()
    assert str(caught.value) == f"{message} {home.folder}/serviceaccount; give --kubeconfig FILE or correct KUBECONFIG"


def test_requested_context_without_a_kubeconfig_is_an_error(home: Home) -> None:
    home.in_a_pod()
    with pytest.raises(KubeconfigError, match=r"there is no context 'dev', since there is no kubeconfig: looked at"):
        home.load(context="dev")


# Merging


def test_first_file_with_an_entry_takes_precedence(home: Home) -> None:
    first = home.write(
        {"clusters": [{"name": "kind", "cluster": {"server": "https://first:1"}}], "current-context": "dev"}, "first"
    )
    second = home.write(
        a_config(cluster={"server": "https://second:2", "tls-server-name": "never"}, current="never"),
        "second",
    )
    home.environ["KUBECONFIG"] = os.pathsep.join([str(first), str(second)])
    connection = home.load()
    assert connection.server == "https://first:1"
    assert connection.tls.server_name is None
    assert connection.source == f"{first}{os.pathsep}{second}"


def test_current_context_is_from_the_first_file_that_sets_one(home: Home) -> None:
    other = {"name": "prod", "context": {"cluster": "kind", "user": "alice", "namespace": "shop"}}
    first = home.write({"current-context": "", "contexts": [other]}, "first")
    second = home.write(a_config(current="prod"), "second")
    third = home.write(a_config(), "third")
    home.environ["KUBECONFIG"] = os.pathsep.join(map(str, [first, second, third]))
    assert (home.load().context, home.load().namespace) == ("prod", "shop")


def test_first_of_two_entries_with_one_name_is_used(home: Home) -> None:
    config = a_config()
    config["clusters"].append({"name": "kind", "cluster": {"server": "https://second:2"}})
    assert home.load(home.write(config)).server == "https://127.0.0.1:6443"


def test_malformed_file_among_several_is_named_in_the_error(home: Home) -> None:
    good, bad = home.write(a_config(), "good"), home.write("clusters: 7\n", "bad")
    home.environ["KUBECONFIG"] = f"{good}{os.pathsep}{bad}"
    with pytest.raises(KubeconfigError, match=r"bad:1: clusters: expected a list, found a number"):
        home.load()


def test_paths_are_relative_to_the_file_they_are_written_in(home: Home) -> None:
    home.write(AUTHORITY.pem, "clusters/pki/ca.crt")
    clusters = {"clusters": a_config(cluster={"certificate-authority": "pki/ca.crt"})["clusters"]}
    first = home.write(clusters, "clusters/config")
    second = home.write(a_config(), "users/config")
    home.environ["KUBECONFIG"] = f"{first}{os.pathsep}{second}"
    assert home.load().tls.ca_pem == AUTHORITY.pem


# Contents


def test_json_is_read_like_yaml(home: Home) -> None:
    assert home.load(home.write(json.dumps(a_config(), indent=2))).context == "dev"


def test_yaml_anchors_and_merge_keys_are_supported(home: Home) -> None:
    text = """
    current-context: a
    base: &base {server: "https://base:1", tls-server-name: base}
    contexts: [{name: a, context: {cluster: c}}]
    clusters:
    - name: c
      cluster:
        <<: *base
        server: https://own:2
    """
    connection = home.load(home.write(text))
    assert (connection.server, connection.tls.server_name) == ("https://own:2", "base")


def test_another_context_can_be_chosen(home: Home) -> None:
    config = a_config()
    config["contexts"].append({"name": "prod", "context": {"cluster": "kind", "user": "alice", "namespace": "shop"}})
    connection = home.load(home.write(config), context="prod")
    assert (connection.context, connection.namespace) == ("prod", "shop")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https://host:6443/", "https://host:6443"),
        ("https://rancher.example.com/k8s/clusters/c-abc/", "https://rancher.example.com/k8s/clusters/c-abc"),
        ("https://host/prefix?query=1#fragment", "https://host/prefix"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("localhost:8080", "http://localhost:8080"),
    ],
)
def test_server_addresses_are_normalized(home: Home, written: str, meant: str) -> None:
    assert home.loaded(cluster={"server": written}).server == meant


@pytest.mark.parametrize(
    "server", ["", "ftp://host", "https://", "https://host:port", "https://u:p@host", "https://h:0"]
)
def test_invalid_server_address_is_rejected(home: Home, server: str) -> None:
    complaint = home.error(a_config(cluster={"server": server}))
    assert complaint.key == "clusters[0].cluster.server"
    assert "expected the API server's address, such as https://host:6443" in complaint.problem


@pytest.mark.parametrize(
    "server", ["https://u:passw0rd@host", "https://:passw0rd@host", "https://u:passw0rd@host:port", "u:pa/ssw0rd@host"]
)
def test_password_in_the_server_address_is_rejected_and_redacted(home: Home, server: str) -> None:
    complaint = home.error(a_config(cluster={"server": server}))
    assert complaint.problem.endswith("without user name and password: those belong to the user's entry")
    assert "ssw0rd" not in str(complaint)


def test_tls_settings_are_read_from_the_cluster_entry(home: Home) -> None:
    cluster = {"certificate-authority-data": encoded(AUTHORITY.pem), "tls-server-name": "api"}
    assert home.loaded(cluster=cluster).tls == TlsClientConfig(AUTHORITY.pem, "api")
    assert home.loaded(cluster={"insecure-skip-tls-verify": True}).tls == TlsClientConfig(insecure=True)


def test_unknown_keys_nulls_and_empty_strings_are_ignored(home: Home) -> None:
    cluster = {"certificate-authority": None, "proxy-url": "", "disable-compression": True, "novelty": {"a": [1]}}
    assert home.loaded(cluster=cluster, preferences={}).tls == TlsClientConfig()


async def test_token_is_sent_as_a_bearer_token(home: Home) -> None:
    connection = home.loaded(user={"token": "s3cret\n"})
    assert await connection.credentials.current() == Identity("Bearer s3cret")
    assert "s3cret" not in repr(connection)


async def test_username_and_password_are_sent_as_basic_authentication(home: Home) -> None:
    connection = home.loaded(user={"username": "alice", "password": "wonderland"})
    assert await connection.credentials.current() == Identity("Basic YWxpY2U6d29uZGVybGFuZA==")


async def test_token_file_takes_precedence_over_an_inline_token(home: Home) -> None:
    home.write("from-file", "token")
    connection = home.loaded(user={"token": "inline", "tokenFile": "token"})
    assert await connection.credentials.current() == Identity("Bearer from-file")


async def test_inline_token_is_used_while_the_token_file_cannot_be_read(home: Home) -> None:
    connection = home.loaded(user={"token": "inline", "tokenFile": "absent"})
    assert await connection.credentials.current() == Identity("Bearer inline")


async def test_client_certificate_may_be_in_files_or_inline(home: Home) -> None:
    home.write(ALICE.cert_pem, "alice.crt")
    home.write(ALICE.key_pem, "alice.key")
    inline = {"client-certificate-data": encoded(ALICE.cert_pem), "client-key-data": encoded(ALICE.key_pem)}
    files = {"client-certificate": "alice.crt", "client-key": "alice.key"}
    mixed = {"client-certificate": "alice.crt", "client-key-data": encoded(ALICE.key_pem)}
    for user in (inline, files, mixed):
        assert await home.loaded(user=user).credentials.current() == Identity(None, ALICE.client_certificate)


async def test_token_and_client_certificate_can_be_combined(home: Home) -> None:
    user = {
        "token": "t",
        "client-certificate-data": encoded(ALICE.cert_pem),
        "client-key-data": encoded(ALICE.key_pem),
        "exec": {"command": "must-not-run", "apiVersion": "client.authentication.k8s.io/v1beta1"},
    }
    assert await home.loaded(user=user).credentials.current() == Identity("Bearer t", ALICE.client_certificate)


async def test_credentials_are_not_sent_without_tls(home: Home) -> None:
    connection = home.loaded(cluster={"server": "http://127.0.0.1:8001"}, user={"token": "s3cret"})
    assert await connection.credentials.current() == Identity()


async def test_a_context_without_a_user_is_anonymous(home: Home) -> None:
    connection = home.loaded(contexts=[{"name": "dev", "context": {"cluster": "kind"}}])
    assert await connection.credentials.current() == Identity()


def test_impersonation_settings_become_headers(home: Home) -> None:
    user = {
        "as": "bob",
        "as-uid": "42",
        "as-groups": ["ops", "dev"],
        "as-user-extra": {"example.com/scope": ["a", "b"], "50%": ["c"]},
    }
    assert home.loaded(user=user).impersonation == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "42"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Extra-example.com%2Fscope", "a"),
        ("Impersonate-Extra-example.com%2Fscope", "b"),
        ("Impersonate-Extra-50%25", "c"),
    )


# Errors


@pytest.mark.parametrize(
    ("cluster", "key", "problem"),
    [
        ({"server": 6443}, "server", "expected text, found a number; if it is meant as text, put it in quotes: '6443'"),
        ({"server": ["https://a"]}, "server", "expected text, found a list"),
        ({"insecure-skip-tls-verify": "yes"}, "insecure-skip-tls-verify", "expected true or false, found text"),
        ({"certificate-authority-data": "?"}, "certificate-authority-data", "expected base64; is it cut off?"),
        ({"certificate-authority-data": "aGVsbG8="}, "certificate-authority-data", "expected PEM with -----BEGIN"),
        (
            {"certificate-authority-data": encoded(AUTHORITY.pem.replace(b"MII", b"AAA"))},
            "certificate-authority-data",
            "expected certificates in PEM, found a block that is none; is it cut off?",
        ),
        (
            {"certificate-authority-data": encoded(AUTHORITY.pem), "insecure-skip-tls-verify": True},
            "insecure-skip-tls-verify",
            "expected either this or a certificate-authority, not both",
        ),
        (
            {"certificate-authority-data": encoded(AUTHORITY.pem), "certificate-authority": "ca.crt"},
            "certificate-authority",
            "expected either certificate-authority or certificate-authority-data, not both",
        ),
        ({"proxy-url": "socks5://proxy:1080"}, "proxy-url", "SOCKS proxies are not supported; use an HTTP proxy"),
        ({"proxy-url": "proxy"}, "proxy-url", "expected http://host:port"),
    ],
)
def test_invalid_cluster_entry_is_rejected_with_line_and_key(home: Home, cluster: Any, key: str, problem: str) -> None:
    complaint = home.error(a_config(cluster=cluster))
    lines = (home.folder / "config").read_text().splitlines()
    assert complaint.key == f"clusters[0].cluster.{key}"
    assert complaint.problem.startswith(problem)
    assert complaint.line is not None
    assert key in lines[complaint.line - 1] + lines[complaint.line - 2]


@pytest.mark.parametrize(
    ("user", "key", "problem"),
    [
        ({"token": 12345}, "token", "expected text, found a number"),
        ({"token": "two words"}, "token", "it is no bearer token: it has spaces, line breaks"),
        ({"token": "a", "username": "b"}, "token", "expected either a token or username and password, not both"),
        ({"client-certificate-data": encoded(ALICE.cert_pem)}, "client-key", "expected client-key or client-key-data"),
        (
            {"client-certificate-data": "aGVsbG8="},
            "client-certificate-data",
            "expected PEM with -----BEGIN CERTIFICATE",
        ),
        (
            {"client-certificate-data": encoded(ALICE.cert_pem), "client-key-data": encoded(ALICE.cert_pem)},
            "client-key-data",
            "expected PEM with -----BEGIN … PRIVATE KEY-----",
        ),
        (
            {
                "client-certificate-data": encoded(ALICE.cert_pem),
                "client-key-data": encoded(AUTHORITY.issue("bob").key_pem),
            },
            "",
            "the client certificate and the private key of user 'alice' in",
        ),
        ({"as-groups": ["ops"]}, "as", "expected whom to act as"),
        ({"as": "bob", "as-groups": "ops"}, "as-groups", "expected a list, found text"),
        ({"as": "bob", "as-groups": [1]}, "as-groups[0]", "expected text, found a number"),
        ({"as": "bob\r\nX-Header: 1"}, "as", "expected names without line breaks"),
        (
            {"auth-provider": {"name": "gcp"}},
            "auth-provider",
            "auth provider 'gcp' is not supported; use gke-gcloud-auth-plugin",
        ),
        (
            {"auth-provider": {"name": "azure"}},
            "auth-provider",
            "auth provider 'azure' is not supported; use kubelogin",
        ),
        ({"exec": {"apiVersion": "v1"}}, "exec.command", "expected the program to run"),
        (
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            "exec.apiVersion",
            "expected client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1, found",
        ),
        (
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}},
            "exec.interactiveMode",
            "expected Never, IfAvailable, Always, found ''",
        ),
        (
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1beta1", "env": [{"value": "1"}]}},
            "exec.env[0].name",
            "expected the name of an environment variable",
        ),
        ({"exec": "aws"}, "exec", "expected a mapping, found text"),
    ],
)
def test_invalid_user_entry_is_rejected_with_its_key(home: Home, user: Any, key: str, problem: str) -> None:
    complaint = home.error(a_config(user=user))
    assert complaint.key == f"users[0].user{'.' if key else ''}{key}"
    assert complaint.problem.startswith(problem)


async def test_private_key_without_a_certificate_is_ignored(home: Home) -> None:
    connection = home.loaded(user={"client-key": "absent"})
    assert await connection.credentials.current() == Identity()


def test_unreadable_referenced_file_is_an_error_with_its_path(home: Home) -> None:
    complaint = home.error(a_config(cluster={"certificate-authority": "pki/ca.crt"}))
    assert complaint.problem == f"cannot read {home.folder}/pki/ca.crt: No such file or directory"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot read {path}: No such file or directory"),
        (b"", "{path} is empty"),
        (b"\xff", "{path} is no bearer token: it is no text"),
    ],
)
def test_token_file_without_a_token_is_rejected_with_line_and_key(
    home: Home, content: bytes | None, problem: str
) -> None:
    if content is not None:
        home.write(content, "token")
    complaint = home.error(a_config(user={"tokenFile": "token"}))
    assert (complaint.key, complaint.problem) == ("users[0].user.tokenFile", problem.format(path=home.folder / "token"))
    assert complaint.line is not None


def test_encrypted_private_key_is_rejected_without_a_password_prompt(home: Home) -> None:
    locked = AUTHORITY.issue("alice", password=b"secret")
    user = {"client-certificate-data": encoded(locked.cert_pem), "client-key-data": encoded(locked.key_pem)}
    assert "is encrypted; use one without a password" in home.error(a_config(user=user)).problem


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: [1, 2\nb: 3\n", 2, "expected YAML or JSON: did not find expected ',' or ']'"),
        (
            'clusters:\n- name: "kin',
            2,
            "expected YAML or JSON: found unexpected end of stream; the file seems to be cut",
        ),
        ("- a\n- b\n", 1, "expected a mapping, found a list"),
        ("just words", 1, "expected a mapping, found text"),
        (b"a: 1\nb: \xff\xfe\n", 2, "expected YAML or JSON, found bytes that are no text"),
        ("a: \x07", None, "expected YAML or JSON: control characters are not allowed"),
        ("contexts:\n- context: {}\n", 2, "expected a name"),
        ("current-context: [dev]\n", 1, "expected text, found a list"),
        ("kind: Pod\ncurrent-context: a\n", 1, "expected a kubeconfig, found a Pod"),
        ("kind: Event\n", 1, "expected a kubeconfig, found an Event"),
        (
            "clusters:\n- name: kind\n  cluster: {server: https://a}\n",
            None,
            "no current-context is set, and it has no contexts; is it cut off?",
        ),
        ("# nothing\n", None, "expected a kubeconfig, found nothing in it"),
    ],
)
def test_malformed_kubeconfig_is_rejected_with_its_line(
    home: Home, text: str | bytes, line: int | None, problem: str
) -> None:
    complaint = home.error(text)
    assert complaint.line == line
    assert complaint.problem.startswith(problem)


def test_directory_as_kubeconfig_is_rejected(home: Home) -> None:
    with pytest.raises(KubeconfigError, match="cannot read the kubeconfig: Is a directory"):
        home.load(home.folder)


def test_unknown_context_is_rejected_with_the_existing_contexts(home: Home) -> None:
    assert home.error(a_config(), context="dve").problem == (
        "there is no context 'dve', did you mean 'dev'? there are: dev"
    )
    assert home.error(a_config(), context="zzz").problem == "there is no context 'zzz'; there are: dev"
    assert home.error(a_config(contexts=[])).problem == (
        "there is no context 'dev'; there are none at all, is the file cut off?"
    )


def test_list_of_many_contexts_is_shortened(home: Home) -> None:
    contexts = [{"name": f"c{n:02}", "context": {"cluster": "kind"}} for n in range(15)]
    complaint = home.error(a_config(contexts=contexts, current=""))
    assert complaint.problem.startswith("no current-context is set; give --context NAME, of: c00, c01")
    assert complaint.problem.endswith("c09 and 5 more")


def test_context_with_an_unknown_cluster_or_user_is_rejected(home: Home) -> None:
    context = {"name": "dev", "context": {"cluster": "knid", "user": "alice"}}
    complaint = home.error(a_config(contexts=[context]))
    assert complaint.key == "contexts[0].context.cluster"
    assert complaint.problem == "there is no cluster 'knid', did you mean 'kind'? there are: kind"
    context = {"name": "dev", "context": {"cluster": "kind", "user": "bob"}}
    assert home.error(a_config(contexts=[context])).problem == "there is no user 'bob'; there are: alice"
    context = {"name": "dev", "context": {}}
    assert home.error(a_config(contexts=[context])).problem == "expected a cluster's name"


def test_invalid_entries_of_other_users_are_ignored(home: Home) -> None:
    users = [{"name": "alice", "user": {}}, {"name": "bob", "user": {"auth-provider": {"name": "gcp"}}}]
    assert home.loaded(users=users).user == "alice"


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=0, max_value=10_000))
def test_truncated_kubeconfig_loads_or_raises_a_haulout_error(home: Home, cut: int) -> None:
    user = {"token": "t", "exec": {"command": "x", "apiVersion": "v1", "env": [{"name": "A", "value": "b"}]}}
    whole = yaml.safe_dump(a_config(user=user), sort_keys=False)
    assert "\n" not in _error_text(home, home.write(whole[: cut % len(whole)]))


def _error_text(home: Home, path: Path) -> str:
    try:
        return home.load(path).context
    except HauloutError as error:
        return str(error)


# Proxies


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        ("https://api.example.com:6443", {"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://api.example.com:6443", {"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ("http://api.example.com", {"HTTPS_PROXY": "http://proxy:3128"}, None),
        ("http://api.example.com", {"HTTP_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://proxy:3128"}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://proxy:3128"}, None),
        ("https://10.96.0.1:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com, 10.0.0.0/8"}, None),
        ("https://11.96.0.1:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("https://[fd00::1]:443", {"HTTPS_PROXY": "http://p:1", "no_proxy": "fd00::/8"}, None),
        ("https://10.1.1.1:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.1.1.1"}, None),
        ("https://10.1.1.1:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.1.1.1:6443"}, "http://p:1"),
        ("https://10.1.1.1:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.1.1.1:443"}, None),
        ("https://[fd00::1]:443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "[fd00::1]:443"}, None),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com"}, None),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, None),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*.example.com"}, None),
        ("https://example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, "http://p:1"),
        ("https://myexample.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com,"}, "http://p:1"),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example.com:8443"}, "http://p:1"),
        ("https://api.example.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
    ],
)
def test_proxy_environment_variables_apply_as_in_kubectl(
    server: str, environ: dict[str, str], expected: str | None
) -> None:
    assert proxy.from_environment(server, environ) == expected


def test_proxy_url_of_the_cluster_takes_precedence_over_the_environment(home: Home) -> None:
    home.environ["HTTPS_PROXY"] = "http://environment:3128"
    cluster = {"server": "https://api.example.com"}
    assert home.loaded(cluster=cluster).proxy == "http://environment:3128"
    assert home.loaded(cluster=cluster | {"proxy-url": "http://own:3128"}).proxy == "http://own:3128"


def test_socks_proxy_in_the_environment_is_rejected_only_if_it_applies(home: Home) -> None:
    home.environ["HTTPS_PROXY"] = "socks5://u:passw0rd@proxy:1080"
    assert home.loaded().proxy is None
    with pytest.raises(KubeconfigError, match="the proxy in HTTPS_PROXY cannot be used: SOCKS proxies") as caught:
        home.loaded(cluster={"server": "https://api.example.com"})
    assert "passw0rd" not in str(caught.value)


# Certificates


@pytest.mark.parametrize("ends", [datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC), datetime(2051, 5, 6, tzinfo=UTC)])
def test_expiry_returns_the_end_of_a_certificate(ends: datetime) -> None:
    assert tls.expiry(AUTHORITY.issue("alice", ends=ends).cert_pem) == ends


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"])
def test_expiry_of_an_invalid_certificate_is_none(pem: bytes) -> None:
    assert tls.expiry(pem) is None


def test_ca_bundle_may_contain_comments_in_any_encoding() -> None:
    assert tls.ca_bundle_problem("Société\n".encode("latin-1") + AUTHORITY.pem) is None


def test_repr_of_credentials_contains_no_secrets() -> None:
    shown = repr(Identity("Bearer s3cret", ClientCertificate(b"PUBLIC", b"PRIVATE")))
    assert "s3cret" not in shown
    assert "PRIVATE" not in shown
