//go:build !windows

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogLinesInWords(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ line, want string }{
		"no JSON":   {"heard hello", "heard hello"},
		"no record": {`{"a":1}`, `{"a":1}`},
		"no end":    {`{"level":"INFO","msg":"x"`, `{"level":"INFO","msg":"x"`},
		"information": {`{"time":"2026-11-30T10:00:00Z","level":"INFO","msg":"request","action":"send","code":"OK","seq":7,"ms":4.5}`,
			"request action=send code=OK seq=7 ms=4.5"},
		"a warning": {`{"level":"WARN","msg":"a push failed","err":"status 410: gone","left":["a","b"],"none":"","tab":"a\tb","name":"Zoë"}`,
			`warn: a push failed err="status 410: gone" left=["a","b"] none="" tab="a\tb" name=Zoë`},
		"an error in many lines": {`{"level":"ERROR","msg":"no\nluck"}`, "error: no luck"},
		"metrics": {`{"level":"INFO","msg":"request","code":"OK","Sends":1,"SendLatency":4.1,"Stack":"inorder","_aws":{"Timestamp":1,` +
			`"CloudWatchMetrics":[{"Namespace":"Inorder","Dimensions":[["Stack"]],"Metrics":[{"Name":"Sends","Unit":"Count"},{"Name":"SendLatency"}]}]}}`,
			"request code=OK"},
	} {
		require.Equal(t, tt.want, inWords(tt.line), name)
	}
}

func TestFunctionsLinesAreInWordsUnlessWantedRaw(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := newConsole(&out)
	const line = `{"level":"INFO","msg":"no\nluck"}`
	c.function("send", line, false)
	c.function("send", line, true)
	require.Equal(t, "send       | no luck\nsend       | "+line+"\n", out.String())
}
