package lambda

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// environ is the whole environment of a process: nothing comes from the
// developer's own, whose credentials and settings a function in the cloud would
// not have either. The names are from "Working with Lambda environment
// variables" in the AWS documentation.
func environ(fn Function, region, runtimeAPI string, started time.Time) []string {
	env := map[string]string{
		"AWS_LAMBDA_RUNTIME_API":          runtimeAPI,
		"AWS_LAMBDA_FUNCTION_NAME":        fn.Name,
		"AWS_LAMBDA_FUNCTION_VERSION":     "$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(fn.MemoryMB),
		"AWS_LAMBDA_INITIALIZATION_TYPE":  "on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME":       "/aws/lambda/" + fn.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME":      fmt.Sprintf("%s/[$LATEST]%s", started.UTC().Format("2006/01/02"), randomHex(16)),
		"AWS_EXECUTION_ENV":               "AWS_Lambda_provided.al2023",
		"_HANDLER":                        cmp.Or(fn.Handler, "bootstrap"),
		"LAMBDA_TASK_ROOT":                fn.Dir,
		"LAMBDA_RUNTIME_DIR":              fn.Dir,
		"LANG":                            "en_US.UTF-8",
		"TZ":                              ":UTC",
		"PATH":                            "/usr/local/bin:/usr/bin:/bin",
		"TMPDIR":                          "/tmp",
		// Not the developer's home: the AWS SDK would find ~/.aws in it.
		"HOME": fn.Dir,
	}
	if region != "" {
		env["AWS_REGION"] = region
		env["AWS_DEFAULT_REGION"] = region
	}
	maps.Copy(env, fn.Env)
	maps.Copy(env, fn.Environment)
	// A template cannot redirect the Runtime API: the name is reserved.
	env["AWS_LAMBDA_RUNTIME_API"] = runtimeAPI
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// newTraceID returns an X-Ray tracing header of a trace that is not sampled.
func newTraceID(now time.Time) string {
	return fmt.Sprintf("Root=1-%08x-%s;Parent=%s;Sampled=0", now.Unix(), randomHex(12), randomHex(8))
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("%x", b)
}
