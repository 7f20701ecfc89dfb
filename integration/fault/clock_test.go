package fault_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inorder/integration/fault"
)

const clockProgram = `package main

import (
	"fmt"
	"time"
)

type server struct{ now func() time.Time }

func main() {
	s := server{now: time.Now}
	start := time.Now()
	fmt.Println(s.now().UnixMilli(), start.UnixMilli())
}
`

func TestClock(t *testing.T) {
	t.Parallel()
	needLinux(t)
	dir := t.TempDir()
	source := filepath.Join(dir, "source dir")
	require.NoError(t, os.MkdirAll(source, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(source, "go.mod"), []byte("module clock\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(source, "main.go"), []byte(clockProgram), 0o600))
	state := filepath.Join(dir, "the state")
	require.NoError(t, os.MkdirAll(state, 0o755))
	clock, err := fault.NewClock(t.Context(), state, source)
	require.NoError(t, err)
	program := filepath.Join(dir, "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program)
	build.Dir = source
	build.Env = append(os.Environ(), clock.Env()...)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	for _, offset := range []time.Duration{0, -time.Hour, -time.Minute, 24 * time.Hour} {
		require.NoError(t, clock.Set(offset))
		out, err := exec.CommandContext(t.Context(), program).Output()
		require.NoError(t, err)
		fields := strings.Fields(string(out))
		shifted, err := strconv.Atoi(fields[0])
		require.NoError(t, err)
		real, err := strconv.Atoi(fields[1])
		require.NoError(t, err)
		require.InDelta(t, offset.Milliseconds(), shifted-real, 5000)
	}
	unchanged, err := os.ReadFile(filepath.Join(source, "main.go"))
	require.NoError(t, err)
	require.Equal(t, clockProgram, string(unchanged))

	_, err = fault.NewClock(t.Context(), state, state)
	require.ErrorContains(t, err, "time.Now as a value")
}
