package fault_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/integration/fault"
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

func TestClock_IsSetByAPlanAndRightInTheEnd(t *testing.T) {
	t.Parallel()
	needLinux(t)
	dir := t.TempDir()
	source, state := filepath.Join(dir, "source"), filepath.Join(dir, "state")
	for _, d := range []string{source, state} {
		require.NoError(t, os.MkdirAll(d, 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(source, "main.go"), []byte(clockProgram), 0o600))
	clock, err := fault.NewClock(t.Context(), state, source)
	require.NoError(t, err)
	const most = time.Hour
	plan := newPlan(t, fault.Faults{fault.ClockSet: {Rate: 1, UpTo: most}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- clock.Run(ctx, plan) }()
	offset := func() time.Duration {
		content, err := os.ReadFile(filepath.Join(state, "offset"))
		require.NoError(t, err)
		d, err := time.ParseDuration(string(content))
		require.NoError(t, err)
		require.LessOrEqual(t, d.Abs(), most+time.Second)
		return d
	}
	seen := map[bool]bool{} // back and forward
	require.Eventually(t, func() bool {
		if d := offset(); d != 0 {
			seen[d < 0] = true
		}
		return len(seen) == 2
	}, time.Minute, time.Millisecond)
	require.GreaterOrEqual(t, plan.Counts()[fault.ClockSet], 2)
	cancel()
	require.NoError(t, <-ended)
	require.Zero(t, offset())
}
