package dynamo

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// idleConnections is how many connections to an engine are kept.
const idleConnections = 64

// Handler passes requests on to an engine. It leaves out what the engine says of web
// pages, which is that all of them may read the answer: who is let to the handler is
// its caller's affair. The endpoint is that of an [Engine]; like says how its streams
// are to look.
func Handler(endpoint string, like Likeness, log *log.Logger) http.Handler {
	like.Base = &http.Transport{MaxIdleConnsPerHost: idleConnections, DisableCompression: true}
	host := strings.TrimPrefix(endpoint, "http://")
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: host})
			r.Out.Header.Del("Origin")
		},
		ModifyResponse: func(r *http.Response) error {
			for name := range r.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					r.Header.Del(name)
				}
			}
			return nil
		},
		Transport: like,
		ErrorLog:  log,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else the server closes the request's body when the answer begins. Where that is
		// before the proxy has seen its end, the answer breaks off.
		_ = http.NewResponseController(w).EnableFullDuplex() // what cannot has no such body
		proxy.ServeHTTP(w, r)
	})
}
