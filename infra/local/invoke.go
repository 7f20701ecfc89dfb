//go:build !windows

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/inorder-im/inorder/infra/local/address"
	"github.com/inorder-im/inorder/infra/local/lambda"
	"github.com/inorder-im/inorder/infra/local/template"
)

// invokePath is where the Lambda API takes a direct invocation (Lambda API
// reference, "Invoke"). The AWS CLI and SDKs reach it with --endpoint-url.
const invokePath = "/2015-03-31/functions/{name}/invocations"

// maxPayload is Lambda's limit of a request, in bytes.
const maxPayload = 6 << 20

// Invocation types, by the header that names one.
const (
	invocationTypeHeader = "X-Amz-Invocation-Type"
	typeEvent            = "Event"
	typeDryRun           = "DryRun"
	typeRequestResponse  = "RequestResponse"
)

// invokeHandler serves Invoke. A function is named as in the template, as
// deployed, or in short: PublishFunction, inorder-PublishFunction, publish.
func invokeHandler(stack *template.Stack, functions *lambda.Service) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+invokePath, func(w http.ResponseWriter, r *http.Request) {
		f, err := functionNamed(stack, r.PathValue("name"))
		if err != nil {
			refuseInvoke(w, http.StatusNotFound, "ResourceNotFoundException", err)
			return
		}
		payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPayload))
		if err != nil {
			refuseInvoke(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", err)
			return
		}
		if len(payload) > 0 && !json.Valid(payload) {
			refuseInvoke(w, http.StatusBadRequest, "InvalidRequestContentException", errors.New("could not parse the request body into JSON"))
			return
		}
		w.Header().Set("X-Amz-Executed-Version", "$LATEST")
		switch kind := cmp.Or(r.Header.Get(invocationTypeHeader), typeRequestResponse); kind {
		case typeDryRun: // all that can be wrong here is looked at
			w.WriteHeader(http.StatusNoContent)
		case typeEvent:
			if err := functions.InvokeEvent(f.LogicalID, payload); err != nil {
				refuseCall(w, err)
				return
			}
			w.WriteHeader(http.StatusAccepted)
		case typeRequestResponse:
			answerCall(w, r, functions, f.LogicalID, payload)
		default:
			refuseInvoke(w, http.StatusBadRequest, "InvalidParameterValueException",
				fmt.Errorf("the invocation type is %q, want %s, %s or %s", kind, typeRequestResponse, typeEvent, typeDryRun))
		}
	})
	return mux
}

// answerCall waits for the function.
func answerCall(w http.ResponseWriter, r *http.Request, functions *lambda.Service, function string, payload []byte) {
	answer, functionError, err := functions.Invoke(r.Context(), function, payload)
	if err != nil {
		refuseCall(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if functionError != "" {
		w.Header().Set(functionErrorHeader, functionError)
	}
	_, _ = w.Write(answer) // the caller went away
}

func refuseCall(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, lambda.ErrTooManyRequests):
		refuseInvoke(w, http.StatusTooManyRequests, "TooManyRequestsException", err)
	case errors.Is(err, lambda.ErrRequestTooLarge):
		refuseInvoke(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", err)
	default:
		refuseInvoke(w, http.StatusInternalServerError, "ServiceException", err)
	}
}

const functionErrorHeader = "X-Amz-Function-Error"

func refuseInvoke(w http.ResponseWriter, status int, name string, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-ErrorType", name)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"Type": "User", "Message": err.Error()}) // the caller went away
}

func functionNamed(stack *template.Stack, name string) (*template.Function, error) {
	names := make([]string, len(stack.Functions))
	for i, f := range stack.Functions {
		names[i] = shortName(f.LogicalID)
		if name == f.LogicalID || name == f.Name || name == f.ARN || strings.EqualFold(name, names[i]) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("there is no function %q; there are %s", name, strings.Join(names, ", "))
}

// runInvoke is the subcommand that invokes a function of a local cloud that runs:
// invoke [-addr address] <function> <event file, - for standard input>.
func runInvoke(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("invoke", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, "Invokes a function of the local cloud that runs, and prints its answer.\n\n"+
			"usage: go run ./infra/local invoke [flags] <function> <event.json, or - for standard input>\n\n")
		flags.PrintDefaults()
	}
	var addr address.Address
	_ = addr.Set(defaultAddr) // it is one
	flags.Var(&addr, "addr", "`address` of the local cloud")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	if flags.NArg() != 2 {
		flags.Usage()
		return exitUsage
	}
	if err := sayWhich(addr, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "error:", err)
		return exitFailure
	}
	answer, failed, err := invoke(addr, flags.Arg(0), flags.Arg(1), stdin)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "error:", err)
		return exitFailure
	}
	_, _ = fmt.Fprintln(stdout, answer)
	if failed {
		return exitFailure
	}
	return 0
}

// sayWhich names the stack that listens there. Something else is not spoken to: the
// standard port is anybody's.
func sayWhich(addr address.Address, stderr io.Writer) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, addr.URL()+stackPath, http.NoBody)
	if err != nil {
		return fmt.Errorf("-addr %s: %w", addr, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("no local cloud answers at %s: %w\nstart it with: go run ./infra/local, or say where it is with -addr", addr, err)
	}
	defer func() { _ = response.Body.Close() }()
	var d description
	if json.NewDecoder(response.Body).Decode(&d) != nil || d.Name == "" {
		return fmt.Errorf("what answers at %s is no local cloud; say where it is with -addr", addr)
	}
	_, _ = fmt.Fprintf(stderr, "invoking in %s of %s, at %s\n", d.Name, d.Template, addr)
	return nil
}

// invoke posts the event and gives the answer, and whether the function failed.
func invoke(addr address.Address, function, file string, stdin io.Reader) (answer string, failed bool, err error) {
	event, err := readEvent(file, stdin)
	if err != nil {
		return "", false, err
	}
	endpoint := addr.URL() + strings.Replace(invokePath, "{name}", url.PathEscape(function), 1)
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, endpoint, bytes.NewReader(event))
	if err != nil {
		return "", false, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", false, fmt.Errorf("no local cloud answers at %s: %w\nstart it with: go run ./infra/local, or say where it is with -addr", addr, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", false, fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", false, fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(body))
	}
	return string(body), response.Header.Get(functionErrorHeader) != "", nil
}

func readEvent(file string, stdin io.Reader) (event []byte, err error) {
	if file == "-" {
		event, err = io.ReadAll(stdin)
	} else {
		event, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the event: %w", err)
	}
	if !json.Valid(event) {
		return nil, fmt.Errorf("the event in %s is not JSON", file)
	}
	return event, nil
}
