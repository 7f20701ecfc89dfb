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

	"github.com/inorder-im/inorder/shared/store/internal/table"
)

const (
	// MaxDevices is how many devices of one user are connected at once.
	MaxDevices = 16

	// maxConnectionAge is when a connection is certainly over: API Gateway ends
	// each after 2 hours, and $disconnect is best effort.
	maxConnectionAge = 2*time.Hour + 10*time.Minute
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
// for which it returns ErrSuperseded.
func (s *Store) Connect(ctx context.Context, userID string, c Connection) (Displaced, error) {
	out, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:        &s.db.Connections,
		Key:              table.Item{"userId": table.Str(userID)},
		UpdateExpression: aws.String("ADD conns :c SET expiresAt = :e"),
		ExpressionAttributeValues: table.Item{
			":c": table.Set(c.element()),
			":e": table.Num(s.db.Now().Add(maxConnectionAge).Unix()),
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
	out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.db.Connections, Key: table.Item{"userId": table.Str(userID)}})
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
		TableName:                 &s.db.Connections,
		Key:                       table.Item{"userId": table.Str(userID)},
		UpdateExpression:          aws.String("DELETE conns :c"),
		ConditionExpression:       aws.String("attribute_exists(userId)"), // do not make an empty item
		ExpressionAttributeValues: table.Item{":c": table.Set(elements...)},
	})
	if err != nil && !table.ConditionFailed(err) { // else the user has no item
		return fmt.Errorf("forgetting %d connections of %s: %w", len(conns), userID, err)
	}
	return nil
}

// UnreadError says whose connections could not be read, where those of others could.
type UnreadError struct {
	UserIDs []string
	Err     error // why
}

func (e *UnreadError) Error() string {
	return fmt.Sprintf("looking up connections of %d users: %v", len(e.UserIDs), e.Err)
}

func (e *UnreadError) Unwrap() error { return e.Err }

// Connections returns the live connections of users, strongly consistent. Users
// without one are absent from the map, and those whose item is damaged. Beside an
// *UnreadError, which is the only one, it has those that could be read: one partition
// that is throttled hides no others.
func (s *Store) Connections(ctx context.Context, userIDs []string) (map[string][]Connection, error) {
	keys := make([]table.Item, len(userIDs))
	for i, id := range userIDs {
		keys[i] = table.Item{"userId": table.Str(id)}
	}
	items, unread, err := s.db.BatchGetPart(ctx, s.db.Connections, keys, true)
	if err != nil {
		part := &UnreadError{Err: err}
		for _, key := range unread {
			if id, ok := key["userId"].(*types.AttributeValueMemberS); ok {
				part.UserIDs = append(part.UserIDs, id.Value)
			}
		}
		err = part
	}
	found := make(map[string][]Connection, len(items))
	for _, in := range items {
		all, err := s.parseConnections(in)
		if err != nil {
			s.db.Damaged(ctx, s.db.Connections, in, err)
			continue
		}
		if len(all.live) > 0 {
			found[all.userID] = all.live
		}
	}
	return found, err
}

type userConnections struct {
	userID     string
	live, aged []Connection
}

func (s *Store) parseConnections(in table.Item) (userConnections, error) {
	var ci table.Connections
	if err := table.Unmarshal(in, &ci); err != nil {
		return userConnections{}, err
	}
	all := userConnections{userID: ci.UserID}
	oldest := s.db.Now().Add(-maxConnectionAge).UnixMilli()
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
