package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/store"
)

func conn(id, device string, age time.Duration) store.Connection {
	return store.Connection{ID: id, DeviceID: device, ConnectedAt: time.Now().Add(-age).UnixMilli()}
}

func connected(t *testing.T, s *store.Store, user string) []string {
	t.Helper()
	found, err := s.Connections(t.Context(), []string{user})
	require.NoError(t, err)
	ids := []string{}
	for _, c := range found[user] {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestConnectionsComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	phone, tablet := conn("A=", "phone", 0), conn("B=", "tablet", 0)
	for _, x := range []store.Connection{phone, tablet} {
		displaced, err := s.Connect(t.Context(), "alice", x)
		require.NoError(t, err)
		require.Zero(t, displaced)
	}
	calls, n := w.Since(0)
	require.Equal(t, []string{"UpdateItem", "UpdateItem"}, calls)
	require.ElementsMatch(t, []string{"A=", "B="}, connected(t, s, "alice"))
	_, n = w.Since(n)
	require.NoError(t, s.Disconnect(t.Context(), "alice", phone))
	require.NoError(t, s.Disconnect(t.Context(), "alice", phone), "twice is the same")
	calls, _ = w.Since(2)
	require.Equal(t, []string{"BatchGetItem", "UpdateItem", "UpdateItem"}, calls)
	require.Equal(t, []string{"B="}, connected(t, s, "alice"))
	require.NoError(t, s.Disconnect(t.Context(), "alice", tablet))
	require.Empty(t, connected(t, s, "alice"))
	require.NoError(t, s.Disconnect(t.Context(), "nobody", tablet))
	require.Equal(t, 1, c.Count(c.Tables.Connections), "no item is made for nobody")
	_ = n
}

func TestANewConnectionReplacesTheDevicesOld(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	first, second := conn("A=", "phone", time.Minute), conn("B=", "phone", 0)
	_, err := s.Connect(t.Context(), "alice", first)
	require.NoError(t, err)
	displaced, err := s.Connect(t.Context(), "alice", second)
	require.NoError(t, err)
	require.Equal(t, store.Displaced{Replaced: []store.Connection{first}}, displaced)
	require.Equal(t, []string{"B="}, connected(t, s, "alice"))
	require.NoError(t, s.Disconnect(t.Context(), "alice", first), "the late $disconnect of the replaced one")
	require.Equal(t, []string{"B="}, connected(t, s, "alice"))
}

// A handshake that was cut may be registered after the one that came next; it
// must not throw the living one out.
func TestAHeldUpHandshakeDoesNotReplaceANewerConnection(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	live, ghost := conn("A=", "phone", 0), conn("B=", "phone", time.Second)
	_, err := s.Connect(t.Context(), "alice", live)
	require.NoError(t, err)
	displaced, err := s.Connect(t.Context(), "alice", ghost)
	require.ErrorIs(t, err, store.ErrSuperseded)
	require.Zero(t, displaced)
	require.Equal(t, []string{"A="}, connected(t, s, "alice"))
}

func TestOneDeviceConnectingTwentyTimesAtOnceKeepsOne(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	require.NoError(t, parallel(20, func(i int) error {
		_, err := s.Connect(t.Context(), "alice", conn(fmt.Sprint(i), "phone", time.Duration(i/4)*time.Second))
		if errors.Is(err, store.ErrSuperseded) {
			return nil
		}
		return err
	}))
	require.Len(t, connected(t, s, "alice"), 1)
}

func TestTheOldestOfTooManyDevicesGoes(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	for i := range store.MaxDevices {
		displaced, err := s.Connect(t.Context(), "alice", conn(fmt.Sprint("c", i), fmt.Sprint("d", i), time.Duration(i)*time.Minute))
		require.NoError(t, err)
		require.Zero(t, displaced)
	}
	displaced, err := s.Connect(t.Context(), "alice", conn("new", "new", 0))
	require.NoError(t, err)
	require.Len(t, displaced.Surplus, 1)
	require.Equal(t, fmt.Sprint("c", store.MaxDevices-1), displaced.Surplus[0].ID)
	require.Len(t, connected(t, s, "alice"), store.MaxDevices)
}

// $disconnect is best effort: what is older than a connection can be is gone.
func TestConnectionsAgeOut(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	_, err := s.Connect(t.Context(), "alice", conn("old", "phone", 3*time.Hour))
	require.NoError(t, err)
	require.Empty(t, connected(t, s, "alice"))
	displaced, err := s.Connect(t.Context(), "alice", conn("new", "tablet", 0))
	require.NoError(t, err)
	require.Zero(t, displaced, "it needs no closing")
	require.Equal(t, []string{"new"}, connected(t, s, "alice"))
}

// Versions before did not note when a token expires: what they registered is read,
// and forgotten, by one that knows.
func TestConnectionsThatWereRegisteredWithoutExpiry(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	before := conn("old", "phone", time.Minute)
	_, err := s.Connect(t.Context(), "alice", before)
	require.NoError(t, err)
	with := conn("new", "tablet", 0)
	with.ExpiresAt = with.ConnectedAt + 60_000
	_, err = s.Connect(t.Context(), "alice", with)
	require.NoError(t, err)
	found, err := s.Connections(t.Context(), []string{"alice"})
	require.NoError(t, err)
	require.ElementsMatch(t, []store.Connection{before, with}, found["alice"])

	before.ExpiresAt = 1795950300123 // as $disconnect knows it from the authorizer
	require.NoError(t, s.Disconnect(t.Context(), "alice", before))
	require.Equal(t, []string{"new"}, connected(t, s, "alice"))
	require.NoError(t, s.Disconnect(t.Context(), "alice", with))
	require.Empty(t, connected(t, s, "alice"))
}

func TestG10_AConnectionThatIsNoneHarmsNoOther(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	for _, element := range []string{"odd", "a|b|soon", "a|b|1|c"} {
		c.Update(c.Tables.Connections, map[string]any{"userId": "alice"}, "ADD conns :v", element)
	}
	_, err := s.Connect(t.Context(), "alice", conn("A=", "phone", 0))
	require.NoError(t, err)
	require.Equal(t, []string{"A="}, connected(t, s, "alice"))
}

func TestConnectionsOfManyUsersAreFewRequests(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	users := make([]string, 200)
	for i := range users {
		users[i] = fmt.Sprint("user", i)
		if i%2 == 0 {
			_, err := s.Connect(t.Context(), users[i], conn(fmt.Sprint(i), "phone", 0))
			require.NoError(t, err)
		}
	}
	_, n := w.Since(0)
	found, err := s.Connections(t.Context(), users)
	require.NoError(t, err)
	require.Len(t, found, 100)
	calls, _ := w.Since(n)
	require.Equal(t, []string{"BatchGetItem", "BatchGetItem"}, calls)
}

// A connection that was taken out though its socket lives is put back when its
// device asks for something, unless another has its place.
func TestG5_AttendPutsAConnectionBack(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	ctx := t.Context()
	at := time.Now().UnixMilli()
	conn := func(device string, ms int64) store.Connection {
		return store.Connection{ID: fmt.Sprint(device, ms), DeviceID: device, ConnectedAt: at + ms}
	}
	live := func() (ids []string) {
		found, err := s.Connections(ctx, []string{"bob"})
		require.NoError(t, err)
		for _, c := range found["bob"] {
			ids = append(ids, c.ID)
		}
		return ids
	}
	phone := conn("phone", 1)
	require.NoError(t, s.Attend(ctx, "bob", phone))
	require.Equal(t, []string{phone.ID}, live())
	_, n := w.Since(0)
	require.NoError(t, s.Attend(ctx, "bob", phone))
	calls, _ := w.Since(n)
	require.Equal(t, []string{"GetItem"}, calls, "one that is there costs one read")
	require.NoError(t, s.Disconnect(ctx, "bob", phone))
	require.NoError(t, s.Attend(ctx, "bob", phone))
	require.Equal(t, []string{phone.ID}, live())

	newer := conn("phone", 5)
	_, err := s.Connect(ctx, "bob", newer)
	require.NoError(t, err)
	require.ErrorIs(t, s.Attend(ctx, "bob", phone), store.ErrSuperseded)
	require.Equal(t, []string{newer.ID}, live())

	for i := range store.MaxDevices {
		_, err := s.Connect(ctx, "bob", conn(fmt.Sprint("d", i), 10))
		require.NoError(t, err)
	}
	require.ErrorIs(t, s.Attend(ctx, "bob", newer), store.ErrTooManyDevices, "the oldest had to go")
	require.Len(t, live(), store.MaxDevices)
}

// One user in a partition that is throttled hides no others, however many they are.
func TestG10_WhatCannotBeReadHidesNoOthersConnections(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	users := []string{"mallory"}
	for i := range 150 {
		users = append(users, fmt.Sprint("user", i))
	}
	for _, userID := range users {
		_, err := s.Connect(t.Context(), userID, conn(userID+"=", "phone", 0))
		require.NoError(t, err)
	}
	throttled := &wire{Edit: func(op string, request, answer []byte) []byte {
		if op != "BatchGetItem" || !bytes.Contains(request, []byte(`"mallory"`)) {
			return answer
		}
		var a map[string]map[string]any
		require.NoError(t, json.Unmarshal(answer, &a))
		items, _ := a["Responses"][c.Tables.Connections].([]any)
		a["Responses"][c.Tables.Connections] = slices.DeleteFunc(items, func(in any) bool {
			return in.(map[string]any)["userId"].(map[string]any)["S"] == "mallory"
		})
		a["UnprocessedKeys"] = map[string]any{c.Tables.Connections: map[string]any{"Keys": []any{map[string]any{"userId": map[string]string{"S": "mallory"}}}}}
		edited, err := json.Marshal(a)
		require.NoError(t, err)
		return edited
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	found, err := c.Store(throttled).Connections(ctx, users)
	var unread *store.UnreadError
	require.ErrorAs(t, err, &unread)
	require.Equal(t, []string{"mallory"}, unread.UserIDs)
	require.Len(t, found, 150)
}
