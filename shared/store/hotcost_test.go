package store_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What a message into a hot conversation takes, in the model of a region, is what
// infra/COSTS.md says, give or take two fifths: the loads are random, and one that
// collides more takes more.
func TestAHotConversationCostsWhatIsSaid(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../infra/COSTS.md")
	require.NoError(t, err)
	for name, row := range rowsAfter(t, string(raw), "### A hot conversation") {
		rate, err := strconv.Atoi(name)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHot(t, 40)
				before := h.region.Stats()
				h.open(float64(rate), 40, 10*time.Second)
				after := h.region.Stats()
				n := float64(len(h.all()))
				writes, reads := (after.WriteWRU-before.WriteWRU)/n, (after.ReadRRU-before.ReadRRU)/n
				measured := []float64{float64(h.attempts) / n, writes, reads, writes*.625 + reads*.125}
				t.Logf("| %s | %.1f | %.1f | %.1f | %.2f |", name, measured[0], measured[1], measured[2], measured[3])
				for i, want := range measured {
					said, err := strconv.ParseFloat(strings.TrimPrefix(row[i+1], "$"), 64)
					require.NoError(t, err)
					require.InDelta(t, want, said, max(.4*want, .4), "%v", row)
				}
			})
		})
	}
}
