package wire_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
	"github.com/inorder-im/inorder/shared/wire/wiretest"
)

// unplayed is what no script reaches, and why.
var unplayed = map[string]string{
	string(chat.CodeTooLate):  "windows are longer than a test may take",
	string(chat.CodeBusy):     "a server that answers so answers otherwise the next time",
	string(chat.CodeInternal): "it is a fault",
	string(chat.EventErase):   "an operator does it",
	wire.TypeNotify:           "crowds are told so, and no user makes one",
	wire.GoodbyeDevices:       "no fake counts devices",
	wire.GoodbyeExpired:       "tokens last longer than a test",
	wire.GoodbyeFlooding:      "limits are off where the scripts are played",
}

// The scripts have each action, push, error, event and goodbye that they can reach.
func TestCorpusHasEachFrame(t *testing.T) {
	t.Parallel()
	scripts, err := wiretest.Load("testdata")
	require.NoError(t, err)
	met := map[string]bool{}
	for _, script := range scripts {
		for _, word := range script.Words() {
			met[word] = true
		}
	}
	want := slices.Collect(maps.Keys(exchanges))
	want = slices.AppendSeq(want, maps.Keys(pushes))
	want = append(want, typedConstants(t, filepath.Join("..", "chat"), "Code")...)
	want = append(want, typedConstants(t, filepath.Join("..", "chat"), "EventKind")...)
	want = append(want, constants(t, ".", "Goodbye")...)
	for _, word := range want {
		require.Equal(t, unplayed[word] == "", met[word], word)
	}
	require.Subset(t, want, slices.Collect(maps.Keys(unplayed)))
}
