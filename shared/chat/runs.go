package chat

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// MaxRuns is how many runs of entries a head knows the writers of. Together they
// take some 100 bytes of it; above 1 KB every write of a head would cost twice.
const MaxRuns = 8

// Runs says who wrote the last entries of a ledger: after the seq of the last one,
// the runs of entries on end by one writer, the last run first. In
// "12 q83vEj:3 zHc0bA:2" one user wrote 10 to 12, and another 8 and 9; who wrote
// what is before is not known. Writers are short hashes of user ids.
type Runs string

// What stands for a writer that is no user. No hash looks like this, so nobody can
// choose an id that passes for the product.
const (
	bySystem  = "*"
	byUnknown = "?" // seqs without an entry, or written by a version that kept no runs
	byNobody  = "-" // entries that are news to nobody: the events of an erasure
)

// writerLength is how much of a hash is kept. Users whose hashes are the same by
// chance, one pair in 2^36, count each other's entries as their own.
const writerLength = 6

// writerOf returns what stands for the writer of a message.
func (m Message) writerOf() string {
	if m.Is(EventErase) {
		return byNobody
	}
	return writerOf(m.SenderID)
}

func writerOf(senderID string) string {
	if senderID == SystemSender {
		return bySystem
	}
	sum := sha256.Sum256([]byte(senderID))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:writerLength]
}

// run is one writer's entries on end.
type run struct {
	writer string
	Range
}

// list returns the runs, the last one first. Of a text that cannot be read it returns
// as much as can.
func (r Runs) list() []run {
	end, rest, _ := strings.Cut(string(r), " ")
	to, err := strconv.ParseInt(end, 10, 64)
	if err != nil {
		return nil
	}
	var runs []run
	for _, field := range strings.Fields(rest) {
		writer, length, _ := strings.Cut(field, ":")
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil || n < 1 || n > to {
			break
		}
		runs = append(runs, run{writer, Range{From: to - n + 1, To: to}})
		to -= n
	}
	return runs
}

// With returns the runs with one more entry. Who wrote the seqs that were left out
// since the last one is not known.
func (r Runs) With(m Message) Runs {
	seq, runs := m.Seq, r.list()
	if len(runs) > 0 && runs[0].To >= seq {
		runs = nil // of another ledger than this entry
	}
	if len(runs) > 0 && runs[0].To < seq-1 {
		runs = slices.Insert(runs, 0, run{byUnknown, Range{From: runs[0].To + 1, To: seq - 1}})
	}
	if writer := m.writerOf(); len(runs) > 0 && runs[0].writer == writer {
		runs[0].To = seq
	} else {
		runs = slices.Insert(runs, 0, run{writer, Range{From: seq, To: seq}})
	}
	var text strings.Builder
	text.WriteString(strconv.FormatInt(seq, 10))
	for _, one := range runs[:min(len(runs), MaxRuns)] {
		text.WriteString(" " + one.writer + ":" + strconv.FormatInt(one.To-one.From+1, 10))
	}
	return Runs(text.String())
}

// Written counts the seqs above after, up to through, that are known to be the
// user's, or news to nobody.
func (r Runs) Written(userID string, after, through int64) int64 {
	writer, n := writerOf(userID), int64(0)
	for _, one := range r.list() {
		if one.writer == writer || one.writer == byNobody {
			n += max(0, min(one.To, through)-max(one.From-1, after))
		}
	}
	return n
}

// Concern reports whether the user wrote any of the seqs above after, up to through,
// or may have: who wrote some of them is not known.
func (r Runs) Concern(userID string, after, through int64) bool {
	writer, runs := writerOf(userID), r.list()
	for _, one := range runs {
		if (one.writer == writer || one.writer == byUnknown) && one.From <= through && one.To > after {
			return true
		}
	}
	return len(runs) == 0 || runs[len(runs)-1].From > after+1 || runs[0].To < through
}

// Unread counts the seqs above after, up to through, that the user has not written
// and no repair skipped. Where the head does not say who wrote, a seq counts.
func (c Conversation) Unread(userID string, after, through int64) int64 {
	return max(0, c.Between(after, through)-c.Runs.Written(userID, after, through))
}

// Answered reports whether two have written to the conversation, or the product,
// which introduces those whom it brings together. It is true where the head does
// not say who wrote first: the runs of two are cut only if both have written.
//
// In a single conversation that is not answered, nobody hears how far the other has
// received and read. A stranger's one message would else tell when someone is
// online.
func (c Conversation) Answered() bool {
	runs := c.Runs.list()
	if len(runs) == 0 || runs[len(runs)-1].From > 1 {
		return true
	}
	first := runs[len(runs)-1].writer
	return slices.ContainsFunc(runs, func(one run) bool {
		return one.writer == bySystem || one.writer != first && one.writer != byUnknown && one.writer != byNobody
	})
}
