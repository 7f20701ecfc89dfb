package dynamo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSweepsTakeLittleOfTheTime(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: time.Minute, 10 * time.Millisecond: time.Minute, 60 * time.Millisecond: time.Minute,
		time.Second: 1000 * time.Second, time.Minute: 1000 * time.Minute,
	} {
		require.Equal(t, want, pauseAfter(took), took)
	}
}
