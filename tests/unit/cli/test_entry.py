"""The command line: output and exit code."""

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
    """Return a function that runs a command line, for a user without a kubeconfig and outside of a pod."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTP_PROXY", "http_proxy", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return command_runner(capsys)


class Server(ThreadingHTTPServer):
    """Serves a cluster on a local port."""

    request_queue_size = 64  # room for all questions that are asked at once

    def __init__(self, cluster: AccessReviewApi) -> None:
        self.cluster = cluster
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, *_: object) -> None:
        """Ignore errors of clients that give up on their remaining requests."""


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
    """Return a function that serves a cluster on a local port."""
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


def test_haulout_without_arguments_prints_help_with_exit_code_zero(haulout: RunCommand) -> None:
    outcome = haulout()

    assert outcome == haulout("--help")
    assert outcome.code == 0
    assert "cluster-info" in outcome.out


def test_version_prints_the_haulout_and_python_versions(haulout: RunCommand) -> None:
    python = ".".join(str(part) for part in sys.version_info[:3])

    assert haulout("version") == (0, f"haulout {__version__}, Python {python}\n", "")
    assert json.loads(haulout("version", "-o", "json").out) == {"haulout": __version__, "python": python}


def test_mistyped_command_suggests_the_closest_command(haulout: RunCommand) -> None:
    code, out, err = haulout("clustr-info")

    assert (code, out) == (2, "")
    assert err == "haulout: No such command 'clustr-info'. Did you mean 'cluster-info'? See 'haulout --help'.\n"


def test_mistyped_option_is_a_usage_error_that_points_to_the_command_help(haulout: RunCommand) -> None:
    code, _, err = haulout("cluster-info", "--contxt", "prod")

    assert code == 2
    assert err.startswith("haulout: No such option '--contxt'")
    assert err.endswith(" See 'haulout cluster-info --help'.\n")
    assert err.count("\n") == 1


def test_grant_cannot_be_combined_with_an_output_format(haulout: RunCommand) -> None:
    code, _, err = haulout("cluster-info", "--grant", "-o", "json")

    assert code == 2
    assert err == (
        "haulout: --grant prints YAML, so it cannot be combined with --output. See 'haulout cluster-info --help'.\n"
    )


@pytest.mark.parametrize("name", ["Bad Name!", "a.b", "-a", "a-", "x" * 64, "", "a\n"])
def test_invalid_namespace_name_is_a_usage_error(haulout: RunCommand, name: str) -> None:
    code, out, err = haulout("cluster-info", "-n", name)

    assert (code, out) == (2, "")
    assert "is not a valid namespace name" in err
    assert err.count("\n") == 1


def test_help_and_version_do_not_import_heavy_modules() -> None:
    """The modules for clusters take several times longer to import than these commands take to run."""
    script = (
        "import sys; from haulout.cli import main\n"
        "try: main(['version'])\n"
        "finally: print(sorted({'aiohttp', 'asyncio', 'msgspec', 'rich', 'uvloop', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[1] == "[]"


def test_operator_start_does_not_import_rarely_needed_modules() -> None:
    """Packages are searched for plugins, and time zones are read, only where a file names some."""
    script = (
        "import sys, haulout.cli.run.cluster_mode\n"
        "from haulout.controllers.profiles import default_profile as default\n"
        "assert default.configuration().profiles\n"
        "print(sorted({'importlib.metadata', 'zoneinfo', 'prometheus_client', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_python_dash_m_haulout_runs_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "haulout", "--version"], capture_output=True, text=True, check=True)

    assert done.stdout == f"haulout {__version__}\n"


# The connection to the cluster


def test_missing_kubeconfig_is_a_usage_error_with_a_remedy(haulout: RunCommand) -> None:
    code, out, err = haulout("cluster-info")

    assert (code, out) == (2, "")
    assert "give --kubeconfig FILE or set KUBECONFIG" in err
    assert err.count("\n") == 1


def test_unknown_context_is_a_usage_error_that_suggests_the_closest_context(
    haulout: RunCommand, tmp_path: Path
) -> None:
    code, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, "https://x"), "--context", "prd")

    assert code == 2
    assert "there is no context 'prd', did you mean 'prod'?" in err


def test_unreachable_api_server_is_a_one_line_error(haulout: RunCommand, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port, and it refuses
        taken.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert (code, out) == (1, "")
    assert err.startswith(f"haulout: getting the server's version: cannot connect to {server}: connection refused")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "expected"),
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
def test_api_server_refusal_is_a_one_line_error(
    haulout: RunCommand, serve: Serve, tmp_path: Path, given: Response, expected: str
) -> None:
    server = serve(AccessReviewApi(fixed_responses={"*": given}))
    code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert (code, out) == (1, "")
    assert expected in err
    assert err.startswith("haulout: ")
    assert err.removesuffix("\n").isprintable()


def test_server_failure_names_the_address_of_the_server(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    server = serve(AccessReviewApi(fixed_responses={"*": status_response(503, "ServiceUnavailable", "etcd is down")}))
    _, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert err.startswith(f"haulout: {server} does not work: ")


def test_silent_api_server_times_out_without_a_retry(
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


async def test_only_the_first_request_uses_the_short_timeout(clock: Clock) -> None:
    cluster = ScriptedTransport([json_response({}), json_response({})])
    impatient = connect._ImpatientTransport(cluster, clock)
    request = Request(method="GET", path="/version", timeout=timedelta(minutes=5))

    await impatient.send(request)
    await impatient.send(request)

    assert [each.timeout for each in cluster.requests] == [connect.FIRST_ANSWER_TIMEOUT, timedelta(minutes=5)]


def test_credentials_are_not_printed_in_errors(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    server = serve(AccessReviewApi(fixed_responses={"*": status_response(401, "Unauthorized")}))
    _, _, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, server))

    assert "secret" not in err


def test_verbose_prints_the_traceback_of_an_error() -> None:
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", "/nonexistent", "-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("haulout: /nonexistent: cannot read the kubeconfig")


@pytest.mark.parametrize("flags", [[], ["-v"]])
def test_operator_prints_the_traceback_only_with_verbose(serve: Serve, tmp_path: Path, flags: Sequence[str]) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "haulout", "run", "--kubeconfig", file, "--metrics-port", port, *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "the operator runs on" in done.stderr
    assert ("Traceback" in done.stderr) == bool(flags)
    assert f"haulout: cannot listen on port {port} for metrics and the API" in done.stderr.splitlines()[-1]


def test_very_verbose_logs_each_request_without_credentials(serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", file, "-vv"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert re.search(r"DEBUG   GET /version: 200 after \d+ ms", done.stderr)
    assert "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews: 200" in done.stderr
    assert "secret" not in done.stderr


def test_newlines_in_logged_values_are_escaped() -> None:
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


def test_event_loop_errors_are_printed_only_with_verbose() -> None:
    """The log has a traceback when a TLS connection ends in an unusual way."""
    script = (
        "import asyncio, logging, sys; from haulout.cli.connect import run\n"
        "if len(sys.argv) > 1: logging.basicConfig()\n"
        "async def main(): asyncio.get_running_loop().call_exception_handler({'message': 'Fatal error'})\n"
        "run(main())"
    )
    quiet, loud = (
        subprocess.run([sys.executable, "-c", script, *flags], capture_output=True, text=True, check=True).stderr
        for flags in ([], ["-v"])
    )

    assert quiet == ""
    assert "Fatal error" in loud


# cluster-info


def test_cluster_info_exits_zero_when_no_permission_is_missing(
    haulout: RunCommand, serve: Serve, tmp_path: Path
) -> None:
    code, out, err = haulout("cluster-info", "--kubeconfig", a_kubeconfig(tmp_path, serve(AccessReviewApi())))

    assert (code, err) == (0, "")
    assert "You are    alice" in out
    assert "Namespace  haulout" in out
    assert "--grant" not in out


def test_cluster_info_exits_one_and_prints_the_grant_command_when_a_permission_is_missing(
    haulout: RunCommand, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["haulout"])  # the output repeats how the program was called
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi(refused={"list nodes"})))
    code, out, _ = haulout("cluster-info", "--kubeconfig", file, "--context", "prod", "-n", "kube-system")

    assert code == 1
    assert out.splitlines()[-1] == (
        f"  haulout cluster-info --kubeconfig {file} --context prod --namespace kube-system --grant"
        " | kubectl --context ADMIN apply -f -"
    )


@pytest.mark.parametrize(
    ("called", "installed", "expected_program"),
    [
        (".venv/bin/haulout", False, ".venv/bin/haulout"),
        ("/opt/haulout", True, "haulout"),
        ("/lib/haulout/__main__.py", False, f"{sys.executable} -m haulout"),
    ],
)
def test_grant_command_uses_the_program_name_that_the_shell_finds(
    haulout: RunCommand,
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    called: str,
    expected_program: str,
    *,
    installed: bool,
) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi(refused={"list nodes"})))
    if installed:
        (tmp_path / "haulout").touch(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [called])

    out = haulout("cluster-info", "--kubeconfig", file).out

    assert out.splitlines()[-1].startswith(f"  {expected_program} cluster-info --kubeconfig ")


def test_missing_namespace_is_exit_code_one(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    code, out, _ = haulout("cluster-info", "--kubeconfig", file, "-n", "nowhere")

    assert code == 1
    assert "kubectl create namespace nowhere" in out


def test_grant_prints_only_the_manifest(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi(refused={"list nodes"})))
    code, out, err = haulout("cluster-info", "--kubeconfig", file, "--grant")

    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("kind")] == [
        "kind: ClusterRole",
        "kind: ClusterRoleBinding",
    ]


def test_json_output_keeps_the_exit_code(haulout: RunCommand, serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi(refused={"list nodes"})))
    code, out, _ = haulout("cluster-info", "--kubeconfig", file, "-o", "json")

    assert code == 1
    assert json.loads(out)["ready"] is False


def test_interrupt_exits_130_without_output(tmp_path: Path) -> None:
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


def test_sigterm_stops_the_exec_credential_plugin(tmp_path: Path) -> None:
    """It runs in a session of its own, where no signal reaches it."""
    os.mkfifo(tmp_path / "story")
    (tmp_path / "plugin").write_text(f"#!/bin/sh\nexec 3> {tmp_path}/story\necho begun >&3\nsleep 30\n")
    (tmp_path / "plugin").chmod(0o700)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(tmp_path / "plugin")}
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig"]
    command.append(a_kubeconfig(tmp_path, "https://127.0.0.1:1", exec=plugin))
    with (
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process,
        (tmp_path / "story").open() as fifo,
    ):
        assert fifo.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        ended, _, _ = select.select([fifo], [], [], 5)  # nobody is left who could write

    assert (process.returncode, err) == (143, "")
    assert ended


@pytest.mark.parametrize("arguments", [["cluster-info"], ["--help"], ["version"]])
def test_failed_write_to_stdout_is_a_one_line_error(serve: Serve, tmp_path: Path, arguments: list[str]) -> None:
    environment = {**os.environ, "KUBECONFIG": a_kubeconfig(tmp_path, serve(AccessReviewApi()))}
    no_room = f'ulimit -f 0; exec "$@" > {tmp_path}/out'
    command = ["sh", "-c", no_room, "sh", sys.executable, "-m", "haulout", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert (done.returncode, done.stderr) == (1, "haulout: writing the output: File too large\n")


@pytest.mark.parametrize("closing", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_tolerated(serve: Serve, tmp_path: Path, closing: str) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "haulout", "cluster-info"]
    done = subprocess.run([*command, "--kubeconfig", file], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_closed_output_pipe_is_no_error(serve: Serve, tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


# The encoding of the terminal


def terminal_output(kubeconfig: str, **environment: str) -> str:
    """Return the output of the command when its standard output is a terminal."""
    terminal, output = os.openpty()
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", kubeconfig]
    subprocess.run(command, stdout=output, check=True, env={**os.environ, **environment})
    os.close(output)
    with os.fdopen(terminal, "rb") as screen:
        return screen.read1(100_000).decode()


def test_terminal_output_is_coloured_unless_no_color_is_set(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = a_kubeconfig(tmp_path, serve(AccessReviewApi()))

    assert "\x1b[" in terminal_output(file)
    assert "\x1b[" not in terminal_output(file, NO_COLOR="1")


def encoded_output(cluster_address: str, folder: Path, encoding: str) -> str:
    """Return the output of the command with this encoding."""
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", a_kubeconfig(folder, cluster_address)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(command, capture_output=True, check=True, env=environment).stdout.decode(encoding)


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", UNICODE_MARKS), ("ascii", ASCII_MARKS), ("latin-1", ASCII_MARKS)]
)
def test_marks_are_ascii_when_the_encoding_has_no_unicode(
    serve: Serve, tmp_path: Path, encoding: str, expected: Marks
) -> None:
    assert f"  {expected.yes} watch nodes" in encoded_output(serve(AccessReviewApi()), tmp_path, encoding)


def test_characters_outside_the_encoding_are_escaped(serve: Serve, tmp_path: Path) -> None:
    assert "You are    \\u0142ukasz" in encoded_output(serve(AccessReviewApi(username="łukasz")), tmp_path, "latin-1")
