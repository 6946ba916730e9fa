// Verifies the tokens of the command line, which are for one audience, with the published keys by go-jose and jwx, and
// prints the subject of each.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/go-jose/go-jose/v4"
	josejwt "github.com/go-jose/go-jose/v4/jwt"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
)

func get(url string) []byte {
	reply, err := http.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		log.Fatal(url, reply.Status, err)
	}
	return body
}

func byGoJose(keySet []byte, token, issuer, audience string) (string, error) {
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(keySet, &keys); err != nil {
		return "", err
	}
	parsed, err := josejwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		return "", err
	}
	var claims josejwt.Claims
	if err := parsed.Claims(keys, &claims); err != nil {
		return "", err
	}
	expected := josejwt.Expected{Issuer: issuer, AnyAudience: josejwt.Audience{audience}, Time: time.Now()}
	return claims.Subject, claims.Validate(expected)
}

func byJwx(url, token, issuer, audience string) (string, error) {
	keys, err := jwk.Fetch(context.Background(), url)
	if err != nil {
		return "", err
	}
	parsed, err := jwt.Parse(
		[]byte(token), jwt.WithKeySet(keys), jwt.WithIssuer(issuer), jwt.WithAudience(audience))
	if err != nil {
		return "", err
	}
	subject, _ := parsed.Subject()
	return subject, nil
}

func main() {
	issuer, audience := os.Args[1], os.Args[2]
	var discovered struct {
		URL string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(get(issuer+"/.well-known/openid-configuration"), &discovered); err != nil {
		log.Fatal(err)
	}
	keySet := get(discovered.URL)
	for _, token := range os.Args[3:] {
		subject, err := byGoJose(keySet, token, issuer, audience)
		if err != nil {
			log.Fatal("go-jose: ", err)
		}
		fmt.Println("go-jose", subject)
		subject, err = byJwx(discovered.URL, token, issuer, audience)
		if err != nil {
			log.Fatal("jwx: ", err)
		}
		fmt.Println("jwx", subject)
	}
}
