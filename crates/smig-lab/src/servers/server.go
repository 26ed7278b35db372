// Go's own HTTP server for a directory: server DIRECTORY ADDRESS CERTIFICATE KEY. Takes uploads by POST.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	files := http.FileServer(http.Dir(os.Args[1]))
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			return
		}
		files.ServeHTTP(w, r)
	})
	log.Fatal(http.ListenAndServeTLS(os.Args[2], os.Args[3], os.Args[4], nil))
}
