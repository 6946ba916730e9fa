// Verifies the tokens of the command line, which are for one audience, with the published keys, and prints the subject of each.
import * as jose from "jose";

const [issuer, audience, ...tokens] = process.argv.slice(2);
const discovered = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json();
const remote = jose.createRemoteJWKSet(new URL(discovered.jwks_uri));
const local = jose.createLocalJWKSet(await (await fetch(discovered.jwks_uri)).json());
for (const keys of [remote, local]) {
  for (const token of tokens) {
    const { payload } = await jose.jwtVerify(token, keys, { issuer, audience });
    console.log(`jose ${payload.sub}`);
  }
}
