// A program that signs in with golang.org/x/oauth2 and coreos/go-oidc. Arguments and output: tests/clients/oauth.py.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	grant       = "urn:ietf:params:oauth:grant-type:token-exchange"
	accessToken = "urn:ietf:params:oauth:token-type:access_token"
)

var lines = bufio.NewReader(os.Stdin)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func checkFails(code string, err error) {
	var found *oauth2.RetrieveError
	if !errors.As(err, &found) || found.ErrorCode != code || found.ErrorDescription == "" {
		log.Fatalf("%v instead of %s", err, code)
	}
}

// signIn signs in with PKCE. It returns the parameters that the callback gets, and the verifier.
func signIn(config *oauth2.Config, answer string) (url.Values, string) {
	verifier := oauth2.GenerateVerifier()
	fmt.Println(answer, config.AuthCodeURL("some state", oauth2.S256ChallengeOption(verifier)))
	line, err := lines.ReadString('\n')
	check(err)
	callback, err := url.Parse(line[:len(line)-1])
	check(err)
	return callback.Query(), verifier
}

func main() {
	ctx, issuer := context.Background(), os.Args[1]
	provider, err := oidc.NewProvider(ctx, issuer)
	check(err)
	config := &oauth2.Config{
		ClientID: "go", Endpoint: provider.Endpoint(), RedirectURL: os.Args[2], Scopes: []string{oidc.ScopeOpenID, oidc.ScopeOfflineAccess},
	}

	refused, _ := signIn(config, "refuse")
	if refused.Get("error") != "access_denied" || refused.Get("iss") != issuer {
		log.Fatal(refused)
	}

	parameters, verifier := signIn(config, "allow")
	tokens, err := config.Exchange(ctx, parameters.Get("code"), oauth2.VerifierOption(verifier))
	check(err)
	fmt.Println("token", tokens.AccessToken)
	if time.Until(tokens.Expiry) < 3500*time.Second || tokens.Type() != "Bearer" {
		log.Fatal(tokens.Expiry)
	}
	_, err = config.Exchange(ctx, parameters.Get("code"), oauth2.VerifierOption(verifier))
	checkFails("invalid_grant", err)
	// The access token is a JWT, whose keys the document names.
	_, err = provider.Verifier(&oidc.Config{ClientID: issuer}).Verify(ctx, tokens.AccessToken)
	check(err)

	refreshed, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: tokens.RefreshToken}).Token()
	check(err)
	fmt.Println("token", refreshed.AccessToken)
	_, err = config.TokenSource(ctx, &oauth2.Token{RefreshToken: "unknown"}).Token()
	checkFails("invalid_grant", err)

	exchange := func(token, audience string) (*oauth2.Token, error) {
		set := oauth2.SetAuthURLParam
		return config.Exchange(ctx, "", set("grant_type", grant), set("subject_token", token),
			set("subject_token_type", accessToken), set("audience", audience))
	}
	exchanged, err := exchange(refreshed.AccessToken, issuer)
	check(err)
	if exchanged.Extra("issued_token_type") != accessToken {
		log.Fatal(exchanged.Extra("issued_token_type"))
	}
	fmt.Println("token", exchanged.AccessToken)
	_, err = exchange("unknown", issuer)
	checkFails("invalid_request", err)
	_, err = exchange(refreshed.AccessToken, "customer")
	checkFails("invalid_target", err)
}
