#!/bin/sh
# grype 0.121.2 (Go): of the OSV records of Wolfi and Chainguard, its database builder takes one whose range is introduced
# after version 0 and fixed later, but no version ever matches it. osv-scanner matches the versions between the two.
#
# The builder joins the two ends with a space, and the constraint of apk versions wants a comma; a record whose constraint
# cannot be parsed is left out when the database is read, without a message. A record with `withdrawn` still matches.
# Needs Go and the Go proxy; compiling grype takes 8 minutes of processor time.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/anchore/grype/grype/db"
	"github.com/anchore/grype/grype/db/provider"
	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/matcher/apk"
	"github.com/anchore/grype/grype/pkg"
	syft "github.com/anchore/syft/syft/pkg"
)

const schemas = "https://raw.githubusercontent.com/anchore/vunnel/main/schema/"

const record = `{"schema": "` + schemas + `vulnerability/osv/schema-1.6.1.json", "identifier": "%[1]s", "item": {
	"id": "%[1]s", "modified": "2026-01-01T00:00:00Z", "affected": [{
		"package": {"ecosystem": "Wolfi", "name": "openssl", "purl": "pkg:apk/wolfi/openssl"},
		"ranges": [{"type": "ECOSYSTEM", "events": [%[2]s]}]
	}]%[3]s}}`

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	workspace := provider.NewWorkspaceWriter(".", "osv")
	listing := []provider.File{}
	for _, one := range [][3]string{
		{"CGA-fixed", `{"introduced": "0"}, {"fixed": "3.0-r0"}`},
		{"CGA-introduced", `{"introduced": "1.0-r0"}`},
		{"CGA-introduced-and-fixed", `{"introduced": "1.0-r0"}, {"fixed": "3.0-r0"}`},
		{"CGA-withdrawn", `{"introduced": "0"}, {"fixed": "3.0-r0"}`, `, "withdrawn": "2026-01-02T00:00:00Z"`},
	} {
		text := fmt.Sprintf(record, one[0], one[1], one[2])
		listing = append(listing, *must(workspace.WriteResult(one[0]+".json", []byte(text))))
	}
	check(workspace.WriteListing(listing))
	check(workspace.WriteState(provider.State{
		Provider: "osv",
		Version:  1,
		Listing:  &provider.File{Path: "results/listing.xxh64", Digest: "0", Algorithm: "xxh64"},
		Store:    "flat-file",
	}))
	state := must(provider.ReadState(filepath.Join(workspace.Path(), "metadata.json")))
	check(os.Mkdir("database", 0o700))
	check(db.Build(db.BuildConfig{
		SchemaVersion: v6.ModelVersion,
		Directory:     "database",
		States:        provider.States{*state},
		Timestamp:     time.Unix(0, 0),
		Hydrate:       true,
	}))
	database := v6.NewVulnerabilityProvider(must(v6.NewReader(v6.Config{DBDirPath: "database"})))
	matcher := apk.Matcher{}
	matches, _, err := matcher.Match(database, pkg.Package{
		Name:    "openssl",
		Version: "2.0-r0",
		Type:    syft.ApkPkg,
		Distro:  distro.NewFromNameVersion("wolfi", "20230201"),
	})
	check(err)
	for _, match := range matches {
		fmt.Println(match.Vulnerability.ID)
	}
}
GO
go mod init finding 2>/dev/null
go get github.com/anchore/grype@v0.121.2 2>/dev/null
go build -mod=mod -o finding . 2>/dev/null
found=$(./finding | sort)
echo "$found"
[ "$found" = 'CGA-fixed
CGA-introduced
CGA-withdrawn' ]
