// Sends requests to `/api/v2`. URLs are relative to the page, so that it works below any prefix: an ingress, kubectl proxy.
// Failures are an `ApiError` whose message can be shown to users.

const BASE = new URL("../api/v2/", document.baseURI);

export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.name = "ApiError";
    this.status = status; // 0: no response
  }
}

export function address(path, parameters) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

// `path` is relative to /api/v2/, as "nodes" or `nodes/${encodeURIComponent(name)}`.
export function get(path, parameters, { signal } = {}) {
  return request(address(path, parameters), { signal });
}

export function post(path, body, { signal, headers } = {}) {
  return request(address(path), {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal,
  });
}

export async function answer(url, options) {
  let response;
  try {
    response = await fetch(url, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The operator does not answer.");
  }
  if (!response.ok) throw new ApiError(await problem(response), response.status);
  return response;
}

async function request(url, options) {
  const response = await answer(url, options);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The response is not JSON: is another service at this address?", response.status);
  }
}

async function problem(response) {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    if (typeof error === "string" && error) return error;
  } catch {
    // Not from the operator but from a proxy: show its status.
  }
  return `${response.status} ${response.statusText || text.slice(0, 200)}`.trim();
}
