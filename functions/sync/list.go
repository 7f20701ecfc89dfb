package main

import (
	"fmt"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// roomIn is how many bytes the elements of a result may take, commas included,
// given the result without them and with its longest numbers.
func roomIn(c route.Caller, result any) (int, error) {
	encoded, err := wire.Encode(result)
	if err != nil {
		return 0, fmt.Errorf("measuring a result: %w", err)
	}
	return c.Room - len(encoded), nil
}

// fitting counts how many conversations from the first on fit into room.
func fitting(list []wire.Conversation, room int) (int, error) {
	for i, c := range list {
		encoded, err := wire.Encode(c)
		if err != nil {
			return 0, fmt.Errorf("encoding conversation %s: %w", c.ConversationID, err)
		}
		if room -= len(encoded) + len(","); room < 0 {
			return i, nil
		}
	}
	return len(list), nil
}

// fittingBeside is fitting for an answer to changes; it is negative for one that
// fits no frame by itself.
func fittingBeside(c route.Caller, answer wire.Changed, list []wire.Conversation) (int, error) {
	answer.SyncCursor = chat.MaxSeq
	room, err := roomIn(c, answer)
	if err != nil || room < 0 {
		return -1, err
	}
	return fitting(list, room)
}

// cut shortens a list to what fits, and returns the cursor with which the rest
// follows: the last conversation that stayed, or next if all did.
func cut(list []wire.Conversation, next string, room int) ([]wire.Conversation, string, error) {
	n, err := fitting(list, room)
	if err != nil {
		return nil, "", err
	}
	if n == len(list) {
		return list, next, nil
	}
	if n == 0 {
		return nil, "", fmt.Errorf("conversation %s alone does not fit a frame", list[0].ConversationID)
	}
	return list[:n], string(list[n-1].ConversationID), nil
}

// longestCursor is the longest that cut could return.
func longestCursor(list []wire.Conversation, next string) string {
	longest := next
	for _, c := range list {
		if len(c.ConversationID) > len(longest) {
			longest = string(c.ConversationID)
		}
	}
	return longest
}

func conversationsOf(lines []store.Line) []wire.Conversation {
	list := make([]wire.Conversation, len(lines))
	for i, l := range lines {
		list[i] = wire.Listed(l.View, l.Last)
	}
	return list
}

func headsOf(conversations []chat.Conversation) []wire.Head {
	heads := make([]wire.Head, len(conversations))
	for i, c := range conversations {
		heads[i] = wire.Head{ConversationID: c.ConversationID, CommittedMaxSeq: c.LastSeq}
	}
	return heads
}
