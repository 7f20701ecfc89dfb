package fault_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/integration/fault"
)

// idle makes this program one that only waits, for the Killer to kill.
const idle = "FAULT_TEST_IDLE"

// patience is how long a test waits for what must happen.
const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(idle) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// newPlan makes a plan that is on.
func newPlan(t *testing.T, faults fault.Faults) *fault.Plan {
	t.Helper()
	plan, err := fault.NewPlan(42, faults)
	require.NoError(t, err)
	plan.On()
	return plan
}

// always is a plan of one fault at every occasion.
func always(t *testing.T, kind fault.Kind) *fault.Plan {
	t.Helper()
	return newPlan(t, fault.Faults{kind: {Rate: 1}})
}

// backend remembers what it was asked, and answers with a function.
type backend struct {
	url string

	mu       sync.Mutex
	requests []string // method, operation or path, and body
}

func startBackend(t *testing.T, handle http.HandlerFunc) *backend {
	t.Helper()
	b := &backend{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, operation, found := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if !found {
			operation = r.RequestURI
		}
		b.mu.Lock()
		b.requests = append(b.requests, r.Method+" "+operation+" "+string(body))
		b.mu.Unlock()
		if handle != nil {
			handle(w, r)
			return
		}
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *backend) got() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.requests...)
}

func errorsAs[T error](err error, target *T) bool { return errors.As(err, target) }
