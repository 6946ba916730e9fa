// Calls the API with the token of the page, which is in memory only.

/** An error of the API, with the rules that the request breaks. */
export class ApiError extends Error {
  constructor(status, body, requestId) {
    super(body?.message || `The server answered with status ${status}`);
    const details = Array.isArray(body?.details) ? body.details : [];
    const of = (type) => details.find((one) => String(one["@type"]).endsWith(`/google.rpc.${type}`)) ?? {};
    this.status = status;
    this.requestId = requestId;
    this.reason = of("ErrorInfo").reason ?? "";
    this.violations = of("BadRequest").fieldViolations ?? [];
    this.blocked = of("PreconditionFailure").violations ?? [];
    /** Numbers and texts for programs. */
    this.metadata = of("ErrorInfo").metadata ?? {};
    this.taught = taught(this.metadata);
  }
}

/** Returns in words what a denial tells a caller who may see the place; nothing for other errors. */
function taught({ capabilities, place = "", names = "", roles, bindings, narrowed }) {
  if (!capabilities) return [];
  const list = (text) => (text ?? "").split(",").filter(Boolean).join(", ");
  // The names of the groups of the place, from the top, as far as the caller may see them.
  const named = (uid) => names.split("/").slice(0, uid.split("/").length).filter(Boolean).join("/") || uid;
  const own = (bindings ?? "").split(",").filter(Boolean).map((one) => one.split("@")).map(([role, group]) => `${role} at ${named(group)}`).join(", ");
  return [
    `You lack ${list(capabilities)} at ${named(place)}.`,
    narrowed ? "Your role bindings give it; your token does not allow it." : `Roles that have it: ${list(roles) || "none that you may see"}.`,
    `Your role bindings that count there: ${own || "none"}.`,
  ];
}

/** The path below which a proxy has the server; empty for most. */
export const base = new URL("..", import.meta.url).pathname.slice(0, -1);

const state = { token: "", expires: 0, renewable: false };

/** What others add to errors: `why` returns the address of the screen that explains one. */
export const hooks = { why: () => null };

/** Dispatches `signedin` and `signedout`. */
export const session = new EventTarget();

export const isSignedIn = () => state.token !== "";

function accept({ token, expireTime, renewable }) {
  Object.assign(state, { token, expires: expireTime ? Date.parse(expireTime) : 0, renewable });
  return token !== "";
}

async function step(name, { bearer, body } = {}) {
  const reply = await fetch(`${base}/console/session`, {
    method: "POST",
    headers: { "x-console-session": name, ...(bearer ? { authorization: `Bearer ${bearer}` } : {}) },
    body,
  });
  const answer = await reply.json().catch(() => null);
  if (!reply.ok) throw new ApiError(reply.status, answer, reply.headers.get("x-request-id"));
  return answer;
}

/** Signs in with an access token. Without sessions on the server, the page keeps the token until it is closed. */
export async function signIn(token, hasSessions) {
  accept(hasSessions ? await step("start", { bearer: token }) : { token, renewable: false });
  session.dispatchEvent(new Event("signedin"));
}

/**
 * Signs in with the code of a one-time link. Returns a question if another user is signed in; its `replaces` is the
 * answer that signs that user out.
 */
export async function signInByLink(code, replaces) {
  const answer = await step("link", { body: JSON.stringify({ code, replaces }) });
  accept(answer);
  return answer.question;
}

let renewing = null;

/** Renews the token with the session's cookie. Returns whether the user is signed in. */
export function renew() {
  renewing ??= step("renew")
    .then(accept)
    .finally(() => (renewing = null));
  return renewing;
}

/** Signs out. The session is ended, the cookie is removed, and the token is forgotten. */
export async function signOut() {
  const problem = state.renewable ? await step("end").then(() => null, (error) => error) : null;
  accept({ token: "" });
  session.dispatchEvent(new CustomEvent("signedout", { detail: { problem } }));
}

function lost() {
  accept({ token: "" });
  session.dispatchEvent(new CustomEvent("signedout", { detail: { isLost: true } }));
}

/** Returns the token, renewed if it expires within 30 seconds. */
async function freshToken() {
  if (state.expires && state.expires - Date.now() < 30_000 && state.renewable && !(await renew())) lost();
  return state.token;
}

/** Returns a path with its variables and query. A variable is written `{uid=**}`. */
export function target(template, variables = {}, query = []) {
  const path = template.replace(/\{(\w+)(=\*+)?\}/g, (_, name) => encodeURIComponent(variables[name] ?? ""));
  const text = new URLSearchParams(query.filter(([, value]) => value !== "" && value != null)).toString();
  return text ? `${path}?${text}` : path;
}

/** Calls the API. Returns the JSON of the reply; throws an `ApiError`. */
export const call = async (...request) => (await exchange(...request)).answer;

/** As `call`, and returns the entity tag of the resource, too. A write with `ifMatch` requires that it still has this tag. */
export async function exchange(method, path, body, { signal, ifMatch } = {}) {
  const send = async () =>
    fetch(base + path, {
      method,
      signal,
      headers: {
        authorization: `Bearer ${await freshToken()}`,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(ifMatch ? { "if-match": ifMatch } : {}),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  let reply = await send();
  if (reply.status === 401 && state.renewable && (await renew())) reply = await send();
  const text = await reply.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    // A proxy answered.
  }
  if (reply.ok) return { answer, etag: reply.headers.get("etag") };
  if (reply.status === 401) lost();
  const error = new ApiError(reply.status, answer, reply.headers.get("x-request-id"));
  throw Object.assign(error, { why: hooks.why(error, method, path) });
}

/** Yields what a watch sends, from after the event with the id `last`: the `id`, `data` and `retry` of each event, and an empty object for each sign of life. */
export async function* events(path, last, signal) {
  const headers = { authorization: `Bearer ${await freshToken()}`, ...(last ? { "last-event-id": last } : {}) };
  const reply = await fetch(base + path, { headers, signal });
  if (!reply.ok) throw new ApiError(reply.status, await reply.json().catch(() => null));
  let text = "";
  for await (const part of read(reply.body.pipeThrough(new TextDecoderStream()))) {
    const blocks = (text + part).split("\n\n");
    text = blocks.pop();
    if (!blocks.length) yield {};
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
      yield { id: fields.id, data: JSON.parse(fields.data), retry: fields.retry && Number(fields.retry) };
    }
  }
}

/** Yields the parts of a stream. Not all browsers can iterate it. */
async function* read(stream) {
  const reader = stream.getReader();
  try {
    for (let part; !(part = await reader.read()).done; ) yield part.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Returns the steps of a text in Markdown. */
export async function markdown(text) {
  const reply = await fetch(`${base}/console/markdown`, {
    method: "POST",
    headers: { authorization: `Bearer ${await freshToken()}` },
    body: text,
  });
  if (!reply.ok) throw new ApiError(reply.status, await reply.json().catch(() => null));
  return reply.json();
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Returns a request as a line for a shell, with the token in the variable TOKEN. */
export function curl(method, path, body, { ifMatch } = {}) {
  const parts = ["curl -s"];
  if (method !== "GET") parts.push(`-X ${method}`);
  parts.push(`-H "Authorization: Bearer $TOKEN"`);
  if (ifMatch) parts.push(`-H ${quoted(`If-Match: ${ifMatch}`)}`);
  if (body !== undefined) parts.push(`-d ${quoted(JSON.stringify(body))}`);
  return [...parts, quoted(location.origin + base + path)].join(" ");
}
