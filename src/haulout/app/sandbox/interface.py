"""The interface of the distribution `haulout-sandbox`, found by its entry point.

    sandbox = find_sandbox()  # raises UsageError if it is not installed
    plan = sandbox.read_plan("default", seed=7)
    async with plan.open(default_kubeconfig=path, progress=print) as running:  # on `sandbox.event_loop()`
        ...

The sandbox does not import these protocols. A test has the type checker compare the two.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from haulout.api.clusterapi import ClusterKey
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory
from haulout.core.clock import Clock
from haulout.errors import UsageError
from haulout.kube.client import Client
from haulout.providers.aws.api import AutoScaling, Ec2, Sqs
from haulout.providers.http_fetch import Fetch
from haulout.providers.oci.api import Compute, Streaming

GROUP = "haulout.sandbox"

OnScenarioEvent = Callable[[timedelta, str], object]  # time since the start, and a description


class SimulatedCluster(Protocol):
    """A simulated Kubernetes cluster, with an API server and nodes."""

    def client(self, name: str) -> Client:
        """Return a client for the process called `name`, with the cluster's clock."""
        ...

    def add_token(self, token: str, user: str) -> None: ...


class OciModel(Protocol):
    """Oracle Cloud Infrastructure, as the protocols of `providers.oci.api` see it."""

    @property
    def compartments(self) -> tuple[str, ...]: ...

    def compute(self) -> Compute: ...

    def streaming(self) -> Streaming: ...


class AwsModel(Ec2, Sqs, AutoScaling, Protocol):
    """An AWS account, which implements the protocols of `providers.aws.api` itself."""


class AzureModel(Protocol):
    """Azure, of which a machine sees only its metadata service."""

    def metadata(self, machine: str) -> Fetch:
        """Return the metadata service of a machine."""
        ...


class GcpModel(Protocol):
    """Google Cloud: the Compute API and the metadata servers, over HTTP."""

    async def answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body; raise `CloudError` if there is no answer."""
        ...


class HostModel(Protocol):
    """A host, as a vCenter knows it."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def alarms(self) -> Sequence[str]: ...
    @property
    def in_maintenance(self) -> bool: ...


class MachineModel(Protocol):
    """A virtual machine, as a vCenter knows it."""

    @property
    def moref(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def power(self) -> str: ...


class TaskModel(Protocol):
    """A task of vCenter; `fault` is empty unless it has failed."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def fault(self) -> str: ...


class VCenterModel(Protocol):
    """A vCenter; each call needs a session and may raise `CloudError`."""

    @property
    def clock(self) -> Clock: ...
    @property
    def users(self) -> Mapping[str, str]: ...

    @property
    def hosts(self) -> Mapping[str, HostModel]: ...
    @property
    def machines(self) -> Mapping[str, MachineModel]: ...
    def is_entering_maintenance(self, host: str) -> bool: ...
    async def log_in(self, username: str, password: str) -> str: ...
    async def log_out(self, session: str) -> None: ...
    async def read(self, session: str) -> None: ...
    async def power_on(self, session: str, machine: str) -> TaskModel: ...
    async def power_off(self, session: str, machine: str) -> TaskModel: ...
    async def shut_down(self, session: str, machine: str) -> None: ...


class Instance(Protocol):
    """A node that is an instance of a cloud."""

    @property
    def node(self) -> str: ...
    @property
    def cloud(self) -> str: ...
    @property
    def instance(self) -> str: ...


class CloudMachines(Protocol):
    """The machines of a scenario, and their clouds."""

    @property
    def clouds(self) -> frozenset[str]:
        """The clouds that have machines in the scenario."""
        ...

    @property
    def oci_model(self) -> OciModel: ...
    @property
    def aws_model(self) -> AwsModel: ...
    @property
    def azure_model(self) -> AzureModel: ...
    @property
    def gcp_model(self) -> GcpModel: ...
    @property
    def vcenters(self) -> Mapping[str, VCenterModel]: ...

    @property
    def vcenter_alarms(self) -> frozenset[str]:
        """The alarms that a host of the scenario may raise."""
        ...

    def member(self, node: str) -> Instance | None:
        """Return the cloud instance of a node, if it has one."""
        ...


class ScenarioCluster(Protocol):
    """A cluster with the objects of its scenario."""

    @property
    def cluster(self) -> SimulatedCluster: ...
    @property
    def fleet(self) -> CloudMachines: ...
    @property
    def has_machines(self) -> bool: ...

    @property
    def workload_clusters(self) -> Mapping[ClusterKey, SimulatedCluster]:
        """The clusters that it manages by Cluster API."""
        ...

    @property
    def connect(self) -> ClientFactory:
        """How to connect to the workload clusters."""
        ...


class RunningSandbox(Protocol):
    """A started sandbox. Its kubeconfig exists as long as it runs."""

    @property
    def scenario_cluster(self) -> ScenarioCluster: ...

    async def run_scenario(self, on_event: OnScenarioEvent) -> None:
        """Run the scenario to its end; call `on_event` for each event."""
        ...

    def describe(
        self,
        *,
        seconds: float,
        with_operator: bool,
        with_profiles: bool,
        url: str,
        token: str,
        operators: Mapping[ClusterKey, str],
    ) -> str:
        """Return a description for users, with hints what to try; `url` and `operators` are dashboard URLs."""
        ...


class SandboxPlan(Protocol):
    """A sandbox that is not started yet."""

    @property
    def size(self) -> str: ...

    @property
    def has_workload_clusters(self) -> bool: ...

    def open(
        self, *, default_kubeconfig: Path, progress: Callable[[str], object]
    ) -> AbstractAsyncContextManager[RunningSandbox]:
        """Run the sandbox while the context lasts; raise `UsageError` if a port or the kubeconfig is in use.

        `progress` is called with each part that has started.
        """
        ...


class Sandbox(Protocol):
    """The module that the entry point names."""

    @property
    def limits(self) -> Mapping[str, int]:
        """Upper limits of the parameters of `read_plan`."""
        ...

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop with the sandbox's simulated time."""
        ...

    def builtin_names(self) -> Sequence[str]:
        """Return the names of the scenarios that come with the sandbox."""
        ...

    def default_kubeconfig(self, environ: Mapping[str, str]) -> Path:
        """Return the default path of the kubeconfig."""
        ...

    def read_plan(  # noqa: PLR0913 - one per command line option
        self,
        scenario: str,
        *,
        nodes: int | None = None,
        zones: int | None = None,
        pods_per_node: int | None = None,
        seed: int = 0,
        speed: float = 1.0,
        port: int = 0,
        clouds_port: int | None = None,
        kubeconfig: Path | None = None,
    ) -> SandboxPlan:
        """Read a scenario by its name or file; raise `UsageError` and `ConfigErrors`."""
        ...


def find_sandbox() -> Sandbox:
    """Return the installed sandbox; raise `UsageError` if there is none."""
    # An entry point, and no import: the operator's image does not contain the sandbox, and must not depend on it.
    for point in entry_points(group=GROUP):
        found: Sandbox = point.load()
        return found
    raise UsageError("--sandbox needs the package haulout-sandbox; install it: pip install 'haulout[sandbox]'")
