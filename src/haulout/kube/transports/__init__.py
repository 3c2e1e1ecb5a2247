"""The HTTP transports to a cluster, and all that they need to connect.

- `config` loads the connection settings from `kubeconfig` files (parsed with line numbers,
  interpreted by `kubeconfig_entries`) or from the pod's service account.
- `credentials` and `exec_plugin` supply the identity; `tls` and `proxy` configure the connection.
- `http` is the default transport, on aiohttp; `aiohttp_errors` explains its connection failures.
- `h11_http` is the transport for small processes, on `h11_client`.
"""
