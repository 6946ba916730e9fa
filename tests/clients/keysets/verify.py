"""Verifies the tokens of the command line, which are for one audience, with the published keys by four libraries.

Prints the library and the subject of each token.
"""

import json
import sys
import urllib.request

import jwt
from authlib.jose import JsonWebKey, JsonWebToken
from jose import jwt as python_jose
from joserfc import jwk
from joserfc import jwt as joserfc

issuer, audience, *tokens = sys.argv[1:]


def get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


jwks_uri = get(f"{issuer}/.well-known/openid-configuration")["jwks_uri"]
key_set = get(jwks_uri)
algorithms = ["RS256", "ES256"]
of_pyjwt = jwt.PyJWKClient(jwks_uri)
of_joserfc = jwk.KeySet.import_key_set(key_set)
of_authlib = JsonWebKey.import_key_set(key_set)
required = {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": audience}}


def by_authlib(token: str) -> dict:
    claims = JsonWebToken(algorithms).decode(token, of_authlib, claims_options=required)
    claims.validate()
    return claims


def by_joserfc(token: str) -> dict:
    claims = joserfc.decode(token, of_joserfc, algorithms=algorithms).claims
    joserfc.JWTClaimsRegistry(**required).validate(claims)
    return claims


def for_python_jose(token: str) -> dict:
    """Returns the keys for a token, of which python-jose ignores the kid: it tries the keys in their order.

    The set begins with those of RSA, so it serves for access tokens. A key of another type before the right one is an error,
    so a webhook token, which is signed with EC, needs the key of its kid.
    """
    kid = jwt.get_unverified_header(token)["kid"]
    return key_set if audience == issuer else next(key for key in key_set["keys"] if key["kid"] == kid)


for token in tokens:
    key = of_pyjwt.get_signing_key_from_jwt(token)
    found = {
        "PyJWT": jwt.decode(token, key, algorithms=algorithms, audience=audience, issuer=issuer),
        "joserfc": by_joserfc(token),
        "Authlib": by_authlib(token),
        "python-jose": python_jose.decode(token, for_python_jose(token), algorithms=algorithms, audience=audience, issuer=issuer),
    }
    for library, claims in found.items():
        print(library, claims["sub"])
