// The sign-in screen: a pasted token, or an identity provider in another window.

import { h, errorBox, freshId } from "./dom.js";
import { base, signIn } from "./api.js";
import { table } from "./kinds.js";

/** Shows the sign-in screen in `app`, with the problem or the reason why it is shown. */
export function showSignIn(app, problem, reason = "") {
  const problems = h("div", { role: "alert" }, problem ? errorBox(problem) : reason ? h("p", { class: "note" }, reason) : null);
  const id = freshId();
  const token = h("input", { id, type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const form = h(
    "form",
    { onsubmit: submit },
    h(
      "div",
      { class: "field" },
      h("label", { for: id }, "Access token"),
      token,
      h("p", { class: "hint" }, "From ", h("code", null, "platform-server token"), ", ", h("code", null, "platform-server env"), " or a token exchange."),
    ),
    h("button", { class: "primary" }, "Sign in"),
  );
  async function submit(event) {
    event.preventDefault();
    // A link in place of a token opens as in the address bar.
    const link = /#link=[^#\s]+$/.exec(token.value.trim());
    if (link) location.hash = link[0];
    else await attempt(problems, () => signIn(token.value.trim(), table.sessions));
  }
  showDoor(
    app,
    "Sign in",
    problems,
    [table.browserSignIn ? [byProvider(problems), h("div", { class: "or" }, "or")] : null, form],
    h("p", { class: "muted small" }, "On the server's machine, ", h("code", null, "platform-server console"), ` prints a link that signs you in, good for ${table.linkMinutes} minutes and once.`),
  );
  token.focus();
}

/** Asks whether a link may sign its user in, where another one is signed in. */
export function showQuestion(app, { current, next, replaces }, { replace, stay }) {
  const problems = h("div", { role: "alert" });
  const named = ({ uid, name }) => [h("strong", null, name || uid), h("br"), h("code", { class: "small" }, uid)];
  const choice = (text, attributes, run) => h("button", { type: "button", ...attributes, onclick: () => attempt(problems, run) }, text);
  showDoor(app, "Change the user?", problems, [
    h("p", null, "You are signed in as"),
    h("p", null, named(current)),
    h("p", null, "The link signs you in as"),
    h("p", null, named(next)),
    h("p", { class: "small" }, "Continue only if the link is your own: everything that you do afterwards is done as the user of the link."),
    h("div", { class: "buttons" }, choice("Stay signed in", { class: "primary" }, stay), choice("Change the user", {}, () => replace(replaces))),
  ]);
  app.querySelector("h1").focus();
}

/** Shows a page for users who are not signed in: a heading, the place of errors, a card with `body`, and a `hint` below it. */
function showDoor(app, heading, problems, body, hint = null) {
  app.className = "";
  app.replaceChildren(
    h(
      "main",
      { class: "door", id: "content" },
      h("img", { src: `${base}/console/icon.svg`, alt: "", width: 40, height: 40 }),
      h("h1", { tabindex: -1 }, heading),
      h("p", { class: "muted" }, table.title),
      problems,
      h("div", { class: "card" }, h("div", { class: "body" }, ...body)),
      hint,
    ),
  );
}

async function attempt(problems, run) {
  problems.replaceChildren();
  try {
    await run();
  } catch (error) {
    problems.replaceChildren(errorBox(error));
  }
}

/** Returns the button that signs in with the identity provider of the server or of an organization. */
function byProvider(problems) {
  const id = freshId();
  const provider = h("input", { id, spellcheck: "false", autocomplete: "off" });
  const progress = h("div", { role: "status" });
  const button = h("button", { type: "button", class: "primary", onclick: start }, "Sign in with an identity provider");
  async function start() {
    button.disabled = true;
    await attempt(problems, () => exchange(provider.value.trim(), progress));
    button.disabled = false;
    progress.replaceChildren();
  }
  return [
    button,
    progress,
    h("details", { class: "small" }, h("summary", null, "Provider of an organization"), h("div", { class: "field" }, h("label", { for: id }, "Uid of the identity provider"), provider)),
  ];
}

const base64url = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decoded = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));

/** Signs in at /oauth in another window. The token comes back encrypted for a key that only this page has. */
async function exchange(provider, progress) {
  if (!crypto.subtle) throw new Error("Signing in with an identity provider needs HTTPS, or a server on this machine");
  const keys = await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]);
  const code = base64url(await crypto.subtle.exportKey("raw", keys.publicKey));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(code)));
  const hex = Array.from(digest.slice(0, 10), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const query = new URLSearchParams({ headless_code: code, client_id: "console", ...(provider ? { idp_id: provider } : {}) });
  window.open(`${base}/oauth?${query}`, "_blank", "noopener");
  progress.replaceChildren(
    h(
      "div",
      { class: "note" },
      h("p", null, "Continue in the other window. Allow it only if that window shows the fingerprint"),
      h("p", null, h("code", { class: "fingerprint" }, hex.match(/.{4}/g).join(" "))),
      h("p", { class: "small" }, h("a", { href: `${base}/oauth?${query}`, target: "_blank", rel: "noopener" }, "Open the window again")),
    ),
  );
  for (let tries = 0; tries < 300; tries += 1) {
    await new Promise((done) => setTimeout(done, 2000));
    const reply = await fetch(`${base}/sts/headless_sessions?code=${code}`);
    if (!reply.ok) continue;
    const { ecdhPublicKey, encryptedIdtoken } = await reply.json();
    const other = await crypto.subtle.importKey("raw", decoded(atob(ecdhPublicKey)), { name: "X25519" }, false, []);
    const shared = await crypto.subtle.deriveBits({ name: "X25519", public: other }, keys.privateKey, 256);
    const key = await crypto.subtle.importKey("raw", shared, "AES-GCM", false, ["decrypt"]);
    const sealed = decoded(encryptedIdtoken);
    const token = await crypto.subtle.decrypt({ name: "AES-GCM", iv: sealed.slice(0, 12) }, key, sealed.slice(12));
    return signIn(new TextDecoder().decode(token), table.sessions);
  }
  throw new Error("The sign-in was not finished within 10 minutes");
}
