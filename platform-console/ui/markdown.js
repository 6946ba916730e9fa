// Builds nodes from the steps of a text in Markdown, which the server has parsed.

import { h } from "./dom.js";

const NAMES = new Set(["p", "h3", "h4", "h5", "h6", "blockquote", "pre", "ul", "ol", "li", "table", "thead", "tr", "th", "td", "em", "strong", "s", "code", "br", "hr"]);

/** Returns an element with the text. Unknown elements are left out; links lead to the web in a new window. */
export function renderMarkdown(steps) {
  const root = h("div", { class: "markdown" });
  const open = [root];
  for (const step of steps) {
    const last = open.at(-1);
    if (step === "close") {
      if (open.length > 1) open.pop();
    } else if (step.text !== undefined) {
      last.append(step.text);
    } else {
      const element = step.link !== undefined ? link(step.link) : NAMES.has(step.open) ? h(step.open) : h("span");
      last.append(element);
      open.push(element);
    }
  }
  return root;
}

function link(url) {
  const safe = /^(https?|mailto):/.test(url);
  const element = h("a", { rel: "noopener noreferrer nofollow", target: "_blank" });
  if (safe) element.setAttribute("href", url);
  return element;
}
