// A program that signs in with npm's openid-client. Arguments and output: tests/clients/oauth.py.

import assert from "node:assert";
import readline from "node:readline";
import * as client from "openid-client";

const [issuer, redirectUri] = process.argv.slice(2);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";

// Signs in with PKCE. Returns the tokens and the request for them, which a program can only send once.
async function signIn(config, answer) {
  const verifier = client.randomPKCECodeVerifier();
  const state = client.randomState();
  const url = client.buildAuthorizationUrl(config, {
    redirect_uri: redirectUri,
    scope: "openid email offline_access",
    state,
    code_challenge: await client.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
  });
  console.log(answer, url.href);
  const callback = new URL((await lines.next()).value);
  const redeem = () => client.authorizationCodeGrant(config, callback, { pkceCodeVerifier: verifier, expectedState: state });
  return [await redeem(), redeem];
}

const options = { execute: [client.allowInsecureRequests] };
const config = await client.discovery(new URL(issuer), "openid-client", undefined, client.None(), options);
// The document of RFC 8414, too.
await client.discovery(new URL(issuer), "openid-client", undefined, client.None(), { ...options, algorithm: "oauth2" });

await assert.rejects(signIn(config, "refuse"), (error) => {
  assert(error instanceof client.AuthorizationResponseError, error);
  assert.equal(error.error, "access_denied");
  return true;
});

const [tokens, again] = await signIn(config, "allow");
console.log("token", tokens.access_token);
assert(tokens.expires_in > 3500 && tokens.token_type === "bearer", tokens);
const isOf = (name) => (error) => {
  assert(error instanceof client.ResponseBodyError, error);
  assert.deepEqual([error.status, error.error], [400, name]);
  return true;
};
await assert.rejects(again(), isOf("invalid_grant"));

const refreshed = await client.refreshTokenGrant(config, tokens.refresh_token);
console.log("token", refreshed.access_token);
await assert.rejects(client.refreshTokenGrant(config, "unknown"), isOf("invalid_grant"));

const exchange = (token, audience) =>
  client.genericGrantRequest(config, EXCHANGE, {
    subject_token: token,
    subject_token_type: "urn:ietf:params:oauth:token-type:access_token",
    audience,
  });
const exchanged = await exchange(refreshed.access_token, issuer);
assert.equal(exchanged.issued_token_type, "urn:ietf:params:oauth:token-type:access_token");
console.log("token", exchanged.access_token);
await assert.rejects(exchange("unknown", issuer), isOf("invalid_request"));
await assert.rejects(exchange(refreshed.access_token, "customer"), isOf("invalid_target"));
lines.return();
process.stdin.destroy();
