"""Part six: the dashboard of an operator on a real kube-apiserver, in a real browser; and the cost of its viewers.

Nodes are objects that nobody reports for. What changes is that one of them is cordoned, or is let in again.
"""

import asyncio
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from random import Random
from statistics import quantiles
from typing import TYPE_CHECKING

import aiohttp
import uvloop

from fleet import fleet, to_create
from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from haulout.app.manifests import operator_manifests
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.patches import strategic_patch
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from operator_handle import ENVIRONMENT, OperatorHandle, operator
from real_apiserver import control_plane
from report import KILOBYTES, MEGABYTES, MILLISECONDS, SECONDS, SHARE, Section, TargetComparison
from resource_usage import memory_of
from tasks import IN_FLIGHT, for_each

if TYPE_CHECKING:
    from playwright.async_api import Page

Log = Callable[[str], None]

_LOCAL = "127.0.0.1"
_TIMEOUT_SECONDS = 600
_POLL_INTERVAL = timedelta(milliseconds=20)
_SETTLE_TIME = timedelta(seconds=3)
_WINDOW = {"width": 1440, "height": 900}
_NODES = NODES.with_model(RawObject)
# How long it took until something was on the screen, in milliseconds since the page was asked for.
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_SHOWN = (
    "async (many) => { while (document.querySelectorAll('.tile').length < many)"
    " await new Promise(requestAnimationFrame); return performance.now(); }"
)
_FOLLOW = """(name) => { const tile = document.querySelector(`.tile[data-name="${name}"]`), before = tile.className;
  window.seen = new Promise((seen) => new MutationObserver(() => tile.className !== before &&
    requestAnimationFrame(() => requestAnimationFrame(() => seen(Date.now())))).observe(tile, {attributes: true})); }"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is."""

    sizes: Sequence[int]  # nodes
    changes: int
    viewers: int
    seconds: int  # for which they stay open
    starts: int


FULL = Scale(sizes=(1_000, 5_000), changes=40, viewers=50, seconds=20, starts=5)
QUICK = Scale(sizes=(60,), changes=3, viewers=3, seconds=2, starts=1)
_CHANGES_A_SECOND = 20
_ANSWERS = 5
_PREVIEW_PATH = "api/v2/configuration/check"
_EDIT = """\
intervals: {requeue: 30s}
instances:
  check:
  - {name: asked, type: hasLabel, config: {key: asked}}
  - {name: open, type: timeWindow, config: {start: "01:00", end: "05:00", weekdays: [tue, wed, thu]}}
profiles:
- name: os
  operational:
    transitions: [{check: asked && open, next: maintenance-required}]
"""
_SMALL = 10  # nodes of a small cluster


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure a start on a small cluster, and the dashboard at each size, each on a control plane of its own."""
    comparison = TargetComparison(is_fair=scale is FULL)
    with control_plane(log, separate_cores=False) as (kubeconfig, _):
        rows = uvloop.run(_started(scale, comparison, kubeconfig, log))
    for size in scale.sizes:
        with control_plane(log, separate_cores=False) as (kubeconfig, _):
            rows += uvloop.run(_measured(scale, comparison, size, kubeconfig, log))
    return [Section("Dashboard", _TEXT, ("Measurement", "Result", "Details", "Target", ""), rows)]


# A start


async def _started(scale: Scale, comparison: TargetComparison, kubeconfig: str, log: Log) -> list[tuple[str, ...]]:
    start_times, sizes = [], []
    async with asyncio.timeout(_TIMEOUT_SECONDS), _filled_cluster(kubeconfig, _SMALL):
        for number in range(1, scale.starts + 1):
            log(f"a start on {_SMALL} nodes, {number} of {scale.starts}")
            with _installed_operator(kubeconfig) as (process, port):
                start_times.append(await _ready(port))
                await RealClock().sleep(_SETTLE_TIME)
                sizes.append(memory_of(process.pid))
    return [
        comparison.row(f"from command to ready, {_SMALL} nodes", start_times, SECONDS, target=1.5, note=""),
        comparison.row("its memory when idle", sizes, MEGABYTES, target=60e6, note=""),
    ]


@contextmanager
def _installed_operator(kubeconfig: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Run the operator by its command, with its dashboard, probes and webhook."""
    health, metrics = _free_port(), _free_port()
    ports = ["--health-port", str(health), "--metrics-port", str(metrics)]
    command = [sys.executable, "-m", "haulout", "run", "--kubeconfig", kubeconfig, "--webhook", "self", *ports]
    command += ["--dashboard-auth", "off"]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, health
        finally:
            process.terminate()


async def _ready(port: int) -> float:
    clock = RealClock()
    began = clock.monotonic()
    async with aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(f"http://{_LOCAL}:{port}/readyz") as answer:
                    if answer.ok:
                        return clock.monotonic() - began
            await clock.sleep(_POLL_INTERVAL)


# A page, and its viewers


async def _measured(
    scale: Scale, comparison: TargetComparison, size: int, kubeconfig: str, log: Log
) -> list[tuple[str, ...]]:
    port, nodes = _free_port(), f"{size:,} nodes"
    log(f"creating {nodes}")
    async with (
        asyncio.timeout(_TIMEOUT_SECONDS),
        _filled_cluster(kubeconfig, size) as cluster,
        operator(kubeconfig, port=port) as operator_handle,
    ):
        url = f"http://{_LOCAL}:{port}"
        await _wait_until_serving(f"{url}/api/v2/nodes")
        log(f"{nodes}: in the browser")
        paint = await _in_browser(cluster, scale, url, size)
        log(f"{nodes}: {scale.viewers} who look on")
        sent = await _bytes_of_a_change(cluster, f"{url}/api/v2/events")
        answers = await _response_times(url)
        idle_share = await _cpu_share(cluster, operator_handle, scale, url, viewers=0)
        many = await _cpu_share(cluster, operator_handle, scale, url, viewers=scale.viewers)
        memory_use = await operator_handle.numbers()
    rows: list[tuple[str, ...]] = []
    if paint is not None:
        slow = quantiles(paint.updates, n=20)[-1] if len(paint.updates) > 1 else paint.updates[0]
        all_tiles = f"all tiles after {SECONDS.show(paint.shown)}"
        rows.append(comparison.row(f"{nodes}, first paint", [paint.first], MILLISECONDS, target=None, note=all_tiles))
        note = f"slowest of 20: {MILLISECONDS.show(slow)}"
        rows.append(comparison.row(f"{nodes}, change to paint", paint.updates, MILLISECONDS, target=None, note=note))
    note = f"{MEGABYTES.show(memory_use['memory'])} memory, peak {MEGABYTES.show(memory_use['peak'])}"
    rows.append(comparison.row(f"{nodes}, bytes sent per change", sent, KILOBYTES, target=None, note=note))
    setup = f"{nodes}, {_CHANGES_A_SECOND} changes per second, {scale.viewers} viewers: CPU usage of one core"
    rows.append(comparison.row(setup, [many], SHARE, target=None, note=f"without viewers {SHARE.show(idle_share)}"))
    for path, (took, size_text) in answers.items():
        rows.append(comparison.row(f"{nodes}, {path}", took, MILLISECONDS, target=None, note=KILOBYTES.show(size_text)))
    return rows


async def _response_times(url: str) -> dict[str, tuple[list[float], int]]:
    """Return how long answers about all nodes take, and how large they are."""
    clock, found = RealClock(), dict[str, tuple[list[float], int]]()
    requests = dict.fromkeys(("api/v2/nodes", "api/v2/timeline", "metrics")) | {_PREVIEW_PATH: {"text": _EDIT}}
    async with aiohttp.ClientSession() as session:
        for path, body in requests.items():
            took: list[float] = []
            for _ in range(_ANSWERS):
                began = clock.monotonic()
                async with session.request("GET" if body is None else "POST", f"{url}/{path}", json=body) as answer:
                    answer.raise_for_status()
                    size = len(await answer.read())
                took.append(clock.monotonic() - began)
            found[path] = took, size
    return found


@dataclass(frozen=True, slots=True)
class _Paint:
    first: float
    shown: float
    updates: list[float]


async def _in_browser(cluster: "_ChangingCluster", scale: Scale, url: str, size: int) -> _Paint | None:
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = await browser.new_page(viewport=_WINDOW)
        await page.goto(f"{url}/static/")
        shown_after = await page.evaluate(_SHOWN, size)
        first = await page.evaluate(_PAINTED)
        await RealClock().sleep(_SETTLE_TIME)
        updates = [await _update(page, cluster) for _ in range(scale.changes)]
        await browser.close()
    return _Paint(first / 1e3, shown_after / 1e3, updates)


async def _update(page: "Page", cluster: "_ChangingCluster") -> float:
    """Change a node, and return how long it took until that was seen; both clocks are this machine's."""
    name = cluster.next_name()
    await page.evaluate(_FOLLOW, name)
    began = RealClock().now().timestamp()
    await cluster.change(name)
    painted_at: float = await page.evaluate("window.seen")
    return painted_at / 1e3 - began


async def _bytes_of_a_change(cluster: "_ChangingCluster", url: str) -> list[float]:
    clock, received = RealClock(), 0
    async with aiohttp.ClientSession(read_bufsize=1 << 20) as session, session.get(url) as stream:

        async def count_bytes() -> None:
            nonlocal received
            async for piece in stream.content.iter_any():
                received += len(piece)

        async with asyncio.TaskGroup() as group:
            counter_task = group.create_task(count_bytes())
            await clock.sleep(_SETTLE_TIME)
            found = []
            for _ in range(5):
                before = received
                await cluster.change(cluster.next_name())
                await clock.sleep(timedelta(seconds=1))
                found.append(float(received - before))
            counter_task.cancel()
    return found


async def _cpu_share(
    cluster: "_ChangingCluster", operator_handle: OperatorHandle, scale: Scale, url: str, *, viewers: int
) -> float:
    """Return the share of a core that the operator uses while nodes change and that many viewers are connected."""

    async def view(number: int) -> None:
        # Each from a machine of its own, as far as the operator can tell: how many one may have is limited.
        from_ = aiohttp.TCPConnector(local_addr=(f"127.0.0.{number + 2}", 0))
        async with (
            aiohttp.ClientSession(connector=from_, timeout=aiohttp.ClientTimeout(), read_bufsize=1 << 20) as session,
            session.get(f"{url}/api/v2/events", raise_for_status=True) as stream,
        ):
            async for _ in stream.content.iter_any():
                pass

    async with asyncio.TaskGroup() as group:
        viewer_tasks = [group.create_task(view(number)) for number in range(viewers)]
        await RealClock().sleep(_SETTLE_TIME)
        before = await operator_handle.numbers()
        await cluster.change_for(scale.seconds)
        after = await operator_handle.numbers()
        for task in viewer_tasks:
            task.cancel()
    return (after["cpu"] - before["cpu"]) / scale.seconds


class _ChangingCluster:
    """Nodes that change."""

    def __init__(self, client: Client, names: Sequence[str]) -> None:
        self._client = client
        self._names = cycle(names)
        self._cordoned: set[str] = set()

    def next_name(self) -> str:
        """Return the name of the next node."""
        return next(self._names)

    async def change(self, name: str) -> None:
        """Cordon a node, or let it in again."""
        self._cordoned ^= {name}
        patch = strategic_patch({"spec": {"unschedulable": name in self._cordoned or None}})
        await self._client.patch(_NODES, name, patch)

    async def change_for(self, seconds: int) -> None:
        """Change so many a second."""
        clock = RealClock()
        for _ in range(seconds * _CHANGES_A_SECOND):
            began = clock.monotonic()
            await self.change(self.next_name())
            left = 1 / _CHANGES_A_SECOND - (clock.monotonic() - began)
            await clock.sleep(timedelta(seconds=max(left, 0)))


@asynccontextmanager
async def _filled_cluster(kubeconfig: str, size: int) -> AsyncIterator[_ChangingCluster]:
    clock = RealClock()
    transport = HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock)
    client = Client(transport, clock=clock, random=Random(1))
    for definition in operator_manifests.definitions():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    bodies = [to_create(node) for node in fleet(1, size).nodes]
    await for_each(bodies, lambda body: client.create(NODES, body), at_once=IN_FLIGHT)
    try:
        yield _ChangingCluster(client, [body["metadata"]["name"] for body in bodies])
    finally:
        await client.close()


async def _wait_until_serving(url: str) -> None:
    """Return when the operator leads, and answers."""
    async with aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.ok:
                        return
            await RealClock().sleep(_POLL_INTERVAL)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((_LOCAL, 0))
        port: int = taken.getsockname()[1]
        return port


_TEXT = f"""
A real etcd and kube-apiserver, the operator in a separate process, and headless Chromium, {_WINDOW["width"]} by
{_WINDOW["height"]}, all on the same cores. The first paint is when Chromium first shows something; "all tiles" is when
there is one for each node. A change is that a node is cordoned. Its time runs from before the request until the frame
after its tile has changed. That includes the server, the operator, the browser, and up to 0.25 s for which changes are
collected. The bytes per change are those that one viewer receives. Viewers are open event streams that are read. A
start is that of the command `haulout run` with its webhook, until `/readyz` returns ok; its memory is measured
{_SETTLE_TIME.seconds} s later. Responses of the API are timed one after the other, on an operator that is otherwise
idle; `{_PREVIEW_PATH}` is asked what an edit would change for each node.
"""
