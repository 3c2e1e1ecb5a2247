"""Connection settings of a cluster, from kubeconfig files or from the pod's service account.

`load` searches where kubectl does: the given file, $KUBECONFIG, ~/.kube/config, the pod's service account. It returns a
`Connection`, complete and checked as far as possible without the network, so that an error in a file is reported once,
at the start, with file, line and key.

A kubeconfig that works with kubectl works here, with the same meaning. Only where kubectl would silently guess, as for
a context whose user does not exist, `load` raises.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from haulout.core.clock import Clock, RealClock
from haulout.errors import KubeconfigError
from haulout.kube.transports import kubeconfig as files
from haulout.kube.transports import kubeconfig_entries, proxy, tls
from haulout.kube.transports.credentials import ANONYMOUS, Credentials, TokenFile
from haulout.kube.transports.kubeconfig import Kubeconfig
from haulout.kube.transports.tls import TlsClientConfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER = "in-cluster"
# References to the local machine: files to read, and programs to run.
_LOCAL_REFERENCES = ("certificate-authority", "client-certificate", "client-key", "tokenFile", "exec", "auth-provider")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The address of a cluster, how to verify it, and how to authenticate."""

    server: str  # without a trailing slash
    context: str
    source: str
    user: str
    credentials: Credentials
    namespace: str = "default"
    tls: TlsClientConfig = field(default_factory=TlsClientConfig)
    proxy: str | None = field(default=None, repr=False)  # may contain a password
    impersonation: tuple[tuple[str, str], ...] = ()

    @property
    def origin(self) -> str:
        """The origin of these settings, for users."""
        return f"context {self.context!r} in {self.source}"


def load(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Clock | None = None,
) -> Connection:
    """Return the connection that kubectl would use. Raise `KubeconfigError` if there is none or it is invalid."""
    clock = clock or RealClock()
    if kubeconfig:
        found = files.read(Path(kubeconfig))
        if found.is_empty:
            raise KubeconfigError("expected a kubeconfig, found nothing in it", file=kubeconfig)
        return _from_kubeconfig(found, context, environ, clock)
    paths = files.candidate_files(environ)
    merged = files.read_existing(paths)
    if not merged.is_empty:
        return _from_kubeconfig(merged, context, environ, clock)
    searched = ", ".join(str(path) for path in paths) or "nothing, since KUBECONFIG names no file"
    if context:
        raise KubeconfigError(f"there is no context {context!r}, since there is no kubeconfig: looked at {searched}")
    in_cluster = _in_cluster(service_account, environ, clock)
    if in_cluster is None:
        problem = f"there is no kubeconfig at {searched} and" if paths else "KUBECONFIG names no file, and there is"
        raise KubeconfigError(
            f"no cluster to connect to: {problem} no pod's service account in {service_account}; "
            f"give --kubeconfig FILE or {'correct' if environ.get('KUBECONFIG') else 'set'} KUBECONFIG"
        )
    return in_cluster


def load_untrusted(
    data: bytes, *, source: str, environ: Mapping[str, str] = os.environ, clock: Clock | None = None
) -> Connection:
    """Return the connection in a kubeconfig from an untrusted author. Messages call it `source`.

    It must be self-contained: it may not run a program here, nor send a local file to its server.
    """
    found = files.parse(data, file=source)
    if found.is_empty:
        raise KubeconfigError("expected a kubeconfig, found nothing in it", file=source)
    for section in (*found.clusters.values(), *found.users.values()):
        for key in _LOCAL_REFERENCES:
            if key in section:
                raise section.error_at("not taken from others: expected credentials in the kubeconfig itself", key)
    return _from_kubeconfig(found, None, environ, clock or RealClock())


def _from_kubeconfig(
    kubeconfig: Kubeconfig, context_name: str | None, environ: Mapping[str, str], clock: Clock
) -> Connection:
    name = context_name or kubeconfig.current_context
    if not name:
        names = files.format_names(kubeconfig.contexts)
        advice = f"; give --context NAME, of: {names}" if names else ", and it has no contexts; is it cut off?"
        raise KubeconfigError(f"no current-context is set{advice}", file=kubeconfig.source)
    context = kubeconfig.context(name)
    cluster = kubeconfig_entries.cluster(kubeconfig.cluster_of(context), environ=environ)
    user = kubeconfig.user_of(context)
    user_name = context.text("user")
    return Connection(
        server=cluster.server,
        context=name,
        source=kubeconfig.source,
        user=user_name or "anonymous",
        namespace=context.text("namespace") or "default",
        tls=cluster.tls,
        proxy=cluster.proxy,
        credentials=(
            kubeconfig_entries.credentials(user, name=user_name, cluster=cluster, clock=clock, environ=environ)
            if user
            else ANONYMOUS
        ),
        impersonation=kubeconfig_entries.impersonation(user) if user else (),
    )


def _in_cluster(folder: Path, environ: Mapping[str, str], clock: Clock) -> Connection | None:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    # As client-go's rest.InClusterConfig: both variables and the token.
    if not host or not port or not (folder / "token").is_file():
        return None
    # The IP of the Service `kubernetes`, not its name: DNS may be down just when nodes are being maintained.
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Connection(
        server=server,
        context=IN_CLUSTER,
        source=str(folder),
        user="the pod's service account",
        namespace=environ.get("POD_NAMESPACE") or _content(folder / "namespace").decode().strip() or "default",
        tls=TlsClientConfig(ca_pem=_ca_bundle(folder / "ca.crt")),
        proxy=proxy.from_environment(server, environ),
        credentials=TokenFile(folder / "token", clock=clock),
    )


def _ca_bundle(path: Path) -> bytes | None:
    pem = _content(path)
    if pem and (problem := tls.ca_bundle_problem(pem)):
        raise KubeconfigError(problem, file=str(path))
    return pem or None  # without a CA bundle, use that of the system, as client-go does


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise KubeconfigError(f"cannot read it: {error.strerror}", file=str(path)) from None
