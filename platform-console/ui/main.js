// Starts the page: signs in, draws the frame, and shows the screen of the address.

import { h, errorBox } from "./dom.js";
import { base, isSignedIn, renew, session, signInByLink, signOut } from "./api.js";
import { capitalized, words } from "./format.js";
import { findAddress, kindOf, listAddress, listed, load, table, title, top, treeAddress, vulnerabilitiesAddress } from "./kinds.js";
import { loadMe, me } from "./me.js";
import { askBefore } from "./leaving.js";
import { placeOf, showPlace } from "./place.js";
import { showQuestion, showSignIn } from "./session.js";
import { showList } from "./list.js";
import { showItem } from "./detail.js";
import { showCreate, showEdit } from "./form.js";
import { showTree } from "./tree.js";
import { explainer, showAccess } from "./access.js";
import { showFind } from "./find.js";
import { hasVulnerabilities, showCve, showImage, showVulnerabilities } from "./vulnerabilities.js";

const app = document.getElementById("app");
const THEMES = ["system", "light", "dark"];

function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

const stored = () => {
  const theme = localStorage.getItem("console-theme");
  return THEMES.includes(theme) ? theme : "system";
};

function themeButton() {
  const button = h("button", { type: "button", class: "quiet", onclick: next });
  const show = (theme) => {
    applyTheme(theme);
    button.textContent = { system: "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `Theme: ${theme}`);
    button.title = `Theme: ${theme}`;
  };
  function next() {
    const theme = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length];
    localStorage.setItem("console-theme", theme);
    show(theme);
  }
  show(stored());
  return button;
}

let frame = null;

/** Draws what all screens share. */
function drawFrame() {
  const domains = Map.groupBy(listed(), (kind) => kind.domain);
  const link = (text, href, key) => h("li", null, h("a", { href, "data-key": key }, text));
  const nav = h(
    "nav",
    { class: "side", "aria-label": "Screens", id: "screens" },
    h("ul", null, hasVulnerabilities() ? link("Vulnerabilities", vulnerabilitiesAddress({}), "vulnerabilities") : null, top() ? link("Hierarchy", treeAddress(""), "hierarchy") : null, explainer() ? link("Access", "#/access", "access") : null),
    [...domains].map(([domain, kinds]) => [h("h2", null, domain === "iam" ? "Identity and access" : capitalized(words(domain))), h("ul", null, kinds.map((kind) => link(title(kind), listAddress(kind), kind.plural)))]),
    table.docs ? [h("h2", null, "API"), h("ul", null, h("li", null, h("a", { href: base + table.docs }, "Documentation")))] : null,
  );
  const main = h("main", { id: "content" });
  const skip = (event) => {
    event.preventDefault();
    (main.querySelector("h1") ?? main).focus();
  };
  const menu = h("button", { type: "button", class: "to-menu", "aria-controls": "screens", "aria-expanded": "false", onclick: () => menu.setAttribute("aria-expanded", String(menu.getAttribute("aria-expanded") !== "true")) }, "Menu");
  app.className = "";
  app.replaceChildren(
    h("a", { class: "skip", href: "#content", onclick: skip }, "Skip to content"),
    h("div", { id: "live", class: "sr", "aria-live": "polite" }),
    h(
      "div",
      { class: "frame" },
      h(
        "header",
        { class: "top" },
        h("a", { class: "brand", href: "#/", "aria-label": table.title }, h("img", { src: `${base}/console/icon.svg`, alt: "", width: 26, height: 26 }), h("span", null, table.title)),
        menu,
        searchBox(),
        h("div", { class: "tools" }, h("span", { class: "place muted small" }, me.name ? ["Signed in as ", h("strong", { title: me.uid }, me.name)] : null), themeButton(), h("button", { type: "button", onclick: () => askBefore(signOut, () => {}) }, "Sign out")),
      ),
      nav,
      main,
    ),
  );
  frame = { nav, main, menu };
}

/** Returns the box that finds resources; the key / leads to it. */
function searchBox() {
  const input = h("input", { type: "search", name: "q", id: "find", "aria-label": "Find by name, email address, CVE or uid", "aria-keyshortcuts": "/", placeholder: "Find a name, email, CVE …  ( / )", spellcheck: "false", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    if (input.value.trim()) location.hash = findAddress(input.value.trim());
  };
  return h("form", { class: "finder", role: "search", "aria-label": "Find", onsubmit: submit }, input);
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const input = document.getElementById("find");
  if (!input) return;
  event.preventDefault();
  input.select();
  input.focus();
});

let shown = 0;

/** Shows the screen of the address. */
async function route() {
  if (!isSignedIn()) return;
  if (!frame) drawFrame();
  const mine = (shown += 1);
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const params = new URLSearchParams(query);
  const [first, second] = path.split("/");
  // Each screen gets an element of its own, so that one that is left cannot change the next.
  const main = h("main", { id: "content" });
  const place = placeOf();
  let found = null;
  try {
    found = await screen(main, first, second, params);
  } catch (error) {
    main.replaceChildren(h("h1", { tabindex: -1 }, error.status === 404 ? "Not found" : "This did not work"), h("p"), h("div", { role: "alert" }, errorBox(error)));
  }
  if (mine !== shown || !isSignedIn()) return;
  frame.menu.setAttribute("aria-expanded", "false");
  const key = found?.key ?? first;
  for (const link of frame.nav.querySelectorAll("a")) {
    if (link.dataset.key === key) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  frame.main.replaceWith(main);
  frame.main = main;
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent ?? ""} · ${table.title}`;
  heading?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  if (!place) return;
  await found?.loaded;
  if (mine === shown) showPlace(main, place);
}

/** Shows the first screen: the worst images, where there are any that the caller may see; otherwise the hierarchy. */
async function showFirst(main, params) {
  if (hasVulnerabilities() && (await showVulnerabilities(main, params, true).catch(() => false))) return { key: "vulnerabilities" };
  if (top()) await showTree(main, params);
  else return showList(main, listed()[0], params);
  return { key: "hierarchy" };
}

async function screen(main, first, second, params) {
  if (!first) return showFirst(main, params);
  if (first === "hierarchy" && top()) return showTree(main, params);
  if (first === "access" && explainer()) return showAccess(main, params);
  if (first === "find") return showFind(main, params);
  if (hasVulnerabilities() && first === "vulnerabilities") return showVulnerabilities(main, params);
  if (hasVulnerabilities() && first === "image") return showImage(main, params);
  if (first === "cve" && kindOf("advisories")) return showCve(main, params);
  const kind = kindOf(first);
  if (kind && !second && kind.methods.list) return showList(main, kind, params);
  if (kind && second === "item" && kind.methods.get) return showItem(main, kind, params);
  if (kind && second === "new" && kind.methods.create) return showCreate(main, kind, params);
  if (kind && second === "edit" && kind.methods.update && kind.methods.get) return showEdit(main, kind, params);
  main.replaceChildren(h("h1", { tabindex: -1 }, "Not found"), h("p", null, "There is no such screen. ", h("a", { href: "#/" }, "Go to the first page")));
}

const isLink = () => location.hash.startsWith("#link=");

/** Shows the first screen, of a user who is signed in or not. */
async function begin(problem) {
  if (isSignedIn()) await enter();
  else showSignIn(app, problem);
}

/** The page of a user whose session has ended, with what was typed. */
let kept = null;

/** Shows the page of a user who has signed in: the one that the end of the session has left, or that of the address. */
async function enter() {
  await loadMe();
  // A server without sessions refuses a wrong token only now.
  if (!isSignedIn()) return;
  const page = kept;
  kept = null;
  if (page && page.uid === me.uid && page.address === location.hash) {
    app.replaceChildren(...page.nodes);
    document.body.append(...page.dialogs);
    for (const alert of document.querySelectorAll("[role=alert]")) alert.replaceChildren();
    frame.main.querySelector("h1")?.focus({ preventScroll: true });
    for (const dialog of page.dialogs) {
      dialog.removeAttribute("open");
      dialog.showModal();
    }
    return;
  }
  frame = null;
  await route();
}

/** Shows the sign-in page: after "Sign out", or because the session has ended. */
function leave({ isLost, problem }) {
  const dialogs = [...document.querySelectorAll("dialog[open]")];
  for (const dialog of dialogs) dialog.remove();
  // A wrong token on the sign-in page leaves what is kept.
  if (isLost && frame && !kept) kept = { uid: me.uid, address: location.hash, nodes: [...app.childNodes], dialogs };
  else if (!isLost) kept = null;
  if (!kept) frame = null;
  showSignIn(app, problem, kept ? "Your session has ended. Sign in to go on where you were; what you have typed is kept." : "");
}

/** Shows the screen of a new address, unless that would lose what was typed. */
function follow({ oldURL }) {
  if (isLink()) location.reload();
  else if (!isSignedIn()) return;
  else {
    const address = location.hash;
    askBefore(
      () => {
        if (location.hash === address) route();
        else location.hash = address;
      },
      () => history.pushState(null, "", oldURL),
    );
  }
}

async function start() {
  applyTheme(stored());
  await load();
  const code = isLink() ? location.hash.slice(6) : "";
  // The code must not stay in the history.
  if (code) history.replaceState(null, "", `${base}/console`);
  let problem = null;
  let question = null;
  if (table.sessions) {
    try {
      if (code) question = await signInByLink(code);
      else await renew();
    } catch (error) {
      problem = error;
      // A link that was opened before changes nothing for a user who is signed in.
      if (code) await renew().catch(() => {});
    }
  }
  session.addEventListener("signedin", enter);
  session.addEventListener("signedout", ({ detail }) => leave(detail));
  // A link that is opened in the window of the page begins as in a new one.
  window.addEventListener("hashchange", follow);
  const ask = (asked) =>
    showQuestion(app, asked, {
      async replace(replaces) {
        const again = await signInByLink(code, replaces);
        if (again) ask(again);
        else await begin();
      },
      async stay() {
        await renew();
        await begin();
      },
    });
  if (question) ask(question);
  else await begin(problem);
}

start().catch((error) => app.replaceChildren(h("main", null, h("h1", null, "The console cannot start"), errorBox(error))));
