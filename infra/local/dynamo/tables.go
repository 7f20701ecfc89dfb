package dynamo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/inorder-im/inorder/infra/local/template"
)

const (
	// activeTimeout is how long a new table may take to become ACTIVE: nothing
	// locally, up to a minute in AWS.
	activeTimeout  = 3 * time.Minute
	activePollMin  = 10 * time.Millisecond
	activePollMax  = 2 * time.Second
	projectionKeys = string(types.ProjectionTypeKeysOnly)
)

// CreateTables makes the tables that are missing, on demand billing, with their
// indexes, stream and time to live, and returns when all can be used. A table
// that exists is left as it is if its schema is the same, whatever its data.
// If it is not, an error says what differs: tables are never migrated.
func CreateTables(ctx context.Context, client *dynamodb.Client, tables []*template.Table) error {
	for _, t := range tables {
		if err := ensureTable(ctx, client, t); err != nil {
			return err
		}
	}
	for _, t := range tables {
		if err := awaitActive(ctx, client, t.Name); err != nil {
			return err
		}
		if err := ensureTimeToLive(ctx, client, t); err != nil {
			return err
		}
	}
	return nil
}

func ensureTable(ctx context.Context, client *dynamodb.Client, t *template.Table) error {
	want := createInput(t)
	_, err := client.CreateTable(ctx, want)
	if err == nil {
		return nil
	}
	if _, exists := errors.AsType[*types.ResourceInUseException](err); !exists {
		return fmt.Errorf("creating table %s: %w", t.Name, err)
	}
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &t.Name})
	if err != nil {
		return fmt.Errorf("describing table %s: %w", t.Name, err)
	}
	if diffs := differences(want, out.Table); len(diffs) > 0 {
		return fmt.Errorf("table %s (line %d of the template) exists with another schema: %s. Tables are not migrated: "+
			"delete the table or, for the local cloud, the data directory (its data is lost), or go back to the template that made it",
			t.Name, t.Line, strings.Join(diffs, "; "))
	}
	return nil
}

func createInput(t *template.Table) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{
		TableName:   &t.Name,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema:   keySchema(t.Key),
	}
	for _, a := range t.Attributes {
		in.AttributeDefinitions = append(in.AttributeDefinitions,
			types.AttributeDefinition{AttributeName: &a.Name, AttributeType: types.ScalarAttributeType(a.Type)})
	}
	for _, index := range t.Indexes {
		projection := &types.Projection{ProjectionType: types.ProjectionType(index.Projection), NonKeyAttributes: index.NonKey}
		in.GlobalSecondaryIndexes = append(in.GlobalSecondaryIndexes,
			types.GlobalSecondaryIndex{IndexName: &index.Name, KeySchema: keySchema(index.Key), Projection: projection})
	}
	if t.StreamView != "" {
		in.StreamSpecification = &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewType(t.StreamView)}
	}
	return in
}

func keySchema(key []template.KeyElement) []types.KeySchemaElement {
	var schema []types.KeySchemaElement
	for _, k := range key {
		schema = append(schema, types.KeySchemaElement{AttributeName: &k.Name, KeyType: types.KeyType(k.Role)})
	}
	return schema
}

// differences lists, for the user, where a table is not as wanted.
func differences(want *dynamodb.CreateTableInput, got *types.TableDescription) []string {
	var diffs []string
	compare := func(what, want, got string) {
		if want != got {
			diffs = append(diffs, fmt.Sprintf("%s: the table has %s, the template %s", what, orNone(got), orNone(want)))
		}
	}
	compare("key", keyText(want.KeySchema, want.AttributeDefinitions), keyText(got.KeySchema, got.AttributeDefinitions))
	compare("stream", streamText(want.StreamSpecification), streamText(got.StreamSpecification))

	wanted, present := map[string]string{}, map[string]string{}
	for _, i := range want.GlobalSecondaryIndexes {
		wanted[*i.IndexName] = indexText(i.KeySchema, want.AttributeDefinitions, i.Projection)
	}
	for _, i := range got.GlobalSecondaryIndexes {
		present[*i.IndexName] = indexText(i.KeySchema, got.AttributeDefinitions, i.Projection)
	}
	var names []string
	for name := range wanted {
		names = append(names, name)
	}
	for name := range present {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		compare("index "+name, wanted[name], present[name])
	}
	return diffs
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func keyText(key []types.KeySchemaElement, attributes []types.AttributeDefinition) string {
	var parts []string
	for _, k := range key {
		name := aws.ToString(k.AttributeName)
		kind := ""
		for _, a := range attributes {
			if aws.ToString(a.AttributeName) == name {
				kind = string(a.AttributeType)
			}
		}
		parts = append(parts, fmt.Sprintf("%s %s (%s)", k.KeyType, name, kind))
	}
	slices.Sort(parts) // HASH before RANGE
	return strings.Join(parts, " and ")
}

func streamText(s *types.StreamSpecification) string {
	if s == nil || !aws.ToBool(s.StreamEnabled) {
		return ""
	}
	return string(s.StreamViewType)
}

func indexText(key []types.KeySchemaElement, attributes []types.AttributeDefinition, p *types.Projection) string {
	text := keyText(key, attributes)
	if p == nil {
		return text + ", " + projectionKeys
	}
	nonKey := slices.Sorted(slices.Values(p.NonKeyAttributes))
	return strings.TrimSpace(text + ", " + string(p.ProjectionType) + " " + strings.Join(nonKey, " "))
}

func awaitActive(ctx context.Context, client *dynamodb.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, activeTimeout)
	defer cancel()
	for pause := activePollMin; ; pause = min(2*pause, activePollMax) {
		out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
		// Right after CreateTable, DescribeTable may still not see the table:
		// it is eventually consistent (DescribeTable in the API reference).
		if _, unseen := errors.AsType[*types.ResourceNotFoundException](err); err != nil && !unseen {
			return fmt.Errorf("waiting for table %s: %w", name, err)
		}
		if err == nil && active(out.Table) {
			return nil
		}
		if err := smithytime.SleepWithContext(ctx, pause); err != nil {
			return fmt.Errorf("waiting for table %s to become ACTIVE: %w", name, err)
		}
	}
}

// active tells whether the table and its indexes are ready. An engine that
// reports no status has no delay to report.
func active(t *types.TableDescription) bool {
	ready := t.TableStatus == "" || t.TableStatus == types.TableStatusActive
	for _, i := range t.GlobalSecondaryIndexes {
		ready = ready && (i.IndexStatus == "" || i.IndexStatus == types.IndexStatusActive)
	}
	return ready
}

func ensureTimeToLive(ctx context.Context, client *dynamodb.Client, t *template.Table) error {
	if t.TTLAttribute == "" {
		return nil
	}
	out, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &t.Name})
	if unsupported(err) {
		// Deletion by time to live is a matter of days even in AWS, readers
		// filter expired items themselves: an engine without it will do.
		return nil
	}
	if err != nil {
		return fmt.Errorf("describing time to live of table %s: %w", t.Name, err)
	}
	if is := out.TimeToLiveDescription; is != nil {
		switch is.TimeToLiveStatus {
		case types.TimeToLiveStatusEnabled, types.TimeToLiveStatusEnabling:
			if got := aws.ToString(is.AttributeName); got != t.TTLAttribute {
				return fmt.Errorf("table %s (line %d of the template) has its time to live on attribute %q, the template on %q: "+
					"switch it off on the table, or delete the table or the data directory", t.Name, t.Line, got, t.TTLAttribute)
			}
			return nil
		}
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &t.Name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &t.TTLAttribute, Enabled: aws.Bool(true)},
	})
	if err != nil && !unsupported(err) {
		return fmt.Errorf("enabling time to live of table %s: %w", t.Name, err)
	}
	return nil
}

// unsupported tells whether the engine does not know the operation at all.
func unsupported(err error) bool {
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "UnknownOperationException" {
		return true
	}
	resp, ok := errors.AsType[*smithyhttp.ResponseError](err)
	return ok && resp.HTTPStatusCode() == http.StatusNotImplemented
}
