// Reads feeds with the libraries of scanners, and prints what they know: one JSON object for each answer.
//
//	feeds FOLDER NAMESPACE < QUESTIONS
//
// FOLDER has osv.zip, secdb.json and openvex.json. A question is a line with a package, an id and a version, separated by
// tabs; the version is that of an installed package.
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
	"sort"
	"strings"
	"time"

	"github.com/aquasecurity/trivy-db/pkg/db"
	"github.com/aquasecurity/trivy-db/pkg/ecosystem"
	"github.com/aquasecurity/trivy-db/pkg/types"
	"github.com/aquasecurity/trivy-db/pkg/vulndb"
	"github.com/aquasecurity/trivy-db/pkg/vulnsrc"
	"github.com/aquasecurity/trivy-db/pkg/vulnsrc/alpine"
	"github.com/aquasecurity/trivy-db/pkg/vulnsrc/bucket"
	"github.com/aquasecurity/trivy-db/pkg/vulnsrc/osv"
	"github.com/aquasecurity/trivy-db/pkg/vulnsrc/wolfi"
	"github.com/openvex/go-vex/pkg/vex"
)

// The release of Alpine as which the alpine source reads the database.
const release = "3.99"

type answer struct {
	Reader  string `json:"reader"`
	Package string `json:"package"`
	ID      string `json:"id"`
	// A fixed version, the ranges of vulnerable versions, or a status.
	Answer string `json:"answer"`
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
	root := must(os.MkdirTemp(folder, "trivy"))
	packages := map[string]bool{}
	splitDatabase(filepath.Join(folder, "secdb.json"), root, packages)
	unpack(filepath.Join(folder, "osv.zip"), filepath.Join(root, "osv"), packages)
	resolver := func(string) (bucket.Bucket, error) { return distribution{}, nil }
	sources := map[types.SourceID]vulnsrc.VulnSrc{
		"wolfi":  wolfi.NewVulnSrc(),
		"alpine": alpine.NewVulnSrc(),
		"feeds":  osv.New("osv", "feeds", nil, osv.WithBucketResolver(namespace, resolver)),
	}
	made := filepath.Join(root, "made")
	check(db.Init(made))
	check(vulndb.New(root, made, time.Hour, vulndb.WithVulnSrcs(sources)).Build([]string{"wolfi", "alpine", "feeds"}))

	out := json.NewEncoder(os.Stdout)
	names := make([]string, 0, len(packages))
	for name := range packages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, found := range must(wolfi.NewVulnSrc().Get(db.GetParams{PkgName: name})) {
			check(out.Encode(answer{"trivy-db wolfi", name, found.VulnerabilityID, found.FixedVersion}))
		}
		for _, found := range must(alpine.NewVulnSrc().Get(db.GetParams{PkgName: name, Release: release})) {
			check(out.Encode(answer{"trivy-db alpine", name, found.VulnerabilityID, found.FixedVersion}))
		}
		for _, found := range must(db.Config{}.GetAdvisories(distribution{}.Name(), name)) {
			ranges := strings.Join(found.VulnerableVersions, " || ")
			check(out.Encode(answer{"trivy-db osv", name, found.VulnerabilityID, ranges}))
		}
	}
	check(db.Close())
	answerQuestions(filepath.Join(folder, "openvex.json"), namespace, out)
}

// distribution is the bucket of OSV records, which trivy-db has for languages only.
type distribution struct{}

func (distribution) Name() string              { return "distribution" }
func (distribution) Ecosystem() ecosystem.Type { return "distribution" }
func (distribution) DataSource() types.DataSource {
	return types.DataSource{ID: "feeds", Name: "feeds"}
}

// splitDatabase writes a file for each package, as vuln-list-update does. A package that occurs twice would be lost.
func splitDatabase(path, root string, packages map[string]bool) {
	var database struct {
		Packages []struct {
			Pkg struct {
				Name     string              `json:"name"`
				Secfixes map[string][]string `json:"secfixes"`
				Distro   string              `json:"distroversion"`
			} `json:"pkg"`
		} `json:"packages"`
	}
	check(json.Unmarshal(must(os.ReadFile(path)), &database))
	for index, one := range database.Packages {
		if packages[one.Pkg.Name] {
			log.Fatalf("the package %s occurs twice", one.Pkg.Name)
		}
		packages[one.Pkg.Name] = true
		for _, source := range []string{"wolfi", "alpine"} {
			one.Pkg.Distro = map[string]string{"alpine": "v" + release}[source]
			write(filepath.Join(root, "vuln-list", source, fmt.Sprintf("%d.json", index)), must(json.Marshal(one.Pkg)))
		}
	}
}

func unpack(path, folder string, packages map[string]bool) {
	archive := must(zip.OpenReader(path))
	defer archive.Close()
	for _, file := range archive.File {
		reader := must(file.Open())
		text := must(io.ReadAll(reader))
		check(reader.Close())
		var record osv.Entry
		check(json.Unmarshal(text, &record))
		for _, affected := range record.Affected {
			packages[affected.Package.Name] = true
		}
		write(filepath.Join(folder, file.Name), text)
	}
}

func write(path string, text []byte) {
	check(os.MkdirAll(filepath.Dir(path), 0o700))
	check(os.WriteFile(path, text, 0o600))
}

// answerQuestions asks go-vex for the statement that applies to an installed version.
func answerQuestions(path, namespace string, out *json.Encoder) {
	document := must(vex.Open(path))
	if document.ID == "" || document.Version == 0 || document.Author == "" {
		log.Fatalf("the document lacks its id, version or author: %+v", document.Metadata)
	}
	of := map[string]*vex.VEX{}
	for index := range document.Statements {
		statement := &document.Statements[index]
		check(statement.Validate())
		name := string(statement.Vulnerability.Name)
		// Of all statements, go-vex would search each time.
		if of[name] == nil {
			of[name] = &vex.VEX{Metadata: document.Metadata}
		}
		of[name].Statements = append(of[name].Statements, *statement)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		question := strings.Split(lines.Text(), "\t")
		name, id, version := question[0], question[1], question[2]
		status := "none"
		if about := of[id]; about != nil {
			purl := fmt.Sprintf("pkg:apk/%s/%s@%s?arch=x86_64", namespace, name, version)
			if matches := about.Matches(id, purl, nil); len(matches) > 0 {
				status = string(matches[len(matches)-1].Status)
			}
		}
		check(out.Encode(answer{"go-vex " + version, name, id, status}))
	}
}
