// Prints each event of the watch of URL, with go-sse.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/tmaxmax/go-sse"
)

type change struct {
	Resource  struct{ Uid string }
	Retryable bool
}

func main() {
	last := ""
	for {
		request, err := http.NewRequest(http.MethodGet, os.Getenv("URL"), nil)
		if err != nil {
			panic(err)
		}
		request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
		if last != "" {
			request.Header.Set("Last-Event-ID", last)
		}
		connection := sse.NewConnection(request)
		// Its limit is 64 KiB otherwise.
		connection.Buffer(nil, 4<<20)
		connection.SubscribeToAll(func(event sse.Event) {
			var one change
			if err := json.Unmarshal([]byte(event.Data), &one); err != nil {
				panic(err)
			}
			last = event.LastEventID
			fmt.Println(event.Type, one.Resource.Uid)
			if event.Type == "closing" && !one.Retryable {
				os.Exit(0)
			}
		})
		// It returns after some errors, and without one after some ends.
		if err := connection.Connect(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		time.Sleep(time.Second)
	}
}
