// Makes databases of grype from feeds, as `grype-db build` does, and matches installed packages with them by grype's
// matcher for apk: one JSON object for each package.
//
//	grype FOLDER NAMESPACE < PACKAGES
//
// FOLDER has osv.zip, and in secdb the records that vunnel makes of secdb.json. A line of PACKAGES has a name and a
// version, separated by a tab.
package main

import (
	"archive/zip"
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anchore/grype/grype/db"
	"github.com/anchore/grype/grype/db/provider"
	v6 "github.com/anchore/grype/grype/db/v6"
	"github.com/anchore/grype/grype/distro"
	"github.com/anchore/grype/grype/matcher/apk"
	"github.com/anchore/grype/grype/pkg"
	"github.com/anchore/grype/grype/vulnerability"
	syft "github.com/anchore/syft/syft/pkg"
)

const schemas = "https://raw.githubusercontent.com/anchore/vunnel/main/schema/"

type answer struct {
	Reader  string   `json:"reader"`
	Package string   `json:"package"`
	Version string   `json:"version"`
	IDs     []string `json:"ids"`
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	folder, namespace := os.Args[1], os.Args[2]
	sources := map[string][][]byte{
		"osv":   records(filepath.Join(folder, "osv.zip")),
		"secdb": files(filepath.Join(folder, "secdb")),
	}
	databases := map[string]vulnerability.Provider{}
	for name, records := range sources {
		databases[name] = build(must(os.MkdirTemp(folder, "grype")), name, records)
	}
	system := distro.NewFromNameVersion(namespace, "20260101")
	matcher := apk.Matcher{}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		name, version, _ := strings.Cut(lines.Text(), "\t")
		installed := pkg.Package{
			ID:      pkg.ID(lines.Text()),
			Name:    name,
			Version: version,
			Type:    syft.ApkPkg,
			Distro:  system,
			PURL:    fmt.Sprintf("pkg:apk/%s/%s@%s?arch=x86_64", namespace, name, version),
		}
		for source, database := range databases {
			matches, _, err := matcher.Match(database, installed)
			check(err)
			ids := []string{}
			for _, match := range matches {
				ids = append(ids, match.Vulnerability.ID)
			}
			slices.Sort(ids)
			check(out.Encode(answer{"grype " + source, name, version, ids}))
		}
	}
	for _, database := range databases {
		check(database.Close())
	}
}

// records returns the records of an archive as vunnel passes them to grype's database.
func records(path string) [][]byte {
	archive := must(zip.OpenReader(path))
	defer archive.Close()
	all := [][]byte{}
	for _, file := range archive.File {
		reader := must(file.Open())
		record := must(io.ReadAll(reader))
		check(reader.Close())
		all = append(all, must(json.Marshal(map[string]any{
			"schema":     schemas + "vulnerability/osv/schema-1.6.1.json",
			"identifier": file.Name,
			"item":       json.RawMessage(record),
		})))
	}
	return all
}

func files(folder string) [][]byte {
	all := [][]byte{}
	for _, entry := range must(os.ReadDir(folder)) {
		all = append(all, must(os.ReadFile(filepath.Join(folder, entry.Name()))))
	}
	return all
}

// build makes a database of one provider's records, and opens it.
func build(folder, name string, records [][]byte) vulnerability.Provider {
	workspace := provider.NewWorkspaceWriter(folder, name)
	listing := []provider.File{}
	for number, record := range records {
		listing = append(listing, *must(workspace.WriteResult(fmt.Sprintf("%d.json", number), record)))
	}
	check(workspace.WriteListing(listing))
	check(workspace.WriteState(provider.State{
		Provider:            name,
		Version:             1,
		DistributionVersion: 1,
		Processor:           "vunnel",
		Schema:              provider.Schema{Version: "1.0.3", URL: schemas + "provider-workspace-state/schema-1.0.3.json"},
		Timestamp:           time.Unix(0, 0),
		Listing:             &provider.File{Path: "results/listing.xxh64", Digest: "0", Algorithm: "xxh64"},
		Store:               "flat-file",
	}))
	state := must(provider.ReadState(filepath.Join(workspace.Path(), "metadata.json")))
	made := filepath.Join(folder, "database")
	check(os.MkdirAll(made, 0o700))
	check(db.Build(db.BuildConfig{
		SchemaVersion: v6.ModelVersion,
		Directory:     made,
		States:        provider.States{*state},
		Timestamp:     time.Unix(0, 0),
		Hydrate:       true,
		BatchSize:     db.DefaultBatchSize,
	}))
	return v6.NewVulnerabilityProvider(must(v6.NewReader(v6.Config{DBDirPath: made})))
}
