// Renders a chart with the library of Helm, as `helm template` does. The second argument has the values as YAML.
package main

import (
	"fmt"
	"log"
	"os"
	"sort"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	chart, err := loader.Load(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		log.Fatal(err)
	}
	values, err := chartutil.ReadValues([]byte(os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "platform", Namespace: "default", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, options, nil)
	if err != nil {
		log.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		log.Fatal(err)
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("---\n# Source: %s\n%s\n", name, files[name])
	}
}
