package batch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/batch"
)

func TestFailed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		answer string
		failed []string
		whole  bool
	}{
		{answer: ``},
		{answer: `null`},
		{answer: `{}`},
		{answer: `{"batchItemFailures":null}`},
		{answer: `{"batchItemFailures":[]}`},
		{answer: `{"BatchItemFailures":[{"itemIdentifier":"a"}]}`},
		{answer: `{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"b"}]}`, failed: []string{"a", "b"}},
		{answer: `oops`, whole: true},
		{answer: `"done"`, whole: true},
		{answer: `{"batchItemFailures":"a"}`, whole: true},
		{answer: `{"batchItemFailures":[null]}`, whole: true},
		{answer: `{"batchItemFailures":[{"itemIdentifier":""}]}`, whole: true},
		{answer: `{"batchItemFailures":[{"itemIdentifier":null}]}`, whole: true},
		{answer: `{"batchItemFailures":[{"itemIdentifier":3}]}`, whole: true},
		{answer: `{"batchItemFailures":[{"ItemIdentifier":"a"}]}`, whole: true},
	}
	for _, test := range tests {
		t.Run(test.answer, func(t *testing.T) {
			t.Parallel()
			failed, err := batch.Failed([]byte(test.answer))
			require.Equal(t, test.whole, err != nil, "%v", err)
			require.Equal(t, test.failed, failed)
		})
	}
}
