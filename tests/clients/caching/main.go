// Sends the requests that it reads as lines of JSON through httpcache, and prints what it gets.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/gregjones/httpcache"
)

type call struct {
	Method, Url, Body string
	Headers           map[string]string
}

type answer struct {
	Status int    `json:"status"`
	Etag   string `json:"etag"`
	Body   string `json:"body"`
	Cached bool   `json:"cached"`
}

func main() {
	client := httpcache.NewMemoryCacheTransport().Client()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var one call
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		request, err := http.NewRequest(one.Method, one.Url, strings.NewReader(one.Body))
		if err != nil {
			panic(err)
		}
		for name, value := range one.Headers {
			request.Header.Set(name, value)
		}
		response, err := client.Do(request)
		if err != nil {
			panic(err)
		}
		// What is not read to its end is not stored.
		body, err := io.ReadAll(response.Body)
		if err != nil {
			panic(err)
		}
		response.Body.Close()
		cached := response.Header.Get(httpcache.XFromCache) == "1"
		json.NewEncoder(os.Stdout).Encode(answer{response.StatusCode, response.Header.Get("ETag"), string(body), cached})
	}
}
