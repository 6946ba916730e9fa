// The dark theme of Swagger UI is a class of the page.
const dark = matchMedia("(prefers-color-scheme: dark)");
const setTheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
setTheme();
dark.addEventListener("change", setTheme);

const session = "{session}";
let current = { token: "", until: 0 };

// Returns the token of the session in the console, "" if nobody is signed in there. It is renewed a minute before it expires.
async function sessionToken() {
  if (!session || Date.now() < current.until) return current.token;
  const reply = await fetch(session, { method: "POST", headers: { "x-console-session": "renew" } });
  const { token = "", expireTime = "" } = reply.ok ? await reply.json() : {};
  current = { token, until: token ? Date.parse(expireTime) - 60_000 : Infinity };
  return token;
}

// A token that is entered on the page comes first.
async function authorize(request) {
  const headers = request.headers ?? {};
  const given = Object.keys(headers).some((name) => name.toLowerCase() === "authorization");
  const isDocument = request.loadSpec;
  const token = given || isDocument ? "" : await sessionToken();
  if (token) request.headers = { ...headers, Authorization: `Bearer ${token}` };
  return request;
}

// No validator, because that is an external service. Nothing is stored after the page is closed.
SwaggerUIBundle({
  url: "{document}",
  dom_id: "#docs",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  queryConfigEnabled: false,
  requestInterceptor: authorize,
  validatorUrl: null,
});
