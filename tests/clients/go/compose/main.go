// Validates a compose file with the library of docker compose, and prints the project as `docker compose config` does.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithOsEnv)
	if err != nil {
		log.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	text, err := project.MarshalYAML()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(text))
}
