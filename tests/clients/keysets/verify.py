"""Verifies the tokens of the command line with the published keys by four libraries, and prints the subject of each."""

import json
import sys
import urllib.request

import jwt
from authlib.jose import JsonWebKey, JsonWebToken
from jose import jwt as python_jose
from joserfc import jwk
from joserfc import jwt as joserfc

issuer, *tokens = sys.argv[1:]


def get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


jwks_uri = get(f"{issuer}/.well-known/openid-configuration")["jwks_uri"]
key_set = get(jwks_uri)
algorithms = ["RS256", "ES256"]
of_pyjwt = jwt.PyJWKClient(jwks_uri)
of_joserfc = jwk.KeySet.import_key_set(key_set)
of_authlib = JsonWebKey.import_key_set(key_set)
required = {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": issuer}}


def by_authlib(token: str) -> dict:
    claims = JsonWebToken(algorithms).decode(token, of_authlib, claims_options=required)
    claims.validate()
    return claims


def by_joserfc(token: str) -> dict:
    claims = joserfc.decode(token, of_joserfc, algorithms=algorithms).claims
    joserfc.JWTClaimsRegistry(**required).validate(claims)
    return claims


for token in tokens:
    key = of_pyjwt.get_signing_key_from_jwt(token)
    found = {
        "PyJWT": jwt.decode(token, key, algorithms=algorithms, audience=issuer, issuer=issuer),
        "joserfc": by_joserfc(token),
        "Authlib": by_authlib(token),
        # It ignores the kid and tries the keys in their order, which is why those of RSA come first.
        "python-jose": python_jose.decode(token, key_set, algorithms=algorithms, audience=issuer, issuer=issuer),
    }
    for library, claims in found.items():
        print(library, claims["sub"])
