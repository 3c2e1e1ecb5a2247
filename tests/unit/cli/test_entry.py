"""The command line as a person meets it: what is printed where, and the exit code."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from haulout import __version__
from haulout.cli import connect
from haulout.cli.output import ASCII_MARKS, UNICODE_MARKS, Marks
from haulout.core.clock import Clock
from haulout.kube.transport import Request, Response
from support.cli.command_runner import RunCommand, command_runner
from support.fakes.access_review_api import AccessReviewApi
from support.fakes.scripted_transport import ScriptedTransport, json_response, status_response


@pytest.fixture
def haulout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunCommand:
    """Return a way to run a command line, as a user who has no kubeconfig and is in no pod."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTP_PROXY", "http_proxy", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return command_runner(capsys)


class Server(ThreadingHTTPServer):
    """Puts a cluster on a port of this machine."""

    request_queue_size = 64  # room for all questions that are asked at once

    def __init__(self, cluster: AccessReviewApi) -> None:
        self.cluster = cluster
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, *_: object) -> None:
        """Say nothing: a client that gives up on the rest of its questions is right to."""


class Handler(BaseHTTPRequestHandler):
    """Passes requests on to the cluster."""

    server: Server

    def do_GET(self) -> None:
        """Answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        given = self.server.cluster.respond(self.path.partition("?")[0], body)
        self.send_response(given.status)
        self.end_headers()
        self.wfile.write(given.body)

    def do_POST(self) -> None:
        """Answer."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


Serve = Callable[[AccessReviewApi], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a way to put a cluster on a port of this machine."""
    servers: list[Server] = []

    def start(cluster: AccessReviewApi) -> str:
        for name in ("haulout", "kube-system"):
            cluster.fixed_responses.setdefault(
                f"/api/v1/namespaces/{name}", json_response({"metadata": {"name": name}})
            )
        server = Server(cluster)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def a_kubeconfig(path: Path, server: str, **user: Any) -> str:
    """Write a kubeconfig whose one context is `prod`, and return its name."""
    config = {
        "current-context": "prod",
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "alice", "namespace": "haulout"}}],
        "clusters": [{"name": "prod", "cluster": {"server": server}}],
        "users": [{"name": "alice", "user": user or {"token": "secret"}}],
    }
    (path / "kubeconfig").write_text(json.dumps(config))
    return str(path / "kubeconfig")


# Without a cluster


def test_haulout_alone_shows_help_and_is_content(haulout: RunCommand) -> None:
    shown = haulout()

    assert shown == haulout("--help")
    assert shown.code == 0
    assert "cluster-info" in shown.out


def test_version_names_haulout_and_python(haulout: RunCommand) -> None:
    python = ".".join(str(part) for part in sys.version_info[:3])

    assert haulout("version") == (0, f"haulout {__version__}, Python {python}\n", "")
    assert json.loads(haulout("version", "-o", "json").out) == {"haulout": __version__, "python": python}


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(haulout: RunCommand) -> None:
    code, out, err = haulout("clustr-info")

    assert (code, out) == (2, "")
    assert err == "haulout: No such command 'clustr-info'. Did you mean 'cluster-info'? See 'haulout --help'.\n"


def test_a_mistyped_option_is_a_usage_error_that_names_the_commands_help(haulout: RunCommand) -> None:
    code, _, err = haulout("cluster-info", "--contxt", "prod")

    assert code == 2
    assert err.startswith("haulout: No such option '--contxt'")
    assert err.endswith(" See 'haulout cluster-info --help'.\n")
    assert err.count("\n") == 1


def test_a_manifest_is_yaml_only(haulout: RunCommand) -> None:
    code, _, err = haulout("cluster-info", "--grant", "-o", "json")

    assert code == 2
    assert err == (
        "haulout: --grant prints YAML, so it cannot be combined with --output. See 'haulout cluster-info --help'.\n"
    )


@pytest.mark.parametrize("name", ["Bad Name!", "a.b", "-a", "a-", "x" * 64, "", "a\n"])
def test_a_namespace_that_cannot_exist_is_a_usage_error(haulout: RunCommand, name: str) -> None:
    code, out, err = haulout("cluster-info", "-n", name)

    assert (code, out) == (2, "")
    assert "is not a valid namespace name" in err
    assert err.count("\n") == 1


def test_help_and_version_start_without_the_heavy_parts() -> None:
    """What talks to clusters takes several times longer to import than these take to answer."""
    script = (
        "import sys; from haulout.cli import main\n"
        "try: main(['version'])\n"
        "finally: print(sorted({'aiohttp', 'asyncio', 'msgspec', 'rich', 'uvloop', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[1] == "[]"


def test_an_operator_does_not_load_what_few_clusters_need() -> None:
    """Packages are searched for plugins, and time zones are read, only where a file names some."""
    script = (
        "import sys, haulout.cli.run.cluster_mode\n"
        "from haulout.controllers.profiles import default_profile as default\n"
        "assert default.configuration().profiles\n"
        "print(sorted({'importlib.metadata', 'zoneinfo', 'prometheus_client', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_python_can_run_it_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "haulout", "--version"], capture_output=True, text=True, check=True)

    assert done.stdout == f"haulout {__version__}\n"


# The way to the cluster


def test_no_kubeconfig_at_all_is_a_usage_error_that_says_what_to_do(haulout: RunCommand) -> None:
    code, out, err = haulout("cluster-info")

    assert (code, out) == (2, "")
    assert "give --kubeconfig FILE or set KUBECONFIG" in err
    assert err.count("\n") == 1


def test_an_unknown_context_is_a_usage_error_that_names_the_others(haulout: RunCommand, tmp_path: Path) -> None:
    code, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, "https://x"), "--context", "prd")

    assert code == 2
    assert "there is no context 'prd', did you mean 'prod'?" in err


def test_a_cluster_that_is_not_there_is_one_line(haulout: RunCommand, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port, and it refuses
        taken.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert (code, out) == (1, "")
    assert err.startswith(f"haulout: getting the server's version: cannot connect to {server}: connection refused")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            status_response(401, "Unauthorized", "token expired"),
            "does not accept the credentials of 'alice' (context 'prod' in",
        ),
        (
            status_response(403, "Forbidden", 'User "bob" cannot'),
            'User "bob" cannot; authenticated users normally have this permission',
        ),
        (
            json_response(b"<html><title>Sign in</title></html>"),
            "got an HTML page titled 'Sign in'; is a proxy or a login",
        ),
        (json_response(b"gone", status=404), "does not look like a Kubernetes API server"),
        (
            json_response(b"Client sent an HTTP request to an HTTPS server.", status=400),
            "HTTPS server.; should it begin with https://? correct the server of context 'prod' in ",
        ),
        (
            json_response(b"<html><title>502 Bad Gateway</title></html>", status=502),
            "does not work: getting the server's version: HTTP 502: an HTML page titled '502 Bad Gateway'; try again",
        ),
        (status_response(401, "Unauthorized", "\x1b[2Jsurprise\n\x9b"), r": \x1b[2Jsurprise \x9b; log in again"),
    ],
)
def test_a_cluster_that_says_no_is_one_line(
    haulout: RunCommand, serve: Serve, tmp_path: Path, given: Response, said: str
) -> None:
    server = serve(AccessReviewApi(fixed_responses={"*": given}))
    code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert (code, out) == (1, "")
    assert said in err
    assert err.startswith("haulout: ")
    assert err.removesuffix("\n").isprintable()


def test_trouble_is_told_with_the_servers_name(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    server = serve(AccessReviewApi(fixed_responses={"*": status_response(503, "ServiceUnavailable", "etcd is down")}))
    _, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert err.startswith(f"haulout: {server} does not work: ")


def test_a_server_that_hangs_is_given_up_soon(
    haulout: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator would try four times, for half a minute each."""
    monkeypatch.setattr(connect, "FIRST_ANSWER_TIMEOUT", timedelta(milliseconds=200))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        code, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))
        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):  # there was no second try
            silent.accept()

    assert code == 1
    assert err == (
        f"haulout: GET {server}/version: no answer within 0.2 s; "
        "is the API server overloaded, or is something else listening there?\n"
    )


async def test_a_server_that_has_answered_gets_its_time(clock: Clock) -> None:
    cluster = ScriptedTransport([json_response({}), json_response({})])
    impatient = connect._ImpatientTransport(cluster, clock)
    request = Request(method="GET", path="/version", timeout=timedelta(minutes=5))

    await impatient.send(request)
    await impatient.send(request)

    assert [each.timeout for each in cluster.requests] == [connect.FIRST_ANSWER_TIMEOUT, timedelta(minutes=5)]


def test_credentials_never_show_in_an_error(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    server = serve(AccessReviewApi(fixed_responses={"*": status_response(401, "Unauthorized")}))
    _, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert "secret" not in err


def test_verbose_shows_where_an_error_came_from() -> None:
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", "/nonexistent", "-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("haulout: /nonexistent: cannot read the kubeconfig")


@pytest.mark.parametrize("asked", [[], ["-v"]])
def test_an_operator_shows_it_only_if_asked_though_it_has_a_log(
    serve: Serve, tmp_path: Path, asked: Sequence[str]
) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "haulout", "run", "--kubeconfig", file, "--metrics-port", port, *asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "the operator runs on" in done.stderr
    assert ("Traceback" in done.stderr) == bool(asked)
    assert f"haulout: cannot listen on port {port} for metrics and the API" in done.stderr.splitlines()[-1]


def test_very_verbose_logs_each_request_and_no_secrets(serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", file, "-vv"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert re.search(r"DEBUG   GET /version: 200 after \d+ ms", done.stderr)
    assert "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews: 200" in done.stderr
    assert "secret" not in done.stderr


def test_no_value_looks_like_a_second_record_in_the_log_of_a_command() -> None:
    script = (
        "import logging; from haulout.cli import main\n"
        "from haulout.cli.cluster_info import command as cluster_info\n"
        "import haulout.cli.connect as connect\n"
        "def run(coroutine):\n"
        "    coroutine.close()\n"
        "    logging.getLogger('haulout').info('node %s', 'n1\\n2026-01-01 ERROR forged \\x1b[31m')\n"
        "    raise SystemExit(0)\n"
        "connect.run = run\n"
        "main(['cluster-info', '-v'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.endswith(r"INFO    node n1\n2026-01-01 ERROR forged \u001b[31m")


def test_what_the_event_loop_complains_about_is_only_for_those_who_ask() -> None:
    """The log has a traceback when a TLS connection ends in an unusual way."""
    script = (
        "import asyncio, logging, sys; from haulout.cli.connect import run\n"
        "if len(sys.argv) > 1: logging.basicConfig()\n"
        "async def main(): asyncio.get_running_loop().call_exception_handler({'message': 'Fatal error'})\n"
        "run(main())"
    )
    quiet, loud = (
        subprocess.run([sys.executable, "-c", script, *asked], capture_output=True, text=True, check=True).stderr
        for asked in ([], ["-v"])
    )

    assert quiet == ""
    assert "Fatal error" in loud


# cluster-info


def test_a_cluster_where_nothing_is_missing_is_exit_code_zero(
    haulout: RunCommand, serve: Serve, tmp_path: Path
) -> None:
    code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, serve(AccessReviewApi())))

    assert (code, err) == (0, "")
    assert "You are    alice" in out
    assert "Namespace  haulout" in out
    assert "--grant" not in out


def test_something_missing_is_exit_code_one_and_a_command_to_paste(
    haulout: RunCommand, serve: Serve, tmp_path: Path
) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi(refused={"list nodes"})))
    code, out, _ = haulout("cluster-info", "--kubeconfig", file, "--context", "prod", "-n", "kube-system")

    assert code == 1
    assert out.splitlines()[-1] == (
        f"  haulout cluster-info --kubeconfig {file} --context prod --namespace kube-system --grant"
        " | kubectl --context ADMIN apply -f -"
    )


@pytest.mark.parametrize(
    ("called", "installed", "shown"),
    [
        (".venv/bin/haulout", False, ".venv/bin/haulout"),
        ("/opt/haulout", True, "haulout"),
        ("/lib/haulout/__main__.py", False, f"{sys.executable} -m haulout"),
    ],
)
def test_the_command_to_paste_calls_the_program_as_it_can_be_called(
    haulout: RunCommand,
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    called: str,
    shown: str,
    *,
    installed: bool,
) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi(refused={"list nodes"})))
    if installed:
        (tmp_path / "haulout").touch(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [called])

    out = haulout("cluster-info", "--kubeconfig", file).out

    assert out.splitlines()[-1].startswith(f"  {shown} cluster-info --kubeconfig ")


def test_a_namespace_that_is_not_there_is_exit_code_one(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    code, out, _ = haulout("cluster-info", "--kubeconfig", file, "-n", "nowhere")

    assert code == 1
    assert "kubectl create namespace nowhere" in out


def test_grant_prints_the_manifest_and_nothing_else(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi(refused={"list nodes"})))
    code, out, err = haulout("cluster-info", "--kubeconfig", file, "--grant")

    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("kind")] == [
        "kind: ClusterRole",
        "kind: ClusterRoleBinding",
    ]


def test_json_goes_with_the_same_exit_code(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi(refused={"list nodes"})))
    code, out, _ = haulout("cluster-info", "--kubeconfig", file, "-o", "json")

    assert code == 1
    assert json.loads(out)["ready"] is False


def test_an_interrupt_ends_quietly(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = a_kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", file]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                process.send_signal(signal.SIGINT)
                _, err = process.communicate()

    assert (process.returncode, err.strip()) == (130, "")


def test_a_request_to_end_takes_the_exec_plugin_along(tmp_path: Path) -> None:
    """It runs in a session of its own, where no signal reaches it."""
    os.mkfifo(tmp_path / "story")
    (tmp_path / "plugin").write_text(f"#!/bin/sh\nexec 3> {tmp_path}/story\necho begun >&3\nsleep 30\n")
    (tmp_path / "plugin").chmod(0o700)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(tmp_path / "plugin")}
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig"]
    command.append(a_kubeconfig(tmp_path, "https://127.0.0.1:1", exec=plugin))
    with (
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process,
        (tmp_path / "story").open() as story,
    ):
        assert story.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        ended, _, _ = select.select([story], [], [], 5)  # nobody is left who could write

    assert (process.returncode, err) == (143, "")
    assert ended


@pytest.mark.parametrize("arguments", [["cluster-info"], ["--help"], ["version"]])
def test_output_that_cannot_be_written_is_one_line(serve: Serve, tmp_path: Path, arguments: list[str]) -> None:
    environment = {**os.environ, "KUBECONFIG": a_kubeconfig(tmp_path, serve(AccessReviewApi()))}
    no_room = f'ulimit -f 0; exec "$@" > {tmp_path}/out'
    command = ["sh", "-c", no_room, "sh", sys.executable, "-m", "haulout", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert (done.returncode, done.stderr) == (1, "haulout: writing the output: File too large\n")


@pytest.mark.parametrize("closing", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_files_may_be_closed(serve: Serve, tmp_path: Path, closing: str) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "haulout", "cluster-info"]
    done = subprocess.run([*command, "--kubeconfig", file], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_who_left_is_no_error(serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


# What fits the terminal


def in_a_terminal(kubeconfig: str, **environment: str) -> str:
    """Return what the command shows when its standard output is a terminal."""
    terminal, output = os.openpty()
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", kubeconfig]
    subprocess.run(command, stdout=output, check=True, env={**os.environ, **environment})
    os.close(output)
    with os.fdopen(terminal, "rb") as screen:
        return screen.read1(100_000).decode()


def test_a_terminal_gets_colours_unless_the_user_declines(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))

    assert "\x1b[" in in_a_terminal(file)
    assert "\x1b[" not in in_a_terminal(file, NO_COLOR="1")


def printed(cluster_address: str, folder: Path, encoding: str) -> str:
    """Return what the command prints where only `encoding` is understood."""
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", a_kubeconfig(folder, cluster_address)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(command, capture_output=True, check=True, env=environment).stdout.decode(encoding)


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", UNICODE_MARKS), ("ascii", ASCII_MARKS), ("latin-1", ASCII_MARKS)]
)
def test_signs_are_those_that_the_terminal_can_show(
    serve: Serve, tmp_path: Path, encoding: str, expected: Marks
) -> None:
    assert f"  {expected.yes} watch nodes" in printed(serve(AccessReviewApi()), tmp_path, encoding)


def test_a_name_that_the_terminal_cannot_show_is_spelled_out(serve: Serve, tmp_path: Path) -> None:
    assert "You are    \\u0142ukasz" in printed(serve(AccessReviewApi(username="łukasz")), tmp_path, "latin-1")
