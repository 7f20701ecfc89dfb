// Package batch reads what a function answers for a batch of an event source
// mapping with ReportBatchItemFailures.
package batch

import (
	"encoding/json"
	"errors"
)

// Failed returns the identifiers of what failed, as the function names them. None, an
// empty answer and null mean success. An error means that the whole batch failed: the
// answer cannot be read, or an identifier in it is missing or empty ("Success and
// failure conditions" of partial batch responses in the Lambda developer guide, for
// SQS and for DynamoDB alike; the caller finds those that are not in the batch). Names
// are case-sensitive, unlike in encoding/json.
func Failed(answer []byte) ([]string, error) {
	if len(answer) == 0 {
		return nil, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(answer, &object); err != nil {
		return nil, err
	}
	raw, reported := object["batchItemFailures"]
	if !reported {
		return nil, nil
	}
	var failures []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &failures); err != nil {
		return nil, err
	}
	var failed []string
	for _, f := range failures {
		var identifier string
		if err := json.Unmarshal(f["itemIdentifier"], &identifier); err != nil {
			return nil, err
		}
		if identifier == "" {
			return nil, errors.New("an itemIdentifier is empty")
		}
		failed = append(failed, identifier)
	}
	return failed, nil
}
