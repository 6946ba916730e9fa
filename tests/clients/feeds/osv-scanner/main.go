// Matches installed packages with the OSV feed as `osv-scanner --offline` does, by the library that it calls for that:
// one JSON object for each package.
//
//	osv-scanner FOLDER NAMESPACE < PACKAGES
//
// FOLDER has osv.zip. A line of PACKAGES has a name and a version, separated by a tab.
package main

import (
	"archive/zip"
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	settings "github.com/google/osv-scalibr/binary/proto/config_go_proto"
	"github.com/google/osv-scalibr/enricher/vulnmatch/osvlocal"
	"github.com/google/osv-scalibr/extractor"
	"github.com/google/osv-scalibr/extractor/filesystem/os/apk/metadata"
	"github.com/google/osv-scalibr/inventory"
	"github.com/google/osv-scalibr/plugin/config"
	"github.com/google/osv-scalibr/purl"
	"github.com/ossf/osv-schema/bindings/go/osvschema"
	"google.golang.org/protobuf/encoding/protojson"
)

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
	installed := map[string][]string{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		name, version, _ := strings.Cut(lines.Text(), "\t")
		installed[name] = append(installed[name], version)
	}
	archive := must(zip.OpenReader(filepath.Join(folder, "osv.zip")))
	defer archive.Close()
	records, ecosystem := of(&archive.Reader)
	out := json.NewEncoder(os.Stdout)
	for name, versions := range installed {
		// A database for each package: for each installed package, the library compares all records of a database.
		database := must(os.MkdirTemp(folder, "osv"))
		write(filepath.Join(database, "osv-scalibr", ecosystem, "all.zip"), records[name])
		for _, one := range match(database, namespace, name, versions) {
			check(out.Encode(one))
		}
		check(os.RemoveAll(database))
	}
}

// of returns the files of the records of each package, and the ecosystem of all. A record that the library does not take
// ends the program, because the library would leave it out.
func of(archive *zip.Reader) (map[string][]*zip.File, string) {
	records, ecosystems := map[string][]*zip.File{}, []string{}
	for _, file := range archive.File {
		reader := must(file.Open())
		var text json.RawMessage
		check(json.NewDecoder(reader).Decode(&text))
		check(reader.Close())
		var record osvschema.Vulnerability
		check(protojson.Unmarshal(text, &record))
		for _, affected := range record.GetAffected() {
			name := affected.GetPackage().GetName()
			if files := records[name]; len(files) == 0 || files[len(files)-1] != file {
				records[name] = append(files, file)
			}
			ecosystems = append(ecosystems, affected.GetPackage().GetEcosystem())
		}
	}
	slices.Sort(ecosystems)
	if ecosystems = slices.Compact(ecosystems); len(ecosystems) != 1 {
		log.Fatalf("the records are of %v, and not of one ecosystem", ecosystems)
	}
	return records, ecosystems[0]
}

// write writes an archive with these files, as they are compressed.
func write(path string, files []*zip.File) {
	check(os.MkdirAll(filepath.Dir(path), 0o700))
	made := must(os.Create(path))
	archive := zip.NewWriter(made)
	for _, file := range files {
		check(archive.Copy(file))
	}
	check(archive.Close())
	check(made.Close())
}

func match(database, namespace, name string, versions []string) []answer {
	enricher := must(osvlocal.New(&config.PluginConfig{
		ProtoConfig: &settings.PluginConfig{PluginSpecific: []*settings.PluginSpecificConfig{{
			Config: &settings.PluginSpecificConfig_Osvlocal{
				Osvlocal: &settings.OSVLocalConfig{LocalPath: database, Download: false},
			},
		}}},
		ClientFactories: config.NewDefaultClientFactories(""),
	}))
	found := inventory.Inventory{}
	answers := map[*extractor.Package]*answer{}
	for _, version := range versions {
		one := &extractor.Package{
			Name:     name,
			Version:  version,
			PURLType: purl.TypeApk,
			Metadata: &metadata.Metadata{PackageName: name, OriginName: name, OSID: namespace, OSVersionID: "20230201"},
		}
		found.Packages = append(found.Packages, one)
		answers[one] = &answer{"osv-scanner", name, version, []string{}}
	}
	check(enricher.Enrich(context.Background(), nil, &found))
	for _, one := range found.PackageVulns {
		answer := answers[one.Package]
		answer.IDs = append(answer.IDs, one.Vulnerability.GetId())
	}
	sorted := []answer{}
	for _, one := range answers {
		slices.Sort(one.IDs)
		sorted = append(sorted, *one)
	}
	slices.SortFunc(sorted, func(one, other answer) int { return cmp.Compare(one.Version, other.Version) })
	return sorted
}
