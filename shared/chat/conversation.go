package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// State says whether a conversation takes messages.
type State string

// The states of a conversation.
const (
	StateActive    State = "active"
	StateDissolved State = "dissolved"
)

// Visibility says from where on a new member of a group may read.
type Visibility string

// The visibilities.
const (
	VisibleAll       Visibility = "all"       // from the first message
	VisibleSinceJoin Visibility = "sinceJoin" // from the message that tells of the joining
)

// Role is what a member of a group may do.
type Role string

// The roles.
const (
	RoleOwner Role = "owner"
	RoleAdmin Role = "admin"
	RolePlain Role = "member"
)

// Conversation is the head of a ledger: the one item whose conditional change
// hands out the next seq.
type Conversation struct {
	ConversationID ConversationID `json:"conversationId"`
	Kind           Kind           `json:"kind"`
	LastSeq        int64          `json:"lastSeq"`
	MembersVersion int64          `json:"membersVersion"` // one more with each change of the roster
	MemberCount    int            `json:"memberCount"`
	RosterHash     uint64         `json:"rosterHash,omitempty"`    // of the roster at HashedVersion, see Hashed
	HashedVersion  int64          `json:"hashedVersion,omitempty"` // MembersVersion, unless what changed the roster knew of no hash
	Kept           int64          `json:"kept,omitempty"`          // of the changes that MembersVersion counts, those that removed nobody; see Removals
	State          State          `json:"state"`
	Title          string         `json:"title,omitempty"`
	Owner          string         `json:"owner,omitempty"`
	Visibility     Visibility     `json:"visibility,omitempty"`
	CreatedAt      int64          `json:"createdAt"` // ms
	UpdatedAt      int64          `json:"updatedAt"` // ms
	Runs           Runs           `json:"runs,omitempty"`
	PushAt         int64          `json:"pushAt,omitempty"`    // ms; of a crowd: when it is told of new messages, see NextPush
	RemovedAt      int64          `json:"removedAt,omitempty"` // ms; when the last message came that tells of someone who went

	// LargestEntry is about how many bytes the largest entry ever takes, 0 if that
	// is not known.
	LargestEntry int `json:"largestEntry,omitempty"`

	// LaneUntil is until when, in ms, messages are written for one another: so many
	// come at a time. Who writes one alone leaves it as it is.
	LaneUntil int64 `json:"laneUntil,omitempty"`

	// LaneBatch is how many may be written at a time, 0 as many as ever, since the
	// database put off more.
	LaneBatch int `json:"laneBatch,omitempty"`

	// FullAt is when the bucket of what the conversation takes will be full again, in
	// µs; 0 if nothing was ever counted.
	FullAt int64 `json:"fullAt,omitempty"`

	// Skipped are the seqs that an operator's repairs left out of the ledger,
	// ascending. They are few, and may take in some that were written.
	Skipped []Range `json:"skipped,omitempty"`
}

// Between counts the seqs after one and up to another that no repair skipped; 0 if
// there are none.
func (c Conversation) Between(after, through int64) int64 {
	count := max(0, through-after)
	for _, r := range c.Skipped {
		if from, to := max(r.From, after+1), min(r.To, through); from <= to {
			count -= to - from + 1
			after = to // two of them may overlap
		}
	}
	return count
}

// Removals goes up with each change of the roster that may have removed someone,
// and only then: who was a member is one while it stays the same.
//
// It is what is left of MembersVersion without the changes that are known to have
// removed nobody, not a count of its own. So a change by what knows nothing of it,
// such as an older version of a function during a deployment, is on the safe side.
func (c Conversation) Removals() int64 { return c.MembersVersion - c.Kept }

// WithRoster returns the head after a change of the roster: users who joined, who
// left, or, with neither, whose roles changed.
func (c Conversation) WithRoster(joined, left []Member) Conversation {
	hashed := c.Hashed()
	c.MembersVersion++
	if len(left) == 0 {
		c.Kept++
	}
	c.MemberCount += len(joined) - len(left)
	if hashed { // else nothing is known of those who were there before
		c.RosterHash += RosterHash(joined) - RosterHash(left)
		c.HashedVersion = c.MembersVersion
	}
	return c
}

// Hashed reports whether RosterHash is that of the roster as it is. It is not in a
// head from before there was a hash, nor after a change by an older version of the
// product, which knows of none.
func (c Conversation) Hashed() bool {
	return c.HashedVersion != 0 && c.HashedVersion == c.MembersVersion
}

// IsRoster reports whether these are the members at the head's MembersVersion. A
// head that is not Hashed can only count them: a roster in which one member stands
// for another passes there.
func (c Conversation) IsRoster(members []Member) bool {
	return len(members) == c.MemberCount && (!c.Hashed() || c.RosterHash == RosterHash(members))
}

// Member is one user in a conversation's roster.
type Member struct {
	ConversationID ConversationID `json:"conversationId"`
	UserID         string         `json:"userId"`
	Role           Role           `json:"role"`
	JoinSeq        int64          `json:"joinSeq"`   // the first seq the member may read
	JoinedSeq      int64          `json:"joinedSeq"` // the seq of the message that made it a member
	JoinedAt       int64          `json:"joinedAt"`  // ms
}

// RosterHash tells rosters apart, in whatever order their members come: it is the
// sum, modulo 2^64, of the first 8 bytes of SHA-256 over each one's user id and
// JoinedSeq, so that one who left and came back is another member than before. The
// hash of a changed roster is that of the former one with those who joined added
// and those who left taken away.
func RosterHash(members []Member) uint64 {
	hash := uint64(0)
	for _, m := range members {
		sum := sha256.Sum256([]byte(LengthPrefixed(m.UserID, strconv.FormatInt(m.JoinedSeq, 10))))
		hash += binary.BigEndian.Uint64(sum[:])
	}
	return hash
}

// Limits on groups.
const (
	MaxTitleRunes = 100

	// MaxRosterChange is how many members one request adds or removes. Each takes
	// two items (roster and inbox) beside the head, the message, the idempotency
	// record and a new owner, or a new group's count, of a transaction's 100.
	MaxRosterChange = 48

	// MaxGroupMembers is how large a group may grow by its users; see MaxCrowdMembers.
	MaxGroupMembers = 1000

	// InboxGroupMax is the largest conversation whose messages are noted in its
	// members' sync heads. In larger ones a write per member and message costs
	// more than reading the head when a device asks.
	InboxGroupMax = 20

	// MaxPastStretches is how many earlier times of membership one who came back may
	// still read, the last ones. The user's line then stays below 1 KB, which is one
	// write unit, unless the names in it are very long.
	MaxPastStretches = 16
)

// ValidateTitle refuses what cannot be a conversation's title: it is 1 to 100
// characters without control characters, at least one of them visible and none a
// control of the text's direction.
func ValidateTitle(field, title string) error {
	switch n := utf8.RuneCountInString(title); {
	case strings.TrimSpace(title) == "":
		return FieldErrorf(CodeBadRequest, field, "a title is missing")
	case n > MaxTitleRunes:
		return FieldErrorf(CodeTooLarge, field, "a title has at most %d characters, this has %d", MaxTitleRunes, n)
	case hasControl(title):
		return FieldErrorf(CodeBadRequest, field, "a title is UTF-8 without control characters")
	}
	return validateName(field, "a title", title)
}

// ValidateRole refuses what is no role.
func ValidateRole(field string, role Role) error {
	switch role {
	case RoleOwner, RoleAdmin, RolePlain:
		return nil
	}
	return FieldErrorf(CodeBadRequest, field, "%q is no role; use owner, admin or member", role)
}

// ValidateMembers refuses a list of users who are to come that is empty, too long,
// or names someone twice. Too long is Limit, with the largest number in the
// details.
func ValidateMembers(field string, userIDs []string) error {
	return validateUsers(field, userIDs, ValidateUserID)
}

// ValidateKnownMembers does the same for users who are there.
func ValidateKnownMembers(field string, userIDs []string) error {
	return validateUsers(field, userIDs, ValidateKnownUserID)
}

func validateUsers(field string, userIDs []string, validate func(field, id string) error) error {
	if len(userIDs) == 0 {
		return FieldErrorf(CodeBadRequest, field, "name at least one user")
	}
	if len(userIDs) > MaxRosterChange {
		return &Error{
			Code: CodeLimit, Field: field, Details: map[string]any{"max": MaxRosterChange},
			Message: fmt.Sprintf("one request takes at most %d users, this has %d; send the rest in further ones", MaxRosterChange, len(userIDs)),
		}
	}
	seen := make(map[string]bool, len(userIDs))
	for _, id := range userIDs {
		if err := validate(field, id); err != nil {
			return err
		}
		if seen[id] {
			return FieldErrorf(CodeBadRequest, field, "%q is named twice", id)
		}
		seen[id] = true
	}
	return nil
}

// Range is the seqs from From through To, both included. It is empty when To is
// smaller than From.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Has reports whether seq lies in the range.
func (r Range) Has(seq int64) bool { return r.From <= seq && seq <= r.To }
