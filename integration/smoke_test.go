package integration_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The smoke test that is run after a deployment finds a stack well that is, again and
// again, with the conversation that it had the last time.
func TestSmoke(t *testing.T) {
	t.Parallel()
	needLocal(t)
	program := t.TempDir() + "/smoke"
	build := exec.Command("go", "build", "-o", program, "./integration/smoke")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for range 2 {
		out, err := exec.CommandContext(t.Context(), program, "-url", shared.Socket).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, 10, strings.Count(string(out), "ok      "), "%s", out)
		require.Regexp(t, `all is well, in \S+; two messages stay in single:\w+\n$`, string(out))
	}
}
