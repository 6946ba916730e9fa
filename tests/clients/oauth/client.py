"""A program that signs in with PyPI's authlib. Arguments and output: tests/clients/oauth.py."""

import json
import os
import sys

import requests
from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oidc.discovery import OpenIDProviderMetadata

# For http on this machine.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"

issuer, redirect_uri = sys.argv[1:]


def document(path: str, kind: type) -> dict:
    """Reads a discovery document, which the library validates for https alone."""
    text = requests.get(f"{issuer}/.well-known/{path}", timeout=30).text
    kind(json.loads(text.replace("http://", "https://"))).validate()
    return json.loads(text)


def assert_fails(error: str, call) -> None:
    try:
        call()
    except OAuthError as found:
        assert found.error == error and found.description, found
    else:
        raise AssertionError(f"no {error}")


def sign_in(answer: str) -> tuple[OAuth2Session, dict]:
    """Signs in with PKCE. Returns a session without tokens, and the arguments of the request for them."""
    session = OAuth2Session(
        "authlib", token_endpoint_auth_method="none", scope="openid offline_access", redirect_uri=redirect_uri,
        code_challenge_method="S256",
    )
    verifier = generate_token(48)
    url, state = session.create_authorization_url(found["authorization_endpoint"], code_verifier=verifier)
    print(answer, url, flush=True)
    return session, {"authorization_response": sys.stdin.readline().strip(), "state": state, "code_verifier": verifier}


found = document("openid-configuration", OpenIDProviderMetadata)
assert found == document("oauth-authorization-server", AuthorizationServerMetadata)
# The library reads no errors of the callback, and would ask for tokens of the client instead.
_, response = sign_in("refuse")
assert "error=access_denied&" in response["authorization_response"], response

session, response = sign_in("allow")
session.fetch_token(found["token_endpoint"], **response)
print("token", session.token["access_token"], flush=True)
assert session.token["expires_in"] > 3500 and not session.token.is_expired(), session.token
assert_fails("invalid_grant", lambda: session.fetch_token(found["token_endpoint"], **response))

refreshed = session.refresh_token(found["token_endpoint"], session.token["refresh_token"])
print("token", refreshed["access_token"], flush=True)
assert_fails("invalid_grant", lambda: session.refresh_token(found["token_endpoint"], "unknown"))


def exchange(token: str, audience: str) -> dict:
    session = OAuth2Session("authlib", token_endpoint_auth_method="none")
    parameters = {"subject_token": token, "subject_token_type": ACCESS_TOKEN, "audience": audience}
    return session.fetch_token(found["token_endpoint"], grant_type=EXCHANGE, **parameters)


exchanged = exchange(refreshed["access_token"], issuer)
assert exchanged["issued_token_type"] == ACCESS_TOKEN, exchanged
print("token", exchanged["access_token"], flush=True)
assert_fails("invalid_request", lambda: exchange("unknown", issuer))
assert_fails("invalid_target", lambda: exchange(refreshed["access_token"], "customer"))
