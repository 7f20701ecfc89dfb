package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"
)

const (
	// MaxDevices is how many devices of one user are connected at once.
	MaxDevices = 16

	// maxConnectionAge is when a connection is certainly over: API Gateway ends
	// each after 2 hours, and $disconnect is best effort.
	maxConnectionAge = 2*time.Hour + 10*time.Minute

	maxBatchGet = 100 // DynamoDB's limit of keys in one BatchGetItem
)

// Connection is one socket of a user.
type Connection struct {
	ID          string // API Gateway's connectionId
	DeviceID    string
	ConnectedAt int64 // ms
	ExpiresAt   int64 // ms: when the token with which it was opened does; 0 if that is not known
}

// element is the connection as a member of the user's string set. Being all that
// is known of the connection, it can be removed without a read.
func (c Connection) element() string {
	e := c.ID + "|" + c.DeviceID + "|" + strconv.FormatInt(c.ConnectedAt, 10)
	if c.ExpiresAt != 0 {
		e += "|" + strconv.FormatInt(c.ExpiresAt, 10)
	}
	return e
}

// elements are the forms in which the connection may be registered: as it is, and
// as versions that did not note the expiry wrote it. The set has one of them.
func (c Connection) elements() []string {
	if c.ExpiresAt == 0 {
		return []string{c.element()}
	}
	old := c
	old.ExpiresAt = 0
	return []string{c.element(), old.element()}
}

func (c Connection) supersededBy(other Connection) bool {
	return other.DeviceID == c.DeviceID && other.ConnectedAt > c.ConnectedAt
}

func parseConnection(element string) (c Connection, ok bool) {
	parts := strings.Split(element, "|")
	if len(parts) != 3 && len(parts) != 4 {
		return Connection{}, false
	}
	c = Connection{ID: parts[0], DeviceID: parts[1]}
	var err error
	if c.ConnectedAt, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return Connection{}, false
	}
	if len(parts) == 4 {
		c.ExpiresAt, err = strconv.ParseInt(parts[3], 10, 64)
	}
	return c, err == nil
}

type connectionsItem struct {
	UserID string   `json:"userId"`
	Conns  []string `json:"conns"`
}

// Displaced are the connections that a new one ends.
type Displaced struct {
	Replaced []Connection // of the same device
	Surplus  []Connection // the oldest ones beyond MaxDevices
}

// ErrSuperseded says that a newer connection of the same device is registered
// already: this handshake was held up, and its device has come by another since.
var ErrSuperseded = errors.New("a newer connection of this device is there")

// Connect registers a connection and takes out those it displaces, which the
// caller closes. Of two connections of one device the newer one stays, in
// whatever order they are registered: the caller must not let a handshake through
// for which it gives ErrSuperseded.
func (s *Store) Connect(ctx context.Context, userID string, c Connection) (Displaced, error) {
	out, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:        &s.tables.Connections,
		Key:              item{"userId": str(userID)},
		UpdateExpression: aws.String("ADD conns :c SET expiresAt = :e"),
		ExpressionAttributeValues: item{
			":c": set(c.element()),
			":e": num(s.now().Add(maxConnectionAge).Unix()),
		},
		ReturnValues: types.ReturnValueAllNew,
	})
	if err != nil {
		return Displaced{}, fmt.Errorf("registering a connection of %s: %w", userID, err)
	}
	all, err := s.parseConnections(out.Attributes)
	if err != nil {
		return Displaced{}, err
	}
	if slices.ContainsFunc(all.live, c.supersededBy) {
		return Displaced{}, errors.Join(ErrSuperseded, s.Disconnect(ctx, userID, c))
	}
	displaced, aged := displace(all.live, c), all.aged
	gone := slices.Concat(displaced.Replaced, displaced.Surplus, aged)
	if len(gone) == 0 {
		return displaced, nil
	}
	return displaced, s.Disconnect(ctx, userID, gone...)
}

// ErrTooManyDevices says that a connection that is not registered any more would
// have to displace a newer one.
var ErrTooManyDevices = errors.New("the user has connected as many other devices as there may be")

// Attend makes sure that a connection is registered which its device believes to
// be open: a push that was wrongly told that it is gone, or a $disconnect that was
// late, may have taken it out. It errs with ErrSuperseded or ErrTooManyDevices
// where it has to end. It costs half a read unit, and a write where it is missing.
func (s *Store) Attend(ctx context.Context, userID string, c Connection) error {
	out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.tables.Connections, Key: item{"userId": str(userID)}})
	if err != nil {
		return fmt.Errorf("looking up a connection of %s: %w", userID, err)
	}
	all, err := s.parseConnections(out.Item)
	if err != nil {
		return err
	}
	others := 0
	for _, other := range all.live {
		switch {
		case other.ID == c.ID:
			return nil
		case other.DeviceID != c.DeviceID:
			others++
		}
	}
	if others >= MaxDevices {
		return ErrTooManyDevices
	}
	_, err = s.Connect(ctx, userID, c)
	return err
}

func displace(live []Connection, c Connection) Displaced {
	var d Displaced
	var kept []Connection
	for _, other := range live {
		switch {
		case other.ID == c.ID:
		case other.DeviceID == c.DeviceID:
			d.Replaced = append(d.Replaced, other)
		default:
			kept = append(kept, other)
		}
	}
	if surplus := len(kept) + 1 - MaxDevices; surplus > 0 {
		slices.SortFunc(kept, func(a, b Connection) int {
			return cmp.Or(cmp.Compare(a.ConnectedAt, b.ConnectedAt), cmp.Compare(a.ID, b.ID))
		})
		d.Surplus = kept[:surplus]
	}
	return d
}

// Disconnect forgets exactly these connections of a user.
func (s *Store) Disconnect(ctx context.Context, userID string, conns ...Connection) error {
	var elements []string
	for _, c := range conns {
		elements = append(elements, c.elements()...)
	}
	_, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &s.tables.Connections,
		Key:                       item{"userId": str(userID)},
		UpdateExpression:          aws.String("DELETE conns :c"),
		ConditionExpression:       aws.String("attribute_exists(userId)"), // do not make an empty item
		ExpressionAttributeValues: item{":c": set(elements...)},
	})
	if err != nil && !conditionFailed(err) { // else the user has no item
		return fmt.Errorf("forgetting %d connections of %s: %w", len(conns), userID, err)
	}
	return nil
}

// Connections gives the live connections of users, strongly consistent. Users
// without one are absent from the map, and those whose item is damaged.
func (s *Store) Connections(ctx context.Context, userIDs []string) (map[string][]Connection, error) {
	keys := make([]item, len(userIDs))
	for i, id := range userIDs {
		keys[i] = item{"userId": str(id)}
	}
	items, err := s.batchGet(ctx, s.tables.Connections, keys, true)
	if err != nil {
		return nil, fmt.Errorf("looking up connections of %d users: %w", len(userIDs), err)
	}
	found := make(map[string][]Connection, len(items))
	for _, in := range items {
		all, err := s.parseConnections(in)
		if err != nil {
			s.damaged(ctx, s.tables.Connections, in, err)
			continue
		}
		if len(all.live) > 0 {
			found[all.userID] = all.live
		}
	}
	return found, nil
}

type userConnections struct {
	userID     string
	live, aged []Connection
}

func (s *Store) parseConnections(in item) (userConnections, error) {
	var ci connectionsItem
	if err := unmarshal(in, &ci); err != nil {
		return userConnections{}, err
	}
	all := userConnections{userID: ci.UserID}
	oldest := s.now().Add(-maxConnectionAge).UnixMilli()
	for _, element := range ci.Conns {
		c, ok := parseConnection(element)
		switch {
		case !ok: // nothing of ours; a user's devices must not suffer for it
		case c.ConnectedAt < oldest:
			all.aged = append(all.aged, c)
		default:
			all.live = append(all.live, c)
		}
	}
	return all, nil
}

// batchGetsAtOnce is how many requests of one batchGet are under way at a time.
const batchGetsAtOnce = 8

// batchGet reads items by key in as few requests as DynamoDB takes, side by side,
// and asks again for keys it left unprocessed. The items come in no order; with
// attributes, they have no others.
func (s *Store) batchGet(ctx context.Context, table string, keys []item, consistent bool, attributes ...string) ([]item, error) {
	chunks := slices.Collect(slices.Chunk(keys, maxBatchGet))
	found := make([][]item, len(chunks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(batchGetsAtOnce)
	for i, chunk := range chunks {
		g.Go(func() (err error) {
			found[i], err = s.batchGetChunk(ctx, table, chunk, consistent, attributes)
			return err
		})
	}
	err := g.Wait()
	return slices.Concat(found...), err
}

func (s *Store) batchGetChunk(ctx context.Context, table string, keys []item, consistent bool, attributes []string) (found []item, err error) {
	projection, names := project(attributes)
	for attempt := 1; len(keys) > 0; attempt++ {
		out, err := s.db.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{
				table: {
					Keys: keys, ConsistentRead: aws.Bool(consistent),
					ProjectionExpression: projection, ExpressionAttributeNames: names,
				},
			},
		})
		if err != nil {
			return nil, err
		}
		found = append(found, out.Responses[table]...)
		keys = out.UnprocessedKeys[table].Keys
		if len(keys) > 0 && s.pace.waitRead(ctx, attempt, true) != nil {
			return nil, errUnfinished
		}
	}
	return found, nil
}

// project gives a projection on attributes, none for all. Their names stand apart,
// since many are words of DynamoDB's own.
func project(attributes []string) (expression *string, names map[string]string) {
	if len(attributes) == 0 {
		return nil, nil
	}
	names = make(map[string]string, len(attributes))
	for _, a := range attributes {
		names["#"+a] = a
	}
	return aws.String("#" + strings.Join(attributes, ", #")), names
}
