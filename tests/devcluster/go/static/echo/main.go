// Command echo is the small HTTP server of the cluster's own tests.
//
//	/             the pod's name, and the caller's address
//	/fetch?url=   GETs the URL from inside the pod and passes the answer on
//	/allocate?mib= allocates and touches memory, to meet a memory limit
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

var held [][]byte

func main() {
	name, _ := os.Hostname()
	// A connection for each request: a Service is balanced by connections.
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s\n", name, r.RemoteAddr)
	})
	http.HandleFunc("/fetch", func(w http.ResponseWriter, r *http.Request) {
		response, err := client.Get(r.URL.Query().Get("url"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		w.WriteHeader(response.StatusCode)
		io.Copy(w, response.Body)
	})
	http.HandleFunc("/allocate", func(w http.ResponseWriter, r *http.Request) {
		mib, err := strconv.Atoi(r.URL.Query().Get("mib"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for range mib {
			block := make([]byte, 1<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			held = append(held, block)
		}
		fmt.Fprintf(w, "%d MiB held\n", len(held))
	})
	if len(os.Args) > 1 {
		// Run by `kubectl exec`: print the arguments and end.
		fmt.Println(os.Args[1:])
		return
	}
	fmt.Println("listening on :8080")
	if err := http.ListenAndServe(":8080", nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
