package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/costs/bill"
)

// total is the last number of a bill.
func total(t *testing.T, args ...string) float64 {
	t.Helper()
	var out strings.Builder
	require.NoError(t, run(args, &out))
	numbers := regexp.MustCompile(`\d+\.\d\d`).FindAllString(out.String(), -1)
	sum, err := strconv.ParseFloat(numbers[len(numbers)-1], 64)
	require.NoError(t, err)
	return sum
}

// The calculator and the cost test speak of the same units: its bill is what was
// measured, times as many.
func TestTheBillIsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	measured, err := bill.Measured()
	require.NoError(t, err)
	message, group, device := measured[bill.Message2].Dollars(), measured[bill.Message20].Dollars(), measured[bill.DeviceMonth].Dollars()
	larger, member := measured[bill.Message40].Dollars(), (measured[bill.Message40].Dollars()-measured[bill.Message21].Dollars())/19
	require.NotZero(t, message*group*device*larger*member)
	for name, tc := range map[string]struct {
		args string
		want float64
	}{
		"nothing":                 {"-messages 0 -devices 0", 0},
		"a million messages":      {"-messages 1e6 -devices 0 -kept 0", 1e6 * message},
		"in a group":              {"-messages 1e6 -group 20 -devices 0 -kept 0", 1e6 * group},
		"between":                 {"-messages 1e6 -group 11 -devices 0 -kept 0", 1e6 * (message + group) / 2},
		"above 20":                {"-messages 1e6 -group 21 -devices 0 -kept 0", 1e6 * measured[bill.Message21].Dollars()},
		"the largest":             {"-messages 1e6 -group 1000 -devices 0 -kept 0", 1e6 * (larger + 960*member)},
		"devices":                 {"-messages 0 -devices 1000", 1e3 * device},
		"devices for eight hours": {"-messages 0 -devices 1000 -hours 8", 1e3 * device / 3},
		"both":                    {"-messages 2e6 -devices 500 -kept 0", 2e6*message + 500*device},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.InDelta(t, tc.want, total(t, strings.Fields(tc.args)...), 0.02)
		})
	}
	for _, group := range []string{"20", "1000"} {
		kept := total(t, "-messages", "1e6", "-group", group, "-devices", "0") - total(t, "-messages", "1e6", "-group", group, "-devices", "0", "-kept", "0")
		require.InDelta(t, 1e6*measured[bill.Message20].StoredBytes*12/(1<<30)*0.45, kept, 0.02, "what is kept of a message is the same however many read it")
	}
	stored := 1e6 * measured[bill.Message2].StoredBytes * 12 / (1 << 30)
	require.InDelta(t, stored*0.45, total(t, "-messages", "1e6", "-devices", "0")-total(t, "-messages", "1e6", "-devices", "0", "-kept", "0"), 0.02, "a year's messages, with point-in-time recovery")
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-messages -1":   "-messages -1: want",
		"-messages NaN":  "-messages NaN: want",
		"-group 1":       "-group 1: want from 2",
		"-group 1001":    "want from 2 to 1000",
		"-group 100000":  "under Crowds",
		"-devices -5":    "-devices -5: want",
		"-hours 25":      "-hours 25: want from 0 to 24",
		"-kept -1":       "-kept -1: want",
		"many":           `"many" is no flag`,
		"-messages many": "invalid value",
	} {
		var out strings.Builder
		require.ErrorContains(t, run(strings.Fields(args), &out), want, args)
		require.NotContains(t, out.String(), "a month", args)
	}
}
