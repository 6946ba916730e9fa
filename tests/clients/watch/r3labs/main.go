// Prints each event of the watch of URL, with r3labs/sse.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/r3labs/sse/v2"
)

type change struct {
	Resource  struct{ Uid string }
	Retryable bool
}

func main() {
	client := sse.NewClient(os.Getenv("URL"), sse.ClientMaxBufferSize(4<<20))
	client.Headers["Authorization"] = "Bearer " + os.Getenv("TOKEN")
	last := ""
	for {
		// It reconnects after a cut by itself, and returns after an end. The client keeps the last id.
		err := client.SubscribeRaw(func(event *sse.Event) {
			// It passes on an event that is cut, too, with the id of the one before: an event's id is its last line.
			var one change
			if json.Unmarshal(event.Data, &one) != nil || one.Resource.Uid != "" && string(event.ID) == last {
				return
			}
			last = string(event.ID)
			fmt.Println(string(event.Event), one.Resource.Uid)
			if string(event.Event) == "closing" && !one.Retryable {
				os.Exit(0)
			}
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		time.Sleep(time.Second)
	}
}
