// Starts the page: signs in, draws the frame, and shows the screen of the address.

import { h, errorBox } from "./dom.js";
import { base, call, isSignedIn, renew, session, signInByLink, signOut, target } from "./api.js";
import { capitalized, shortUid, words } from "./format.js";
import { kindOf, listAddress, listed, load, nameOf, table, title, top, treeAddress } from "./kinds.js";
import { showQuestion, showSignIn } from "./session.js";
import { showList } from "./list.js";
import { showItem } from "./detail.js";
import { showCreate, showEdit } from "./form.js";
import { showTree } from "./tree.js";
import { explainer, showAccess } from "./access.js";

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
    { class: "side", "aria-label": "Screens" },
    h("ul", null, top() ? link("Hierarchy", treeAddress(""), "hierarchy") : null, explainer() ? link("Access", "#/access", "access") : null),
    [...domains].map(([domain, kinds]) => [h("h2", null, domain === "iam" ? "Identity and access" : capitalized(words(domain))), h("ul", null, kinds.map((kind) => link(title(kind), listAddress(kind), kind.plural)))]),
  );
  const main = h("main", { id: "content" });
  const who = h("span", { class: "muted small" });
  const skip = (event) => {
    event.preventDefault();
    (main.querySelector("h1") ?? main).focus();
  };
  app.className = "";
  app.replaceChildren(
    h("a", { class: "skip", href: "#content", onclick: skip }, "Skip to content"),
    h("div", { id: "live", class: "sr", "aria-live": "polite" }),
    h(
      "div",
      { class: "frame" },
      h("header", { class: "top" }, h("a", { class: "brand", href: "#/" }, h("img", { src: `${base}/console/icon.svg`, alt: "", width: 26, height: 26 }), table.title), h("span", { class: "place" }, who), h("div", { class: "tools" }, table.docs ? h("a", { class: "button", href: base + table.docs }, "Documentation") : null, themeButton(), h("button", { type: "button", onclick: signOut }, "Sign out"))),
      nav,
      main,
    ),
  );
  frame = { nav, main };
  call("GET", "/auth/v1/ok").then(
    (me) => who.replaceChildren("Signed in as ", h("strong", { title: me.subject }, me.profile?.name || me.email || shortUid(me.subject))),
    () => {},
  );
}

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
  const key = first || "hierarchy";
  for (const link of frame.nav.querySelectorAll("a")) {
    if (link.dataset.key === key) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  try {
    await screen(main, first, second, params);
  } catch (error) {
    main.replaceChildren(h("h1", { tabindex: -1 }, error.status === 404 ? "Not found" : "This did not work"), h("p"), h("div", { role: "alert" }, errorBox(error)));
  }
  if (mine !== shown || !isSignedIn()) return;
  frame.main.replaceWith(main);
  frame.main = main;
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent ?? ""} · ${table.title}`;
  heading?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

async function screen(main, first, second, params) {
  if (!first || first === "hierarchy") return top() ? showTree(main, params) : showList(main, listed()[0], params);
  if (first === "access" && explainer()) return showAccess(main, params);
  const kind = kindOf(first);
  if (kind && !second && kind.methods.list) return showList(main, kind, params);
  if (kind && second === "item" && kind.methods.get) return showItem(main, kind, params);
  if (kind && second === "new" && kind.methods.create) return showCreate(main, kind, params);
  if (kind && second === "edit" && kind.methods.update && kind.methods.get) return showEdit(main, kind, params);
  main.replaceChildren(h("h1", { tabindex: -1 }, "Not found"), h("p", null, "There is no such screen. ", h("a", { href: "#/" }, "Go to the hierarchy")));
}

const isLink = () => location.hash.startsWith("#link=");

/** Shows the first screen, of a user who is signed in or not. */
async function begin(problem) {
  if (isSignedIn()) await route();
  else showSignIn(app, problem);
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
  session.addEventListener("signedin", route);
  session.addEventListener("signedout", ({ detail }) => {
    frame = null;
    showSignIn(app, detail);
  });
  // A link that is opened in the window of the page begins as in a new one.
  window.addEventListener("hashchange", () => (isLink() ? location.reload() : route()));
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
