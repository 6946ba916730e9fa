// Receives events with the Go SDK. Output: tests/clients/receivers.py.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2"
)

func decode(request *http.Request) (map[string]any, error) {
	event, err := cloudevents.NewEventFromHTTPRequest(request)
	if err != nil {
		return nil, err
	}
	if err := event.Validate(); err != nil {
		return nil, err
	}
	var data any
	if err := event.DataAs(&data); err != nil {
		return nil, err
	}
	return map[string]any{
		"id":              event.ID(),
		"source":          event.Source(),
		"type":            event.Type(),
		"subject":         event.Subject(),
		"millis":          event.Time().UnixMilli(),
		"datacontenttype": event.DataContentType(),
		"group":           event.Extensions()["group"],
		"bodytype":        event.Extensions()["bodytype"],
		"data":            data,
		"url":             request.URL.String(),
	}, nil
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
	var one sync.Mutex
	log.Fatal(http.Serve(listener, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		decoded, err := decode(request)
		if err != nil {
			decoded = map[string]any{"error": err.Error()}
			response.WriteHeader(http.StatusBadRequest)
		}
		line, err := json.Marshal(decoded)
		if err != nil {
			log.Fatal(err)
		}
		one.Lock()
		defer one.Unlock()
		fmt.Println(string(line))
	})))
}
