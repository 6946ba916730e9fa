// An OpenID Connect provider with a login page, for tests/clients/signin.py: any name signs in with any password.
//
// Arguments: the port, and JSON with the clients.

import Provider from "oidc-provider";

const [port, clients] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: JSON.parse(clients),
  // The name of an account is its email address before the @, and its groups are the words after a plus sign.
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      name: `Person ${id}`,
      email: `${id.split("+")[0]}@example.com`,
      email_verified: true,
      groups: id.split("+").slice(1),
    }),
  }),
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups"] },
  conformIdTokenClaims: false,
  cookies: { keys: ["only for tests"] },
  pkce: { required: () => true },
});

provider.listen(port, "127.0.0.1", () => console.log("listening"));
