// Parses and formats the URL: `#/fleet?zone=a&state=blocked` is {page: "fleet", name: "", parameters: {zone: "a", …}},
// `#/nodes/NAME` has the name. Parameters with no value are left out, which keeps links short.

export const HOME = "fleet";

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [page = "", ...rest] = path.split("/");
  return { page: page || HOME, name: decoded(rest.join("/")), parameters: Object.fromEntries(new URLSearchParams(query)) };
}

export function format({ page = HOME, name = "", parameters = {} }) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  const path = name ? `#/${page}/${encodeURIComponent(name)}` : `#/${page}`;
  const queryText = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  return queryText ? `${path}?${queryText}` : path;
}

export function toNode(name) {
  return format({ page: "nodes", name });
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
