package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/store"
)

func TestWindowsFromEnv(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		recall, edit string
		want         store.Windows
		err          string // "" is none
	}{
		"as the template has them": {"120", "900", store.Windows{Recall: 2 * time.Minute, Edit: 15 * time.Minute}, ""},
		"never and always":         {"0", "-1", store.Windows{Recall: 0, Edit: store.NoWindow}, ""},
		"always and never":         {"-1", "0", store.Windows{Recall: store.NoWindow, Edit: 0}, ""},
		"the longest":              {"9223372036", "1", store.Windows{Recall: 9223372036 * time.Second, Edit: time.Second}, ""},
		"absent":                   {"", "900", store.Windows{}, "RECALL_WINDOW_SECONDS is not set"},
		"below -1":                 {"120", "-2", store.Windows{}, `EDIT_WINDOW_SECONDS is "-2"`},
		"a fraction":               {"1.5", "900", store.Windows{Recall: 2 * time.Second, Edit: 900 * time.Second}, ""},
		"a duration":               {"120", "15m", store.Windows{}, `EDIT_WINDOW_SECONDS is "15m"`},
		"longer than time":         {"9223372037", "900", store.Windows{}, `RECALL_WINDOW_SECONDS is "9223372037"`},
		"two that are wrong":       {"x", "y", store.Windows{}, `EDIT_WINDOW_SECONDS is "y"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"RECALL_WINDOW_SECONDS": tc.recall, "EDIT_WINDOW_SECONDS": tc.edit}
			got, err := store.WindowsFromEnv(func(name string) string { return env[name] })
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, got)
		})
	}
}
