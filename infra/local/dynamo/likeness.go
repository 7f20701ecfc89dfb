package dynamo

import (
	"bytes"
	"crypto/md5" //nolint:gosec // a name, not a secret
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// Likeness makes what an engine says of its streams look as in AWS, for requests that
// it passes on: the region and the account are the stack's, a sequence number has 21
// digits and an event id 32 hexadecimal ones, and clients can read who deleted what has
// expired. dynoxide counts both from 1 for each table, so a program that takes them for
// integers, or for the same, would work here and fail there.
//
// Only names that are followed by a string are looked at, and one object that has such
// names: in an item each name is followed by an object, whose one name is a type's, so
// nothing of what a user wrote is touched.
type Likeness struct {
	Region, Account string
	// Base makes the requests; nil means [http.DefaultTransport].
	Base http.RoundTripper
}

const (
	engineARN    = "arn:aws:dynamodb:dynoxide:000000000000:"
	engineRegion = `"awsRegion":"dynoxide"`

	// Who deleted an expired item, in the engine's spelling, which is that of a Lambda
	// event, and in that of GetRecords (DynamoDB API reference, "Identity").
	engineIdentity = `"userIdentity":{"type":"Service","principalId":"dynamodb.amazonaws.com"}`
	awsIdentity    = `"userIdentity":{"PrincipalId":"dynamodb.amazonaws.com","Type":"Service"}`

	// sequenceDigits is a sequence number: more than an int64 holds.
	sequenceDigits = "4%020d"
	sequenceFirst  = "4"
	sequenceLength = 21
)

var (
	saidSequence  = regexp.MustCompile(`"((?:Starting|Ending)?SequenceNumber)":"(\d{1,19})"`)
	saidEvent     = regexp.MustCompile(`"eventID":"(\d+)"`)
	saidARN       = regexp.MustCompile(`"((?:LastEvaluated)?StreamArn)":"` + engineARN)
	askedSequence = regexp.MustCompile(`("SequenceNumber"\s*:\s*)"(\d+)"`)
	askedARN      = regexp.MustCompile(`("(?:ExclusiveStart)?StreamArn"\s*:\s*)"arn:[\w-]+:dynamodb:[\w-]*:\d*:`)
	askedIterator = regexp.MustCompile(`"ShardIterator"\s*:\s*"([^"]*)"`)
)

// RoundTrip passes a request on.
func (l Likeness) RoundTrip(r *http.Request) (*http.Response, error) {
	base := l.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if !strings.HasPrefix(r.Header.Get("X-Amz-Target"), "DynamoDBStreams") || r.Body == nil {
		return base.RoundTrip(r)
	}
	asked, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	r = r.Clone(r.Context())
	toEngine := forEngine(asked)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(toEngine)), int64(len(toEngine))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(toEngine)), nil }
	response, err := base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	said, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	said = l.like(said, tableOf(asked))
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(said)), int64(len(said))
	response.Header.Set("Content-Length", strconv.Itoa(len(said)))
	response.Header.Del("X-Amz-Crc32") // of what the engine said
	return response, nil
}

// forEngine makes the engine's own names of those in a request.
func forEngine(asked []byte) []byte {
	asked = askedARN.ReplaceAll(asked, []byte(`${1}"`+engineARN))
	return askedSequence.ReplaceAllFunc(asked, func(match []byte) []byte {
		parts := askedSequence.FindSubmatch(match)
		number := string(parts[2])
		if len(number) == sequenceLength {
			number = strings.TrimLeft(strings.TrimPrefix(number, sequenceFirst), "0")
		}
		return fmt.Appendf(nil, `%s"%s"`, parts[1], number)
	})
}

// like changes an answer, which is about a table if that is known.
func (l Likeness) like(said []byte, table string) []byte {
	said = saidARN.ReplaceAll(said, fmt.Appendf(nil, `"${1}":"arn:aws:dynamodb:%s:%s:`, l.Region, l.Account))
	said = bytes.ReplaceAll(said, []byte(engineRegion), fmt.Appendf(nil, `"awsRegion":"%s"`, l.Region))
	said = bytes.ReplaceAll(said, []byte(engineIdentity), []byte(awsIdentity))
	said = saidEvent.ReplaceAllFunc(said, func(match []byte) []byte {
		id := md5.Sum(append([]byte(table+"\x00"), match...)) //nolint:gosec // see above
		return fmt.Appendf(nil, `"eventID":"%s"`, hex.EncodeToString(id[:]))
	})
	return saidSequence.ReplaceAllFunc(said, func(match []byte) []byte {
		parts := saidSequence.FindSubmatch(match)
		number, err := strconv.ParseInt(string(parts[2]), 10, 64)
		if err != nil {
			return match
		}
		return fmt.Appendf(nil, `"%s":"`+sequenceDigits+`"`, parts[1], number)
	})
}

// tableOf is the table whose records are asked for: dynoxide's iterators name it.
func tableOf(asked []byte) string {
	parts := askedIterator.FindSubmatch(asked)
	if parts == nil {
		return ""
	}
	var iterator struct {
		Table string `json:"table_name"`
	}
	data, err := base64.StdEncoding.DecodeString(string(parts[1]))
	if err == nil {
		_ = json.Unmarshal(data, &iterator) // without a name the ids are those of any table
	}
	return iterator.Table
}
